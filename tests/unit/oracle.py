"""The judgement by brute force: one message at a time, dicts and sets, no cleverness.

What `mirrortest.check` computes on intervals is held against this.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple


class Seen(NamedTuple):
    """One message at one offset of one partition."""

    stream: object
    seq: int
    offset: int
    findings: frozenset = frozenset()


class Unread(NamedTuple):
    """Offsets [lo, hi) that were gone before they could be read."""

    lo: int
    hi: int


class Fragment:
    """One stream in one partition, from the events in offset order."""

    def __init__(self, events, stream):
        self.seqs = []  # in offset order, copies included
        self.by_finding = defaultdict(set)
        self.shadow = set()  # of the seqs below HORIZON
        doubt_from = None
        for event in events:
            if isinstance(event, Unread):
                if doubt_from is None:
                    doubt_from = max(self.seqs, default=-1) + 1
            elif event.stream == stream:
                if doubt_from is not None and event.seq >= doubt_from:
                    self.shadow |= set(range(doubt_from, event.seq))
                    doubt_from = None
                self.seqs.append(event.seq)
                for finding in event.findings:
                    self.by_finding[finding].add(event.seq)
        if doubt_from is not None:
            self.shadow |= set(range(doubt_from, HORIZON))

    @property
    def seen(self):
        return set(self.seqs)

    @property
    def duplicated(self):
        return {seq for seq in self.seqs if self.seqs.count(seq) > 1}

    @property
    def copies(self):
        return len(self.seqs) - len(self.seen)

    @property
    def reordered(self):
        first = {seq: self.seqs.index(seq) for seq in self.seqs}
        return {
            seq for seq in first if any(late > seq and first[late] < first[seq] for late in first)
        }


HORIZON = 1000
"""No test uses a seq as high as this."""


class Lane(NamedTuple):
    """What the ledger vouches for, of a lane that is closed at `end` (None: open)."""

    acked: frozenset
    failed: frozenset
    unknown: frozenset
    end: int | None


def judge(
    fragments,
    lane,
    *,
    ledger_complete,
    expired,
    read_to_end,
    claimed,
    home,
    misrouted_from,
    compact,
):
    """Judge a stream by single messages; `fragments` is {partition: Fragment}.

    Returns {name: set of seqs}.
    """
    offsets = defaultdict(list)
    for partition, fragment in fragments.items():
        for seq in fragment.seqs:
            offsets[seq].append(partition)
    seen = set(offsets)
    shadow = set()
    for partition, fragment in fragments.items():
        nowhere_known = home is None and not seen
        if fragment.seqs or partition == home or nowhere_known:
            shadow |= fragment.shadow
    out = defaultdict(set)
    out["duplicated"] = {seq for seq, at in offsets.items() if len(at) > 1}
    for fragment in fragments.values():
        out["reordered"] |= fragment.reordered - fragment.shadow
        for finding, seqs in fragment.by_finding.items():
            out[finding] |= seqs
    if misrouted_from is not None:
        out["misrouted"] = {
            seq for seq, at in offsets.items() if any(p != misrouted_from for p in at)
        }
    for seq in lane.acked if lane else ():
        if seq in seen:
            out["delivered"].add(seq)
        elif compact and any(later > seq for later in seen):
            out["compacted"].add(seq)
        elif seq in claimed:
            out["lost"].add(seq)
        elif seq in shadow:
            out["inconclusive"].add(seq)
        elif read_to_end and seq in expired:
            out["lost"].add(seq)
        else:
            out["in_flight"].add(seq)
    out["late"] = seen & claimed
    for seq in seen - out["unproven"]:
        if lane is None:
            sent = not ledger_complete
        else:
            sent = lane.end is None or (seq < lane.end and seq not in lane.failed)
        if not sent:
            out["phantom"].add(seq)
    out["unknown"] = set(lane.unknown) if lane else set()
    return out
