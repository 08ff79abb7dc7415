"""Foreign records in our topics, and users' mistakes."""

from __future__ import annotations

import random
import signal
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.wire.form import Form
from mirrortest.wire.message import Message, encode
from mirrortest.wire.stream import ProducerId
from tests.lab.harness import Command, count, until, vouched, write, wrong

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirrortest.lab import Lab
    from tests.lab.harness import Scene

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NOW = 1_790_000_000_000_000_000
FOREIGN = (
    *(random.Random(size).randbytes(size) for size in (1, 31, 32, 33, 1000)),
    b"",
    b";",
    b";;;;;;;;",
    b"a;b",
    b"a;b;c;d",
    b"p;" + b"9" * 400 + b";5;x",
    b"p;-1;5;x",
    b"SSXVNJHPDQDXVCRASTVYBCWVMGNYKRXVZXKGXTSPSJDGYLUEGQFLAQLOCFLJBEPOWFNSO",
    b'{"version": 1, "kind": "json"}',
)
"""Random bytes, wrong field counts, huge numbers, other tools' messages."""
ANCESTORS = tuple(b"producer-7;%d;%d;payload" % (seq, NOW) for seq in range(20))


def ours(topic: str, run: str) -> bytes:
    """A message of a producer that does not exist."""
    message = Message(topic, ProducerId("ann", run, 9), 0, 3, NOW, NOW, 0, 3, 200)
    return encode(message, Form.BODY).value or b""


def test_junk_disturbs_nothing(lab: Lab, make_scene: Callable[..., Scene]) -> None:
    """Junk in the topic is counted by kind; in the ledger and state topic it changes nothing.

    A message of ours with a flipped digit is corrupted, and counts as nothing else.
    """
    scene = make_scene("orders.eu", "clicks.us")
    topic = scene.topics[0]
    scene.create(3)
    consumers = [scene.consume(name, "--consumer-group", "two") for name in ("carl", "dora")]
    ann = scene.produce("ann", "--throughput", "500", "--message-size", "200")
    until(lambda: scene.copied(topic) > 200, what="records come")
    flipped = ours(topic, scene.run).replace(b";000000000003;", b";000000000004;")
    strange: list[dict[str, Any]] = [
        *({"value": value, "key": b"0", "timestamp_ms": NOW // 10**6} for value in ANCESTORS),
        *({"value": ours(topic, f"another{n}"), "key": b"0"} for n in range(7)),
        {"value": flipped, "key": b"0"},
        *({"value": value, "partition": 1} for value in FOREIGN),
        {"value": None, "key": b"tombstone"},
        {"value": b"x", "headers": [("id", b"ann"), ("trace", b"\xff")]},
        {"value": b"x", "headers": [("id", b"\xff@\xff"), ("seq", b"one")]},
    ]
    write(lab.source.bootstrap_servers, topic, strange)
    junk = [
        {"key": key, "value": value}
        for key in (b"junk", b"{}", b"[1,2", b"\xff\x00", b'["lane"]', b'["claim",1,2,3,4,5,6,7]')
        for value in (b"junk", b"[]", b"\xff", None)
    ]
    write(lab.source.bootstrap_servers, scene.ledger, junk)
    write(lab.destination.bootstrap_servers, scene.state, junk)
    before = scene.written(topic)
    until(lambda: scene.written(topic) > before + 500, what="ann goes on")
    ann.signal(signal.SIGINT)
    sent = vouched(ann.answer())
    for consumer in consumers:
        answer = consumer.answer(code=99)
        assert wrong(answer) == {
            "foreign": len(FOREIGN) + 3,
            "other_run": len(ANCESTORS) + 7,
            "corrupted": 1,
        }
        assert answer["counts"]["acked"] == answer["counts"]["delivered"] == len(sent)
        failed = [each["expression"] for each in answer["thresholds"] if not each["passed"]]
        assert failed == ["corrupted==0"]
    assert sent <= count(scene.copies()).seen


TOPIC = ("--topics", "t")
WRONG = {
    "no address": (2, "bootstrap", ["produce", "--topics", "t"]),
    "no topics": (2, "topic", ["consume", "--run", "r", "--bootstrap-server", "{b}"]),
    "a bad regex": (
        2,
        "--topic-pattern",
        ["consume", "--run", "r", "--bootstrap-server", "{b}", "--topic-pattern", "A[.(.*"],
    ),
    "a bad threshold": (
        2,
        "lots==0",
        [
            "consume",
            "--run",
            "r",
            "--bootstrap-server",
            "{b}",
            "--topics",
            "t",
            "--threshold",
            "lots==0",
        ],
    ),
    "a bad duration": (
        2,
        "--deadline",
        [
            "consume",
            "--run",
            "r",
            "--bootstrap-server",
            "{b}",
            "--topics",
            "t",
            "--deadline",
            "soon",
        ],
    ),
    "a bad run": (
        2,
        "R!",
        ["produce", "--topics", "t", "--bootstrap-server", "{a}", "--run", "R!"],
    ),
    "no such topic": (
        1,
        "no.such.topic",
        ["produce", "--topics", "no.such.topic", "--bootstrap-server", "{a}"],
    ),
    "nobody there": (
        1,
        "127.0.0.1:1",
        ["produce", "--topics", "t", "--bootstrap-server", "127.0.0.1:1"],
    ),
    "no logs": (2, "nowhere", ["reconcile", "nowhere"]),
}


def test_mistakes_are_told_in_a_line(lab: Lab, tmp_path: Path) -> None:
    """An invalid option exits 2, a missing cluster or topic exits 1; never a traceback."""
    places = {"a": lab.source.bootstrap_servers, "b": lab.destination.bootstrap_servers}
    running = {
        name: Command(
            [each.format(**places) for each in arguments], tmp_path, f"{number}", anew=True
        )
        for number, (name, (_, _, arguments)) in enumerate(WRONG.items())
    }
    got = {name: (command.wait(), command.stderr) for name, command in running.items()}
    for name, (code, word, _) in WRONG.items():
        exit_code, text = got[name]
        assert exit_code == code, f"{name}: {text}"
        assert word in text, f"{name}: {text}"
        assert "Traceback" not in text, f"{name}: {text}"
