"""`make bench`: CPU of the client process per message, beside Kafka's own tools.

Each command runs at two sizes, and the difference is what counts: start-up is in neither. Ours
checks, logs and vouches; kafka-consumer-perf-test checks nothing. The figures of one run can be
compared with each other, and with nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from mirrortest.lab import Lab, jars
from mirrortest.lab.java import find_java

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL, LARGE = 200_000, 1_000_000
REPETITIONS = 3


def cpu_seconds(command: list[str], folder: Path) -> float:
    """User and system time of a command and its threads; it must end with exit code 0."""
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[:6]}: {(folder / 'output').read_text()[-2000:]}")
    return usage.ru_utime + usage.ru_stime


def per_message(command: Callable[[int], list[str]], folder: Path) -> float:
    """Microseconds of CPU per message, start-up taken out."""
    times = [cpu_seconds(command(count), folder) for count in (SMALL, LARGE)]
    return (times[1] - times[0]) / (LARGE - SMALL) * 1e6


def main() -> None:
    """Run everything alternately and print medians with their spread."""
    table = Table(title="CPU of the client process, us per message: median (min to max)")
    for column in ("message size", "produce", "ours", "consume", "ours"):
        table.add_column(column, justify="right")
    with (
        Lab(start_mirror=False, jvm_options=["-XX:TieredStopAtLevel=4"]) as lab,
        tempfile.TemporaryDirectory() as folder,
    ):
        bench = _Bench(lab, Path(folder))
        for size in (100, 1000):
            table.add_row(str(size), *bench.measure(size))
    table.columns[1].header = "kafka-producer-perf-test"
    table.columns[3].header = "kafka-consumer-perf-test"
    Console().print(table)


class _Bench:
    def __init__(self, lab: Lab, folder: Path) -> None:
        self._servers = lab.source.bootstrap_servers
        self._lab = lab
        self._folder = folder
        # Not the lab's own flags: a peer runs as its users run it.
        os.environ["CLASSPATH"] = jars.class_path()
        self._java = [str(find_java().executable), "-Xmx512m"]
        self._turn = 0

    def measure(self, size: int) -> list[str]:
        figures: list[list[float]] = [[], [], [], []]
        for _ in range(REPETITIONS):
            self._turn += 1
            topics = {who: f"bench.{who}.{size}.{self._turn}" for who in ("theirs", "ours")}
            for topic in topics.values():
                for count in (SMALL, LARGE):
                    self._lab.source.create_topic(f"{topic}.{count}", 4)
            for figure, command in zip(
                figures,
                (
                    lambda count: self._their_producer(topics["theirs"], count, size),  # noqa: B023
                    lambda count: self._our_producer(topics["ours"], count, size),  # noqa: B023
                    lambda count: self._their_consumer(topics["theirs"], count),  # noqa: B023
                    lambda count: self._our_consumer(topics["ours"], count),  # noqa: B023
                ),
                strict=True,
            ):
                figure.append(per_message(command, self._folder))
        return [f"{sorted(f)[len(f) // 2]:.2f} ({min(f):.2f} to {max(f):.2f})" for f in figures]

    def _their_producer(self, topic: str, count: int, size: int) -> list[str]:
        return [
            *(*self._java, "org.apache.kafka.tools.ProducerPerformance"),
            *("--topic", f"{topic}.{count}", "--num-records", str(count)),
            *("--record-size", str(size), "--throughput", "-1"),
            *("--command-property", f"bootstrap.servers={self._servers}", "acks=all"),
        ]

    def _their_consumer(self, topic: str, count: int) -> list[str]:
        return [
            *(*self._java, "org.apache.kafka.tools.ConsumerPerformance"),
            *("--topic", f"{topic}.{count}", "--num-records", str(count)),
            *("--bootstrap-server", self._servers, "--timeout", "30000"),
        ]

    def _our_producer(self, topic: str, count: int, size: int) -> list[str]:
        return [
            *(sys.executable, "-m", "mirrortest", "produce"),
            *("--bootstrap-server", self._servers, "--run", self._run(topic, count)),
            *("--id", "bench", "--topics", f"{topic}.{count}", "--num-records", str(count)),
            *("--message-size", str(size), "--log-dir", str(self._folder / "logs")),
        ]

    def _our_consumer(self, topic: str, count: int) -> list[str]:
        return [
            *(sys.executable, "-m", "mirrortest", "consume"),
            *("--bootstrap-server", self._servers, "--run", self._run(topic, count)),
            *("--id", "bench", "--topics", f"{topic}.{count}", "--settle-time", "1s"),
            *("--log-dir", str(self._folder / "logs")),
        ]

    def _run(self, topic: str, count: int) -> str:
        size, turn = topic.split(".")[-2:]
        return f"b{size}x{turn}x{count}"


if __name__ == "__main__":
    main()
