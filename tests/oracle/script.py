"""What consumers do, step by step, resolved to offsets: the events that are judged.

Partitions are taken, read, saved, handed over and stolen; consumers die and restart; zombies
continue; retention deletes unread records; topics are deleted and recreated; the ledger and the
mirror's copies arrive bit by bit; judging rounds run at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from .judge import ALWAYS, INCARNATION, incarnation_of, minute_of, offset_of
from .truth import make_truth

if TYPE_CHECKING:
    from mirrortest.verify.placement import ExpectPartition

    from .tape import Tape
    from .truth import Truth

DEADLINE = 64_000
"""Nanoseconds; all steps of time are multiples of a 64th of it, so that nothing is rounded."""


class Take(NamedTuple):
    """A consumer takes a partition, from a state (its number) or from nothing."""

    consumer: int
    partition: int
    state: int | None


class Read(NamedTuple):
    """A consumer reads offsets [lo, hi); some of them it may have judged already."""

    consumer: int
    partition: int
    lo: int
    hi: int


class Unread(NamedTuple):
    """A consumer finds that offsets [lo, hi) were deleted.

    They contained no message with an intended time after `minute`.
    """

    consumer: int
    partition: int
    lo: int
    hi: int
    minute: int


class Renew(NamedTuple):
    """A consumer finds that the topic was recreated, and continues at the new one's beginning.

    The rest of the old one contained no message with an intended time after `minute`.
    """

    consumer: int
    partition: int
    minute: int


class Save(NamedTuple):
    """A consumer writes a state; a zombie's is ignored, a parting one also logs findings."""

    consumer: int
    partition: int
    number: int
    zombie: bool
    parting: bool


class Drop(NamedTuple):
    """A consumer gives up a partition."""

    consumer: int
    partition: int


class Die(NamedTuple):
    """A consumer is killed and restarts; rows since its last save are kept or not."""

    consumer: int
    kept: bool


class Round(NamedTuple):
    """A consumer judges: when, how much of the ledger it has read, at which offsets partitions end.

    The last round (`final`) is the verdict; unknown ends are missing.
    """

    consumer: int
    now: int
    ledger: int
    ends: dict[int, int]
    final: bool = False


Event = Take | Read | Unread | Renew | Save | Drop | Die | Round


@dataclass
class History:
    """A truth and a script."""

    truth: Truth
    events: list[Event] = field(default_factory=list)

    def __str__(self) -> str:
        truth = self.truth
        counts = f"{truth.counts}{' compacted' if truth.compact else ''}"
        counts += " from a compacted source" if truth.source_compact else ""
        lines = [f"{truth.policy.value}, partitions {truth.source_partitions} -> {counts}"]
        for sent in truth.sent:
            outcomes = " ".join(
                f"{n}{'?' if o is None else o.name[0]}" for n, o in sent.outcomes.items()
            )
            lines.append(
                f"sent {sent.stream[2:]} partition {sent.source_partition}: {outcomes} reserved "
                f"{sent.reserved}{' ended' if sent.ended else ''}"
                + (f" recent {sorted(sent.recent)}" if sent.recent else "")
            )
        for number, record in enumerate(truth.ledger):
            lines.append(f"ledger {number}: {record}")
        for number, stood in enumerate(truth.stood):
            shown = [
                f"{at}:{m.stream[2:] if m.stream else m.key}#{m.seq}"
                + "".join(f"!{f.label}" for f in sorted(m.findings))
                + "!early" * m.early
                for at, m in sorted(stood.items())
            ]
            lines.append(f"partition {number} ({truth.ends[number]}): {' '.join(shown)}")
        return "\n".join([*lines, *map(str, self.events)])


def make_history(
    tape: Tape, *, name: str = "", topic: str = "t", policy: ExpectPartition | None = None
) -> History:
    """A history; see `truth.make_truth`."""
    stage = _Stage(tape, make_truth(tape, name=name, topic=topic, policy=policy))
    stage.play()
    stage.set_clocks()
    return stage.history


