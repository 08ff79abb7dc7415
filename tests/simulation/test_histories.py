"""2,000 random histories of the real applications on simulated clusters, in virtual time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_PARTS = 8
_EACH = 250


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(_PARTS))
def test_no_history_is_judged_wrongly_and_everything_ends(part: int) -> None:
    """Random faults cause no false verdict, no false pass and no hang."""
    done = subprocess.run(
        [
            sys.executable, "-m", "tests.simulation", "--histories", str(_EACH),
            "--first", str(part * _EACH), "--processes", "1",
        ],
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8_000:]
