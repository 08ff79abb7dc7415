"""The plan: what each producer sends, and what the faulty mirror does to it, from one seed.

Most messages go to two topics, where every kind hits single messages and short runs at random, at
rates in steps of ten down to one in a million. Kinds that hit an entire lane, producer, partition
or topic have their own small topics and producers, where they hide nothing else.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirrortest.errors import UsageError
from mirrortest.faults.spec import Act, Spec, Window
from mirrortest.verify.anomaly import Anomaly
from mirrortest.wire.descriptor import SIZE as PROOF_SIZE
from mirrortest.wire.form import HEADER_NAMES, Form
from mirrortest.wire.message import FIXED_HEADER
from mirrortest.wire.stream import ProducerId

if TYPE_CHECKING:
    from collections.abc import Iterator

MAIN = ("orders", "clicks.eu")
MAIN_PARTITIONS = 4
TAILS, PARTS, STRAY = "side.tails", "side.parts", "side.stray"
SIDE = (TAILS, PARTS, STRAY)
SIDE_PARTITIONS = 3
MESSAGE_SIZE = 200
"""Bytes of a record's value: enough fill for anomalies to change."""
RAREST = 1e-6

_SINGLE = (
    Anomaly.DROP,
    Anomaly.DUPLICATE,
    Anomaly.DUPLICATE_LATER,
    Anomaly.SWAP,
    Anomaly.HOLD,
    Anomaly.CHANGE_ID,
    Anomaly.CHANGE_SEQ,
    Anomaly.CHANGE_TIME,
    Anomaly.CHANGE_DESCRIPTOR,
    Anomaly.CHANGE_PAYLOAD,
    Anomaly.REKEY,
    Anomaly.REROUTE,
    Anomaly.ADD_HEADER,
    Anomaly.RESTAMP,
    Anomaly.OTHER_RUN,
)
"""Kinds that hit single messages at the plan's rate and have no other parameter."""
_RUN_LENGTH, _REPLAY_LENGTH = 10, 50
_FEWEST = 20
"""Messages that each kind should hit at least, about."""
_RELEASE_AFTER = 5.0
"""Seconds of silence after which the faulty mirror releases what it deferred."""


@dataclass(frozen=True, kw_only=True)
class Sender:
    """One producer: the form of its messages, its topics, and the messages to each topic."""

    name: str
    form: Form
    topics: tuple[str, ...]
    messages: int


