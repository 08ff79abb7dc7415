"""The names and numbers of a run that all other packages share."""
