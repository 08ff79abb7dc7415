"""A reconciliation's result on a terminal, as JUnit XML and as an HTML page."""

REPORT_FILE = "report.html"
