"""What commands report: a verdict, a versioned summary, tables for a terminal."""