@dataclass(frozen=True, kw_only=True)
class CalibrationPlan:
    """What a calibration measures.

    Attributes:
        run: the run's id.
        messages: how many are sent to the two main topics, about.
        rate: the highest rate of each kind of anomaly among them.
        seed: the seed of all choices.
        forms: the forms of messages; with both, half of the producers send each.
        consumers: how many consumers share the destination's partitions.
        throughput: messages/s to the main topics together.
        deadline: seconds after which a missing message is lost.

    Raises:
        UsageError: a number is out of range.
    """

    run: str
    messages: int
    rate: float
    seed: int
    forms: tuple[Form, ...]
    consumers: int
    throughput: float
    deadline: float

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if self.messages < 10_000:
            raise UsageError("--messages must be at least 10000, or some kinds do not occur")
        if not RAREST <= self.rate <= 0.01:
            raise UsageError("--rate must be between 0.000001 and 0.01")
        if not 1 <= self.consumers <= 26:
            raise UsageError("--consumers must be between 1 and 26")
        if not 0 < self.throughput < math.inf:
            raise UsageError("--throughput must be a number above zero")
        if self.deadline < 2 * _RELEASE_AFTER:
            raise UsageError(
                f"--deadline must be at least {2 * _RELEASE_AFTER:g}s: what the faulty mirror "
                "defers must not count as lost meanwhile"
            )

    @property
    def few(self) -> int:
        """How many messages each small producer sends to each of its topics."""
        return max(1_000, self.messages // 500)

    @property
    def seconds(self) -> float:
        """How long the producers send."""
        return self.messages / self.throughput

    @property
    def senders(self) -> tuple[Sender, ...]:
        """Two producers of most messages, two of the small topics, two that are dropped."""
        forms = (self.forms * 2)[:2]
        most = self.messages // (2 * len(MAIN))
        return tuple(
            Sender(name=name, form=form, topics=topics, messages=messages)
            for names, topics, messages in (
                (("ann", "bob"), MAIN, most),
                (("cid", "dan"), SIDE, self.few),
                (("eve", "fay"), MAIN, self.few),
            )
            for name, form in zip(names, forms, strict=True)
        )

    @property
    def readers(self) -> tuple[str, ...]:
        """The consumers' names."""
        return tuple(f"reader-{number}" for number in range(1, self.consumers + 1))

    @property
    def topics(self) -> dict[str, int]:
        """The source's topics and how many partitions they have."""
        return dict.fromkeys(MAIN, MAIN_PARTITIONS) | dict.fromkeys(SIDE, SIDE_PARTITIONS)

    @property
    def spec(self) -> Spec:
        """The faulty mirror's specification."""
        acts = (*self._rated(), *self._large())
        return Spec(seed=self.seed, release_after=_RELEASE_AFTER, acts=acts)

    def specification(self) -> str:
        """The specification as TOML, the faulty mirror's file."""
        spec = self.spec.to_json()
        lines = [f"{name} = {json.dumps(value)}" for name, value in spec.items() if name != "acts"]
        for act in spec["acts"]:
            lines += ["", "[[acts]]", *(f"{name} = {_toml(value)}" for name, value in act.items())]
        return "\n".join(lines) + "\n"

    def rates(self, highest: float) -> Iterator[float]:
        """Rates from the highest down in steps of ten, as long as one hit is expected."""
        rate = max(highest, _FEWEST / self.messages)
        while rate >= 0.999 * RAREST and rate * self.messages >= 1:
            yield rate
            rate /= 10

    def _rated(self) -> Iterator[Act]:
        """Acts on single messages and short runs of the main topics."""
        main = "|".join(topic.replace(".", r"\.") for topic in MAIN)
        for rate in self.rates(self.rate):
            for kind in _SINGLE:
                yield Act(kind=kind, topic=main, rate=rate)
            # Not `truncate`'s length: the two together must still change a message.
            yield Act(kind=Anomaly.EXTEND, topic=main, rate=rate, bytes=3)
            yield Act(kind=Anomaly.TRUNCATE, topic=main, rate=rate, bytes=1)
        for rate in self.rates(self.rate / 4):
            if Form.HEADERS in self.forms:
                for header in HEADER_NAMES:
                    for kind in (Anomaly.STRIP_HEADER, Anomaly.RENAME_HEADER):
                        yield Act(kind=kind, topic=main, rate=rate, header=header)
            yield from self._cuts(main, rate)
        for rate in self.rates(self.rate / _RUN_LENGTH):
            yield Act(kind=Anomaly.DROP_RUN, topic=main, rate=rate, length=_RUN_LENGTH)
            yield Act(kind=Anomaly.DELAY, topic=main, rate=rate, seconds=1.0)
            yield Act(kind=Anomaly.HOLD, topic=main, rate=rate, distance=500)
        for rate in self.rates(self.rate / _REPLAY_LENGTH):
            yield Act(kind=Anomaly.REPLAY, topic=main, rate=rate, length=_REPLAY_LENGTH)

    def _cuts(self, main: str, rate: float) -> Iterator[Act]:
        """Acts that truncate values within the descriptor, the numbers and the id."""
        for sender in self.senders:
            if sender.form is Form.BODY and sender.topics == MAIN:
                header = self._header(sender)
                for left in (header + PROOF_SIZE // 2, header - 5, 4):
                    yield Act(
                        kind=Anomaly.TRUNCATE,
                        topic=main,
                        producer=sender.name,
                        rate=rate,
                        bytes=MESSAGE_SIZE - left,
                    )

    def _header(self, sender: Sender) -> int:
        """Bytes of a body's header."""
        return len(ProducerId(sender.name, self.run, 1).encode()) + FIXED_HEADER

    def _large(self) -> Iterator[Act]:
        """Acts on an entire lane, producer, partition or topic."""
        lane = self.few // SIDE_PARTITIONS
        for sender in self.senders:
            if sender.topics == SIDE:
                yield Act(
                    kind=Anomaly.DROP_TAIL,
                    topic=TAILS,
                    producer=sender.name,
                    window=Window(seq=(lane * 9 // 10,)),
                )
                if sender.form is Form.BODY:
                    # The rest is too small for a descriptor; another change must not hide that.
                    yield Act(
                        kind=Anomaly.TRUNCATE,
                        topic=TAILS,
                        producer=sender.name,
                        rate=0.01,
                        bytes=MESSAGE_SIZE - self._header(sender),
                    )
            elif sender.messages == self.few:
                yield Act(kind=Anomaly.DROP_PRODUCER, producer=sender.name)
        yield Act(kind=Anomaly.DROP_PARTITION, topic=PARTS, partition=0)
        yield Act(
            kind=Anomaly.MERGE_PARTITIONS,
            topic=PARTS,
            partition=1,
            to_partition=2,
            window=Window(seq=(lane // 4, lane * 3 // 4)),
        )
        yield Act(
            kind=Anomaly.MERGE_TOPICS,
            topic=STRAY,
            to_topic=PARTS,
            window=Window(seq=(lane // 4, lane // 2)),
        )


def _toml(value: Any) -> str:
    """A value in TOML: JSON's notation, except for tables."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(each)}" for name, each in value.items()) + " }"
    return json.dumps(value)
