"""Progress: one line that renews itself on a terminal, a quiet line now and then elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from rich.live import Live
from rich.text import Text

from mirrortest.config.visible import visible

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console

_QUIET_SECONDS = 5.0


class LiveLines:
    """Shows the newest progress text; use it as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = (
            Live(Text(""), console=console, refresh_per_second=4, transient=True)
            if console.is_terminal
            else None
        )
        self._last = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, line: object) -> None:
        """Show a progress object by its text."""
        text = visible(str(line))
        if self._live is not None:
            self._live.update(Text(text))
            return
        now = time.monotonic()
        if now - self._last >= _QUIET_SECONDS:
            self._last = now
            self._console.print(text, markup=False)
