"""The judgement: rows, partitions, the ledger, losses, compaction, and the verdict."""
