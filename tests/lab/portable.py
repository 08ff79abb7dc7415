"""The command with `mirrortest.kafka.fast` blocked from import, for runs with `--portable`."""

from __future__ import annotations

from tests.lab.harness import PROGRAM

PORTABLE = ("-c", f"import sys; sys.modules['mirrortest.kafka.fast'] = None; {PROGRAM[1]}")
