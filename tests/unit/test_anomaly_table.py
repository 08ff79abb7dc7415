"""The table of findings, compared with the real decoder, checkers and judgement.

The anomalies of `anomalies` must cause what the table says, each kind alone and any two on one
record.
"""

from __future__ import annotations

import re
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.faults.record_changes import CONTENT
from mirrortest.faults.seeded_random import Draw, Scope
from mirrortest.faults.spec import Act
from mirrortest.model.findings import Finding
from mirrortest.verify.anomaly import EFFECTS, Anomaly, Effect, combined, effect_of
from mirrortest.wire.form import Form
from tests.unit.anomalies import CUTS, TO_ONE_RECORD, TOPICS, Id, World

if TYPE_CHECKING:
    from collections.abc import Iterator

FALSE_ALARMS = Path(__file__).parents[2] / "docs" / "explanation" / "false-alarms.md"
HEADER_KINDS = (Anomaly.STRIP_HEADER, Anomaly.RENAME_HEADER)
DROPS = [kind for kind in Anomaly if kind.value.startswith("drop")]


def expected(
    world: World, hit: set[Id], message_finding: Finding, record_finding: Finding
) -> tuple[set[tuple[Id, Finding]], set[tuple[str, int, int, Finding]]]:
    """What must be found: each finding of each id hit, and a record's finding at its offset."""
    of_messages = {(each, finding) for each in hit for finding in message_finding}
    of_records = {
        (*where, at, record_finding)
        for where, here in world.made.items()
        for at, copy in enumerate(here)
        if record_finding and (copy.id is None or copy.id in hit)
    }
    return of_messages, of_records


@pytest.mark.parametrize("form", Form)
def test_nothing_wrong_is_found_of_a_faithful_copy(form: Form) -> None:
    """A mirror that does nothing wrong causes no finding."""
    assert World(form).found() == (set(), set())


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda e: f"{e.kind}-{e.form}-{e.part}")
def test_each_kind_alone(effect: Effect) -> None:
    """Each row of the table: exactly these findings, of exactly these ids, and nothing else."""
    world = World(effect.form)
    hit = world.commit(effect.kind, effect.part)
    assert world.found() == expected(world, hit, effect.message, effect.record)


PARAMETERS: dict[tuple[Anomaly, str], dict[str, Any]] = {
    (Anomaly.TRUNCATE, "descriptor"): {"bytes": 80},
    (Anomaly.TRUNCATE, "header"): {"bytes": 150 - CUTS["header"]},
    (Anomaly.TRUNCATE, "numbers"): {"bytes": 120},
    (Anomaly.TRUNCATE, "id"): {"bytes": 145},
    **{
        (kind, part): {"header": part} for kind in HEADER_KINDS for part in ("id", "seq", "ts", "d")
    },
}


@pytest.mark.parametrize(
    "effect",
    [effect for effect in EFFECTS if effect.kind in CONTENT],
    ids=lambda e: f"{e.kind}-{e.form}-{e.part}",
)
def test_the_faulty_mirrors_acts_cause_the_same(effect: Effect) -> None:
    """The faulty mirror's act of the same name causes what the table says, whatever byte it draws.

    The act reports the part under the table's name.
    """
    parameters = PARAMETERS.get((effect.kind, effect.part), {})
    act = Act(kind=effect.kind, rate=1, **parameters)
    for seed in range(12):
        world = World(effect.form)
        here = world.made[TOPICS[0], 0]
        victim = here[22].id
        assert victim is not None
        done = CONTENT[act.kind](
            act, here[22].record, Draw(seed, 0, Scope(TOPICS[0], "ann", 1, 0), 11)
        )
        assert done is not None
        here[22] = here[22]._replace(record=done.record)
        caused = effect_of(effect.kind, effect.form, done.part)
        assert caused == effect
        assert world.found() == expected(world, {victim}, effect.message, effect.record)


def test_every_kind_is_in_the_table() -> None:
    """Each anomaly has a row for both forms, except those of headers, which body form lacks."""
    there = {(effect.kind, effect.form) for effect in EFFECTS}
    missing = set(product(Anomaly, Form)) - there
    assert missing == {
        (Anomaly.STRIP_HEADER, Form.BODY),
        (Anomaly.RENAME_HEADER, Form.BODY),
    }
    assert len({effect[:3] for effect in EFFECTS}) == len(EFFECTS)
    with pytest.raises(ValueError, match="no strip-header of 'id' in body form"):
        effect_of(Anomaly.STRIP_HEADER, Form.BODY, "id")


