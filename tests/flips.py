"""`make flips`: flip single bits in a run's logs, and check that no flip goes unnoticed.

The logs are a small run's, of both sides and both details, with one killed consumer (its rows are
in a journal). One bit anywhere in one file is flipped. The reconciliation's reader reads the file,
as a Spark task does; then the bit is restored. An answer is right if the log is refused, if damage
is reported that no verdict ignores, or if exactly the same was read. Anything else is silent or an
unexpected exception, and fails. `--logs` takes another run's logs.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from mirrortest.errors import MirrortestError
from mirrortest.reconcile.interval_rows import DAMAGE, INTERVALS
from mirrortest.reconcile.plan import Plan, plan
from mirrortest.reconcile.source import File, Reading, reading
from mirrortest.selftest.synthesis import synthesize
from mirrortest.selftest.synthetic_options import SynthOptions, spread
from mirrortest.seqlog.files import find_sessions, read_file
from mirrortest.seqlog.journal import JournalWriter
from mirrortest.seqlog.options import Detail, Role
from mirrortest.seqlog.session import JOURNAL, SESSION_FILE, file_name
from mirrortest.seqlog.session_directory import SessionDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator

SAME = "the same was read"
REFUSED = "refused"
SILENT = "SILENT"
RAISED = "RAISED"
WRONG = frozenset({SILENT, RAISED})
"""The wrong answers."""
_FRAME_ROWS = 40


def write_run(logs: Path, detail: Detail, messages: int = 2000) -> str:
    """Write a small run's logs, with one killed consumer; the run's id."""
    run = f"flips{detail.value}"
    synthesize(
        SynthOptions(
            log_dir=logs, run=run, messages=messages, detail=detail, producers=2, consumers=2,
            lanes=4, run_length=25, anomalies=spread(10, None), seed=7, jobs=1,
        )
    )  # fmt: skip
    complete = next(
        found for found in find_sessions(logs, run) if found.session.role is Role.CONSUMER
    )
    killed = complete.session.model_copy(
        update={"session": "killed", "files": (), "ended_ns": None, "clean": False}
    )
    directory = SessionDirectory.create(logs, killed, None)
    directory.release()
    journal = JournalWriter(directory.path / file_name(1, JOURNAL))
    for batch in read_file(complete.files[0], []):
        for start in range(0, min(batch.num_rows, 4 * _FRAME_ROWS), _FRAME_ROWS):
            journal.append([batch.slice(start, _FRAME_ROWS)])
    journal.close()
    return run


@dataclass(frozen=True)
class _Read:
    """A file's intervals, and its damage that no verdict ignores."""

    rows: pa.Table
    damage: tuple[str, ...]


class Flips:
    """The logs of a run, in which bits are flipped one at a time."""

    def __init__(self, logs: Path, run: str) -> None:
        self._logs, self._run = logs, run
        self._plan, self._work = self._planned()
        self._unflipped = {file.uri: self._read(file) for file in self._files(self._work)}
        root = logs / f"run={run}"
        wanted = {SESSION_FILE, *(Path(uri).name for uri in self._unflipped)}
        self._paths = sorted(path for path in root.rglob("role=*/*/*") if path.name in wanted)
        sizes = [path.stat().st_size for path in self._paths]
        self._weights = sizes

    def flip(self, rng: random.Random) -> tuple[str, str]:
        """Flip a random bit of a random file; its place, and the answer."""
        (path,) = rng.choices(self._paths, self._weights)
        bit = rng.randrange(8 * path.stat().st_size)
        return f"{path.relative_to(self._logs)} bit {bit}", self.answer(path, bit)

    def answer(self, path: Path, bit: int) -> str:
        """The reader's answer while this bit is flipped; the bit is restored afterwards."""
        content = path.read_bytes()
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            return self._answer(path)
        except MirrortestError:
            return REFUSED
        except Exception as error:  # noqa: BLE001  # any exception would end the command
            return f"{RAISED} {type(error).__name__}"
        finally:
            path.write_bytes(content)

    def _answer(self, path: Path) -> str:
        planned, work = self._planned()
        if any(not damage.harmless for found in planned.sessions for damage in found.damage):
            return "damage: session"
        if path.name == SESSION_FILE:
            same = _about(planned) == _about(self._plan)
            return SAME if same else SILENT
        (file,) = (file for file in self._files(work) if file.uri == str(path))
        read = self._read(file)
        if read.damage:
            return f"damage: {read.damage[0].partition(str(path))[2].split(':')[1].strip()}"
        return SAME if read == self._unflipped[file.uri] else SILENT

    def _planned(self) -> tuple[Plan, Reading]:
        planned = plan([str(self._logs)], self._run)
        return planned, reading(planned, 1, placed=False)

    def _files(self, work: Reading) -> Iterator[File]:
        for task in work.tasks:
            yield from task

    def _read(self, file: File) -> _Read:
        batches = list(self._work._replace(tasks=((file,),)).intervals(0))
        table = pa.Table.from_batches(batches, schema=INTERVALS)
        damage = [
            row["text"] for row in table.to_pylist() if row["kind"] == DAMAGE and row["outcome"]
        ]
        return _Read(table, tuple(damage))


def _about(planned: Plan) -> list[object]:
    """What a reconciliation uses of the sessions, which does not include `digested`."""
    return [
        (found.session.model_copy(update={"digested": True}), found.files, found.damage)
        for found in planned.sessions
    ]


def flips(logs: Path, runs: list[str], count: int, seed: str) -> tuple[Counter[str], list[str]]:
    """Flip `count` bits; how often each answer came, and the flips with wrong answers."""
    rng = random.Random(f"flips/{seed}")
    each = [Flips(logs, run) for run in runs]
    answers: Counter[str] = Counter()
    wrong = []
    for number in range(count):
        where, answer = each[number % len(each)].flip(rng)
        answers[answer] += 1
        if answer.split()[0] in WRONG:
            wrong.append(f"{where}: {answer}")
    return answers, wrong


def main() -> int:
    """Run the command; 99 if an answer was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.flips", description=__doc__)
    parser.add_argument("--flips", type=int, default=20_000, metavar="N")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--logs", type=Path, help="LOGDIR of other runs; a copy of it is used")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mirrortest-flips-") as folder:
        logs = Path(folder) / "logs"
        if options.logs is not None:
            shutil.copytree(options.logs, logs)
            runs = sorted({found.session.run for found in find_sessions(logs)})
        else:
            runs = [write_run(logs, detail) for detail in Detail]
        answers, wrong = flips(logs, runs, options.flips, options.seed)
    for answer, number in answers.most_common():
        sys.stdout.write(f"{number:8,}  {answer}\n")
    sys.stdout.writelines(f"{line}\n" for line in wrong[:20])
    silent = sum(number for answer, number in answers.items() if answer.split()[0] in WRONG)
    sys.stdout.write(f"{options.flips:,} flipped bits: {silent:,} silent\n")
    return 99 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
