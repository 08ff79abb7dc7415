"""Sequence logs: what each side wrote down, row by row, durable before anything relies on it.

`writer.SequenceLog` writes (with the constructors of `rows`), `files` finds and reads,
`session_directory.salvage` finishes what a killed process left in a spool.
"""
