"""What `mirrortest observe` recorded of a run: configurations, and throttling by brokers."""

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
"""The figure of each kind of request."""


@dataclass(frozen=True)
class RunObservation:
    """An observation in the directory `home` of a repeat; `requests` is its table of requests."""

    home: str
    observation: Observation
    recorded: RecordedConfigurations
    requests: pa.Table

    def of(self, logs: Mapping[tuple[str, str], Sequence[ProcessLog]]) -> list[tuple[str, str]]:
        """The keys (home, run) of its repeats: those of the run it names, or all that ran then."""
        run = self.observation.run
        if run is None:
            return [key for key, of in logs.items() if any(map(self._overlaps, of))]
        named = [key for key in logs if key[1] == run]
        return [key for key in named if key[0] == self.home] or named

    def throttles(self, logs: Sequence[ProcessLog]) -> Iterator[tuple[str, float]]:
        """Yield each broker's mean throttle time of a request while these ran, in s, by figure.

        It is 0 for a broker that throttled no request.
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

    def _overlaps(self, log: ProcessLog) -> bool:
        begun, ended = self.observation.started_ns, self.observation.ended_ns
        session = log.session
        return (ended is None or session.started_ns < ended) and (
            session.ended_ns is None or session.ended_ns > begun
        )


def read_observations(
    home: str, folder: Location, damage: list[Damage], wrong: list[str]
) -> Iterator[RunObservation]:
    """Yield the observation in a folder; append what cannot be read to `damage` and `wrong`."""
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
