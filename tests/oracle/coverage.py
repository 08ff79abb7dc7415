"""What all logs together record as read, offset by offset."""

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
    """What all logs together record as read.

    `unread`: the findings of all missing messages because a partition was not read to its end;
    `looked_at`: some log has the end of a partition.
    """

    passed: list[list[Passed]]
    unread: set[Finding]
    claimed: set[tuple[StreamId, int]]
    looked_at: bool


def covered(
    logged: Sequence[tuple[Any, ...]],
    partition: int,
    stood: Mapping[int, Message],
    unread: set[Finding],
) -> list[Passed]:
    """How the logs cover a partition's offsets, given the messages there.

    Adds to `unread` the finding of all missing messages that follows from this partition.
    """
    here = [(kind, lo, hi) for kind, at, lo, hi, *_ in logged if at == partition]
    proofs_at: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for kind, at, lo, hi, *proof in logged:
        if kind == "unread" and at == partition:
            for n in range(lo, hi):
                proofs_at[n].append((proof[0], proof[1]))

    def offsets(wanted: str) -> set[int]:
        return {n for kind, lo, hi in here if kind == wanted for n in range(lo, hi)}

    seen, read, unread_offsets = offsets("seen"), offsets("read"), offsets("unread")
    ends: dict[int, int] = {}
    for kind, lo, hi in here:
        if kind in {"read", "unread"} and incarnation_of(lo) == incarnation_of(hi):
            ends[incarnation_of(lo)] = max(hi, ends.get(incarnation_of(lo), 0))

    def minute(n: int) -> int:
        """The last minute of messages that may be at a place; each proof covers exactly its places.

        For the rest of a former incarnation, the proofs of consumers that read on in the next one
        count; if none did, the latest proof counts.
        """
        proofs = proofs_at.get(n, [(ALWAYS, False)])
        if n < ends.get(incarnation_of(n), 0):
            return min(at for at, _ in proofs)
        went_on = [at for at, on in proofs if on]
        return min(went_on) if went_on else max(at for at, _ in proofs)

    tails = [hi for kind, _, hi in here if kind == "tail"]
    # The rest of a former incarnation ends where the next one begins.
    newest = max((incarnation_of(hi) for kind, _, hi in here if kind != "seen"), default=0)
    begin = newest * INCARNATION
    tails = [hi for hi in tails if hi >= begin]
    reached = max([begin - 1, *read, *unread_offsets]) + 1
    never = not newest and reached == begin and max(tails, default=1) > begin
    if never:
        unread.add(Finding.INCONCLUSIVE)
    elif not tails or reached < max(tails):
        unread.add(Finding.IN_FLIGHT)
    passed = []
    # Messages after all that was read are in flight, not in doubt, unless no log records any
    # reading. Places there that no row shows are not holes.
    for n in sorted({*range(reached), *(seen & stood.keys())}):
        blind = never or (n not in read and n < reached)
        last = minute(n) if blind else ALWAYS
        passed.append(Passed(n, n + 1, blind, blind and n in seen, last))
    return passed
