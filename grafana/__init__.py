"""Dashboards and alerts as code: ``python -m grafana`` writes what lies beside it."""
