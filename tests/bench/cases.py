"""The measured cases: message sizes and forms, without a mirror and behind one."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tests.bench.contenders import OURS, PEERS, PORTABLE, SHARE, Place, consumer, producer, verifier
from tests.bench.measure import Figure, Running, figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from mirrortest.lab import Lab

PARTITIONS = 4
LANES = ("--destination-partitions", str(2 * PARTITIONS))
"""Two lanes take turns in each partition: a copy's partitions rarely have only one."""
LEDGER = "mirrortest.ledger"
_COPY_SECONDS = 300.0


@dataclass(frozen=True)
class Case:
    """`verb` is produce or verify; `via` describes the mirror in between, if there is one."""

    verb: str
    size: int
    form: str = "body"
    via: str = ""

    def __str__(self) -> str:
        size = f"{self.size // 1000} kB" if self.size >= 1000 else f"{self.size} B"
        words = [self.verb, size, "headers" if self.form == "headers" else "", self.via]
        return " ".join(word for word in words if word)


@dataclass(frozen=True)
class Result:
    """The figure of a contender in one case and turn."""

    case: Case
    contender: str
    turn: int
    figure: Figure

    def to_json(self) -> dict[str, Any]:
        """As a flat dictionary."""
        about = {"who": self.contender, "turn": self.turn}
        return {"name": str(self.case), **asdict(self.case), **about, **asdict(self.figure)}


class Bench:
    """Runs the cases in one lab; `messages` of 1 kB is the larger run, a fifth the smaller.

    With smaller messages both runs have more, so that their cost stands out from start-up.
    """

    def __init__(self, lab: Lab, folder: Path, messages: int, peers: Sequence[str] = PEERS) -> None:
        self._lab = lab
        self._folder = folder
        self._place = Place.of(lab, folder)
        self._messages = messages
        self._peers = peers

    def direct(self, turn: int, size: int, form: str) -> Iterator[Result]:
        """All contenders write; then all read what mirrortest has written."""
        everybody = [OURS, *(self._peers if form == "body" else ())]
        # Rotate the order: the first contender finds an idle broker.
        everybody = everybody[turn % len(everybody) :] + everybody[: turn % len(everybody)]
        written: dict[int, str] = {}
        for contender in everybody:
            counts = self._counts(size, contender)
            topics = {
                count: self._topic("d", turn, size, form, contender, count) for count in counts
            }
            options = ("--form", form, *LANES) if contender in {OURS, PORTABLE} else ()
            yield Result(
                Case("produce", size, form),
                contender,
                turn,
                self._figure(
                    lambda count: producer(
                        contender,  # noqa: B023  # called within this turn
                        self._place,
                        topics[count],  # noqa: B023
                        count,
                        size,
                        *options,  # noqa: B023
                    ),
                    counts,
                ),
            )
            if contender == OURS:
                written = topics
            else:
                self._clear(topics.values())
        smaller, larger = written
        for contender in everybody:
            # With `--portable`, too, mirrortest reads the whole topic.
            counts = self._counts(size, OURS if contender == PORTABLE else contender)
            where = {counts[0]: written[smaller], counts[1]: written[larger]}
            yield Result(
                Case("verify", size, form),
                contender,
                turn,
                self._figure(
                    lambda count: consumer(contender, self._place, where[count], count),  # noqa: B023
                    counts,
                ),
            )
        self._clear(written.values())

    def mirrored(self, turn: int, size: int, via: str) -> Iterator[Result]:
        """Verify the mirror's copy with mirrortest, once the copy is complete."""
        counts = self._counts(size, OURS)
        topics = {count: self._topic("m", turn, size, via, count) for count in counts}
        for count, topic in topics.items():
            Running(producer(OURS, self._place, topic, count, size, *LANES), self._folder).wait()
            self._copied(topic, count)
        alias = self._lab.source.alias
        found = self._figure(lambda count: verifier(self._place, topics[count], alias), counts)
        yield Result(Case("verify", size, via=via), OURS, turn, found)
        self._clear(topics.values())

    def _figure(self, command: Callable[[int], Sequence[str]], counts: tuple[int, int]) -> Figure:
        return figure(command, counts, self._folder)

    def _counts(self, size: int, contender: str) -> tuple[int, int]:
        """How many messages a contender gets in the smaller and in the larger run."""
        more = self._messages * (4 if size < 500 else 1) * SHARE[contender]
        return int(more / 5), int(more)

    def _topic(self, *parts: object) -> str:
        name = "bench." + ".".join(str(part) for part in parts)
        name = "".join(letter if letter.isalnum() or letter in ".-" else "-" for letter in name)
        self._lab.source.create_topic(name, PARTITIONS)
        return name

    def _copied(self, topic: str, count: int) -> None:
        copy = f"{self._lab.source.alias}.{topic}"
        deadline = time.monotonic() + _COPY_SECONDS
        while sum(self._lab.destination.end_offsets(copy).values()) < count:
            self._lab.mirror.check()
            if time.monotonic() > deadline:
                raise SystemExit(f"{copy}: not copied within {_COPY_SECONDS:g} s")
            time.sleep(0.2)

    def _clear(self, topics: Sequence[str] | Any) -> None:
        """Delete the topics' records, to free the disk."""
        for topic in topics:
            self._lab.source.delete_records(topic, -1)
