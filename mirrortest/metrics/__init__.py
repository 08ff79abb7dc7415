"""Metrics for Prometheus: one table of names, one collector, one endpoint."""
