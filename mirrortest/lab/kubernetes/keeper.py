"""What runs next to a client in its pod: it keeps the volume, so that files can be fetched.

``keeper hold FILE...`` prints a line of JSON, the file and its text, whenever one of these files is
replaced. It ends by SIGKILL alone: a pod that is to end keeps its files until they are fetched.
``keeper signal NUMBER FILE`` sends a signal to the client, which has this file as an argument.
After SIGSTOP it waits until no thread of the client runs any more.

The two containers share their process ids; the standard library is all that it needs.
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


def _hold(files: list[str]) -> None:
    """Print files as they are replaced, for ever."""
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
    """The process id of the client: it has the argument, and its parent is outside the pod."""
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
    """Hold, or signal; see the module's text."""
    verb, *words = arguments
    if verb == "hold":
        _hold(words)
    else:
        _signal(int(words[0]), words[1])


if __name__ == "__main__":
    main(sys.argv[1:])
