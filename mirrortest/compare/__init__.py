"""Compares runs: what got worse, what got better, and what is inconclusive."""
