"""What the applications say: summaries and tables."""
