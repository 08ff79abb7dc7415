"""Whether a topic's messages were written to the topic that it is taken to be the copy of.

Each message proves the name of its source topic. Where the user's options lead to another name,
every message fails its check, and would count as corrupted though the copy is faithful. One that
proves itself under the topic's name without a prefix shows that the options are wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirrortest.config.run import names_behind
from mirrortest.errors import UsageError
from mirrortest.model.findings import Finding
from mirrortest.wire.batch_decoder import record_at
from mirrortest.wire.message import decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.config.run import TopicMapping
    from mirrortest.verify.row import SeenRow
    from mirrortest.wire.record_batch import RecordArrays

_SAMPLES = 32
"""So many messages of what was fetched are looked at, spread evenly."""
_MOST = 1024
"""Messages of a topic that are looked at in all: what is truly damaged proves no name."""


class SourceNameCheck:
    """Checks the messages of each topic against its name, until the first one proves it."""

    def __init__(self, mapping: TopicMapping) -> None:
        self._mapping = mapping
        self._settled: set[str] = set()
        self._looked: dict[str, int] = {}

    def check(
        self, destination: str, source: str, records: RecordArrays, rows: Sequence[SeenRow]
    ) -> None:
        """Look at what was fetched of a destination topic, before any of it is logged or saved.

        Raises:
            UsageError: no message proved the name `source` yet, and one proves another.
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
        looked = self._looked[destination] = self._looked.get(destination, 0) + len(chosen)
        if looked > _MOST:
            self._settled.add(destination)
        others = [name for name in names_behind(destination) if name != source]
        for at in np.flatnonzero(np.isin(records.offsets, chosen)).tolist():
            record = record_at(records, at)
            if record is None:
                continue
            for name in others:
                if decode(record, name).sent_ns is not None:
                    raise UsageError(
                        f"the messages in {destination} were written to topic {name!r}, not "
                        f"{source!r}: {self._mapping.correction(destination, name)}"
                    )


def _proves_it(row: SeenRow) -> bool:
    """Whether messages prove the topic's name, be they of another run."""
    if row.findings & Finding.UNPROVEN:
        return False
    return row.stream is not None or row.findings == Finding.OTHER_RUN
