"""Judging a mirror's copy while it arrives: an application."""
