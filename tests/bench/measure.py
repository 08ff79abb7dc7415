"""The cost of a command: CPU time, wall time and memory of its process.

Each command runs at two sizes; the difference excludes start-up.
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
    """CPU and wall seconds and peak resident bytes, of a process and the children it waited for."""

    cpu: float
    wall: float
    resident: int


Costs: TypeAlias = tuple[Cost, Cost]
"""The costs of a run with fewer and of one with more messages."""


@dataclass(frozen=True)
class Figure:
    """The cost of a message: microseconds of CPU and of wall time; the larger run's memory.

    Wall time is the difference of two runs that both wait: if they hardly differ, it means nothing
    and may be negative.
    """

    cpu_us: float
    wall_us: float
    resident: int

    @classmethod
    def of(cls, turns: Sequence[Costs], counts: tuple[int, int]) -> Figure:
        """From the lowest CPU and wall times, over all turns, of the smaller and the larger run.

        A disturbance makes a run more expensive, never cheaper.
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
    """A running command; its output goes to files in `folder`."""

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
        """CPU seconds so far, including ended threads."""
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    @property
    def resident(self) -> int | None:
        """Resident bytes now; None once it has ended."""
        process = psutil.Process(self._process.pid)
        # Until it is reaped, an ended process is a zombie without resident memory.
        return process.memory_info().rss or None

    @property
    def resident_descendants(self) -> int:
        """Resident bytes of its descendant processes now."""
        children = psutil.Process(self._process.pid).children(recursive=True)
        return sum(child.memory_info().rss for child in children)

    @property
    def answer(self) -> str:
        """Its stdout so far."""
        return self._answer.read_text()

    def close(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()

    def wait(self, fine: Sequence[int] = (0,)) -> Cost:
        """Wait for its end. Raises SystemExit if its exit code is not in `fine`."""
        _, status, usage = os.wait4(self._process.pid, 0)
        code = self._process.returncode = os.waitstatus_to_exitcode(status)
        if code not in fine:
            output = (self._errors.read_text() + self.answer)[-3000:]
            raise SystemExit(f"exit code {code} of {' '.join(self._command)}:\n{output}")
        # Linux reports kilobytes.
        return Cost(
            usage.ru_utime + usage.ru_stime, time.monotonic() - self._began, usage.ru_maxrss << 10
        )


def costs(commands: Sequence[Sequence[str]], folder: Path, fine: Sequence[int] = (0,)) -> Costs:
    """Run a command with fewer and one with more messages; their costs."""
    small, large = (Running(command, folder).wait(fine) for command in commands)
    return small, large


def figure(
    command: Callable[[int], Sequence[str]],
    counts: tuple[int, int],
    folder: Path,
    fine: Sequence[int] = (0,),
) -> Figure:
    """The cost of one more message, from a run with fewer and a run with more messages."""
    return Figure.of([costs([command(count) for count in counts], folder, fine)], counts)
