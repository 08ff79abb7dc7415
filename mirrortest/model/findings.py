"""Everything that can be wrong with a message: one row per finding, from which all else derives.

A row of `DEFINITIONS` defines where a finding is seen, how much it matters, whether it fails a run
by default, and what it means. The subsets below, thresholds, the words of reports and dashboards,
and the table in docs/reference/findings.md are derived from it. To add a finding, add a bit to
`Finding`, a row to `DEFINITIONS`, its detection online (`verify`) and offline (`reconcile`), and
tests.
"""

from __future__ import annotations

from enum import Enum, IntEnum, IntFlag, StrEnum, auto
from typing import Final, NamedTuple


class Outcome(IntEnum):
    """How the send of a message ended, like Jepsen's ok, fail and info.

    The values are written into sequence logs.
    """

    ACKED = 1
    """The broker acknowledged it."""
    FAILED = 2
    """Certainly not written."""
    UNKNOWN = 3
    """Timeout, lost connection or dead process: it may or may not appear. Never lost or phantom."""

    @property
    def label(self) -> str:
        """The outcome's name in metrics, summaries and thresholds: lower case."""
        return self.name.lower()


class Finding(IntFlag):
    """The findings as bits: one integer has all findings of a message, or of an interval of them.

    The values are written into sequence logs, the names in lower case into states and summaries.
    """

    FOREIGN = 1 << 0
    OTHER_RUN = 1 << 1
    UNPROVEN = 1 << 2
    CORRUPTED = 1 << 3
    ALTERED_KEY = 1 << 4
    ALTERED_HEADERS = 1 << 5
    ALTERED_TIMESTAMP = 1 << 6
    MISROUTED = 1 << 7
    DUPLICATED = 1 << 8
    REORDERED = 1 << 9
    LOST = 1 << 10
    IN_FLIGHT = 1 << 11
    LATE = 1 << 12
    PHANTOM = 1 << 13
    COMPACTED = 1 << 14
    INCONCLUSIVE = 1 << 15

    __hash__ = int.__hash__  # an enum's is ten times slower, and findings are dict keys

    @property
    def label(self) -> str:
        """The finding's name in metrics, reports and thresholds: lower case, like `altered_key`."""
        name = self.name
        if name is None:
            raise ValueError(f"{self!r} is not one finding")
        return name.lower()


class Scope(Enum):
    """What has to be seen to establish a finding."""

    RECORD = "a record of no stream of the run"
    MESSAGE = "a message"
    ORDER = "a stream's order in a partition"
    SEEN = "a seen message and the ledger"
    MISSING = "all partitions and the ledger"


class Weight(StrEnum):
    """How much a count matters."""

    BAD = "bad"
    """Never right in a mirror."""
    DOUBT = "doubt"
    """Could not be judged."""
    NOTE = "note"
    """Right or wrong, as the user decides."""
    PLAIN = "plain"
    """A quantity, not a finding."""


class Fails(Enum):
    """When a finding fails a run for which the user set no threshold on it."""

    ALWAYS = auto()
    EXACTLY_ONCE = auto()
    """With `--exactly-once` only."""
    NEVER = auto()


class Definition(NamedTuple):
    """The definition of one finding.

    Attributes:
        finding: its bit and its name.
        scope: what has to be seen to establish it.
        weight: how much it matters.
        fails: when it fails a run by default.
        meaning: what is true of a message that has it.
        predicate: for a sentence about several messages; empty: "were" and the name.
        normal: whether a healthy lane may have it.
    """

    finding: Finding
    scope: Scope
    weight: Weight
    fails: Fails
    meaning: str
    predicate: str = ""
    normal: bool = False


