"""When to send, how late it came, and whether the clocks can be trusted: pure arithmetic."""
