"""Finds the tools once; without them tests are skipped, but in CI they fail."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.prometheus import tools
from tests.tools import ToolMissingError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def prometheus_binary() -> Path:
    """The Prometheus program."""
    return _have(tools.prometheus)


@pytest.fixture(scope="session")
def promtool() -> Path:
    """The promtool program, which checks rules and runs their tests."""
    return _have(lambda: tools.prometheus("promtool"))


def _have(tool: Callable[[], Path]) -> Path:
    try:
        return tool()
    except ToolMissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
