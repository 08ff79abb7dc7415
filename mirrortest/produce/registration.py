"""Claiming an incarnation: write a claim into the ledger, read back, the first one wins.

A claim closes the incarnation before it at that one's reserved marks. That one may still be
alive: it reads the ledger back after each reservation, before it uses the numbers, and ends when
it finds the claim. So its marks are final as soon as the claim has an offset; if they moved while
the claim was on its way, the claim is written once more with the right ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from mirrortest.verify.ledger_parts import CLOSED, LaneParts
from mirrortest.verify.ledger_record import Claim, ClosedLane, claim_key, claim_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrortest.produce.ledger_view import LedgerView
    from mirrortest.verify.ledger import Ledger

_log = structlog.get_logger()


async def register(
    view: LedgerView,
    *,
    run: str,
    producer: str,
    session: str,
    lanes: Mapping[str, tuple[int, ...]],
    above: int = 0,
) -> Claim:
    """Claim the next free incarnation for these lanes (topic -> lanes).

    It is greater than `above`, too, which the ledger need not know: its topic may be another one.
    The view must be read up to the ledger's end, and be followed.
    """
    incarnation = above
    while True:
        # In a topic that was created again claims of before could be missing.
        await view.restore()
        newest = view.ledger.latest(run, producer)
        incarnation = max(incarnation, newest.incarnation if newest else 0) + 1
        claim = Claim(run, producer, incarnation, session, dict(lanes))
        claim = replace(claim, closes=closing(view.ledger, claim))
        await view.write((claim_key(claim), claim_value(claim)))
        first = view.ledger.winner(run, producer, incarnation)
        if first is None or first.session != session:
            _log.info("incarnation already taken", producer=producer, incarnation=incarnation)
            # A claim that lost must not look like the first one after a compaction.
            await view.write((claim_key(claim), None))
            continue
        closes = closing(view.ledger, claim)
        if closes != claim.closes:
            claim = replace(claim, closes=closes)
            await view.write((claim_key(claim), claim_value(claim)))
        return claim


async def publish_closed(view: LedgerView, claim: Claim) -> None:
    """Write the last word on the lanes of earlier incarnations that only a claim has closed.

    Their own last records could be displaced in the ledger's copy by older ones (`ledger_parts`).
    """
    await view.write(
        *(
            record
            for lane in view.ledger.closed_by_claims(claim.run, claim.producer)
            for record in LaneParts(last_word=CLOSED).records(lane)
        )
    )


async def record_failure(view: LedgerView, claim: Claim) -> None:
    """Have consumers know that nothing more comes, though more was to come.

    They need not wait for ever, and do not take the run for complete.
    """
    failed = replace(claim, failed=True)
    await view.write((claim_key(failed), claim_value(failed)))


def closing(ledger: Ledger, claim: Claim) -> tuple[ClosedLane, ...]:
    """The lanes of the incarnation before the claimed one, with their reserved marks."""
    before = claim.incarnation - 1
    earlier = ledger.winner(claim.run, claim.producer, before)
    marks = dict.fromkeys(earlier.streams(), 0) if earlier is not None else {}
    for stream, record in ledger.lanes.items():
        if stream[1:4] == (claim.run, claim.producer, before):
            marks[stream] = record.reserved
    return tuple(
        sorted(ClosedLane(stream.topic, stream.lane, mark) for stream, mark in marks.items())
    )
