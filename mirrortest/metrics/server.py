"""The process that serves another one's metrics: `server_process` starts it, and says why.

Its arguments are the numbers of two descriptors: the socket that listens, and the pipe by which it
is told what there is. It ends when that ends, however that came about.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from multiprocessing.connection import Connection

from mirrortest.metrics.endpoint import MetricsEndpoint
from mirrortest.metrics.pages import Pages
from mirrortest.metrics.published import Latest, Published


def main() -> None:
    """Serve until nothing more is told; raises EOFError then."""
    listener, pipe = map(int, sys.argv[1:])
    told: Connection[None, Published] = Connection(pipe, writable=False)
    latest = Latest()
    pages = Pages(latest)
    # Before anybody is answered: what has just begun is not what has stopped.
    pages.take(told.recv())
    with MetricsEndpoint(pages, listener=socket.socket(fileno=listener), health=latest):
        while True:
            pages.take(told.recv())


if __name__ == "__main__":
    with contextlib.suppress(EOFError, ConnectionResetError):
        main()
