"""The machine's own figures, each from two readings of /proc."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.model.observed import DEVICE, HOST, INTERFACE
from mirrortest.observe import disk_stats, memory, network, proc_stat

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.model.observed import Observed
    from mirrortest.observe.counters import Counters
    from mirrortest.observe.readable_files import ReadableFiles

_PRESSURES = ("cpu", "io", "memory")

Tables = dict["Observed", list[dict[str, object]]]


class _Reading(NamedTuple):
    seconds: float
    host: Counters
    devices: dict[str, Counters]
    interfaces: dict[str, Counters]


class Machine:
    """Reads host, disks and network; each call returns the figures since the previous one."""

    def __init__(
        self,
        files: ReadableFiles,
        page_bytes: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = files
        self._page_bytes = page_bytes
        self._monotonic = monotonic
        self._before: _Reading | None = None

    def rows(self) -> Tables:
        """Rows of host, device and interface, without their times; none at the first call."""
        before, now = self._before, self._read()
        self._before = now
        if before is None:
            return {}
        seconds = now.seconds - before.seconds
        host: dict[str, object] = {
            **proc_stat.figures(before.host, now.host, seconds),
            **memory.figures(before.host, now.host, seconds, self._page_bytes),
            **network.tcp_figures(before.host, now.host, seconds),
        }
        return {
            HOST: [host],
            DEVICE: [
                {"device": name, **disk_stats.figures(before.devices[name], counters, seconds)}
                for name, counters in now.devices.items()
                if name in before.devices
            ],
            INTERFACE: [
                {
                    "interface": name,
                    **network.interface_figures(before.interfaces[name], counters, seconds),
                }
                for name, counters in now.interfaces.items()
                if name in before.interfaces
            ],
        }

    def _read(self) -> _Reading:
        read = self._files.read
        seconds = self._monotonic()
        host = proc_stat.parse(read("stat"))
        for name in _PRESSURES:
            if (stalled := proc_stat.pressure(read(f"pressure/{name}"))) is not None:
                host[f"pressure_{name}"] = stalled
        host |= memory.parse(read("meminfo"))
        host |= memory.parse(read("vmstat"))
        host |= network.parse_tcp(read("net/snmp"))
        devices = disk_stats.parse(read("diskstats"))
        # Without partitions: the counters of their disk include them.
        disks = self._files.disks() or frozenset(devices)
        return _Reading(
            seconds,
            host,
            {name: counters for name, counters in devices.items() if name in disks},
            network.parse_interfaces(read("net/dev")),
        )
