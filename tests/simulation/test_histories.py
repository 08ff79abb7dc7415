"""2,000 random histories of the real applications on simulated clusters, in virtual time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .faults import KINDS
from .found import FOUND

if TYPE_CHECKING:
    from pathlib import Path

_PARTS = 8
_EACH = 250


@pytest.fixture
def effects(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder of all processes of this test run: for each part, which faults took effect."""
    folder = tmp_path_factory.getbasetemp()
    shared = (folder if worker_id == "master" else folder.parent) / "effects"
    shared.mkdir(exist_ok=True)
    return shared


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(_PARTS))
def test_no_history_is_judged_wrongly_and_everything_ends(part: int, effects: Path) -> None:
    """Random faults cause no false verdict, no false pass and no hang.

    The part that ends last checks that every kind of fault took effect in one of them. The rarest,
    an aborted transaction, does so about ten times in all.
    """
    output = _simulated("--histories", _EACH, "--first", part * _EACH, "--processes", 1)
    took_effect = re.findall(r"^(\w+) .* took effect +[1-9]", output, re.MULTILINE)
    written = effects / f"{part}.new"
    written.write_text(" ".join(took_effect))
    written.replace(effects / f"{part}.txt")
    ended = [*effects.glob("*.txt")]
    if len(ended) == _PARTS:
        idle = KINDS - {kind for file in ended for kind in file.read_text().split()}
        assert not idle


def test_no_history_that_was_once_judged_wrongly_is_so_again() -> None:
    """Those of `found`."""
    assert _simulated("--found", "all").count("as it should be") == len(FOUND)


def _simulated(*options: str | int) -> str:
    """What the simulation's command prints; its exit code has to be 0."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *map(str, options)],
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:]
    return done.stdout
