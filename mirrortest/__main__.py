"""`python -m mirrortest`."""

from mirrortest.cli.start import run

run()
