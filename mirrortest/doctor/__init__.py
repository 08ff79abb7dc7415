"""Checks that a test can work, before it runs: an application that writes nothing."""
