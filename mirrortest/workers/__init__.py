"""Several processes behind one command: one progress view, one metrics endpoint, one verdict."""
