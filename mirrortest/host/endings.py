"""What was started is ended, whatever failed, and what failed first is raised."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

import structlog

from mirrortest.host.error_text import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

_log = structlog.get_logger()
Value = TypeVar("Value")


class Endings(ExitStack):
    """What must end with a context: all of it ends, the last first, and the first error is raised.

    Later errors are logged. An interrupt is always raised, also one that comes after an error.
    """

    def enter(self, context: AbstractContextManager[Value]) -> Value:
        """Enter a context, and exit it in the end."""
        value = context.__enter__()
        self._add(context.__exit__)
        return value

    def add(self, end: Callable[[], object]) -> None:
        """Call a function in the end."""
        self._add(lambda *_: end())

    def _add(self, leave: Callable[..., object]) -> None:
        def end(
            kind: type[BaseException] | None,
            error: BaseException | None,
            trace: TracebackType | None,
        ) -> None:
            try:
                leave(kind, error, trace)
            except Exception as later:
                if error is None:  # else it would hide that error, or an interrupt
                    raise
                _log.warning("the end failed, too", why=reason_of(later))

        self.push(end)
