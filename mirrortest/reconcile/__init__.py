"""The exact verdict from the sequence logs of both sides, on Spark: an application."""
