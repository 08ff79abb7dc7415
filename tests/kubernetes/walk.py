"""The document's blocks: files that it shows, and commands that it runs."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK = re.compile(r"<!-- (run|file): (\S+) -->\n```\w*\n(.*?)```\n", re.DOTALL)


class Walk:
    """A document's blocks by name, run in `folder` with `environment`, each at most once."""

    def __init__(self, document: Path, folder: Path, environment: dict[str, str]) -> None:
        found = _BLOCK.findall(document.read_text())
        self._commands = {name: text for kind, name, text in found if kind == "run"}
        self._folder = folder
        self._environment = environment
        for kind, name, text in found:
            if kind == "file":
                (folder / name).write_text(text)

    @property
    def left(self) -> set[str]:
        """Blocks that were not run yet."""
        return set(self._commands)

    def run(self, name: str, timeout: float = 400) -> str:
        """Run a block in a shell that stops at the first failure; its output.

        Raises:
            AssertionError: a command failed.
        """
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._commands.pop(name)],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout
