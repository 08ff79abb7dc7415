"""Synthetic sequence logs of both sides, with seeded anomalies and their truth: an application."""
