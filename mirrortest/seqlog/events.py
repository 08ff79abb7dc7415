"""Faults of the clusters during a run: ``LOGDIR/run=R/events.jsonl``, one JSON line each.

``{"time_ns": 1795242632417333643, "what": "kill", "part": "mirror"}``: `time_ns` is ns since the
epoch; `what` is a verb of the lab's faults, or any text; `part` is what the fault affects; `detail`
is a fault's measure, or names the only fault of a link that `heal` ends. Any script that injects
faults can append a line. The report marks it on its timelines.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from pydantic import Field, ValidationError

from mirrortest.config.document import DocumentPart
from mirrortest.errors import UsageError
from mirrortest.seqlog.location import Location

if TYPE_CHECKING:
    from pathlib import Path

EVENTS_FILE = "events.jsonl"

_RESUMED = frozenset({"ready", "continue"})
LINK_FAULTS = frozenset({"delay", "rate", "cut", "reset"})
UP_AFTER = {
    **dict.fromkeys(("kill", "terminate", "remove", "stop", "restart"), _RESUMED),
    "pause": frozenset({"ready", "unpause", "resume"}),
    "disconnect": frozenset({"ready", "connect"}),
    **dict.fromkeys(LINK_FAULTS, frozenset({"heal"})),
}
"""By fault, the events that end it. Until then a part is down, or a link is impaired.

A part is `ready` some time after its `start`.
"""

_YEAR_2262 = (1 << 63) - 1


class Event(DocumentPart):
    """A fault or its end, and its time in ns since the epoch."""

    time_ns: int = Field(ge=0, le=_YEAR_2262)
    what: str
    part: str = ""
    detail: str = ""

    def __str__(self) -> str:
        what = f"{self.what} {self.detail}" if self.detail else self.what
        return f"{self.part}: {what}" if self.part else what

    def line(self) -> str:
        """The event as a line of the file, without empty fields."""
        return self.model_dump_json(exclude_defaults=True)

    def ends(self, fault: Event) -> bool:
        """Whether it ends a fault that was injected before it."""
        return (
            self.part == fault.part
            and self.what in UP_AFTER.get(fault.what, ())
            and self.detail in {"", fault.what}
        )


class EventLog:
    """Appends the events of one run; the first one creates the directory.

    Raises:
        UsageError: `logdir` is on a file system that cannot append (an object store).
    """

    def __init__(self, logdir: Path | str | Location, run: str) -> None:
        self.place = Location.parse(logdir).child(f"run={run}", EVENTS_FILE)
        if not self.place.local:
            raise UsageError(f"{self.place.shown}: events can be appended to a local file only")

    def note(
        self, what: str, part: str = "", *, detail: str = "", time_ns: int | None = None
    ) -> Event:
        """Append an event, by default with the current time; raises SequenceLogError."""
        now_ns = time.time_ns() if time_ns is None else time_ns
        event = Event(time_ns=now_ns, what=what, part=part, detail=detail)
        files = self.place.filesystem
        with self.place.checked("written"):
            files.create_dir(self.place.parent.path, recursive=True)
            with files.open_append_stream(self.place.path) as sink:
                sink.write(event.line().encode() + b"\n")
        return event


class Events:
    """Events in the order of their times; `damage` names lines that are not events."""

    def __init__(self, events: list[Event], damage: list[str]) -> None:
        self.events = sorted(events, key=lambda event: event.time_ns)
        self.damage = damage

    @classmethod
    def read(cls, place: Location) -> Self:
        """Read a file; a missing file has no events. Raises SequenceLogError."""
        with place.checked("read"):
            try:
                lines = place.read().splitlines()
            except FileNotFoundError:
                return cls([], [])
        events, damage = list[Event](), list[str]()
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                events.append(Event.model_validate_json(line))
            except ValidationError:
                damage.append(f"{place.shown}: line {number} is not an event")
        return cls(events, damage)
