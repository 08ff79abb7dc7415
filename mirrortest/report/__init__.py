"""What the applications say: summaries and tables."""

REPORT_FILE = "report.html"
