"""Parses the output of Kafka's performance tools, and ours in the same format."""

from __future__ import annotations

import re

_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
_CONSUMED = re.compile(rf"{_TIME}, {_TIME}(, [\d.]+){{8}}")
_COLUMNS = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
_DETAILED = re.compile(rf"{_TIME}, 0(, [\d.]+){{8}}")
_DETAILED_COLUMNS = "time, threadId, data.consumed.in.MB, MB.sec, "
_WINDOW = re.compile(
    r"(?P<records>\d+) records sent, (?P<rate>\d+\.\d) records/sec \((?P<mb>\d+\.\d\d) MB/sec\), "
    r"(?P<avg>\d+\.\d) ms avg latency, (?P<max>\d+\.\d) ms max latency\."
)
_PRODUCED = re.compile(
    r"(?P<records>\d+) (?P<steady>steady state )?records sent, (?P<rate>\d+\.\d{6}) records/sec "
    r"\((?P<mb>\d+\.\d\d) MB/sec\), (?P<avg>\d+\.\d\d) ms avg latency, "
    r"(?P<max>\d+\.\d\d) ms max latency, (?P<p50>\d+) ms 50th, (?P<p95>\d+) ms 95th, "
    r"(?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99\.9th\."
)


def produced(output: str) -> list[dict[str, float]]:
    """The figures of the whole run, and of its steady state if it had a warm-up."""
    found = [_PRODUCED.fullmatch(line) for line in output.splitlines()]
    return [
        {name: float(text) for name, text in each.groupdict().items() if name != "steady"}
        for each in sorted(filter(None, found), key=lambda each: bool(each["steady"]))
    ]


def windows(output: str) -> list[dict[str, float]]:
    """The figures of each interval of a producer."""
    found = [_WINDOW.fullmatch(line) for line in output.splitlines()]
    return [
        {name: float(text) for name, text in each.groupdict().items()}
        for each in filter(None, found)
    ]


def detailed(output: str) -> list[dict[str, float | str]]:
    """The figures of each interval of a consumer, by the tool's own column names."""
    lines = output.splitlines()
    (head,) = (line for line in lines if line.startswith(_DETAILED_COLUMNS))
    rows = [line for line in lines if _DETAILED.fullmatch(line)]
    return [
        {
            name: text if name == "time" else float(text)
            for name, text in zip(head.split(", "), row.split(", "), strict=True)
        }
        for row in rows
    ]


def consumed(output: str) -> dict[str, float | str]:
    """The figures by the tool's own column names; the two times are text."""
    lines = output.splitlines()
    (head,) = (line for line in lines if line.startswith(_COLUMNS))
    (row,) = (line for line in lines if _CONSUMED.fullmatch(line))
    named = dict(zip(head.split(", "), row.split(", "), strict=True))
    return {
        name: text if "time" in name and ":" in text else float(text)
        for name, text in named.items()
    }
