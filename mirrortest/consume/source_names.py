"""A destination topic's name in the source: found from topic names, proven by messages.

Leaving out `--source-alias` is the likeliest first mistake. The mirror copies the ledger like any
topic: if the copy has a prefix, and the topics to judge have the same one, that is the alias.

Each message proves the name of its source topic. If the user's options give another name, every
message fails this check and would count as corrupted, although the copy is faithful. A message that
proves the topic's name without a prefix shows that the options are wrong.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import structlog

from mirrortest.config.run_naming import TopicMapping, alias_options, names_behind, prefixes_of
from mirrortest.consume.judged_topics import INTERNAL
from mirrortest.errors import UsageError
from mirrortest.kafka.admin import Admin
from mirrortest.model.findings import Finding
from mirrortest.wire.batch_decoder import record_at
from mirrortest.wire.message import decode

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.verify.row import SeenRow
    from mirrortest.wire.record_batch import RecordArrays

_log = structlog.get_logger()

_SAMPLES = 32
"""About how many messages of each batch are checked, evenly spread."""
_MOST = 1024
"""How many messages of a topic are checked in all: really damaged ones prove no name."""


async def with_alias(options: ConsumeOptions) -> ConsumeOptions:
    """The options with the alias that the destination's topics show; unchanged if they show none.

    Raises:
        ClusterError: the cluster cannot be reached or refuses.
        UsageError: several aliases fit.
    """
    async with Admin(options.client) as admin:
        present = (await admin.matching(".*")).keys()
    found = alias_of(options, present)
    if found is None:
        return options
    note = (
        f"no --source-alias: topic {found.prefix}{options.ledger_topic} exists, so topics "
        f"{found.prefix}* are judged as copies from source {found.source_alias!r} "
        "(use --source-alias '' if they are not)"
    )
    _log.info(note)
    return replace(options, mapping=found, notes=(*options.notes, note))


def alias_of(options: ConsumeOptions, present: Collection[str]) -> TopicMapping | None:
    """The mapping that the names of the destination's topics show; None if they show none.

    Raises UsageError if several aliases fit.
    """
    ledger = options.ledger_topic
    if ledger in present:
        return None  # the mirror keeps topic names, or this cluster is the source
    wanted = options.topics or _matching(options, present)
    fitting = [
        (alias, separator)
        for alias, separator in prefixes_of(ledger, present)
        if wanted and all(topic.startswith(alias + separator) for topic in wanted)
    ]
    if len(fitting) > 1:
        choices = " or ".join(alias_options(*each) for each in fitting)
        raise UsageError(
            f"the cluster has several copies of {ledger!r}: choose the source with {choices}"
        )
    return TopicMapping(source_alias=fitting[0][0], separator=fitting[0][1]) if fitting else None


def _matching(options: ConsumeOptions, present: Collection[str]) -> list[str]:
    """The topics that match the pattern, without those of mirrors and of mirrortest."""
    left_out = "|".join(
        (
            *(f".*{re.escape(name)}" for name in (options.ledger_topic, options.state_topic)),
            ".*heartbeats",
            *INTERNAL,
        )
    )
    wanted = f"(?!(?:{left_out})\\Z)(?:{options.topic_pattern})"
    return [topic for topic in present if re.fullmatch(wanted, topic)]


class SourceNameCheck:
    """Checks each topic's name by its messages, until the first one proves it.

    With a pattern, messages of other runs prove nothing: their topics may have any names.
    """

    def __init__(self, options: ConsumeOptions) -> None:
        self._mapping = options.mapping
        self._only_run = None if options.topics else options.run
        self._settled: set[str] = set()
        self._checked: dict[str, int] = {}
        """Destination topic -> messages that were checked and proved no name."""

    def check(
        self, destination: str, source: str, records: RecordArrays, rows: Sequence[SeenRow]
    ) -> None:
        """Check fetched messages of a destination topic, before they are logged or saved.

        Raises:
            UsageError: no message has proven the name `source` yet, and one proves another name.
        """
        if destination in self._settled:
            return
        if any(map(_proves_it, rows)):
            self._settled.add(destination)
            return
        failed = [row for row in rows if row.stream is None and row.findings & Finding.CORRUPTED]
        if not failed:
            return
        offsets = np.concatenate([np.arange(row.offset_lo, row.offset_hi) for row in failed])
        chosen = offsets[:: max(1, len(offsets) // _SAMPLES)]
        count, others = len(chosen), [each for each in names_behind(destination) if each != source]
        for at in np.flatnonzero(np.isin(records.offsets, chosen)).tolist():
            record = record_at(records, at)
            if record is None:
                continue
            for name in others:
                found = decode(record, name)
                if found.sent_ns is None or found.id is None:
                    continue
                if self._only_run in {None, found.id.run}:
                    raise UsageError(
                        f"the messages in {destination} were written to topic {name!r}, not "
                        f"{source!r}: {self._mapping.correction(destination, name)}"
                    )
                count -= 1
        self._checked[destination] = self._checked.get(destination, 0) + count
        if self._checked[destination] > _MOST:
            self._settled.add(destination)


def _proves_it(row: SeenRow) -> bool:
    """Whether a row's messages prove the topic's name; another run's messages can, too."""
    if row.findings & Finding.UNPROVEN:
        return False
    return row.stream is not None or row.findings == Finding.OTHER_RUN
