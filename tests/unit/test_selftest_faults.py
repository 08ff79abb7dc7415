"""The faulty mirror's truth, calibrate's rules and the real checkers agree, without Kafka.

Two topics go through the faulty mirror's injectors under random specifications. Their rates are far
above a calibration's, so that several acts hit one message. What calibrate expects by the truth is
what the decoder and the checkers find.
"""

from __future__ import annotations

from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirrortest.config.run_naming import TopicMapping
from mirrortest.faults.alteration import Target, TruthRow
from mirrortest.faults.injector import Output, PartitionInjector
from mirrortest.faults.selection import Selection
from mirrortest.faults.spec import Act, Spec, Window
from mirrortest.selftest.expected import expect, read_injected
from mirrortest.verify.anomaly import Anomaly
from mirrortest.wire.form import HEADER_NAMES, Form
from tests.unit.anomalies import ANN, BOB, COUNT, PARTITIONS, TOPICS, Copy, World, copies
from tests.unit.faults_source import batch_of, written
from tests.unit.test_selftest_expected import as_found, truth_of

if TYPE_CHECKING:
    from mirrortest.wire.message import Record

PLACES = list(product(TOPICS, range(PARTITIONS)))
COUNTS = dict.fromkeys(TOPICS, PARTITIONS)
MAPPING = TopicMapping.parse(source_alias="A")
SECOND = 1_000_000_000

rates = st.sampled_from([0.03, 0.1, 0.3])
PLAIN = [
    *(Anomaly.DROP, Anomaly.DUPLICATE, Anomaly.SWAP, Anomaly.CHANGE_ID, Anomaly.CHANGE_SEQ),
    *(Anomaly.CHANGE_TIME, Anomaly.CHANGE_DESCRIPTOR, Anomaly.CHANGE_PAYLOAD, Anomaly.TRUNCATE),
    *(Anomaly.REKEY, Anomaly.REROUTE, Anomaly.ADD_HEADER, Anomaly.RESTAMP, Anomaly.OTHER_RUN),
]
acts = st.one_of(
    st.builds(Act, kind=st.sampled_from(PLAIN), rate=rates),
    st.builds(Act, kind=st.just(Anomaly.EXTEND), rate=rates, bytes=st.just(3)),
    st.builds(
        Act, kind=st.just(Anomaly.TRUNCATE), rate=rates, bytes=st.sampled_from([80, 120, 145])
    ),
    st.builds(
        Act,
        kind=st.sampled_from([Anomaly.STRIP_HEADER, Anomaly.RENAME_HEADER]),
        rate=rates,
        header=st.sampled_from(HEADER_NAMES),
    ),
    st.builds(
        Act,
        kind=st.sampled_from([Anomaly.HOLD, Anomaly.DUPLICATE_LATER]),
        rate=rates,
        distance=st.integers(1, 20),
    ),
    st.builds(
        Act, kind=st.just(Anomaly.DELAY), rate=rates, seconds=st.sampled_from([0.5, 1.5, 60.0])
    ),
    st.builds(Act, kind=st.just(Anomaly.DROP_RUN), rate=st.just(0.03), length=st.integers(2, 6)),
    st.builds(Act, kind=st.just(Anomaly.REPLAY), rate=st.just(0.03), length=st.integers(2, 20)),
    st.builds(
        Act,
        kind=st.just(Anomaly.DROP_TAIL),
        window=st.builds(Window, seq=st.tuples(st.integers(0, COUNT))),
    ),
    st.builds(Act, kind=st.just(Anomaly.DROP_PRODUCER), producer=st.just("bob")),
    st.builds(
        Act, kind=st.just(Anomaly.DROP_PARTITION), partition=st.just(1), topic=st.just(TOPICS[0])
    ),
    st.builds(
        Act,
        kind=st.just(Anomaly.MERGE_PARTITIONS),
        partition=st.just(0),
        to_partition=st.just(1),
        window=st.just(Window(seq=(5, 15))),
    ),
    st.builds(
        Act,
        kind=st.just(Anomaly.MERGE_TOPICS),
        topic=st.just(TOPICS[0]),
        to_topic=st.just(TOPICS[1]),
        window=st.just(Window(seq=(8, 12))),
    ),
)


