"""The socket by which other processes control a running lab: one JSON line in each direction.

Only the process that started the lab can restart its parts and see their states, so it serves every
request.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mirrortest.errors import LabError, MirrortestError, UsageError
from mirrortest.host.user_files import expanded
from mirrortest.lab.part import FAULTS, inject

if TYPE_CHECKING:
    from mirrortest.lab.part import Part
    from mirrortest.lab.testbed import Lab

_RETRY_SECONDS = 0.1
_DOWN_SECONDS = 120.0
_MAX_PATH = 100  # a socket's path has room for 108 bytes


class NotReadyError(LabError):
    """A fault is in force, and its part did not become ready."""


def socket_path(name: str) -> Path:
    """The path of the socket of a lab: under $XDG_STATE_HOME, else ~/.local/state.

    Raises:
        UsageError: the name has characters other than letters, digits, - and _, or the path is too
            long for a socket.
    """
    if not name or not all(letter.isalnum() or letter in "-_" for letter in name):
        raise UsageError(f"--name {name!r}: use letters, digits, - and _")
    path = _folder() / f"lab-{name}.sock"
    if len(os.fsencode(path)) > _MAX_PATH:
        raise UsageError(f"{path} is too long for a socket: set XDG_STATE_HOME to a shorter path")
    return path


def sockets() -> list[Path]:
    """The paths of the sockets of this user's running labs."""
    return [path for path in sorted(_folder().glob("lab-*.sock")) if is_up(path)]


def _folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else expanded("~/.local/state")) / "mirrortest"


def ask(path: Path, verb: str, **details: Any) -> dict[str, Any]:
    """Send a request to the lab that listens at `path`; returns its answer.

    Raises:
        NotReadyError: the fault is in force, and its part did not become ready.
        LabError: no lab is up there, or the request failed.
        UsageError: the lab has no part of that name.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(os.fspath(path))
            connection.sendall(json.dumps({"verb": verb, **details}).encode() + b"\n")
            with connection.makefile("rb") as reader:
                answer: dict[str, Any] = json.loads(reader.readline() or b"{}")
    except (FileNotFoundError, ConnectionRefusedError):
        raise LabError(_not_up(path)) from None
    except (OSError, ValueError) as error:
        raise LabError(f"the lab closed the connection: {error}") from error
    if not answer:
        raise LabError("the lab closed the connection")
    if "error" in answer:
        kinds = {"usage": UsageError, "in_force": NotReadyError}
        raise next((kinds[key] for key in kinds if answer.get(key)), LabError)(answer["error"])
    return answer


def _not_up(path: Path) -> str:
    """The error's text for a lab that is not up; it names the labs that are up."""
    up = [f"--name {each.stem.removeprefix('lab-')}" for each in sockets()]
    if not up:
        return "no lab is up: start one with `mirrortest lab up`"
    return f"no lab {path.stem.removeprefix('lab-')} is up; running: {', '.join(up)}"


def is_up(path: Path) -> bool:
    """Whether a lab listens at `path`."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(os.fspath(path))
        except OSError:
            return False
    return True


def bring_down(path: Path) -> None:
    """End the lab that listens at `path` and wait until it has ended.

    Raises:
        LabError: no lab is up there, or it is still up after two minutes.
    """
    ask(path, "down")
    deadline = time.monotonic() + _DOWN_SECONDS
    while is_up(path):
        if time.monotonic() > deadline:
            raise LabError(f"the lab is still up after {_DOWN_SECONDS:g} s")
        time.sleep(0.05)


class Control:
    """Serves the requests to one lab, those for the same part one at a time; a context manager.

    Attributes:
        ending: set once a client has requested the lab's end.
    """

    def __init__(self, lab: Lab, path: Path) -> None:
        self.ending = threading.Event()
        self._lab = lab
        self._path = path
        self._closed = threading.Event()
        self._parts: dict[str, threading.Lock] = {}
        self._listener: socket.socket

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if is_up(self._path):
            raise LabError("a lab of this name is up already: `mirrortest lab status`")
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.fspath(self._path))
        self._path.chmod(0o600)
        self._listener.listen()
        threading.Thread(target=self._serve, name="lab-control", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # close() does not wake the thread
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
                # A start waits until the part is ready: a broker waits for another one's start.
                threading.Thread(
                    target=self._serve_one, args=(connection,), name="lab-request", daemon=True
                ).start()
            except (OSError, RuntimeError):  # for example, no file descriptor or thread is free
                if self._closed.wait(_RETRY_SECONDS):
                    return

    def _serve_one(self, connection: socket.socket) -> None:
        answer: dict[str, Any] = {}
        with contextlib.suppress(OSError), connection, connection.makefile("rwb") as stream:
            if request := stream.readline():
                answer = self._answered(request)
                stream.write(json.dumps(answer).encode() + b"\n")
        if answer.get("ending"):  # set once the answer is sent: this thread ends with the lab
            self.ending.set()

    def _answered(self, request: bytes) -> dict[str, Any]:
        try:
            return self._answer(json.loads(request))
        except UsageError as error:
            return {"error": str(error), "usage": True}
        except MirrortestError as error:
            return {"error": str(error)}
        except Exception:  # noqa: BLE001  # any failure: later requests must be answered
            import structlog  # noqa: PLC0415  # commands that send requests do not log

            structlog.get_logger().exception("a request failed unexpectedly")
            return {
                "error": "the request failed unexpectedly: the output of `lab up` has the error"
            }

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request.get("verb"):
            case "status":
                return self._lab.describe()
            case "down":
                return {"ok": True, "ending": True}
            case verb if verb in FAULTS:
                return self._fault(str(verb), str(request.get("part")), request.get("values", {}))
            case verb:
                return {"error": f"the lab has no command {verb!r}"}

    def _fault(self, verb: str, name: str, values: dict[str, Any]) -> dict[str, Any]:
        part = self._lab.part(name)
        with self._parts.setdefault(name, threading.Lock()):
            before = _effect(part)
            try:
                inject(part, verb, **values)
            except LabError as error:
                if _effect(part) == before:
                    raise
                return {"error": str(error), "in_force": True}
            return {"ok": True, "state": part.state}


def _effect(part: Part) -> tuple[object, ...]:
    """What a fault changes, whether or not the part is ready afterwards."""
    return part.pid, getattr(part, "condition", None)
