"""The doctor on real clusters with a real mirror, before a test and after one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lab.harness import Scene


def doctor(scene: Scene, *arguments: str, code: int, alias: str | None = "A") -> dict[str, Any]:
    """The command's checks by subject; the last one of each subject."""
    command = scene.start(
        f"doctor-{len(scene.commands)}",
        "doctor",
        *("--source-bootstrap-server", scene.lab.source.bootstrap_servers),
        *("--destination-bootstrap-server", scene.lab.destination.bootstrap_servers),
        *("--topics", ",".join(scene.topics)),
        *("--ledger-topic", scene.ledger),
        *("--state-topic", scene.state),
        *(("--source-alias", alias) if alias is not None else ()),
        "--json",
        *arguments,
    )
    return {each["subject"]: each for each in command.answer(code=code)["checks"]}


def test_what_is_missing_is_found_before_a_test_and_nothing_after_one(
    make_scene: Callable[..., Scene],
) -> None:
    """Missing topics are an error; after a run all are found, and a wrong alias is corrected."""
    scene = make_scene("orders")
    before = doctor(scene, code=1)
    assert before["source"]["level"] == before["destination"]["level"] == "ok"
    assert before["source topic"]["level"] == "error"
    assert "--create-topics" in before["source topic"]["action"]
    assert before["copy"]["level"] == before["ledger's copy"]["level"] == "warning"

    scene.create(2)
    producer = scene.produce("ann", "--num-records", "500")
    consumer = scene.consume("bob", "--expect-producers", "ann")
    producer.answer()
    consumer.answer()
    after = doctor(scene, code=0)
    levels = {subject: each["level"] for subject, each in after.items()}
    assert {levels[each] for each in ("source topic", "copy", "ledger", "ledger's copy")} == {"ok"}
    assert "2 partitions" in after["copy"]["found"]
    found = doctor(scene, code=0, alias=None)
    assert (
        f"the copy of {scene.topics[0]} is A.{scene.topics[0]}" in found["mirror's names"]["found"]
    )

    wrong = doctor(scene, code=1, alias="B")
    assert "did you mean --source-alias A" in wrong["copy"]["action"]
    assert wrong["ledger's copy"]["level"] == "error"


def test_a_dry_run_checks_a_side_and_writes_nothing(make_scene: Callable[..., Scene]) -> None:
    """A dry run takes the run's options, checks one side, and creates no ledger or state topic."""
    scene = make_scene("orders")
    missing = scene.produce("ann", "--dry-run", label="missing").answer(code=1)
    assert "orders" in _errors(missing)[0]
    scene.create(2)
    checked = [
        scene.produce("ann", "--dry-run", label="sent").answer(code=0),
        scene.consume("bob", "--dry-run", label="read").answer(code=1),
        scene.consume("bob", "--dry-run", label="found", aliased=False).answer(code=None),
        scene.observe("eve", "--dry-run", label="observed").answer(code=None),
    ]
    assert _errors(checked[0]) == []
    (ledger,) = _errors(checked[1])
    assert scene.ledger in ledger
    assert any(each["subject"] == "copy" for each in checked[1]["checks"])
    for cluster, topic in (
        (scene.lab.source, scene.ledger),
        (scene.lab.destination, scene.state),
    ):
        assert cluster.partitions(topic) == 0


def _errors(answer: dict[str, Any]) -> list[str]:
    return [each["found"] for each in answer["checks"] if each["level"] == "error"]


def test_a_dead_cluster_is_one_error_and_the_other_side_is_checked(
    make_scene: Callable[..., Scene],
) -> None:
    """The error names the address, and the other cluster is still checked."""
    scene = make_scene("orders")
    found = doctor(scene, "--source-bootstrap-server", "127.0.0.1:1", code=1)
    assert found["source"]["level"] == "error"
    assert "127.0.0.1:1" in found["source"]["found"]
    assert found["destination"]["level"] == "ok"


def test_text_for_people_has_a_line_and_a_remedy(make_scene: Callable[..., Scene]) -> None:
    """Without --json each check is a line, and an arrow shows what to do."""
    scene = make_scene("orders")
    command = scene.start(
        *("doctor", "doctor", "--topics", "no.such.topic"),
        *("--source-bootstrap-server", scene.lab.source.bootstrap_servers),
    )
    command.wait()
    assert "✗ source topic" in command.stdout
    assert "→ create it" in command.stdout
    assert "not ready for a test: 1 error" in command.stdout
    assert json.dumps("checks") not in command.stdout