DEFINITIONS: Final = (
    Definition(
        Finding.LOST,
        Scope.MISSING,
        Weight.BAD,
        Fails.ALWAYS,
        "acknowledged, never seen, though the destination was read to its end after the deadline",
    ),
    Definition(
        Finding.CORRUPTED,
        Scope.MESSAGE,
        Weight.BAD,
        Fails.ALWAYS,
        "check value, size or payload is not what was sent",
    ),
    Definition(
        Finding.MISROUTED,
        Scope.MESSAGE,
        Weight.BAD,
        Fails.ALWAYS,
        "on a partition other than its lane's",
    ),
    Definition(
        Finding.PHANTOM,
        Scope.SEEN,
        Weight.BAD,
        Fails.ALWAYS,
        "seen, though never sent, or certainly not written",
        predicate="were seen but never sent",
    ),
    Definition(
        Finding.ALTERED_KEY,
        Scope.MESSAGE,
        Weight.BAD,
        Fails.ALWAYS,
        "the mirror changed the record's key",
        predicate="had an altered key",
    ),
    Definition(
        Finding.ALTERED_HEADERS,
        Scope.MESSAGE,
        Weight.BAD,
        Fails.ALWAYS,
        "the mirror changed the record's headers",
        predicate="had altered headers",
    ),
    Definition(
        Finding.ALTERED_TIMESTAMP,
        Scope.MESSAGE,
        Weight.BAD,
        Fails.ALWAYS,
        "the mirror changed the record's timestamp",
        predicate="had an altered timestamp",
    ),
    Definition(
        Finding.INCONCLUSIVE,
        Scope.MISSING,
        Weight.DOUBT,
        Fails.NEVER,
        "acknowledged, not seen, and possibly in a range that no consumer read, or removed "
        "by compaction",
        predicate="could not be judged",
    ),
    Definition(
        Finding.IN_FLIGHT,
        Scope.MISSING,
        Weight.DOUBT,
        Fails.NEVER,
        "acknowledged, not seen, and too early to call it lost",
        normal=True,
    ),
    Definition(
        Finding.LATE,
        Scope.SEEN,
        Weight.NOTE,
        Fails.NEVER,
        "seen after it had been claimed lost",
    ),
    Definition(
        Finding.DUPLICATED,
        Scope.ORDER,
        Weight.NOTE,
        Fails.EXACTLY_ONCE,
        "at more than one offset of the destination "
        "(the same offset read again after a restart does not count)",
    ),
    Definition(
        Finding.REORDERED,
        Scope.ORDER,
        Weight.NOTE,
        Fails.EXACTLY_ONCE,
        "its first copy comes after the first copy of a later message of its stream",
    ),
    Definition(
        Finding.UNPROVEN,
        Scope.MESSAGE,
        Weight.NOTE,
        Fails.NEVER,
        "too small to prove its identity",
        normal=True,
    ),
    Definition(
        Finding.COMPACTED,
        Scope.MISSING,
        Weight.NOTE,
        Fails.NEVER,
        "missing, and the topic's compaction explains it",
        normal=True,
    ),
    Definition(
        Finding.FOREIGN,
        Scope.RECORD,
        Weight.NOTE,
        Fails.NEVER,
        "not a message of mirrortest",
        normal=True,
    ),
    Definition(
        Finding.OTHER_RUN,
        Scope.RECORD,
        Weight.NOTE,
        Fails.NEVER,
        "a message of another run; it does not affect this run's verdict",
        predicate="were of another run",
        normal=True,
    ),
)
"""The registry, worst first: the order of all tables that users read."""

_BY_BIT = sorted(DEFINITIONS, key=lambda definition: definition.finding)


def _with(*scopes: Scope) -> tuple[Finding, ...]:
    """The findings of these scopes, by bit."""
    return tuple(each.finding for each in _BY_BIT if each.scope in scopes)


def _bits(findings: tuple[Finding, ...]) -> Finding:
    return Finding(sum(findings))


def failing(*, exactly_once: bool) -> tuple[Finding, ...]:
    """The findings that fail a run by default, worst first."""
    fails = {Fails.ALWAYS, Fails.EXACTLY_ONCE} if exactly_once else {Fails.ALWAYS}
    return tuple(each.finding for each in DEFINITIONS if each.fails in fails)


NO_STREAM: Final = _bits(_with(Scope.RECORD))
"""Messages with one of these are in no stream; nor are corrupted ones whose id is unknown."""
STREAM_FINDINGS: Final = _with(Scope.MESSAGE)
"""Findings that a single message of a stream can show, given its partition and the run."""
PER_MESSAGE: Final = NO_STREAM | _bits(STREAM_FINDINGS)
"""Findings that any single message can show."""
IN_PARTITION: Final = (*STREAM_FINDINGS, *_with(Scope.ORDER))
"""Findings that one partition alone can show."""
MISSING: Final = _with(Scope.MISSING)
"""The findings that an acknowledged message that was not seen may have."""
BY_LEDGER: Final = _with(Scope.MISSING, Scope.SEEN)
"""Findings that need the ledger (or the producers' logs)."""
OF_STREAM: Final = (*IN_PARTITION, *BY_LEDGER)
"""All findings that a message of a stream can have."""
BY_REPEATS: Final = (Finding.DUPLICATED, Finding.REORDERED)
"""Findings that a mirror need not have caused: a producer without idempotence may cause them when
it retries a batch, and so may messages written again after an aborted transaction, for consumers
that read both."""
OPEN: Final = (Finding.IN_FLIGHT, Finding.INCONCLUSIVE)
"""Findings of acknowledged messages whose verdict may still change."""
WRONG: Final = frozenset(each.finding for each in DEFINITIONS if not each.normal)
"""Findings that a healthy lane does not have."""

_FAILS = {
    Fails.ALWAYS: "yes",
    Fails.EXACTLY_ONCE: "with `--exactly-once`",
    Fails.NEVER: "no",
}


def markdown() -> str:
    """The table of docs/reference/findings.md."""
    head = "| finding | meaning | established from | fails a run by default |\n"
    rows = (
        f"| `{each.finding.label}` | {each.meaning} | {each.scope.value} | {_FAILS[each.fails]} |\n"
        for each in DEFINITIONS
    )
    return head + "|---|---|---|---|\n" + "".join(rows)
