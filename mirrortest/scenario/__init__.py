"""A whole test from one file: clusters, clients, faults, verdict, at each point of a matrix."""
