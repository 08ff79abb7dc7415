"""Progress: a live screen on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, Self

from rich.live import Live
from rich.live_render import LiveRender
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from mirrortest.cli.console import warn
from mirrortest.cli.options import ProgressMode
from mirrortest.config.visible import visible
from mirrortest.errors import UsageError
from mirrortest.host.user_files import replace_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import (
        Console,
        ConsoleOptions,
        ConsoleRenderable,
        RenderableType,
        RenderResult,
    )

    from mirrortest.cli.console import SafeConsole
    from mirrortest.cli.options import Progress
    from mirrortest.results.progress_view import ProgressView
    from mirrortest.results.status_document import StatusDocument
    from mirrortest.results.windows import Totals, Windows
    from mirrortest.scenario.board import Board

_QUIET_SECONDS = 5.0
_QUIET_FIGURES = 10.0
"""Seconds between two lines of a client's figures."""
_REFRESHES = 2
"""Refreshes of the screen per second."""


class Status(Protocol):
    """The status of a producer or a consumer."""

    def view(self) -> ProgressView:
        """The status for people."""

    def document(self) -> StatusDocument:
        """The status for programs."""

    @property
    def totals(self) -> Totals:
        """The totals so far."""


class _Render(LiveRender):
    """Rich's renderer; it also keeps the widths of the lines that it wrote last."""

    _widths: tuple[int, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """See rich."""
        widths = [0]
        for segment in super().__rich_console__(console, options):
            if isinstance(segment, Segment):
                if segment.text == "\n":
                    widths.append(0)
                else:
                    widths[-1] += segment.cell_length
            yield segment
        self._widths = tuple(widths)

    def fold(self, columns: int) -> None:
        """Correct the height: a terminal that became narrower has folded these lines."""
        if self._shape is not None:
            height = sum(max(1, -(-width // columns)) for width in self._widths)
            self._shape = self._shape[0], height


class _Screen(Live):
    """Rich's live display, which finds its first line even after the terminal became narrower.

    Rich moves up by the number of lines that it wrote, but a terminal folds lines that no longer
    fit. Rich's own thread renders, not the event loop.
    """

    def __init__(self, console: SafeConsole, renderable: Callable[[], RenderableType]) -> None:
        super().__init__(
            console=console,
            refresh_per_second=_REFRESHES,
            transient=True,
            get_renderable=renderable,
        )
        self._lock = console.printing
        self._live_render = self._render = _Render(renderable())
        self._columns = console.width
        self._is_failing = False

    def refresh(self) -> None:
        """See rich. Errors are caught: one would end rich's thread. Only the first is reported."""
        try:
            super().refresh()
        except Exception as error:  # noqa: BLE001  # whatever failed, the next refresh may succeed
            if not self._is_failing:
                self._is_failing = True
                warn([f"the progress cannot be shown, trying again: {error!r}"])

    def start(self, refresh: bool = False) -> None:
        """Start. The cursor stays visible: it is then visible however the process ends."""
        super().start(refresh)
        self.console.show_cursor()

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """See rich."""
        if self.console.width < self._columns:
            self._render.fold(self.console.width)
        self._columns = self.console.width
        return super().process_renderables(renderables)


class _Display(AbstractContextManager["_Display"]):
    """A display of progress, on a screen or as lines; use it as a context manager."""

    def __init__(
        self, console: SafeConsole, renderable: Callable[[], RenderableType], *, on_screen: bool
    ) -> None:
        self._console = console
        self._on_screen = on_screen
        self._live: AbstractContextManager[Any] = (
            _Screen(console, renderable) if on_screen else nullcontext()
        )

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)


class LiveLines(_Display):
    """A display of the newest progress text; use it as a context manager."""

    def __init__(self, console: SafeConsole) -> None:
        self._text = Text("")
        self._last = 0.0
        super().__init__(console, lambda: self._text, on_screen=console.is_interactive)

    def show(self, line: object) -> None:
        """Show a progress object by its text."""
        text = visible(str(line))
        if self._on_screen:
            self._text = Text(text)
            return
        now = time.monotonic()
        if now - self._last >= _QUIET_SECONDS:
            self._last = now
            self._console.print(text, markup=False)


class BoardDisplay(_Display):
    """A display of a board; without a screen, it prints changes, but figures only now and then."""

    def __init__(self, console: SafeConsole) -> None:
        self._lines: Mapping[str, str] = {}
        self._printed: dict[str, tuple[str, float]] = {}
        super().__init__(console, self._table, on_screen=console.is_interactive)

    def show(self, board: Board) -> None:
        """Show what each participant is doing."""
        self._lines = dict(board.lines)  # the screen is rendered by a thread of its own
        if self._on_screen:
            return
        now = time.monotonic()
        for participant, line in self._lines.items():
            before, at = self._printed.get(participant, ("", 0.0))
            # Figures change all the time; a text without them is an event.
            quiet = _QUIET_FIGURES if "/s" in line else 0.0
            if line != before and now - at >= quiet:
                self._printed[participant] = (line, now)
                self._console.print(visible(f"{participant}: {line}"), markup=False)

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2), expand=True)
        table.add_column(style="bold", no_wrap=True)
        # One line each: the summaries have what is cut off.
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        for participant, line in self._lines.items():
            table.add_row(Text(participant), Text(visible(line)))
        return table


class ProgressDisplay(_Display):
    """A display of the newest status, in the user's mode; use it as a context manager.

    The file of `--status-file` is replaced atomically: a reader never sees a part of it. `windows`
    print their own lines.

    Raises:
        UsageError: `--progress screen` without a terminal.
    """

    def __init__(self, console: SafeConsole, progress: Progress) -> None:
        mode = progress.progress
        if mode is None:
            mode = ProgressMode.SCREEN if console.is_interactive else ProgressMode.LINES
        elif mode is ProgressMode.SCREEN and not console.is_interactive:
            raise UsageError(
                "--progress screen needs a terminal on stderr, and TERM other than dumb: "
                "use --progress lines"
            )
        self._mode = mode
        self._seconds = progress.reporting_interval
        self._status: Status | None = None
        self._printed = 0.0
        self._file = progress.status_file
        self.windows: Windows | None = None
        super().__init__(console, self._renderable, on_screen=mode is ProgressMode.SCREEN)

    def show(self, status: Status) -> None:
        """Take a status; it is shown at the next refresh or interval."""
        self._status = status
        self._write(status)
        if self.windows is not None:
            self.windows.show(status.totals)
        now = time.monotonic()
        if self._mode is ProgressMode.LINES and now - self._printed >= self._seconds:
            self._printed = now
            self._console.print(visible(status.view().line()), markup=False)

    def _write(self, status: Status) -> None:
        """Write the status file; if that fails, warn once, and stop writing it."""
        if self._file is None:
            return
        try:
            replace_text(self._file, status.document().model_dump_json() + "\n")
        except OSError as error:
            warn([f"--status-file {self._file} is no longer written: {error.strerror}"])
            self._file = None

    def _renderable(self) -> RenderableType:
        return Text("") if self._status is None else self._status.view()
