"""`make bench-reconcile`: our reconciliation beside naive Spark, DuckDB and Polars."""
