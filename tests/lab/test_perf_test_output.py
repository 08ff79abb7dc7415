"""`--format kafka` against Kafka's own performance tools: one parser reads both."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from mirrortest.lab.process.runtime import Jvm
from tests.lab.harness import Command, until
from tests.perf_test_output import consumed, detailed, produced, windows

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.lab import Lab
    from tests.lab.harness import Scene

pytestmark = pytest.mark.lab

RECORDS, WARMUP, SIZE = 42_000, 2_000, 500
"""Seven seconds of load: ProducerPerformance prints a line every five seconds."""


def tool(lab: Lab, name: str, *arguments: str) -> str:
    """The output of one of Kafka's tools."""
    runtime = lab.source.runtime
    if not isinstance(runtime, Jvm):
        pytest.skip("the tools run beside the brokers, as processes")
    command = runtime.command(f"org.apache.kafka.tools.{name}", *arguments)
    return subprocess.run(
        command, env=runtime.environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def test_one_parser_reads_the_tools_and_ours(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """Our lines have the tools' columns, words and digits, and the counts match the options.

    The consumer ends after `--num-records`; for one partition, one of three workers is started.
    """
    scene = make_scene("orders.perf")
    (topic,) = scene.topics
    scene.create(1)
    lab.source.create_topic(f"{topic}.tool", 1)
    load = ("--num-records", str(RECORDS), "--throughput", "6000")
    place = ("--bootstrap-server", lab.source.bootstrap_servers)
    warmup = ("--warmup-records", str(WARMUP))
    printed = tool(
        lab, "ProducerPerformance", "--topic", f"{topic}.tool", *place, *load, *warmup,
        "--record-size", str(SIZE),
    )  # fmt: skip
    theirs = produced(printed)
    assert windows(printed)
    ours_too = (*place, "--topics", topic, "--run", scene.run, "--ledger-topic", scene.ledger,
                "--log-dir", str(scene.logs), "--format", "kafka")  # fmt: skip
    producing = Command(
        ["produce", *ours_too, *load, *warmup, "--message-size", str(SIZE),
         "--reporting-interval", "2s"],
        scene.folder, "p",
    )  # fmt: skip
    assert producing.wait() == 0, producing.stderr
    ours = produced(producing.stdout)
    assert [each["records"] for each in theirs] == [RECORDS, RECORDS - WARMUP]
    assert [each["records"] for each in ours] == [RECORDS, RECORDS - WARMUP]
    intervals = windows(producing.stdout)
    assert len(intervals) >= 2
    assert sum(each["records"] for each in intervals) <= RECORDS
    for each in intervals:
        assert each["rate"] == pytest.approx(6000, rel=0.3)
        assert each["mb"] == pytest.approx(each["rate"] * SIZE / 2**20, abs=0.01)
        assert 0 < each["avg"] <= each["max"]
    for each in ours:
        assert each["rate"] == pytest.approx(6000, rel=0.2)
        assert each["mb"] == pytest.approx(each["rate"] * SIZE / 2**20, abs=0.01)
        assert each["p50"] <= each["p95"] <= each["p99"] <= each["p999"] <= each["max"] + 1

    judging = Command(
        ["consume", "--role", "source", *ours_too, "--state-topic", scene.state,
         "--workers", "3", "--num-records", str(RECORDS)],
        scene.folder, "c",
    )  # fmt: skip
    assert judging.wait() == 0, judging.stderr
    assert "--workers 3: there are partitions for 1: 1 run" in judging.stderr
    totals = consumed(judging.stdout)
    tools = consumed(
        tool(lab, "ConsumerPerformance", "--topic", topic, *place, "--num-records", str(RECORDS))
    )
    assert list(totals) == list(tools)
    assert totals["data.consumed.in.nMsg"] == tools["data.consumed.in.nMsg"] == RECORDS
    # The tool counts keys, too.
    assert totals["data.consumed.in.MB"] == pytest.approx(RECORDS * SIZE / 2**20, abs=1e-4)
    assert float(tools["data.consumed.in.MB"]) >= float(totals["data.consumed.in.MB"])

    # With a line for each interval, neither prints a summary line.
    each_interval = ("--show-detailed-stats", "--reporting-interval", "300")
    tools_rows = detailed(
        tool(lab, "ConsumerPerformance", "--topic", topic, *place, "--num-records", str(RECORDS),
             *each_interval)
    )  # fmt: skip
    again = Command(
        ["consume", "--role", "source", *ours_too, "--state-topic", f"{scene.state}-again",
         "--id", "again", "--until", "forever", *each_interval],
        scene.folder, "c2",
    )  # fmt: skip
    until(lambda: f", {RECORDS}, " in again.stdout, what="the line with all messages")
    again.signal(signal.SIGTERM)
    again.wait()
    rows = detailed(again.stdout)
    assert list(rows[0]) == list(tools_rows[0])
    assert rows[-1]["data.consumed.in.nMsg"] == RECORDS
    assert rows[-1]["data.consumed.in.MB"] == pytest.approx(RECORDS * SIZE / 2**20, abs=1e-4)
    assert len(again.stdout.splitlines()) == len(rows) + 1
