"""A link of the lab: a relay between the mirror and a cluster, as bad as a network can be."""
