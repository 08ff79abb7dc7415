"""The saboteur: a mirror that copies faithfully, but for the wrongs that a specification orders."""
