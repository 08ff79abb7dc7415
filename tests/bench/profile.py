"""`make profile`: where producing or verifying spends its time, by a sampling profiler.

Start-up and waiting are left out: only samples below the running event loop count. Native frames
(numpy, the interpreter, the C library) are included.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from mirrortest.lab import Lab
from tests.bench.contenders import OURS, Place, consumer, producer
from tests.bench.measure import Running

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

VERBS = ("produce", "consume")
_RATE = 500
_SHOWN = 25
_LOOP = "run_until_complete"
"""The frame that encloses everything but start-up."""
_WAITING = ("epoll", "kevent", "poll ")


def read(lines: Iterable[str]) -> list[tuple[list[str], int]]:
    """The stacks of a working process, outermost frame first, each with its number of samples."""
    found = []
    for line in lines:
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        works = not frames[-1].startswith(_WAITING)
        if works and any(frame.startswith(_LOOP) for frame in frames):
            found.append((frames, int(count)))
    return found


def shares(stacks: Iterable[tuple[list[str], int]]) -> tuple[Counter[str], Counter[str]]:
    """Samples by innermost frame, and by each mirrortest function in the stack."""
    within: Counter[str] = Counter()
    below: Counter[str] = Counter()
    for frames, count in stacks:
        within[frames[-1]] += count
        for frame in {frame for frame in frames if "mirrortest/" in frame}:
            below[frame] += count
    return within, below


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the commands under the profiler, print where their time went, and save the stacks."""
    options = _options(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    out = Console(width=None if sys.stdout.isatty() else 120)
    with (
        Lab(start_mirror=False) as lab,
        tempfile.TemporaryDirectory(dir=options.directory, prefix="profile-") as place,
    ):
        where = Place.of(lab, Path(place))
        lab.source.create_topic("profile", 4)
        for verb in VERBS:
            command = (
                producer(
                    OURS, where, "profile", options.messages, options.size, "--form", options.form
                )
                if verb == "produce"
                else consumer(OURS, where, "profile", options.messages)
            )
            if verb not in options.verbs:
                # The consumer needs messages to read.
                Running(command, Path(place)).wait()
                continue
            name = f"profile-{verb}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.txt"
            path = (options.output / name).absolute()
            spy = [str(Path(sys.executable).with_name("py-spy")), "record", "--native"]
            spy += ["--rate", str(_RATE), "--format", "raw", "--output", str(path), "--"]
            Running([*spy, *command], Path(place)).wait()
            stacks = read(path.read_text().splitlines())
            out.print(_table(verb, stacks))
            out.print(f"stacks, as flamegraph.pl and speedscope read them: {path}", soft_wrap=True)
            if verb == options.verbs[-1]:
                break


def _table(verb: str, stacks: list[tuple[list[str], int]]) -> Table:
    within, below = shares(stacks)
    total = sum(within.values()) or 1
    table = Table(title=f"{verb}: {total} samples while it worked, {_RATE} a second")
    for column in ("in itself", "", "with all it calls", ""):
        table.add_column(column, justify="left" if not column else "right", overflow="fold")
    columns = [
        [(f"{count / total:.1%}", _short(frame)) for frame, count in counted.most_common(_SHOWN)]
        for counted in (within, below)
    ]
    for itself, called in zip_longest(*columns, fillvalue=("", "")):
        table.add_row(*itself, *called)
    return table


def _short(frame: str) -> str:
    function, _, place = frame.partition(" (")
    return f"{function} {place.rstrip(')').rpartition('/')[2]}".strip()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make profile", description=__doc__)
    parser.add_argument("--verbs", nargs="+", choices=VERBS, default=list(VERBS))
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--form", choices=("body", "headers"), default="body")
    parser.add_argument("--messages", type=int, default=3_000_000)
    parser.add_argument("--output", type=Path, default=Path("bench-results"))
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
