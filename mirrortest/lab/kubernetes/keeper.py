"""A client's sidecar in its pod: it keeps the volumes, so that files can be fetched.

``keeper hold FILE...`` prints a line of JSON, the file and its text, whenever the text of one of
these files has changed. Only SIGKILL ends it: the pod's files stay until they are fetched.
``keeper signal NUMBER FILE`` sends a signal to the client, which has this file as an argument;
SIGKILL, SIGSTOP and SIGCONT also to its workers: a container's first process leads a process group.
After SIGSTOP it waits until all threads of the group are stopped.

The two containers share a process namespace. This module needs only the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from mirrortest.lab.process.guard import OF_THE_GROUP, is_group_stopped

MODULE = "mirrortest.lab.kubernetes.keeper"
_PAUSE = 1.0
_STOP_SECONDS = 10.0


def _print_changes(files: list[str]) -> None:
    """Print each file whenever its text has changed, forever."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    printed: dict[str, str] = {}
    while True:
        for file in files:
            with contextlib.suppress(OSError):
                text = Path(file).read_text()
                if printed.get(file) != text:
                    printed[file] = text
                    print(json.dumps({"file": file, "text": text}), flush=True)  # noqa: T201  # its output
        time.sleep(_PAUSE)


def _client(argument: str) -> int:
    """The client's process id: it has the argument, and its parent is outside the pod."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            status = (process / "status").read_text().splitlines()
            if "PPid:\t0" in status and argument.encode() in words and MODULE.encode() not in words:
                return int(process.name)
    sys.exit("the client has ended")


def _signal(number: int, argument: str) -> None:
    """Send the client a signal; after SIGSTOP, return once all of its threads are stopped."""
    pid = _client(argument)
    (os.killpg if number in OF_THE_GROUP else os.kill)(pid, number)
    deadline = time.monotonic() + _STOP_SECONDS
    while number == signal.SIGSTOP and not is_group_stopped(pid):
        if time.monotonic() > deadline:
            sys.exit("the client does not stop")
        time.sleep(0.01)


def main(arguments: list[str]) -> None:
    """Run `hold` or `signal`; see the module's docstring."""
    verb, *words = arguments
    if verb == "hold":
        _print_changes(words)
    else:
        _signal(int(words[0]), words[1])


if __name__ == "__main__":
    main(sys.argv[1:])
