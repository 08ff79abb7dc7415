"""Records that are almost valid: their readers must not raise, or change anything else.

Each mutant is a real record with a few changes: to its values, so that it stays JSON and has the
right digest, or to its bytes. `python -m tests.mutants` reads a million of them.
"""
