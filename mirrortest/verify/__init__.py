"""The judgement: names, sets of numbers, rows, partitions, the ledger, and the verdict."""
