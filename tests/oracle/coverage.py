"""What all logs together say of what was read, offset by offset."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirrortest.model.findings import Finding

from .judge import ALWAYS, INCARNATION, Passed, incarnation_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirrortest.wire.stream import StreamId

    from .judge import Message


@dataclass
class Facts:
    """What all logs together say of what was read.

    `unread` is what everything missing is because a partition was not read to its end;
    `looked_at`: the end of some partition is told.
    """

    passed: list[list[Passed]]
    unread: set[Finding]
    claimed: set[tuple[StreamId, int]]
    looked_at: bool

    @property
    def whole(self) -> bool:
        """Whether the logs cover all partitions to their ends."""
        return not self.unread and not any(each.blind for some in self.passed for each in some)


def covered(
    logged: Sequence[tuple[Any, ...]],
    partition: int,
    stood: Mapping[int, Message],
    unread: set[Finding],
) -> list[Passed]:
    """Which offsets of a partition the logs show, of what stood there.

    `unread` takes what everything missing is for its sake.
    """
    here = [(kind, lo, hi) for kind, at, lo, hi, *_ in logged if at == partition]
    told: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for kind, at, lo, hi, *proof in logged:
        if kind == "unread" and at == partition:
            for n in range(lo, hi):
                told[n].append((proof[0], proof[1]))

    def offsets(wanted: str) -> set[int]:
        return {n for kind, lo, hi in here if kind == wanted for n in range(lo, hi)}

    seen, read, gone = offsets("seen"), offsets("read"), offsets("unread")
    ends: dict[int, int] = {}
    for kind, lo, hi in here:
        if kind in {"read", "unread"} and incarnation_of(lo) == incarnation_of(hi):
            ends[incarnation_of(lo)] = max(hi, ends.get(incarnation_of(lo), 0))

    def minute(n: int) -> int:
        """The last one that may stand there: each proof is true of these very places.

        What is left of an incarnation is what its judge took for it: who went on, if any did.
        """
        proofs = told.get(n, [(ALWAYS, False)])
        if n < ends.get(incarnation_of(n), 0):
            return min(at for at, _ in proofs)
        went_on = [at for at, on in proofs if on]
        return min(went_on) if went_on else max(at for at, _ in proofs)

    tails = [hi for kind, _, hi in here if kind == "tail"]
    # The rest of an incarnation that is gone ends where the next one begins.
    newest = max((incarnation_of(hi) for kind, _, hi in here if kind != "seen"), default=0)
    begin = newest * INCARNATION
    tails = [hi for hi in tails if hi >= begin]
    reached = max([begin - 1, *read, *gone]) + 1
    never = not newest and reached == begin and max(tails, default=1) > begin
    if never:
        unread.add(Finding.INCONCLUSIVE)
    elif not tails or reached < max(tails):
        unread.add(Finding.IN_FLIGHT)
    passed = []
    # What stands behind all that was read is under way, not in doubt, but where no log says
    # that anything was read; where no row shows anything there, it is no hole either.
    for n in sorted({*range(reached), *(seen & stood.keys())}):
        blind = never or (n not in read and n < reached)
        last = minute(n) if blind else ALWAYS
        passed.append(Passed(n, n + 1, blind, blind and n in seen, last))
    return passed
