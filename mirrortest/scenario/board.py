"""Progress of a point, one line for each participant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirrortest.config.units import number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass
class Board:
    """One line of progress for each participant; `on_change` is called when one changes."""

    on_change: Callable[[Board], None]
    lines: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, line: object) -> None:
        """Replace a line."""
        if self.lines.get(name) != str(line):
            self.lines[name] = str(line)
            self.on_change(self)


def progress(status: Mapping[str, Any]) -> str:
    """A client's current figures in one line, from its status file."""
    if status.get("kind") == "produce_status":
        planned = status.get("planned")
        of = "" if planned is None else f" of {planned:,}"
        return f"{status['acked']:,} acknowledged{of}, {status['acked_per_second']:,.0f}/s"
    counted = {k: v for k, v in status["counts"].items() if v and k not in {"acked", "delivered"}}
    found = "".join(f", {count:,} {name}" for name, count in counted.items())
    return f"{number(status['read'])} read, {status['read_per_second']:,.0f}/s{found}"
