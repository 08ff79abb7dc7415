"""A reconciliation's result: what a terminal, a JUnit file and an HTML page say of it."""

REPORT_FILE = "report.html"
