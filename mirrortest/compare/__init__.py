"""Compares runs: what got worse, what better, and what cannot be told."""