@dataclass
class _Stage:
    """The state of everything while a script is generated."""

    tape: Tape
    truth: Truth
    now: int = 0
    ledger: int = 0
    saves: int = 0

    def __post_init__(self) -> None:
        count = self.truth.partitions
        self.history = History(self.truth)
        self.consumers = 1 + self.tape.below(3)
        self.incarnation = [0] * count
        self.begin = [0] * count
        self.end = [0] * count
        self.owner: list[int | None] = [None] * count
        self.newest: list[int | None] = [None] * count
        self.position: dict[tuple[int, int], int] = {}
        self.saved: dict[int, int] = {}

    def play(self) -> None:
        """Random acts, and mostly an orderly end."""
        acts = (
            self.read, self.grow, self.lull, self.save, self.read, self.hand_over, self.steal,
            self.lull, self.delete, self.read, self.zombie, self.die, self.hear, self.grow,
            self.make_again,
        )  # fmt: skip
        for _ in range(self.tape.below(16)):
            self.tape.pick(acts)()
        self.finish()

    def do(self, event: Event) -> None:
        self.history.events.append(event)

    # -- acts -----------------------------------------------------------------------------------

    def grow(self) -> None:
        at = self.tape.below(self.truth.partitions)
        self.reach(at, self.end[at] + 1 + self.tape.below(16))

    def make_again(self) -> None:
        """Recreate the topic, for one partition only.

        The partition's newest state, and all its readers, must have read some of the present
        incarnation: others would not notice the change, or could not tell which of several
        incarnations they are in.
        """
        left = [at for at, n in enumerate(self.incarnation) if n + 1 < len(self.truth.ends[at])]
        if not left:
            return
        at = self.tape.pick(left)
        self.reach(at, self.end[at] + 1 + self.tape.below(8))
        self.read_on(self.owned(at), at, 1 + self.tape.below(12))
        self.save_of(self.owned(at), at)
        places = [place for (_, of), place in self.position.items() if of == at]
        if min(places) > self.incarnation[at] * INCARNATION:
            self.incarnation[at] += 1
            self.begin[at] = self.end[at] = self.incarnation[at] * INCARNATION

    def hear(self) -> None:
        self.ledger = min(len(self.truth.ledger), self.ledger + 1 + self.tape.below(12))

    def read(self) -> None:
        at = self.tape.below(self.truth.partitions)
        if self.tape.below(3):
            self.reach(at, self.end[at] + 1 + self.tape.below(16))
        self.read_on(self.owned(at), at, 1 + self.tape.below(12))

    def zombie(self) -> None:
        zombies = [(c, p) for c, p in self.position if self.owner[p] != c]
        if zombies:
            consumer, at = self.tape.pick(zombies)
            self.read_on(consumer, at, 1 + self.tape.below(12))
            if self.tape.below(2):
                self.save_of(consumer, at)

    def save(self) -> None:
        at = self.tape.below(self.truth.partitions)
        self.save_of(self.owned(at), at)

    def hand_over(self) -> None:
        at = self.tape.below(self.truth.partitions)
        self.save_of(self.owned(at), at, parting=True)
        self.drop(self.owned(at), at)
        self.take(self.tape.below(self.consumers), at)

    def steal(self) -> None:
        at = self.tape.below(self.truth.partitions)
        thief = (self.owned(at) + 1 + self.tape.below(2)) % self.consumers
        if self.owner[at] != thief:
            self.drop(thief, at)
            self.take(thief, at)

    def die(self) -> None:
        consumer = self.tape.below(self.consumers)
        self.do(Die(consumer, kept=self.tape.below(2) == 0))
        for at in [p for c, p in self.position if c == consumer]:
            del self.position[consumer, at]
            if self.owner[at] == consumer:
                self.owner[at] = None

    def delete(self) -> None:
        at = self.tape.below(self.truth.partitions)
        self.grow()
        self.begin[at] += self.tape.below(self.end[at] - self.begin[at] + 1)

    def lull(self) -> None:
        """Nothing arrives for a while; rounds run, mostly with all that there is."""
        consumer = self.tape.below(self.consumers)
        if not self.tape.one_in(4):
            self.hear()
            for at in range(self.truth.partitions):
                self.read_on(self.owned(at), at, self.end[at])
                if self.owner[at] != consumer:
                    self.save_of(self.owned(at), at)
        self.judge(consumer, final=False)
        self.now += self.tape.pick((64, 1, 63, 65)) * (DEADLINE // 64)
        self.judge(consumer, final=False)

    def set_clocks(self) -> None:
        """From some minute on, messages of some streams arrive long before their intended times."""
        early = {sent.stream: self.tape.below(3) for sent in self.truth.sent if self.tape.one_in(8)}
        for stood in self.truth.stood:
            for place, message in stood.items():
                if message.stream in early:
                    off = minute_of(message.seq) >= early[message.stream]
                    stood[place] = message._replace(early=off)

    # -- the end --------------------------------------------------------------------------------

    def finish(self) -> None:
        tape, count = self.tape, self.truth.partitions
        if not tape.one_in(8):
            self.ledger = len(self.truth.ledger)
        for at in range(count):
            if not tape.one_in(16):
                self.reach(at, self.truth.ends[at][self.incarnation[at]])
            if not tape.one_in(16):
                self.read_on(self.owned(at), at, self.end[at])
        for _ in range(tape.below(3)):
            self.now += tape.pick((64, 1, 63, 65)) * (DEADLINE // 64)
            self.save_all(tape.one_in(4))
            self.judge(tape.below(self.consumers), final=False)
        for consumer in range(self.consumers):
            if all(c != consumer for c, _ in self.position) and not tape.one_in(4):
                continue
            self.now += DEADLINE // 64
            self.judge(consumer, final=True)
            for at in [p for c, p in self.position if c == consumer]:
                self.save_of(consumer, at, parting=True)

    def save_all(self, some: bool) -> None:
        for consumer, at in list(self.position):
            if not some or self.tape.below(2):
                self.save_of(consumer, at)

    # -- steps ----------------------------------------------------------------------------------

    def owned(self, at: int) -> int:
        owner = self.owner[at]
        return self.take(self.tape.below(self.consumers), at) if owner is None else owner

    def take(self, consumer: int, at: int) -> int:
        self.drop(consumer, at)
        state = self.newest[at]
        self.do(Take(consumer, at, state))
        self.owner[at] = consumer
        self.position[consumer, at] = 0 if state is None else self.saved[state]
        self.look(consumer, at)
        return consumer

    def reach(self, at: int, end: int) -> None:
        """Let a partition grow up to `end`.

        Readers at offsets of a former incarnation notice the new one before it grows past them. A
        state of a former incarnation at exactly the new end would be taken for one of the new
        incarnation, so the partition then ends one offset earlier.
        """
        end = min(end, self.truth.ends[at][self.incarnation[at]])
        for consumer, of in list(self.position):
            place = self.position[consumer, of]
            if of == at and self.behind(place, at) and offset_of(place) <= offset_of(end):
                self.look(consumer, at)
        newest = self.newest[at]
        if newest is not None and self.behind(self.saved[newest], at):
            end -= offset_of(self.saved[newest]) == offset_of(end)
        self.end[at] = max(self.end[at], end)

    def behind(self, place: int, at: int) -> bool:
        """Whether a place is in a former incarnation."""
        return incarnation_of(place) < self.incarnation[at]

    def look(self, consumer: int, at: int) -> None:
        """Continue where the partition begins now."""
        if self.behind(self.position[consumer, at], at):
            self.do(Renew(consumer, at, self.minute()))
            self.position[consumer, at] = self.incarnation[at] * INCARNATION
        position = self.position[consumer, at]
        if position < self.begin[at]:
            self.do(Unread(consumer, at, position, self.begin[at], self.minute()))
            self.position[consumer, at] = self.begin[at]

    def minute(self) -> int:
        """Some minute of intended time, mostly one in which messages were to be sent."""
        return self.tape.pick((1, 0, 2, -1, 3, ALWAYS))

    def drop(self, consumer: int, at: int) -> None:
        if (consumer, at) in self.position:
            self.do(Drop(consumer, at))
            del self.position[consumer, at]
            if self.owner[at] == consumer:
                self.owner[at] = None

    def read_on(self, consumer: int, at: int, count: int) -> None:
        self.look(consumer, at)
        position = self.position[consumer, at]
        lo = max(self.begin[at], position - max(0, self.tape.below(6) - 3))
        hi = min(self.end[at], position + count)
        if hi > position:
            self.do(Read(consumer, at, lo, hi))
            self.position[consumer, at] = hi

    def save_of(self, consumer: int, at: int, *, parting: bool = False) -> None:
        zombie = self.owner[at] != consumer
        self.do(Save(consumer, at, self.saves, zombie, parting))
        self.saved[self.saves] = self.position[consumer, at]
        if not zombie:
            self.newest[at] = self.saves
        self.saves += 1

    def judge(self, consumer: int, *, final: bool) -> None:
        for at in [p for c, p in self.position if c == consumer and self.owner[p] != c]:
            # A fenced consumer mostly notices before it judges.
            if final or not self.tape.one_in(4):
                self.drop(consumer, at)
        ends = dict(enumerate(map(offset_of, self.end)))
        if self.tape.one_in(16):
            ends.popitem()
        self.do(Round(consumer, self.now, self.ledger, ends, final))
