"""Prometheus, promtool and Grafana's dashboard linter: from PATH, else put into the cache once.

`python -m tests.prometheus.tools` gets all of them, and prints their paths.
"""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mirrortest.host.cache import cache_directory
from tests.tools import ToolMissingError, debian, golang

if TYPE_CHECKING:
    from collections.abc import Callable

LINTER = "github.com/grafana/dashboard-linter"
LINTER_VERSION = "v0.2.0"
# Replaces the linter's one file that needs Grafana's own modules, which the module proxy lacks.
# That file reads dashboards of schema v2; ours have the classic schema.
WITHOUT_V2 = """package lint

import (
	"encoding/json"
	"errors"
)

func isV2APIVersion(string) bool { return false }

func newDashboardFromV2(json.RawMessage, string) (Dashboard, error) {
	return Dashboard{}, errors.New("dashboards of the schema v2 are not read here")
}
"""


def prometheus(name: str = "prometheus") -> Path:
    """The path of `prometheus` or `promtool`: from PATH, else from Debian's package.

    Raises:
        ToolMissingError: neither has it.
    """
    return debian.program(name, "prometheus")


def dashboard_linter(*, build: bool = False) -> Path:
    """The linter's path: from PATH, the cache, or, with `build`, built by Go, which takes minutes.

    Raises:
        ToolMissingError: it is missing, and `build` is False or the build fails.
    """
    if found := shutil.which("dashboard-linter"):
        return Path(found)
    place = cache_directory() / f"dashboard-linter-{LINTER_VERSION}-{platform.machine()}"
    binary = place / "dashboard-linter"
    if binary.exists():
        return binary
    if not build:
        raise ToolMissingError("the dashboard linter is not built: make dashboard-linter")
    with tempfile.TemporaryDirectory(prefix="dashboard-linter-") as folder:
        ours = Path(folder) / "source"
        sources = golang.sources(f"{LINTER}@{LINTER_VERSION}")
        shutil.copytree(sources, ours, copy_function=shutil.copyfile)
        ours.joinpath("lint/v2.go").write_text(WITHOUT_V2)
        golang.build(ours, ["."], place)
    return binary


if __name__ == "__main__":
    every: dict[str, Callable[[], Path]] = {
        "prometheus": prometheus,
        "promtool": lambda: prometheus("promtool"),
        "dashboard-linter": lambda: dashboard_linter(build=True),
    }
    for name, have in every.items():
        try:
            sys.stdout.write(f"{name}: {have()}\n")
        except ToolMissingError as error:
            sys.exit(f"{name}: {error}")
