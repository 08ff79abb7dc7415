"""Random histories, a brute-force judge, and what is compared with it.

`judge` is the reference: one message at a time, dicts and sets, no optimization. `truth` and
`script` generate histories from a `tape` of random bytes; `online` plays one through the consumer's
judgement and `offline` writes its logs for the reconciliation. `python -m tests.oracle` tries any
number of them.
"""
