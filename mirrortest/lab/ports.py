"""Free ports on the loopback interface."""

from __future__ import annotations

import contextlib
import random
import socket
import sys
from pathlib import Path

from mirrortest.errors import LabError

ADDRESS = "127.0.0.1"
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000


def free_ports(count: int) -> list[int]:
    """Take `count` ports that nobody listens on.

    They lie below the range that the system takes outgoing ports from. A broker that is killed
    must find its own port free again, and a client that knocks at a port of that range while
    nobody listens can end up connected to itself. They stay this process's until it ends, whether
    or not somebody listens: no other process is given them here meanwhile.

    Raises:
        LabError: there are not that many.
    """
    highest = 32_767
    with contextlib.suppress(OSError, ValueError):
        highest = int(_RANGE.read_text().split()[0]) - 1
    if highest - _LOWEST < 1_000:  # a system with another idea of outgoing ports
        highest = 65_535
    found: list[int] = []
    for port in random.sample(range(_LOWEST, highest + 1), min(1_000, highest - _LOWEST)):
        if len(found) == count:
            break
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind((ADDRESS, port))
            _reserve(port)
            found.append(port)
    if len(found) < count:
        raise LabError(f"found no {count} free ports on {ADDRESS}")
    return found


def _reserve(port: int) -> None:
    """Have a port for this process, among all who ask here, where the system is Linux.

    Raises:
        OSError: somebody has it.
    """
    if sys.platform != "linux":
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mark:
        # A name without a file, of the same network namespace as the port: it goes with its owner.
        mark.bind(f"\0mirrortest-port-{port}")
        mark.detach()  # it stays open as long as the process
