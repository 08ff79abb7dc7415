"""Free ports on the loopback interface."""

from __future__ import annotations

import contextlib
import random
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mirrortest.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterable

ADDRESS = "127.0.0.1"
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000
_reserved: set[int] = set()
"""The ports that this process reserved."""


def free_ports(count: int) -> list[int]:
    """Reserve `count` ports on which nothing listens, until this process ends.

    They are below the range of the system's ephemeral ports, unless that begins too low. A killed
    broker must find its port free again, and a client that connects to an ephemeral port on which
    nothing listens can connect to itself. On Linux other processes that call this function get
    other ports.

    Raises:
        LabError: of 1,000 random ports fewer than `count` are free.
    """
    highest = 32_767
    with contextlib.suppress(OSError, ValueError):
        highest = int(_RANGE.read_text().split()[0]) - 1
    if highest - _LOWEST < 1_000:  # too few ports are below the ephemeral ones
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
        raise LabError(f"found fewer than {count} free ports on {ADDRESS}")
    return found


def reserve_ports(ports: Iterable[int]) -> None:
    """Reserve these ports until this process ends, except those that it has reserved already.

    Raises:
        LabError: another process reserved one.
    """
    for port in set(ports) - _reserved:
        try:
            _reserve(port)
        except OSError:
            raise LabError(f"another lab uses port {port}: end that lab first") from None


def _reserve(port: int) -> None:
    """Reserve a port among all processes that call this; on Linux only.

    Raises:
        OSError: it is reserved.
    """
    if sys.platform != "linux":
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mark:
        # An abstract name belongs to the port's network namespace and is freed with the process.
        mark.bind(f"\0mirrortest-port-{port}")
        mark.detach()  # it stays open until the process ends
    _reserved.add(port)
