"""What a command costs: CPU and memory of its process, and the time it takes.

Each runs at two sizes, and the difference is what counts: start-up is in neither.
"""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import psutil

from tests.lifetime import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """Of one process and those it waited for: CPU and wall seconds, greatest resident bytes."""

    cpu: float
    wall: float
    resident: int


Costs: TypeAlias = tuple[Cost, Cost]
"""Of a run of fewer and of one of more messages."""


@dataclass(frozen=True)
class Figure:
    """What a message costs: microseconds of CPU and of time; the larger run's memory.

    Time is the difference of two runs that both wait: where they hardly differ it says nothing,
    and may be below zero.
    """

    cpu_us: float
    wall_us: float
    resident: int

    @classmethod
    def of(cls, turns: Sequence[Costs], counts: tuple[int, int]) -> Figure:
        """Of the costs of a run of fewer and one of more messages, the least of some turns each.

        What disturbs a run makes it dearer, never cheaper.
        """
        fewer, more = counts
        small, large = zip(*turns, strict=True)

        def least(costs: Sequence[Cost]) -> tuple[float, float]:
            return min(cost.cpu for cost in costs), min(cost.wall for cost in costs)

        (cpu, wall), (more_cpu, more_wall) = least(small), least(large)
        return cls(
            cpu_us=(more_cpu - cpu) / (more - fewer) * 1e6,
            wall_us=(more_wall - wall) / (more - fewer) * 1e6,
            resident=max(cost.resident for cost in large),
        )


class Running:
    """A command underway; its output goes to a file in `folder`."""

    def __init__(self, command: Sequence[str], folder: Path, name: str = "output") -> None:
        self._command = command
        self._errors = folder / f"{name}.stderr"
        self._answer = folder / f"{name}.stdout"
        self._began = time.monotonic()
        with self._errors.open("wb") as errors, self._answer.open("wb") as answer:
            self._process = subprocess.Popen(
                command,
                stdout=answer,
                stderr=errors,
                cwd=folder,
                preexec_fn=end_with_parent,  # noqa: PLW1509  # one call of C, no lock in it
            )

    @property
    def cpu(self) -> float:
        """Seconds of CPU that it has taken by now, with its threads that ended."""
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    @property
    def resident(self) -> int | None:
        """Bytes that are resident now; None where it has ended."""
        process = psutil.Process(self._process.pid)
        # Until it is waited for it is there, as a zombie that has nothing.
        return process.memory_info().rss or None

    @property
    def resident_beside(self) -> int:
        """Bytes that are resident now of the processes that it has started."""
        children = psutil.Process(self._process.pid).children(recursive=True)
        return sum(child.memory_info().rss for child in children)

    @property
    def answer(self) -> str:
        """What it has printed."""
        return self._answer.read_text()

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def wait(self, fine: Sequence[int] = (0,)) -> Cost:
        """Wait for its end; SystemExit where its exit code is none of `fine`."""
        _, status, usage = os.wait4(self._process.pid, 0)
        code = self._process.returncode = os.waitstatus_to_exitcode(status)
        if code not in fine:
            told = (self._errors.read_text() + self.answer)[-3000:]
            raise SystemExit(f"exit code {code} of {' '.join(self._command)}:\n{told}")
        # Linux tells kilobytes.
        return Cost(
            usage.ru_utime + usage.ru_stime, time.monotonic() - self._began, usage.ru_maxrss << 10
        )


def costs(commands: Sequence[Sequence[str]], folder: Path, fine: Sequence[int] = (0,)) -> Costs:
    """What a run of fewer and a run of more messages cost."""
    small, large = (Running(command, folder).wait(fine) for command in commands)
    return small, large


def figure(
    command: Callable[[int], Sequence[str]],
    counts: tuple[int, int],
    folder: Path,
    fine: Sequence[int] = (0,),
) -> Figure:
    """What a message more costs, from a run of fewer and a run of more messages."""
    return Figure.of([costs([command(count) for count in counts], folder, fine)], counts)
