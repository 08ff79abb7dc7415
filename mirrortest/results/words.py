"""The report's words: readable names and meanings of all counts, notes and reasons."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mirrortest.config.units import number, readable_number
from mirrortest.model.findings import DEFINITIONS, Weight
from mirrortest.model.intervals import IntervalSet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirrortest.results.summary import Summary
    from mirrortest.timing.histogram import Histogram


_SUMS: dict[str, tuple[Weight, str]] = {
    "corrupted_unknown_id": (Weight.BAD, "corrupted so that its id can no longer be read"),
    "unknown": (Weight.DOUBT, "the send ended without an answer: it may or may not arrive"),
    "failed": (Weight.NOTE, "certainly not written in the source"),
    "negative_latency": (Weight.NOTE, "arrived before it was meant to be sent: clocks disagree"),
    "surplus": (Weight.NOTE, "copies beyond the first"),
    "unknown_seen": (Weight.NOTE, "sent without an answer, and seen"),
    "sent": (Weight.PLAIN, "numbered and given to the source's client"),
    "acked": (Weight.PLAIN, "acknowledged by the source"),
    "seen": (Weight.PLAIN, "seen in the destination at least once"),
    "delivered": (Weight.PLAIN, "acknowledged, and seen at least once"),
}
"""Weight and meaning of the counts that are not findings of `model.findings`."""
_WORDS = {each.finding.label: (each.weight, each.meaning) for each in DEFINITIONS} | _SUMS

ORDER = tuple(sorted(_WORDS, key=lambda name: list(Weight).index(_WORDS[name][0])))
"""All names, worst first: the order of all tables."""
FINDINGS = tuple(name for name in ORDER if name not in _SUMS or name == "corrupted_unknown_id")
"""The findings, worst first; other names are outcomes of sends, and sums."""
NO_SHARE = frozenset(
    {"sent", "acked", "failed", "unknown", "unknown_seen", "seen", "foreign", "other_run"}
)
"""Counts that are not part of the acknowledged messages."""
_PREDICATES = {each.finding.label: each.predicate for each in DEFINITIONS if each.predicate} | {
    "negative_latency": "had a latency below zero",
    "corrupted_unknown_id": "were corrupted, with an unreadable id",
    "unknown": "were sent without an answer",
    "unknown_seen": "were sent without an answer, and seen",
}
_NAMES = {
    "acked": "acknowledged",
    "corrupted_unknown_id": "corrupted, id unknown",
    "unknown_seen": "unknown outcome, but seen",
    "surplus": "surplus copies",
    "negative_latency": "latency below zero",
    "other_run": "of another run",
}
_MOST_RANGES = 20


def weight_of(name: str) -> Weight:
    """A count's weight; a count that only a newer version has is a note."""
    return _WORDS[name][0] if name in _WORDS else Weight.NOTE


def meaning_of(name: str) -> str:
    """A count's meaning; empty for a count that only a newer version has."""
    return _WORDS[name][1] if name in _WORDS else ""


def readable_name(name: str) -> str:
    """A count's name for a reader: `altered_key` becomes altered key."""
    return _NAMES.get(name, name.replace("_", " "))


def rank(name: str) -> tuple[int, str]:
    """A sort key: names worst first, then those of newer versions alphabetically."""
    return (ORDER.index(name) if name in _WORDS else len(ORDER), name)


def predicate_of(name: str, count: int) -> str:
    """What happened to `count` messages: were lost, was lost, had an altered key."""
    predicate = _PREDICATES.get(name, f"were {readable_name(name)}")
    return re.sub("^were ", "was ", predicate) if count == 1 else predicate


