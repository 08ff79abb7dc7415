"""What this machine provides: Java, a cache, memory and time."""
