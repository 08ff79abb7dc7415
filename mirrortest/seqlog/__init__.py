"""Sequence logs: the rows that each process writes, durable before anything relies on them.

`writer.SequenceLog` writes rows, which `rows` constructs. `files` finds and reads logs.
`session_directory.salvage` finishes the log files that a killed process left in a spool.
"""
