"""Ids of producers and streams.

A producer's id on the wire is ``NAME@RUN.INCARNATION``. An id without ``@`` is that of a foreign
producer (the ancestor's): its run is empty and its incarnation 0.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mirrortest.errors import UsageError

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RUN_LENGTH = 16
RUN_PATTERN = re.compile(rf"[a-z0-9]{{1,{_RUN_LENGTH}}}")
MAX_INCARNATION = 999_999_999
"""The greatest incarnation in an id."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ID = re.compile(
    rb"(?P<name>[^@;]{1,200})@(?P<run>[a-z0-9]{1,16})\.(?P<incarnation>[1-9][0-9]{0,8})"
)
_FOREIGN = re.compile(rb"[\x21-\x3a\x3c-\x3f\x41-\x7e]{1,200}")


class ProducerId(NamedTuple):
    """A producer's incarnation in a run; `run` is empty for a foreign producer."""

    name: str
    run: str
    incarnation: int

    def encode(self) -> bytes:
        """The id on the wire."""
        if not self.run:
            return self.name.encode()
        return f"{self.name}@{self.run}.{self.incarnation}".encode()

    @classmethod
    def parse(cls, raw: bytes) -> ProducerId | None:
        """Read an id; None if it is invalid."""
        match = _ID.fullmatch(raw)
        if match is not None:
            try:
                name = match["name"].decode("ascii")
            except UnicodeDecodeError:
                return None
            if NAME_PATTERN.fullmatch(name) is None:
                return None
            return cls(name, match["run"].decode(), int(match["incarnation"]))
        if _FOREIGN.fullmatch(raw) is not None:
            return cls(raw.decode(), "", 0)
        return None


class StreamId(NamedTuple):
    """A stream: its messages have the seqs 0, 1, 2, ... without gaps.

    `topic` is the source topic's name, on both sides of the mirror. The record key is `lane` in
    decimal.
    """

    topic: str
    run: str
    producer: str
    incarnation: int
    lane: int


def is_topic(name: str) -> bool:
    """Whether `name` is a valid topic name in Kafka."""
    return _TOPIC.fullmatch(name) is not None and name not in {".", ".."}


def checked_name(name: str, *, option: str = "--id") -> str:
    """Return a valid producer's or consumer's name, or raise UsageError with the valid form."""
    if NAME_PATTERN.fullmatch(name) is None:
        raise UsageError(
            f"{option} {name!r}: a name is 1 to 64 letters, digits, '.', '_' or '-', and "
            "starts with a letter or digit"
        )
    return name


def checked_run(run: str, *, option: str = "--run") -> str:
    """Return a valid run id, or raise UsageError with the valid form."""
    if RUN_PATTERN.fullmatch(run) is None:
        # Keep the end: nightly runs often differ only in a date there.
        meant = "".join(re.findall(r"[a-z0-9]", run.lower()))[-_RUN_LENGTH:]
        raise UsageError(
            f"{option} {run!r}: a run's id is 1 to {_RUN_LENGTH} lower-case letters and digits"
            + (f"; did you mean {meant}?" if meant else "")
        )
    return run
