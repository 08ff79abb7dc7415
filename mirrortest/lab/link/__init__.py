"""A link of the lab: a relay between the mirror and a cluster that simulates a bad network."""
