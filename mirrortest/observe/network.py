"""Network interfaces and TCP: /proc/net/dev and /proc/net/snmp."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from mirrortest.observe.counters import Change

if TYPE_CHECKING:
    from mirrortest.observe.counters import Counters

_RECEIVED = (
    "bytes_in", "packets_in", "errors_in", "dropped_in",
    "fifo_in", "frame_in", "compressed_in", "multicast_in",
)  # fmt: skip
_SENT = ("bytes_out", "packets_out", "errors_out", "dropped_out")


def parse_interfaces(text: str) -> dict[str, Counters]:
    """The counters of each interface of /proc/net/dev that was ever used."""
    found = {}
    for line in text.splitlines():
        name, colon, values = line.rpartition(":")
        if colon:
            counters = dict(zip((*_RECEIVED, *_SENT), map(int, values.split()), strict=False))
            if any(counters.values()):
                found[name.strip()] = counters
    return found


def parse_tcp(text: str) -> Counters:
    """TCP's counters of /proc/net/snmp, which has a line of names before the line of values."""
    for names, values in pairwise(text.splitlines()):
        if names.startswith("Tcp:") and values.startswith("Tcp:"):
            numbers = map(int, values.split()[1:])
            return {
                f"tcp_{name}": number
                for name, number in zip(names.split()[1:], numbers, strict=False)
            }
    return {}


def interface_figures(before: Counters, now: Counters, seconds: float) -> dict[str, float | None]:
    """The figures of `model.observed.INTERFACE`."""
    change = Change(before, now, seconds)
    return {
        "received_bytes_per_second": change.per_second("bytes_in"),
        "sent_bytes_per_second": change.per_second("bytes_out"),
        "received_packets_per_second": change.per_second("packets_in"),
        "sent_packets_per_second": change.per_second("packets_out"),
        "errors_per_second": change.per_second("errors_in", "errors_out"),
        "dropped_per_second": change.per_second("dropped_in", "dropped_out"),
    }


def tcp_figures(before: Counters, now: Counters, seconds: float) -> dict[str, float | None]:
    """The figures of `model.observed.HOST` that come from here."""
    change = Change(before, now, seconds)
    return {
        "tcp_sent_segments_per_second": change.per_second("tcp_OutSegs"),
        "tcp_retransmits_per_second": change.per_second("tcp_RetransSegs"),
        "tcp_receive_errors_per_second": change.per_second("tcp_InErrs"),
    }
