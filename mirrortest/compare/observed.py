"""What `mirrortest observe` recorded of a run: configurations, and what brokers held back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import ValidationError

from mirrortest.compare.settings import RecordedConfigurations
from mirrortest.model.observed import REQUEST
from mirrortest.seqlog.observation import PROFILE_FILE
from mirrortest.seqlog.observation_files import find_observations

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from mirrortest.compare.repeat import ProcessLog
    from mirrortest.seqlog.damage import Damage
    from mirrortest.seqlog.location import Location
    from mirrortest.seqlog.observation import Observation

_THROTTLES = {"Produce": "produce_throttle", "FetchConsumer": "fetch_throttle"}
"""Figures by the requests that they are of."""


@dataclass(frozen=True)
class RunObservation:
    """An observation in the directory `home` of a repeat; `requests` are rows of brokers."""

    home: str
    observation: Observation
    recorded: RecordedConfigurations
    requests: pa.Table

    def of(self, logs: Mapping[tuple[str, str], Sequence[ProcessLog]]) -> list[tuple[str, str]]:
        """Which repeats it is of, by home and run: the one it names, or those that went on then."""
        run = self.observation.run
        if run is None:
            return [key for key, of in logs.items() if any(map(self._meanwhile, of))]
        named = [key for key in logs if key[1] == run]
        return [key for key in named if key[0] == self.home] or named

    def throttles(self, logs: Sequence[ProcessLog]) -> Iterator[tuple[str, float]]:
        """For how long a request was held back while these went on, on average, in s.

        Each broker has its own; one that held nothing back has 0.
        """
        rows = self.requests.to_pylist()
        if logs:
            begun = min(each.session.started_ns for each in logs)
            ends = [each.session.ended_ns for each in logs]
            rows = [
                row
                for row in rows
                if row["ended_ns"] > begun
                and any(end is None or row["started_ns"] < end for end in ends)
            ]
        for request, figure in _THROTTLES.items():
            for endpoint in {row["endpoint"] for row in rows}:
                found = [
                    (row["requests_per_second"], row["throttle_seconds"])
                    for row in rows
                    if (row["endpoint"], row["request"]) == (endpoint, request)
                    and row["requests_per_second"]
                    and row["throttle_seconds"] is not None
                ]
                if found:
                    rates, seconds = np.array(found).T
                    yield figure, float((rates * seconds).sum() / rates.sum())

    def _meanwhile(self, log: ProcessLog) -> bool:
        begun, ended = self.observation.started_ns, self.observation.ended_ns
        session = log.session
        return (ended is None or session.started_ns < ended) and (
            session.ended_ns is None or session.ended_ns > begun
        )


def read_observations(
    home: str, folder: Location, damage: list[Damage], wrong: list[str]
) -> Iterator[RunObservation]:
    """The observation of a folder; what of it cannot be read goes to `damage` and `wrong`."""
    for found in find_observations(folder, wrong):
        place = folder.child(PROFILE_FILE)
        recorded = RecordedConfigurations()
        try:
            recorded = RecordedConfigurations.model_validate_json(place.read())
        except FileNotFoundError:
            pass  # of --once, or killed before it began
        except (OSError, ValidationError):
            wrong.append(f"{place.shown} is damaged: settings of clusters are not compared")
        yield RunObservation(home, found.observation, recorded, found.read(REQUEST, damage))
