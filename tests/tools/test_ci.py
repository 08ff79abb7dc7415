""".ci/containers passes on a machine that can run neither engine nor cluster, and says so."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

CONTAINERS = Path(__file__).parents[2] / ".ci" / "containers"


@pytest.mark.parametrize(
    ("lacks", "reason"),
    [({"id": "echo 1000"}, "root"), ({"id": "echo 0", "unshare": "exit 1"}, "namespaces")],
)
def test_what_cannot_be_is_left_out_in_a_line(
    tmp_path: Path, lacks: dict[str, str], reason: str
) -> None:
    """It prints one line and succeeds without root, and for root without namespaces."""
    for name, answer in lacks.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{answer}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        [CONTAINERS],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("left out: ")
    assert reason in line