def source(topic: str, partition: int) -> list[Record]:
    """Records of ann in body form and of bob with headers, in turns."""
    pairs = zip(
        *(copies(form.value, topic, partition) for form in (Form.BODY, Form.HEADERS)), strict=True
    )
    return [body.record if body.id.producer == ANN else headers.record for body, headers in pairs]


def faulted(spec: Spec, cuts: list[int]) -> tuple[World, list[dict[str, Any]]]:
    """The destination's records, and the truth's rows."""
    world = World(Form.BODY)
    world.made = {place: [] for place in PLACES}
    rows: list[dict[str, Any]] = []

    def take(step: Output) -> None:
        rows.extend(row(note, None, None) for note in step.faults)
        for target, record, faults in written(step.writes):
            here = world.made[target]
            rows.extend(row(note, target, len(here)) for note in faults)
            here.append(Copy(None, record))

    courses = {
        place: PartitionInjector(spec, Selection(spec, *place), Target(*place), COUNTS)
        for place in PLACES
    }
    for number, (lo, hi) in enumerate(pairwise([0, *cuts, COUNT * 2])):
        for (topic, partition), injector in courses.items():
            records = source(topic, partition)[lo:hi]
            batch = batch_of(records, first=lo, topic=topic, partition=partition)
            take(injector.feed(batch, number * SECOND))
            take(injector.tick(number * SECOND, ended=lo % 2 == 1))
    for injector in courses.values():
        take(injector.finish(100 * SECOND))
    return world, rows


def row(note: TruthRow, target: Target | None, offset: int | None) -> dict[str, Any]:
    """A row of the truth."""
    subject = note.subject
    assert subject.id is not None
    assert subject.form is not None
    return {
        "kind": note.kind.value,
        "topic": subject.topic,
        "run": subject.id.run,
        "producer": subject.id.name,
        "incarnation": subject.id.incarnation,
        "lane": subject.lane,
        "seq": subject.seq,
        "form": subject.form.value,
        "part": note.part or None,
        "overtaken": note.overtaken,
        "destination_topic": target and f"A.{target.topic}",
        "destination_partition": target and target.partition,
        "destination_offset": offset,
    }


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1 << 32),
    st.lists(acts, min_size=1, max_size=8),
    st.lists(st.integers(1, COUNT * 2 - 1), max_size=4, unique=True).map(sorted),
)
@example(
    10793600,
    [
        Act(kind=Anomaly.SWAP, rate=0.3),
        Act(kind=Anomaly.DELAY, rate=0.3, seconds=0.5),
        Act(kind=Anomaly.EXTEND, rate=0.03, bytes=3),
        Act(kind=Anomaly.REPLAY, rate=0.03, length=7),
        Act(kind=Anomaly.EXTEND, rate=0.03, bytes=3),
        Act(kind=Anomaly.SWAP, rate=0.3),
    ],
    [],
)
def test_truth_rules_and_checkers_agree(seed: int, chosen: list[Act], cuts: list[int]) -> None:
    """Under any specification, what the rules expect by the truth is what is found.

    In the example a stream's last messages are swapped, and only another stream's come after them.
    """
    world, rows = faulted(Spec(seed=seed, acts=tuple(chosen)), cuts)
    sent, _, _, numbers = truth_of(World(Form.BODY))
    written_here = {place: len(here) for place, here in world.made.items()}
    done = read_injected(rows, numbers, MAPPING, ANN.run)
    expected = expect(sent, done, written_here, numbers)
    assert expected.reasons == []
    assert as_found(expected, numbers) == world.found()


def test_the_examples_are_worth_it() -> None:
    """A specification with all these kinds leaves rows of each, and over 100 findings."""
    chosen = [Act(kind=kind, rate=0.1) for kind in PLAIN]
    world, rows = faulted(Spec(seed=5, acts=tuple(chosen)), [])
    assert {each["kind"] for each in rows} == {kind.value for kind in PLAIN}
    assert len(rows) > 150
    assert BOB.name in {each["producer"] for each in rows}
    assert len(world.found()[0]) > 100
