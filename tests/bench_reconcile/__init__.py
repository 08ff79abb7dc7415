"""`make bench-reconcile`: mirrortest against naive Spark, DuckDB and Polars."""
