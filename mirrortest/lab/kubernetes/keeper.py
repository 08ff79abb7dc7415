"""A client's sidecar in its pod: it keeps the volumes, so that files can be fetched.

``keeper hold FILE...`` prints a line of JSON, the file and its text, whenever the text of one of
these files has changed. Only SIGKILL ends it: the pod's files stay until they are fetched.
``keeper signal NUMBER FILE`` sends a signal to the client, which has this file as an argument.
After SIGSTOP it waits until all threads of the client are stopped.

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
            parent = _field((process / "status").read_text(), "PPid")
            if parent == "0" and argument.encode() in words and MODULE.encode() not in words:
                return int(process.name)
    sys.exit("the client has ended")


def _field(text: str, name: str) -> str:
    return next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name}:"))


def _signal(number: int, argument: str) -> None:
    """Send the client a signal; after SIGSTOP, return once all of its threads are stopped."""
    pid = _client(argument)
    os.kill(pid, number)
    deadline = time.monotonic() + _STOP_SECONDS
    while number == signal.SIGSTOP and not _is_stopped(pid):
        if time.monotonic() > deadline:
            sys.exit("the client does not stop")
        time.sleep(0.01)


def _is_stopped(pid: int) -> bool:
    for thread in Path(f"/proc/{pid}/task").glob("*/status"):
        with contextlib.suppress(OSError):  # it has just ended
            if _field(thread.read_text(), "State") not in {"T", "t"}:
                return False
    return True


def main(arguments: list[str]) -> None:
    """Run `hold` or `signal`; see the module's docstring."""
    verb, *words = arguments
    if verb == "hold":
        _print_changes(words)
    else:
        _signal(int(words[0]), words[1])


if __name__ == "__main__":
    main(sys.argv[1:])
