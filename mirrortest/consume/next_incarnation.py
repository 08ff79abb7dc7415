"""Which incarnation of a partition's log comes after the one that was read, and from where on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mirrortest.kafka.fetched import Diverged, Recreated

if TYPE_CHECKING:
    from mirrortest.consume.assigned_partition import AssignedPartition
    from mirrortest.kafka.fetched import End, OutOfRange


class NextIncarnation(NamedTuple):
    """`note` is for the user, `topic_id` Kafka's id of the topic that is there now."""

    note: str
    topic_id: str | None
    offset: int = 0
    """What lies below is what was read before."""
    unread: int = 0
    """What lies below, from there on, is not read: some of it may have been before."""


def after_break(held: AssignedPartition, why: OutOfRange) -> NextIncarnation | None:
    """What a broker's answer says for certain; None: nothing new."""
    if isinstance(why, Diverged):
        return cut_back(held, held.common_end(why.leader_epoch, why.end_offset))
    # A broker that is cut off may still know a topic that was deleted.
    if isinstance(why, Recreated) and why.topic_id not in held.left_ids:
        return recreated(held, why.topic_id)
    return None


def before_position(held: AssignedPartition, end: End) -> NextIncarnation | None:
    """What an end says of a log that was read further; None: it goes on, and only lost its head."""
    if end.stable_offset >= held.checker.next_offset:
        return None
    if None in {end.topic_id, held.topic_id}:
        return recreated(held, end.topic_id)
    # Nobody knows who wrote what was read last, and so up to where it is still there.
    return cut_back(held, 0, unread=end.stable_offset)


def recreated(held: AssignedPartition, topic_id: str | None) -> NextIncarnation:
    """The topic was deleted and created again; without ids, it may have been cut back, too."""
    known = topic_id is not None and held.topic_id not in {None, topic_id}
    doubt = "" if known else ", or cut back before it"
    note = (
        f"{held.at.topic}-{held.at.partition} was deleted and made again after offset "
        f"{held.checker.next_offset}{doubt}: judged anew from its beginning"
    )
    return NextIncarnation(note, topic_id)


def cut_back(held: AssignedPartition, offset: int, *, unread: int = 0) -> NextIncarnation:
    """The log was cut back to an offset."""
    note = (
        f"{held.at.topic}-{held.at.partition} was cut back after offset "
        f"{held.checker.next_offset} was read (an unclean leader election): judged anew from "
        f"offset {max(offset, unread)}"
    )
    return NextIncarnation(note, held.topic_id, offset, unread)
