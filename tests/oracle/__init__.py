"""Random histories, the judgement by brute force, and what is held against it.

`judge` is the reference: one message at a time, dicts and sets, no cleverness. `truth` and `script`
make histories from a `tape` of random bytes; `online` plays one through the consumer's judgement
and `offline` writes its logs for the reconciliation. `python -m tests.oracle` tries as many as you
like.
"""
