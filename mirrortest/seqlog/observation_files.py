"""Finds and reads observations, from any machine, finished or still running."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import fs
from pydantic import ValidationError

from mirrortest.host.error_text import reason_of
from mirrortest.seqlog.observation import OBSERVATION_FILE, SCHEMAS, Observation
from mirrortest.seqlog.table_files import read_table

if TYPE_CHECKING:
    from mirrortest.model.observed import Observed
    from mirrortest.seqlog.damage import Damage
    from mirrortest.seqlog.location import Location


@dataclass(frozen=True)
class ObservationFiles:
    """An observation, and the folder of its files."""

    observation: Observation
    location: Location

    def read(self, table: Observed, damage: list[Damage]) -> pa.Table:
        """The rows of a table, possibly none. What cannot be read is appended to `damage`."""
        note = self.observation.tables.get(table.name)
        return read_table(self.location, table.name, note, SCHEMAS[table.name], damage)


def find_observations(base: Location, wrong: list[str]) -> list[ObservationFiles]:
    """The observations in a directory, or the one whose directory it is; none if it is missing.

    What cannot be read is appended to `wrong`.
    """
    try:
        inside = base.filesystem.get_file_info(fs.FileSelector(base.path, allow_not_found=True))
        folders = [base, *(base.child(each.base_name) for each in inside if not each.is_file)]
        notes = base.filesystem.get_file_info(
            [folder.child(OBSERVATION_FILE).path for folder in folders]
        )
    except (pa.ArrowException, OSError) as error:
        wrong.append(f"{base.shown}: cannot be read: {reason_of(error)}")
        return []
    found = []
    for folder, note in zip(folders, notes, strict=True):
        if note.is_file:
            try:
                noted = folder.child(OBSERVATION_FILE).read()
                observation = Observation.model_validate_json(noted)
                found.append(ObservationFiles(observation, folder))
            except (OSError, ValidationError):
                wrong.append(f"{folder.shown}: {OBSERVATION_FILE} is damaged: it is not shown")
    return found
