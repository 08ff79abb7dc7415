"""Commands for the reader: to show a message in the destination, and to repeat the run."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from mirrortest.config.option_file import words_of
from mirrortest.config.threshold import thresholds
from mirrortest.config.units import exact_duration
from mirrortest.seqlog.options import Role

if TYPE_CHECKING:
    from mirrortest.report.html.positions import Position
    from mirrortest.report.result import Result
    from mirrortest.seqlog.session import Session

_MOST_SHOWN = 20
_NEW_RUN = "NEW-RUN"
_TOPICS = "TOPICS"
_LEDGER = "mirrortest.ledger"
_HOMES = "source"
_TEXT, _NUMBER, _DURATION, _FLAG = "", ",", " ", None
_CONSUME = {
    "consumer group": ("--consumer-group", _TEXT),
    "shard": ("--shard", _TEXT),
    "state topic": ("--state-topic", _TEXT),
    "expected producers": ("--expect-producers", _TEXT),
    "latencies": ("--include-backlog", _FLAG),
    "records": ("--num-records", _NUMBER),
    "beginning": ("--from-latest", _FLAG),
    "until": ("--until", _TEXT),
    "duration": ("--duration", _DURATION),
    "idle timeout": ("--idle-timeout", _DURATION),
}
"""By setting: its option, and the separator to remove from the setting's value."""


def destination_servers(result: Result) -> str:
    """The brokers that the consumers read from; a placeholder if no log has them."""
    for each in result.sessions:
        if each.session.role is Role.CONSUMER and "bootstrap servers" in each.session.settings:
            return each.session.settings["bootstrap servers"]
    return "DESTINATION:9092"


def show_commands(servers: str, topic: str, position: Position) -> list[str]:
    """Commands that print the messages at a position, or those around missing ones."""
    bounds = [each for each in (position.lo, position.hi) if each is not None]
    first = position.lo if position.lo is not None else max(bounds[0] - 1, 0)
    count = position.hi - first if position.hi is not None else _MOST_SHOWN
    many = str(min(count, _MOST_SHOWN))
    at = (str(position.partition), str(first))
    kcat = ["kcat", "-C", "-e", "-b", servers, "-t", topic, "-p", at[0], "-o", at[1], "-c", many]
    console = [
        *("kafka-console-consumer.sh", "--bootstrap-server", servers, "--topic", topic),
        *("--partition", at[0], "--offset", at[1], "--max-messages", many),
        *("--timeout-ms", "10000"),  # fewer may come: without it the command would wait for more
        *("--property", "print.offset=true", "--property", "print.key=true"),
    ]
    return [shlex.join([*kcat, "-f", r"%o %T %k %s\n"]), shlex.join(console)]


def repeat_commands(result: Result) -> list[str]:
    """Commands that repeat the test, as far as the logs show; empty without logs."""
    sessions = [each.session for each in result.sessions]
    by_name: dict[tuple[Role, str], Session] = {}
    for session in sessions:
        by_name.setdefault((session.role, _shared_name(session)), session)
    if not by_name:
        return []
    default = {str(each) for each in thresholds(())}
    own = [each.expression for each in result.summary.thresholds if each.expression not in default]
    conditions = [word for text in own for word in ("--threshold", text)]
    commands = []
    for role in (Role.SOURCE, Role.CONSUMER, Role.PRODUCER):
        for (of, _), session in by_name.items():
            if of is role:
                words = _produce(session) if role is Role.PRODUCER else _consume(session)
                commands.append([*words, *(conditions if role is Role.CONSUMER else [])])
    logs = dict.fromkeys(each.location.parent.parent.parent.shown for each in result.sessions)
    commands.append(["mirrortest", "reconcile", *logs, "--run", _NEW_RUN, *conditions])
    return [shlex.join(each) for each in commands]


def _shared_name(session: Session) -> str:
    """The name that a process was given; that of a worker without its number."""
    number, of, _ = session.settings.get("worker", "").partition(" of ")
    return session.name.removesuffix(f".{number}") if of else session.name


def _common(verb: str, session: Session) -> list[str]:
    servers = session.settings.get("bootstrap servers", "HOST:PORT")
    ledger, _, brokers = session.settings.get("ledger", _LEDGER).partition(" at ")
    _, _, workers = session.settings.get("worker", "").partition(" of ")
    return [
        *("mirrortest", verb, "--bootstrap-server", servers, "--run", _NEW_RUN),
        *("--id", _shared_name(session), *(["--workers", workers] if workers else [])),
        *(["--portable"] if session.settings.get("client library") else []),
        *(["--ledger-topic", ledger] if ledger != _LEDGER else []),
        *(["--ledger-bootstrap-server", brokers] if brokers else []),
    ]


def _produce(session: Session) -> list[str]:
    # Its start time has passed.
    workload = {name: value for name, value in session.workload.items() if name != "start-at"}
    topics = {"topics": ",".join(session.topics) or _TOPICS}
    return [*_common("produce", session), *words_of(topics | workload)]


def _consume(session: Session) -> list[str]:
    words = _common("consume", session)
    if session.role is Role.SOURCE:
        words += ["--role", "source"]
    copies = {name: topic.destination or name for name, topic in session.topics.items()}
    asked = session.settings.get("topics") or ",".join(copies.values()) or _TOPICS
    named = set(asked.split(",")) <= {*copies.values(), _TOPICS}
    words += ["--topics" if named else "--topic-pattern", asked]
    words += shlex.split(session.settings.get("topic names", ""))
    if session.deadline_ns is not None:
        words += ["--deadline", exact_duration(session.deadline_ns)]
    if session.role is Role.CONSUMER and session.expect_partition not in {None, _HOMES}:
        words += ["--expect-partition", session.expect_partition]
    if session.settings.get("isolation level") == "read_committed":
        words += ["--command-property", "isolation.level=read_committed"]
    for name, (option, separator) in _CONSUME.items():
        if value := session.settings.get(name, ""):
            words += [option] if separator is _FLAG else [option, value.replace(separator, "")]
    return words
