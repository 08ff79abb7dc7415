"""Registering an incarnation: write a registration into the ledger, read back, the first one wins.

A registration closes the incarnation before it at that one's reserved marks. That one may still be
alive: it reads the ledger back after each reservation, before it uses the numbers, and ends when
it finds the registration. So its marks are final as soon as the registration has an offset; if they
moved while it was on its way, it is written once more with the right ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from mirrortest.verify.ledger_parts import LaneParts
from mirrortest.verify.ledger_record import (
    CLOSED,
    ClosedLane,
    Registration,
    registration_key,
    registration_value,
)

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
    before: Registration | None = None,
) -> Registration:
    """Register the next free incarnation for these lanes (topic -> lanes).

    It is greater than `above`, too, which the ledger need not know: its topic may be another one.
    The view must be read up to the ledger's end, and be followed. `before` is the incarnation that
    this process had before, if any: only a new process takes over from another one.

    Raises:
        FencedError: another process has taken over from the incarnation `before`.
    """
    incarnation = above
    while True:
        # In a topic that was created again registrations of before could be missing.
        await view.restore()
        if before is not None:
            view.check_fence(before)
        incarnation = max(incarnation, view.ledger.newest_incarnation(run, producer)) + 1
        registration = Registration(run, producer, incarnation, session, dict(lanes))
        registration = replace(registration, closes=closing(view.ledger, registration))
        await view.write((registration_key(registration), registration_value(registration)))
        first = view.ledger.winner(run, producer, incarnation)
        if first is None or first.session != session:
            _log.info("incarnation already taken", producer=producer, incarnation=incarnation)
            # A registration that lost must not look like the first one after a compaction.
            await view.write((registration_key(registration), None))
            continue
        closes = closing(view.ledger, registration)
        if closes != registration.closes:
            registration = replace(registration, closes=closes)
            await view.write((registration_key(registration), registration_value(registration)))
        return registration


async def publish_closed(view: LedgerView, registration: Registration) -> None:
    """Write the last word on the lanes of earlier incarnations that only a registration has closed.

    Their own last records could be displaced in the ledger's copy by older ones (`ledger_parts`).
    """
    await view.write(
        *(
            record
            for lane in view.ledger.closed_by_registrations(registration.run, registration.producer)
            for record in LaneParts(ended=CLOSED).records(lane)
        )
    )


async def record_failure(view: LedgerView, registration: Registration) -> None:
    """Have consumers know that nothing more comes, though more was to come.

    They need not wait for ever, and do not take the run for complete.
    """
    failed = replace(registration, failed=True)
    await view.write((registration_key(failed), registration_value(failed)))


def closing(ledger: Ledger, registration: Registration) -> tuple[ClosedLane, ...]:
    """The lanes of the incarnation before the registered one, with their reserved marks."""
    before = registration.incarnation - 1
    earlier = ledger.winner(registration.run, registration.producer, before)
    marks = dict.fromkeys(earlier.streams(), 0) if earlier is not None else {}
    for stream, record in ledger.lanes.items():
        if stream[1:4] == (registration.run, registration.producer, before):
            marks[stream] = record.reserved
    return tuple(
        sorted(ClosedLane(stream.topic, stream.lane, mark) for stream, mark in marks.items())
    )
