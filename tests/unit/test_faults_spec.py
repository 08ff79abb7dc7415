"""A specification is read as it was meant, or refused in one line."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from mirrortest.cli import sabotage as command
from mirrortest.errors import UsageError
from mirrortest.faults.alteration import ORDER
from mirrortest.faults.ground_truth import TRUTH
from mirrortest.faults.spec import DEFAULTS, ON_ALL_MESSAGES, REQUIRED, Act, Spec, read_spec
from mirrortest.verify.anomaly import Anomaly
from mirrortest.wire.digits import SEQ_LIMIT
from mirrortest.wire.stream import ProducerId


def test_the_example_in_the_help_is_read() -> None:
    """It means what its comments say."""
    spec = Spec.parse(textwrap.dedent(command.SPECIFICATION.split("\n\n  Filters")[0]))
    assert [act.kind for act in spec.acts] == ["drop", "drop-run", "hold"]
    assert spec.acts[1].seqs(spec.lane_messages) == (25_000, 75_000)
    assert spec.acts[2].message_ids() == [(ProducerId("ann", "nightly", 1), 3, 1500)]


def test_what_is_written_down_is_read_back() -> None:
    """The specification in a truth is the one that was given."""
    text = """
    seed = 9
    lane_messages = 50
    release_after = 2
    [[acts]]
    kind = "rename-header"
    window = { share = [0.5] }
    to_header = "x"
    [[acts]]
    kind = "drop-tail"
    ids = ["a@b.1 2 3", "a@b.1 3 4"]
    """
    spec = Spec.parse(text)
    assert Spec.model_validate(spec.to_json()) == spec
    assert Spec.model_validate({}) == Spec()


@pytest.mark.parametrize("kind", Anomaly)
def test_every_kind_can_be_asked_for(kind: Anomaly) -> None:
    """With its required parameters and a selection; each other parameter has its default."""
    given = {"producer": "ann", "partition": 1, "to_partition": 0, "topic": "a", "to_topic": "b"}
    needs = {name: given[name] for name in REQUIRED.get(kind, ())}
    choice: dict[str, Any] = {} if kind in ON_ALL_MESSAGES else {"rate": 0.5}
    if kind is Anomaly.DROP_TAIL:
        choice = {"window": {"seq": [3]}}
    act = Act.model_validate({"kind": kind.value, **needs, **choice})
    for name, default in DEFAULTS.get(kind, {}).items():
        assert act.parameter(name) == needs.get(name, default)


def test_windows() -> None:
    """Seqs, or shares of the lane; a count without a window covers the lane."""

    def seqs(**details: dict[str, list[float]] | float) -> tuple[int, int]:
        return Act.model_validate({"kind": "drop", **details}).seqs(1000)

    assert seqs(rate=0.5) == (0, SEQ_LIMIT)
    assert seqs(window={"seq": [4]}) == (4, SEQ_LIMIT)
    assert seqs(window={"seq": [4, 9]}) == (4, 9)
    assert seqs(window={"share": [0.1, 0.35]}) == (100, 350)
    assert seqs(window={"share": [0.999]}) == (999, SEQ_LIMIT)
    assert seqs(count=3) == (0, 1000)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("acts = 3", "acts: it must be a list"),
        ("seed = 'x'", "seed: it must be a whole number"),
        ("sed = 1", "sed: there is no such setting"),
        ("seed = 1.5", "seed: it must be a whole number"),
        ("release_after = '1s'", "release_after: it must be a number"),
        ("release_after = 0", "release_after: it must be above 0"),
        ("acts = [3]", "acts.0: it must be a table"),
        ('[[acts]]\nkind = "drop"\nrate = 1\ntopic = 3', 'acts.0.topic: it must be a text: "'),
        ('[[acts]]\nkind = "drop"\nrate = 1\npartition = -1', "partition: it must be at least 0"),
        ('[[acts]]\nkind = "drop"\nwindow = 3', "acts.0.window: it must be a table: { ... }"),
        ("[[acts]]\nrate = 1", "acts.0.kind: it is required"),
        (
            '[[acts]]\nkind = "steal"\nrate = 1',
            "acts.0.kind: 'steal' is unknown; the kinds are drop, ",
        ),
        ('[[acts]]\nkind = "drop"', "acts.0: drop needs rate, count, ids or window"),
        ('[[acts]]\nkind = "drop"\nrate = 2', "acts.0.rate: it must be at most 1"),
        (
            '[[acts]]\nkind = "drop"\nrate = 0.5\ncount = 1',
            "acts.0: use only one of rate and count",
        ),
        ('[[acts]]\nkind = "drop"\ncount = 1', "a count needs lane_messages"),
        (
            '[[acts]]\nkind = "drop"\ncount = 3\nwindow = { seq = [1, 3] }',
            "count is 3, but the window has 2 messages",
        ),
        ('[[acts]]\nkind = "drop"\nwindow = { share = [0.5] }', "a share needs lane_messages"),
        ('[[acts]]\nkind = "drop"\nwindow = { share = [0, 2] }', "between 0 and 1"),
        ('[[acts]]\nkind = "drop"\nwindow = { seq = [3, 3] }', "lo must be below hi"),
        ('[[acts]]\nkind = "drop"\nwindow = {}', "use either seq"),
        ('[[acts]]\nkind = "drop"\nids = ["ann@r 1 2"]', "an id is NAME@RUN.INC"),
        ('[[acts]]\nkind = "drop"\nrate = 1\nlength = 3', "drop takes no length"),
        ('[[acts]]\nkind = "drop"\nrate = 1\ntopic = "("', "is not a regular expression"),
        ('[[acts]]\nkind = "drop-tail"\nrate = 1', "drop-tail needs window"),
        ('[[acts]]\nkind = "drop-tail"\nwindow = { seq = [1, 2] }', "a tail has no end"),
        ('[[acts]]\nkind = "drop-producer"', "drop-producer needs producer"),
        ('[[acts]]\nkind = "drop-partition"\npartition = 1\nrate = 1', "it takes no rate"),
        ('[[acts]]\nkind = "reroute"\nrate = 1\npartition = 1\nto_partition = 1', "itself"),
        ('[[acts]]\nkind = "other-run"\nrate = 1\nother_run = "A"', "lower-case letters"),
        ('[[acts]]\nkind = "drop"\nrate = 1\nrun = "R-7"', "run: a run's id is 1 to 16 lower"),
        ('[[acts]]\nkind = "delay"\nrate = 1\nseconds = inf', "seconds: it must be at most"),
        ('[[acts]]\nkind = "other-run"\nrate = 1\nage = 1e300', "age: it must be at most"),
        ('[[acts]]\nkind = "restamp"\nrate = 1\nshift_ms = 1_000_000_000_001', "at most"),
        ('[[acts]]\nkind = "drop"\nids = 3', "acts.0.ids: it must be a list"),
        ('[[acts]]\nkind = "drop"\nids = [3]', "'3': an id is"),
        ('[[acts]]\nkind = "drop"\nwindow = { seq = 3 }', "acts.0.window.seq: use"),
        (
            '[[acts]]\nkind = "drop"\nwindow = { seq = [1, 2, 3] }',
            "window.seq: use [lo, hi]",
        ),
        ('[[acts]]\nkind = "drop"\nwindow = { seq = [1, "x"] }', "seq.1: it must be a whole"),
        ('[[acts]]\nkind = "drop"\nwindow = { share = ["x"] }', "share.0: it must be a number"),
        ('[[acts]]\nkind = ["drop"]\nrate = 1', "acts.0.kind: ['drop'] is unknown"),
        ("[[acts", "--spec wrongs.toml is not TOML at its end: write KEY = VALUE"),
        ("seed = 1\nacts = =", "is not TOML at line 2: write KEY = VALUE, a text in quotes"),
    ],
)
def test_mistakes_are_told_in_one_line(text: str, shown: str) -> None:
    """The line names the place and what is wrong there."""
    with pytest.raises(UsageError, match=re.escape(shown)) as caught:
        Spec.parse(text, "--spec wrongs.toml")
    assert str(caught.value).startswith("--spec wrongs.toml")
    assert "\n" not in str(caught.value).strip()
    assert "tuple" not in str(caught.value)
    assert "Input" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """It is missing, or not text."""
    with pytest.raises(UsageError, match=r"x[.]toml: there is no such file"):
        read_spec(tmp_path / "x.toml")
    (tmp_path / "y.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="it is not text"):
        read_spec(tmp_path / "y.toml")


def test_the_page_for_users_says_what_the_code_says() -> None:
    """Its example is read; it has every kind, parameter and column, and the order of the acts."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "faulty-mirror.md").read_text()
    example = page.split("```toml\n")[1].split("```")[0]
    assert [act.kind for act in Spec.parse(example).acts] == [
        "drop",
        "drop-run",
        "hold",
        "drop-partition",
    ]
    shown = dict(re.findall(r"^\| `([a-z-]+)` \| [^|]* \| ?([^|]*?) ?\|$", page, re.MULTILINE))
    for kind in Anomaly:
        defaults = [
            f"`{name}`" if value is None else f"`{name} = {json.dumps(value)}`"
            for name, value in DEFAULTS.get(kind, {}).items()
        ]
        assert shown[kind] == ", ".join(defaults)
    order = page.split("in the file's order:\n")[1].split("After a fault that")[0]
    places = [re.search(rf"(?<![a-z-]){kind}(?![a-z-])", order) for kind in ORDER]
    starts = [place.start() for place in places if place]
    assert len(starts) == len(ORDER)
    assert starts == sorted(starts)
    for field in TRUTH:
        assert f"`{field.name}`" in page
