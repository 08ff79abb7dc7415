"""When to send, how late messages arrived, and whether clocks can be trusted: pure arithmetic."""