def pairs(form: Form) -> Iterator[tuple[Effect, Effect]]:
    """Any two anomalies on one record that do not undo or hide each other's traces."""
    ones = [e for e in EFFECTS if e.form is form and e.kind in TO_ONE_RECORD]
    for first, second in combinations(ones, 2):
        if first.kind == second.kind:
            continue
        cut = {e.part for e in (first, second) if e.kind is Anomaly.TRUNCATE}
        if cut & {"descriptor", "header", "numbers", "id"}:
            continue  # the cut removes the other's trace
        lost_headers = {e.part for e in (first, second) if e.kind in HEADER_KINDS}
        if len(lost_headers) < 2 and all(e.kind in HEADER_KINDS for e in (first, second)):
            continue  # the same header stripped and renamed
        if Anomaly.CHANGE_ID in {first.kind, second.kind} and lost_headers & {"d"}:
            continue  # without its id and its descriptor, nothing shows that the message is ours
        yield first, second


@pytest.mark.parametrize("form", Form)
def test_any_two_on_one_record(form: Form) -> None:
    """Two anomalies on one record cause the findings of both, unless one leaves no id."""
    tried = 0
    for first, second in pairs(form):
        world = World(form)
        # Headers last: their content must be changed before they are stripped or renamed.
        ordered = sorted((first, second), key=lambda effect: effect.kind in HEADER_KINDS)
        hits = [world.commit(effect.kind, effect.part) for effect in ordered]
        assert hits[0] == hits[1]
        findings = combined([first, second])
        assert findings == combined([second, first])
        assert world.found() == expected(world, hits[0], *findings), (first, second)
        tried += 1
    assert tried > 30


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("kind", [k for k in DROPS if k is not Anomaly.DROP_PRODUCER])
def test_dropped_overrides(kind: Anomaly, form: Form) -> None:
    """A message that is dropped is lost and nothing else, whatever else was done to it."""
    for other in (Anomaly.REKEY, Anomaly.CHANGE_ID, Anomaly.RESTAMP):
        world = World(form)
        world.commit(other)
        hit = world.commit(kind)
        findings = combined([effect_of(other, form), effect_of(kind, form)])
        assert findings == (Finding.LOST, Finding(0))
        assert world.found() == expected(world, hit, *findings)


@pytest.mark.parametrize("form", Form)
def test_copies_add_up(form: Form) -> None:
    """Two records of one message: it is duplicated, with the findings of either record."""
    world = World(form)
    world.commit(Anomaly.DUPLICATE_LATER)
    (hit,) = world.commit(Anomaly.REKEY)
    findings = {(hit, Finding.DUPLICATED), (hit, Finding.ALTERED_KEY)}
    assert world.found() == (findings, set())


@pytest.mark.parametrize("form", Form)
def test_a_later_copy_repays_an_unreadable_one(form: Form) -> None:
    """If only the second record has a readable id, the message is seen, after later ones."""
    world = World(form)
    world.commit(Anomaly.DUPLICATE_LATER)
    (hit,) = world.commit(Anomaly.CHANGE_SEQ)
    assert world.found() == (
        {(hit, Finding.REORDERED)},
        {(hit.topic, hit.partition, 22, Finding.CORRUPTED)},
    )


def test_what_is_no_finding_has_its_test() -> None:
    """Each test that the document names exists."""
    document = FALSE_ALARMS.read_text()
    named = set(re.findall(r"`(test_[a-z_]+)` \|$", document, re.MULTILINE))
    unit = Path(__file__).parent
    files = [
        *unit.with_name("lab").glob("test_false_alarms_*.py"),
        *unit.glob("test_*.py"),
        *unit.with_name("spark").glob("test_*.py"),
    ]
    there = "\n".join(file.read_text() for file in files)
    assert len(named) > 9
    assert named <= set(re.findall(r"^(?:async )?def (test_\w+)\(", there, re.MULTILINE))
