"""stdout and stderr of a process that outlives those who read them."""

from __future__ import annotations

import contextlib
import errno
import io
import select
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_STDOUT = 1
_READER_ENDED = {errno.EPIPE, errno.EIO}
"""Errors of a pipe and of a terminal that nobody reads any more."""


class _Lasting(io.TextIOWrapper):
    """A stream that drops what nobody reads.

    Another error of stdout is raised, once: what is buffered is written again at the end. One of
    stderr, which has only progress and logs, is dropped.
    """

    # Not a raw stream: an interrupt in its write would make the buffer write the same again.

    _failed = False

    def write(self, text: str, /) -> int:
        """See io."""
        if text != "":  # typer tries "" to find out whether this is a text stream: no error counts
            with self._dropping():
                super().write(text)
        return len(text)

    def flush(self) -> None:
        """See io."""
        with self._dropping():
            super().flush()

    @contextlib.contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self._failed or self.fileno() != _STDOUT or error.errno in _READER_ENDED:
                return
            self._failed = True
            raise


def outlive_readers() -> None:
    """Go on when a reader of stdout or stderr ends, as `tee` does at Ctrl-C, or the terminal does.

    Characters that the locale's encoding lacks are escaped. Streams that were replaced stay.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper) or stream is not getattr(sys, f"__{name}__"):
            continue
        lasting = _Lasting(
            stream.buffer,
            encoding=stream.encoding,
            errors="backslashreplace",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        setattr(sys, name, lasting)


def has_reader() -> bool:
    """Whether what is written to stdout can still be read."""
    poll = select.poll()
    poll.register(_STDOUT, 0)
    return not poll.poll(0)
