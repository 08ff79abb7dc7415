"""What a run is made of, in names and numbers that every other room shares."""