def moment(time_ns: int, step_ns: int = 1) -> str:
    """A UTC time for a reader, to the minute or second as `step_ns` is: ``2026-11-21 06:30:28``."""
    at = datetime.fromtimestamp(time_ns // 1_000_000_000, tz=UTC)
    return f"{at:%Y-%m-%d %H:%M}" if step_ns >= 60_000_000_000 else f"{at:%Y-%m-%d %H:%M:%S}"


def share(part: int, total: int) -> str:
    """`part` of `total` in per cent, three digits; a partial one never shows as 0 % or 100 %."""
    if not total:
        return ""
    percent = 100 * part / total
    if part < total and percent > 99.9:
        return "> 99.9\N{NO-BREAK SPACE}%"
    if part and percent < 0.001:
        return "< 0.001\N{NO-BREAK SPACE}%"
    return f"{readable_number(percent, 3)}\N{NO-BREAK SPACE}%"


def times_and_duration(times: int, seconds: float) -> str:
    """How often something happened, and for how long in all."""
    return f"{'once' if times == 1 else f'{times} times'}, for {seconds:.1f} s in all"


def partitions(numbers: Iterable[int]) -> str:
    """Partition numbers, consecutive ones as a range: ``partitions 0-3, 7``."""
    found = IntervalSet((each, each + 1) for each in numbers)
    ranges = [f"{lo}-{hi - 1}" if hi - lo > 1 else f"{lo}" for lo, hi in found.intervals()]
    text = ", ".join(ranges[:_MOST_RANGES])
    if (more := len(ranges) - _MOST_RANGES) > 0:
        text += f" and {more:,} more ranges"
    return f"partition{'s' if found.count > 1 else ''} {text}"


def without_latency(summary: Summary) -> list[str]:
    """A line for each topic with messages whose latencies were not measured."""
    return [
        f"{topic}: {number(count)} were in the backlog: their latencies are not measured"
        for topic, count in summary.backlog.items()
    ]


def rests_on(summary: Summary) -> str:
    """Which logs the result rests on; empty for a result of an older version."""
    basis = summary.rests_on
    if basis is None:
        return ""
    logs = f"{number(basis.producers, 'producer')} and {number(basis.consumers, 'consumer')}"
    return f"rests on the logs of {logs}, which read {number(basis.offsets_read, 'offset')}"


def below_zero(topic: str, latency: Histogram) -> str:
    """A note on a topic with latencies below zero."""
    # Logs of older versions have the number alone: each counts as -1 ns.
    by = f"up to {-latency.minimum / 1e9:.3f} s " if latency.minimum < -1 else ""
    return (
        f"{topic}: {latency.negative:,} messages arrived {by}before they were sent: the clocks of "
        "producer and consumer disagree, and latencies are off"
    )


def clock_set(clock: str, by_ns: int, sign: str = "") -> str:
    """A note on a wall clock that was set during the run; `sign` "+" shows the direction."""
    return (
        f"{clock} was set by {by_ns / 1e9:{sign}.3f} s during the run: latencies around it are off "
        "by as much, verdicts are not touched"
    )


def unproven_copies(topic: str, count: int) -> str:
    """A note on messages that seem damaged, in a topic that is not the run's."""
    return (
        f"{topic}: {count:,} messages cannot be verified as written to this topic, and no producer "
        "of this run writes to it: they do not count as corrupted"
    )


def several_processes(producers: Iterable[str]) -> str:
    """Why a run is inconclusive if several processes send under one id."""
    return (
        f"several processes sent as producer {', '.join(producers)}: a message of one hides the "
        "loss of the other's, and looks like its duplicate. Give each producer its own --id"
    )


def in_transactions(topic: str) -> str:
    """Why a run is inconclusive if a read_uncommitted consumer read transactional messages."""
    return (
        f"{topic}: messages of this run were written in transactions, and isolation.level="
        "read_uncommitted reads aborted ones, too: judge a run with --exactly-once or "
        "--command-property isolation.level=read_committed"
    )


def stamped(topic: str, side: str) -> str:
    """A note on a topic whose timestamps the brokers of `side` set (source or destination)."""
    hidden = ", or the producers could not find out" if side == "source" else ""
    return (
        f"{topic}: the {side}'s brokers set its timestamps (message.timestamp.type=LogAppendTime)"
        f"{hidden}: whether the mirror altered timestamps is not judged"
    )
