"""All rows of a session's log, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from mirrortest.seqlog.files import read_file
from mirrortest.seqlog.schema import ROWS

if TYPE_CHECKING:
    from mirrortest.seqlog.damage import Damage
    from mirrortest.seqlog.files import SessionFiles


def read_all(found: SessionFiles, damage: list[Damage]) -> pa.Table:
    """All rows in their order; what cannot be read is noted in `damage`."""
    damage.extend(found.damage)
    batches = [batch for file in found.files for batch in read_file(file, damage)]
    return pa.Table.from_batches(batches, schema=ROWS)
