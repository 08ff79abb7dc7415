"""What this machine has: a Java runtime, a place for downloads."""
