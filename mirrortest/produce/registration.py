"""Registers an incarnation: writes a registration and reads the ledger back; the first one wins.

A registration closes the previous incarnation at its reserved marks. That incarnation may still be
running: it reads the ledger back after each reservation, before it uses the numbers, and ends when
it finds the registration. So its marks are final as soon as the registration has an offset. If they
changed while the registration was written, it is written again with the final marks.
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

    Its number is also greater than `above`, which a recreated ledger may lack. The view must have
    read the ledger to its end, and be followed. `before` is this process's previous incarnation, if
    any: only a new process takes over from another one.

    Raises:
        FencedError: another process has taken over from the incarnation `before`.
    """
    incarnation = above
    while True:
        # A recreated topic may lack earlier registrations.
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
    """Write a final record for each lane that only a registration has closed.

    In the ledger's copy older records could displace the lane's own last one (`ledger_parts`).
    """
    await view.write(
        *(
            record
            for lane in view.ledger.closed_by_registrations(registration.run, registration.producer)
            for record in LaneParts(ended=CLOSED).records(lane)
        )
    )


async def record_failure(view: LedgerView, registration: Registration) -> None:
    """Mark a registration as failed: no more messages come, though more were due.

    Then consumers do not wait for ever, and do not take the run for complete.
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
