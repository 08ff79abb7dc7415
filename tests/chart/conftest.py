"""Helm 4 and Helm 3; if one is unavailable, its tests are skipped with the reason."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.chart.tools import helm as helm_program
from tests.tools import ToolMissingError

if TYPE_CHECKING:
    from pathlib import Path


class Helm:
    """One version of Helm."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self._answers: dict[tuple[str, ...], subprocess.CompletedProcess[str]] = {}

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it, once for the same arguments; the caller checks whether it failed."""
        if arguments not in self._answers:
            self._answers[arguments] = subprocess.run(
                [self._program, *arguments], capture_output=True, text=True, timeout=60, check=False
            )
        return self._answers[arguments]


@pytest.fixture(scope="session", params=[4, 3])
def helm(request: pytest.FixtureRequest) -> Helm:
    """Each version of Helm."""
    try:
        return Helm(helm_program(request.param))
    except ToolMissingError as error:
        pytest.skip(str(error))
