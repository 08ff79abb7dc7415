"""Several processes of one command: one progress view, one metrics endpoint, one verdict."""
