"""Records that are almost right: what reads them raises nothing, and nothing else changes.

Each mutant is a real record with a few changes: to its values, so that it stays JSON and keeps its
digest, or to its bytes. `python -m tests.mutants` reads a million of them.
"""
