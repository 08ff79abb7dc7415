"""The names of every judgement, one each, the same online, offline, in metrics and in reports.

`Finding` says what is wrong with a message; its members are bits, so that the findings of one
message, or of a whole interval of messages, are one integer. `Outcome` says how a send ended,
after Jepsen's ok / fail / info.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag


class Outcome(IntEnum):
    """How the send of a message ended. The values are written into sequence logs."""

    ACKED = 1
    """The broker acknowledged it."""
    FAILED = 2
    """Known not to be written."""
    UNKNOWN = 3
    """Timed out, connection lost, process died: it may or may not appear. Never loss or phantom."""


class Finding(IntFlag):
    """What can be found of a message. The values are written into sequence logs.

    The first group is read off one message; the second needs a partition's order; the third needs
    the union of all partitions and the ledger (or the logs).
    """

    FOREIGN = 1 << 0
    """No message of ours."""
    OTHER_RUN = 1 << 1
    """Ours, of another run: no verdict on this one."""
    UNPROVEN = 1 << 2
    """Too small to carry the proof of its identity."""
    CORRUPTED = 1 << 3
    """Check value, size or payload does not match what was sent."""
    ALTERED_KEY = 1 << 4
    ALTERED_HEADERS = 1 << 5
    ALTERED_TIMESTAMP = 1 << 6
    MISROUTED = 1 << 7
    """On a partition other than its lane's."""

    DUPLICATED = 1 << 8
    """At more than one destination offset."""
    REORDERED = 1 << 9
    """Its first copy lies after the first copy of a later seq of its stream in its partition."""

    LOST = 1 << 10
    """Acknowledged, never seen, though the destination was read to its end."""
    IN_FLIGHT = 1 << 11
    """Acknowledged, not seen yet, and it is too early to call it lost."""
    LATE = 1 << 12
    """Seen after it had been claimed lost."""
    PHANTOM = 1 << 13
    """Seen, though never sent, or known not to be written."""
    COMPACTED = 1 << 14
    """Missing, and the topic's compaction explains it."""
    INCONCLUSIVE = 1 << 15
    """Missing from a range that nobody read."""

    @property
    def label(self) -> str:
        """The finding's name in metrics, reports and thresholds: lower case, as `altered_key`."""
        name = self.name
        if name is None:
            raise ValueError(f"{self!r} is not one finding")
        return name.lower()


PER_MESSAGE = (
    Finding.FOREIGN
    | Finding.OTHER_RUN
    | Finding.UNPROVEN
    | Finding.CORRUPTED
    | Finding.ALTERED_KEY
    | Finding.ALTERED_HEADERS
    | Finding.ALTERED_TIMESTAMP
    | Finding.MISROUTED
)
"""The findings that a message shows by itself, given its partition and the run."""

STREAM_FINDINGS = (
    Finding.UNPROVEN,
    Finding.CORRUPTED,
    Finding.ALTERED_KEY,
    Finding.ALTERED_HEADERS,
    Finding.ALTERED_TIMESTAMP,
    Finding.MISROUTED,
)
"""Those of them that a message of a stream can show."""

UNSEEN = (Finding.LOST, Finding.IN_FLIGHT, Finding.INCONCLUSIVE)
"""What a message that was acknowledged and not seen may be, but for what compaction explains."""

WRONG = (
    Finding.LOST,
    Finding.DUPLICATED,
    Finding.REORDERED,
    Finding.CORRUPTED,
    Finding.ALTERED_KEY,
    Finding.ALTERED_HEADERS,
    Finding.ALTERED_TIMESTAMP,
    Finding.MISROUTED,
    Finding.PHANTOM,
    Finding.LATE,
    Finding.INCONCLUSIVE,
)
"""What a lane in order has none of."""

NO_STREAM = Finding.FOREIGN | Finding.OTHER_RUN
"""Messages with one of these never enter a stream; so do corrupted ones whose id is unknown."""
