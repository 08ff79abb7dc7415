"""The condition of a link: the faults that it simulates."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from mirrortest.config.units import format_duration, parse_size
from mirrortest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

LINKS = ("link-source", "link-destination")
"""The names of a lab's links: between the mirror and either cluster."""
NO_LINKS = (
    "links are between processes, not containers: for those use the fault disconnect, or tc and "
    "netem on the host"
)
HEAL = "heal"
FAULTS = ("delay", "rate", "cut", "reset")
"""The faults of a link, independent of each other; `HEAL` ends them."""
CHANGED = signal.SIGURG
"""Sent to a relay whose condition changed. A relay that just starts ignores it, as any program."""


@dataclass(frozen=True)
class Condition:
    """The condition of a link; the default is a good network.

    Attributes:
        delay: seconds, in each direction.
        jitter: seconds by which the delay varies, up and down; bytes stay in order.
        rate: bytes/s of all connections together, in each direction; None: no limit.
        cut: nothing passes. Connections stay open, and new ones get no answer.
        reset: connections are reset (RST), and new ones are refused.
    """

    delay: float = 0.0
    jitter: float = 0.0
    rate: int | None = None
    cut: bool = False
    reset: bool = False

    def without(self, fault: str) -> Condition:
        """This condition without one of `FAULTS`."""
        good: dict[str, Any] = {fault: getattr(Condition(), fault)}
        if fault == "delay":
            good["jitter"] = 0.0
        return replace(self, **good)

    def __str__(self) -> str:
        values = asdict(self)
        wrong = [fault for fault in FAULTS if self != self.without(fault)]
        return ", ".join(f"{fault} {detail(fault, values)}".strip() for fault in wrong) or "good"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """The condition as one line of JSON."""
        return json.dumps(asdict(self))


def applied_prefix(number: int) -> str:
    """The beginning of the line that a link logs once a condition is applied."""
    return f"condition {number}: "


def detail(fault: str, values: Mapping[str, Any]) -> str:
    """The size of a fault: ``200 ms``, ``1,000,000 B/s``; for `HEAL` the fault; else empty."""
    if fault == HEAL:
        return str(values.get("fault") or "")
    if fault == "rate":
        return f"{values['rate']:,.0f} B/s"
    if fault == "delay":
        delay, jitter = (round((values.get(name) or 0) * 1e9) for name in ("delay", "jitter"))
        return format_duration(delay) + (f" ± {format_duration(jitter)}" if jitter else "")
    return ""


def parse_rate(text: str, *, option: str) -> int:
    """Read bytes per second: ``1MB/s``, ``64KiB/s``; raises UsageError with `option`."""
    try:
        found = parse_size(text.strip().removesuffix("/s"), option="")
    except UsageError:
        found = 0
    if not found:
        raise UsageError(
            f"{option} {text!r}: must be bytes per second, for example 500kB/s or 1MB/s"
        )
    return found
