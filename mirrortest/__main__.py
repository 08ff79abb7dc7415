"""`python -m mirrortest`."""

from mirrortest.cli.main import run

run()
