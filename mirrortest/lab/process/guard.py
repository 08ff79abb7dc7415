r"""Runs one program, and ends it with its owner.

A separate script that needs only the standard library, so it starts in milliseconds:
``python guard.py OWNER_PID REST PROGRAM ARGUMENT...``, with a pipe from the owner as stdin and one
to it as stdout. The program leads a process group of its own.

- It writes ``<pid of the program>\n`` to stdout, and exits as the program does: with its code, or
  128 + the signal that ended it. What the program left behind in its group it kills first, or
  leaves alone: REST is `kill` or `leave`.
- A line ``<number>\n`` on stdin sends that signal to the program, SIGKILL, SIGSTOP and SIGCONT to
  its whole group. The guard is the program's parent, so the signal can never hit another process
  that got the same pid. After SIGSTOP it writes ``stopped\n`` to stdout, once all threads of the
  group are stopped.
- End of file on stdin, or the owner's end (watched separately, since a fork of the owner may keep
  the pipe open), kills the process group. The guard misses neither, however the owner ended.
- If the guard itself is killed, the kernel kills the program: PR_SET_PDEATHSIG works by parent
  thread, and the guard has only one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.01
OF_THE_GROUP = {signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT}
"""The signals that a program's workers get, too; on others it ends its workers by itself."""


def _tie_to_parent(guard_pid: int) -> None:
    """Ask the kernel for SIGKILL at the guard's end; runs in the program, before exec."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard_pid:  # the guard ended before the call
        os._exit(128 + signal.SIGKILL)


def _owner_watch(owner: int) -> int | None:
    """A descriptor that becomes readable when the owner ends; None if the system has none."""
    try:
        return os.pidfd_open(owner)
    except (AttributeError, OSError):
        return None


def _has_ended(pid: int) -> bool:
    """Whether the program has ended; it is not reaped, so no other process gets its pid."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_group(leader: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # only a zombie is left
        os.killpg(leader, number)


def _is_stopped(pid: int) -> bool:
    """Whether all threads of the program are stopped, which only its parent can see."""
    return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None


def is_group_stopped(leader: int) -> bool:
    """Whether all threads of a process group are stopped; True on a system without /proc."""
    for process in Path("/proc").glob("[0-9]*"):
        if _stat(process)[2:3] == [str(leader)]:
            states = {state for thread in process.glob("task/*") for state in _stat(thread)[:1]}
            if not states <= {"T", "t", "Z", "X"}:  # stopped, or ended
                return False
    return True


def _stat(process: Path) -> list[str]:
    """A process's, or thread's, state and what follows it in its file; empty once it has ended."""
    with contextlib.suppress(OSError):
        # Before that is its name, which may contain spaces.
        return (process / "stat").read_text().rpartition(")")[2].split()
    return []


def main() -> int:
    """Run the program until it ends; see the module's docstring."""
    owner, rest, *command = int(sys.argv[1]), *sys.argv[2:]
    # First: the owner may end at any time once the program runs.
    owner_watch = _owner_watch(owner)
    if os.getppid() != owner:  # it ended before the watch began; its pid may be reused
        return 128 + signal.SIGKILL
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write)
    guard_pid = os.getpid()
    program = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,  # the part's log
        process_group=0,
        preexec_fn=lambda: _tie_to_parent(guard_pid),  # noqa: PLW1509  # the guard has one thread
    )
    os.write(1, b"%d\n" % program.pid)

    watched = [0, wake_read]
    if owner_watch is not None:
        watched.append(owner_watch)
    pending, stopping = b"", False
    while not _has_ended(program.pid):
        # Only the program's own stop wakes the guard.
        readable = select.select(watched, [], [], _POLL_SECONDS if stopping else None)[0]
        if wake_read in readable:
            os.read(wake_read, 512)  # SIGCHLD, at the program's end or stop
        if owner_watch is not None and owner_watch in readable:
            _signal_group(program.pid)
        if 0 in readable:
            chunk = os.read(0, 512)
            if not chunk:
                _signal_group(program.pid)
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                number = int(line)
                (_signal_group if number in OF_THE_GROUP else os.kill)(program.pid, number)
                stopping = stopping or number == signal.SIGSTOP
        if stopping and _is_stopped(program.pid) and is_group_stopped(program.pid):
            os.write(1, b"stopped\n")
            stopping = False
    if rest == "kill":
        _signal_group(program.pid)
    code = program.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
