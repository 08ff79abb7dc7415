"""The consumer application: it judges a mirror's copy while it arrives."""
