"""A mirror that injects the faults of a specification, and records each of them."""
