"""Events next to the logs: appended one by one, read back tolerantly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyarrow import fs

from mirrortest.errors import SequenceLogError, UsageError
from mirrortest.seqlog.events import Event, EventLog, Events
from mirrortest.seqlog.files import find_sessions
from mirrortest.seqlog.location import Location

if TYPE_CHECKING:
    from pathlib import Path


def test_events_come_back_in_the_order_of_their_times(tmp_path: Path) -> None:
    """Two writers append to one file; an invalid line is reported, an empty one is not."""
    log = EventLog(tmp_path, "r1")
    log.note("start", "mirror", time_ns=20)
    EventLog(tmp_path, "r1").note("kill", "mirror", time_ns=10)
    with (tmp_path / "run=r1" / "events.jsonl").open("a") as file:
        file.write('\nnonsense\n{"what": "no time"}\n{"time_ns": 15, "what": "cable", "new": 1}\n')
    read_back = Events.read(log.place)
    assert [str(event) for event in read_back.events] == ["mirror: kill", "cable", "mirror: start"]
    assert [line.rpartition(": ")[2] for line in read_back.damage] == [
        "line 4 is not an event",
        "line 5 is not an event",
    ]
    assert read_back.damage[0].startswith(log.place.path)


def test_a_noted_event_is_of_now_and_is_no_session(tmp_path: Path) -> None:
    """Without a given time it gets the clock's; the file is not taken for a log."""
    event = EventLog(tmp_path, "r1").note("kill", "mirror")
    assert event.time_ns > 1_700_000_000 * 10**9
    assert find_sessions(tmp_path, "r1") == []


def test_no_file_holds_no_events(tmp_path: Path) -> None:
    """A run without faults has no events."""
    assert Events.read(Location.parse(tmp_path).child("events.jsonl")).events == []


def test_what_cannot_be_written_or_read_is_told(tmp_path: Path) -> None:
    """A file in place of the directory, a directory in place of the file, an object store."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SequenceLogError, match="cannot be written"):
        EventLog(tmp_path / "file", "r1").note("kill")
    (tmp_path / "run=r1" / "events.jsonl").mkdir(parents=True)
    with pytest.raises(SequenceLogError, match="cannot be read"):
        Events.read(EventLog(tmp_path, "r1").place)
    with pytest.raises(UsageError, match="local file only"):
        EventLog(Location(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "logs"), "r1")


def test_a_time_beyond_all_clocks_is_none() -> None:
    """A number that exceeds a timestamp of 64 bits is refused when it is read."""
    with pytest.raises(ValueError, match="less than or equal"):
        Event(time_ns=1 << 63, what="kill")
