"""Deterministic simulation: the real applications in virtual time, on simulated clusters."""
