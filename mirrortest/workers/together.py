"""What all workers have to say in the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Summed(Protocol):
    def to_json(self) -> dict[str, Any]: ...


Report = TypeVar("Report", bound=_Summed)


@dataclass(frozen=True)
class Together(Generic[Report]):
    """One report of all, and a few words of each worker, if there is more than one process."""

    report: Report
    workers: Sequence[dict[str, Any]] = ()

    def to_json(self) -> dict[str, Any]:
        """The versioned summary, with the workers' words."""
        summary = self.report.to_json()
        return {**summary, "workers": list(self.workers)} if self.workers else summary


def common_place(logs: Sequence[str]) -> str:
    """The folder, or URI, that all logs lie in."""
    parts = [log.split("/") for log in logs]
    common = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        common.append(level[0])
    return "/".join(common)
