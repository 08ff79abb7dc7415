"""What Prometheus is told: one table of names, one collector, one endpoint."""
