"""A scenario's file: what is refused, and what its matrix and its plan expand to."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirrortest.cli import run
from mirrortest.cli.client_tables import arguments
from mirrortest.config.client_config import ClientConfig
from mirrortest.config.client_properties import SET_BY_MIRRORTEST, WITHOUT_EFFECT
from mirrortest.errors import UsageError
from mirrortest.scenario import catalogue
from mirrortest.scenario.clients import clients, here
from mirrortest.scenario.clusters import Sides
from mirrortest.scenario.matrix import Document, points
from tests import scenarios
from tests.documented import ROOT
from tests.unit.scenario_documents import CUT, IN_CONTAINERS, SMALL, document

if TYPE_CHECKING:
    from mirrortest.scenario.clients import Client
    from mirrortest.scenario.specification import Scenario

PLAN = "[plan]\ndo=[{}]\nparts=[{}]\nevery='1s'\nfor='1s'\n"
LATER = "until must be later than at"
OWN = {
    "produce": {"run": "r1", "log-dir": "logs"},
    "consume": {"run": "r1", "log-dir": "logs"},
    "observe": {"run": "r1", "output": "observations"},
}
KNOWN = {item.metadata["key"] for item in fields(ClientConfig) if item.metadata}
SECRETS = {
    *("sasl.jaas.config", "sasl.password", "ssl.key.password", "ssl.keystore.key"),
    *("ssl.keystore.password", "ssl.truststore.password"),
}
SIDES = Sides({"bootstrap-server": "a:1"}, {"bootstrap-server": "b:1"}, "A")


def clients_of(scenario: Scenario, place: Path) -> list[Client]:
    """The clients of a scenario's point, whose files would go into `place`."""
    return clients(scenario, SIDES, "r1", place, here(place, place), arguments)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("[labb]\n" + SMALL, "labb: there is no such setting; did you mean lab?"),
        (SMALL + "[clusters]\nsource-bootstrap-server = 'a:1'", "either [lab] or [clusters]"),
        ("[lab]", "there is no client"),
        ("[lab]\n[[produce]]\ntopics = 'x'", "a producer has no end"),
        ('thresholds = ["lostt==0"]\n' + SMALL, "there is no metric 'lostt': did you mean lost?"),
        ("expect.findings = ['duplicate']\n" + SMALL, "'duplicate': did you mean duplicated?"),
        (
            "expect.findings = ['lost']\n[lab]\n[[consume]]\ntopics='t'\n",
            "expect.findings needs [[produce]] and [[consume]]",
        ),
        ("expect.verdict = 'pass'\n" + SMALL, "expect.verdict: use 'passed', "),
        ("[lab]\nheap = '5'\n", "lab.heap: '5': that is in bytes; did you mean 5g?"),
        ("[lab]\nheap = 5\n", 'lab.heap: write a heap in quotes, with its unit: "512m"'),
        ("[lab]\nbrokers = 10\n", "lab.brokers: it must be at most 9"),
        (SMALL + "[[consume]]\nid = 'carl'", "two clients have the id carl"),
        (SMALL + "[[fault]]\ndo='kil'\npart='A1'\nat='1s'", "'kil': did you mean kill?"),
        (
            SMALL + "[[fault]]\ndo='kill'\npart='A2'\nat='1s'",
            "use A1, B1, mirror, link-source, link-destination, ann or carl",
        ),
        (
            "[lab]\nmirror-command=['m', '{source}']\n",
            "mirror-command: the mirror's command lacks",
        ),
        (
            "[lab]\ntasks=2\nmirror-command=['m', '{source}', '{destination}']\n",
            'lab: tasks is for mirror = "mirrormaker2"',
        ),
        (
            "[lab]\nmirror='none'\nmirror-command=['m', '{source}', '{destination}']\n",
            "lab: use either mirror or mirror-command",
        ),
        ("[lab]\nmirror-alias='A'\n", "mirror-alias is for mirror-command"),
        ("[lab]\nfaults='f.toml'\n", 'lab: faults is for mirror = "saboteur"'),
        ("[lab]\nmirror='none'\nfaults='f.toml'\n", 'lab: faults is for mirror = "saboteur"'),
        *(
            (f"[lab]\nmirror='saboteur'\n{line}\n", 'is for mirror = "mirrormaker2"')
            for line in (
                "exactly-once=true",
                "tasks=2",
                "offset-flush-ms=5",
                "mirror-workers=2",
                "mirror-properties={a=1}",
            )
        ),
        (
            SMALL + "[[produce]]\nworkload='w.toml'\nduration='1s'",
            "carl needs topics: the table of p2 has none",
        ),
        (
            "[clusters]\nsource-bootstrap-server='a:1'\n[[consume]]\n",
            "c1 needs topics: there is no producer",
        ),
        (SMALL + CUT.format("kill", "link-source"), "kill is not for link-source: links take"),
        (SMALL + CUT.format("cut", "A1"), "cut is not for A1: links take delay, rate, cut, reset"),
        (SMALL + CUT.format("delay", "link-source"), "delay needs delay, and no other fault"),
        (SMALL + CUT.format("cut", "link-source") + "rate='1MB/s'", "rate needs rate, and no"),
        (SMALL + CUT.format("rate", "link-source") + "rate='fast'", "must be bytes per second"),
        (SMALL + CUT.format("cut", "link-source") + "jitter='1s'", "jitter is for delay"),
        (
            SMALL.replace("[lab]", "[lab]\nimage='k'") + CUT.format("cut", "link-source"),
            "link-source: links are between processes, not containers",
        ),
        (
            SMALL.replace("[lab]", "[lab]\nmirror='none'\nlinks=true"),
            "links need a mirror: leave out links",
        ),
        (
            SMALL + "[plan]\ndo=['cut']\nparts=['A1']\nevery='1s'\nfor='1s'\nuntil='9s'",
            "suits none",
        ),
        (SMALL + "[[fault]]\ndo='kill'\npart='A1'\nat=1", 'in quotes, with its unit: "30s"'),
        (SMALL + "[[fault]]\ndo='kill'\npart='A1'", "use either at or after"),
        (SMALL + "[[fault]]\ndo='kill'\npart='ann'\nat='produced'", "once all producers have"),
        (
            SMALL + "[[fault]]\ndo='restart'\npart='mirror'\nat='produced'\n"
            "[[fault]]\ndo='start'\npart='ann'\nafter='1s'",
            "fault.1: it begins once all producers have ended: ann is one",
        ),
        (
            SMALL + "[[fault]]\ndo='restart'\npart='mirror'\nat='1s'\nevery='9s'\n"
            "[[fault]]\ndo='start'\npart='ann'\nafter='1s'",
            "fault.1: it begins once all producers have ended: ann is one",
        ),
        (
            SMALL + "[[fault]]\ndo='kill'\npart='carl'\nat='produced'\nfor='1s'\nevery='9s'",
            "fault.0: every ends with the producers, and the fault begins after their end: add",
        ),
        (SMALL + "[[fault]]\ndo='kill'\npart='A1'\nafter='1s'", "counts from the fault before"),
        (SMALL + "[[fault]]\ndo='start'\npart='A1'\nat='1s'\nfor='1s'", "for is for kill"),
        (SMALL + "[[fault]]\ndo='kill'\npart='A1'\nat='1s'\nuntil='2s'", "until is the end of"),
        *(
            (SMALL + f"[[fault]]\ndo='kill'\npart='A1'\nat='3s'\nevery='1s'\nuntil='{end}'", LATER)
            for end in ("2s", "3s")
        ),
        (SMALL + PLAN.format("'kill'", "'A1'") + "at='9s'\nuntil='9s'", f"plan: {LATER}"),
        (
            SMALL + PLAN.format("'kill'", "'A1'") + "seed=7\nat='8s'\nuntil='8001ms'",
            "plan: seed 7 draws no fault before until: use another seed, a later until or a",
        ),
        *(
            (SMALL + CUT.format(do, part), f"fault.0: {do} is for containers, and {part} is none")
            for do, part in (("pause", "A1"), ("disconnect", "mirror"), ("connect", "carl"))
        ),
        (
            IN_CONTAINERS.format("mirror='saboteur'") + CUT.format("pause", "mirror"),
            "fault.0: pause is for containers, and mirror is none",
        ),
        (
            IN_CONTAINERS.format("") + PLAN.format("'kill','pause'", "'A1','carl'") + "until='9s'",
            "plan: pause is for containers, and carl is none",
        ),
        *(
            (SMALL + CUT.format(do, part), f"fault.0: {do} is for brokers of a [lab] without")
            for do in ("remove", "drop-page-cache")
            for part in ("mirror", "carl")
        ),
        *(
            (IN_CONTAINERS.format("brokers=3") + CUT.format(do, "A3"), f"{do} is for brokers of a")
            for do in ("remove", "drop-page-cache")
        ),
        (
            SMALL.replace("[lab]", "[lab]\nbrokers=2") + CUT.format("remove", "A2"),
            "fault.0: without A2 1 of 2 brokers would be left, and the controllers need a majority",
        ),
        (
            SMALL.replace("[lab]", "[lab]\nbrokers=3")
            + "".join(CUT.format("remove", part) for part in ("A3", "B3", "A2")),
            "fault.2: without A2 1 of 3 brokers would be left",
        ),
        (SMALL + CUT.format("start", "A1"), "start of A1: brokers run from the beginning; kill"),
        (
            SMALL + "[[fault]]\ndo='start'\npart='A1'\nat='produced'\n" + CUT.format("start", "B1"),
            "start of A1: brokers run from the beginning; kill",
        ),
        (SMALL + "[[fault]]\ndo='kill'\ntopic='orders'\nat='1s'", "kill needs part"),
        (SMALL + "[[fault]]\ndo='add-partitions'\ntopic='orders'\nat='1s'", "partitions is for"),
        (SMALL + "[plan]\ndo=['start']\nparts=['A1']\nevery='1s'\nfor='1s'\nuntil='9s'", "'start'"),
        (SMALL + "[vary]\nproduce.acks = 'all'", "vary.produce.acks: it must be a list of values"),
        (SMALL + "[vary]\nproduc.acks = ['all']", "no table produc: did you mean produce?"),
        (SMALL + "[vary]\nrepeats = 0", "vary.repeats: it must be a whole number, 1 or more"),
        (SMALL + "[vary]\nlab.brokers = [1, 'x']", "lab.brokers: it must be a whole number"),
        (
            f"description = 'a'\n{SMALL}[vary]\ndescription.x = [1]",
            "description.x: description is not a table",
        ),
        (
            SMALL + "[vary]\n" + "".join(f"produce.k{n} = {[*range(10)]}\n" for n in range(9)),
            "vary: 1,000,000,000 points; at most 10,000",
        ),
        (SMALL.replace("ann", "mirror"), "mirror is a part of the lab: give the client another id"),
        (SMALL.replace("carl", "B1"), "B1 is a part of the lab: give the client another id"),
    ],
)
def test_a_mistake_is_one_line_with_the_file_the_place_and_what_was_meant(
    text: str, answer: str
) -> None:
    """Also a mistake that only some points of the matrix have."""
    with pytest.raises(UsageError) as caught:
        points(document(text))
    assert answer in str(caught.value)
    assert str(caught.value).startswith("small.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["description.x", "timeout.x", "thresholds.x", "produce.x"])
def test_a_value_below_what_is_no_table_is_refused(path: str) -> None:
    """`--set description.x=1`, for example, ended in a traceback."""
    text = "description = 'a'\ntimeout = '1m'\nthresholds = ['lost==0']\nproduce = ['x']\n"
    table = path.partition(".")[0]
    with pytest.raises(UsageError, match=f"small.toml: {path}: {table} is not a table"):
        document(text).changed({path: 1})


@pytest.mark.parametrize(
    ("verb", "key", "value", "answer"),
    [
        ("produce", "throughputt", 5, "[[produce]] throughputt: there is no such option; did you"),
        ("produce", "throughput", "fast", "[[produce]] throughput 'fast': must be a number"),
        ("produce", "csv", "x", "[[produce]] csv: the scenario sets it"),
        ("consume", "exactly-once", "yes", "exactly-once 'yes': it must be true or false"),
        ("observe", "interval", "5", "[observe] interval '5': must be a duration"),
        ("observe", "once", True, "[observe] once: the scenario sets it"),
        ("observe", "output", "x", "[observe] output: the scenario sets it"),
        ("observe", "run", "x", "[observe] run: the scenario sets it"),
        ("produce", "run", "x", "[[produce]] run: the scenario sets it"),
        ("produce", "log-dir", "x", "[[produce]] log-dir: the scenario sets it"),
        ("consume", "run", "x", "[[consume]] run: the scenario sets it"),
        ("consume", "log-dir", "x", "[[consume]] log-dir: the scenario sets it"),
        ("consume", "until", "complet", "until 'complet': did you mean complete?"),
    ],
)
def test_a_clients_options_are_those_of_its_command(
    verb: str, key: str, value: object, answer: str
) -> None:
    """There is no second list of them: the command's own parser reads the table's options.

    Options that the scenario sets are refused. With another `output` the point waited forever for
    observations; with another `run` the consumers waited for producers of another run.
    """
    topics = {} if verb == "observe" else {"topics": ["orders"]}
    with pytest.raises(UsageError) as caught:
        arguments(verb, {**topics, key: value}, OWN[verb])
    assert answer in str(caught.value)


def test_a_clients_options_are_checked_without_those_of_the_shell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client does not get them either."""
    monkeypatch.setenv("MIRRORTEST_WORKERS", "many")
    assert arguments("produce", {"topics": ["orders"]}, {}) == ["--topics=orders"]


@pytest.mark.parametrize("verb", ["produce", "consume"])
@pytest.mark.parametrize("value", ["sasl.password=geheim", ["acks=1", "sasl.jaas.config=geheim"]])
def test_a_clients_table_takes_no_secret(verb: str, value: object) -> None:
    """Process lists, pods' manifests and the results' `configuration.json` would show it."""
    with pytest.raises(UsageError, match=r"command-property: .* file of command-config") as caught:
        arguments(verb, {"topics": ["orders"], "command-property": value}, {"run": "r1"})
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("key", sorted({*KNOWN, *SET_BY_MIRRORTEST, *WITHOUT_EFFECT}))
def test_a_clients_table_takes_every_property_that_is_no_secret(key: str) -> None:
    """A name that resembles a secret's is not refused, whatever its value."""
    table = {"topics": ["orders"], "command-property": f"{key}=a:1"}
    if key in SECRETS:
        with pytest.raises(UsageError, match="show a secret"):
            arguments("produce", table, {"run": "r1"})
    else:
        assert f"--command-property={key}=a:1" in arguments("produce", table, {"run": "r1"})


def test_lists_flags_and_repeated_options_are_written_as_a_user_types_them() -> None:
    """A list is joined by commas, or the option is repeated if it may be; a flag has no value."""
    table = {
        "topics": ["a", "b"],
        "create-topics": True,
        "portable": False,
        "topic-config": ["retention.ms=1", "cleanup.policy=delete"],
        "throughput": 5,
    }
    assert arguments("produce", table, {}) == [
        "--topics=a,b",
        "--create-topics",
        "--topic-config=retention.ms=1",
        "--topic-config=cleanup.policy=delete",
        "--throughput=5",
    ]


def test_consumers_follow_from_the_rest_of_the_scenario(tmp_path: Path) -> None:
    """They read the copies of all topics, and expect every worker of every producer."""
    _, consumer = clients_of(document(SMALL).scenario(), tmp_path)
    for option in (
        "--bootstrap-server=b:1",
        "--topics=A.orders,A.clicks",
        "--source-alias=A",
        "--expect-producers=ann.1,ann.2",
        "--run=r1",
    ):
        assert option in consumer._command


@pytest.mark.parametrize("workers", ["[2]", "'2'", "2.0", "'2e0'"])
def test_the_number_of_workers_is_read_as_the_command_reads_it(
    workers: str, tmp_path: Path
) -> None:
    """A list with one number, for example, ended in a traceback."""
    scenario = document(SMALL.replace("workers = 2", f"workers = {workers}")).scenario()
    _, consumer = clients_of(scenario, tmp_path)
    assert "--expect-producers=ann.1,ann.2" in consumer._command


def test_consumers_read_the_topic_that_a_producer_has_by_the_other_name(tmp_path: Path) -> None:
    """`topic` is an alias of `topics`: both give the same test."""
    scenario = document(SMALL.replace('topics = ["orders", "clicks"]', 'topic = "orders"'))
    _, consumer = clients_of(scenario.scenario(), tmp_path)
    assert "--topics=A.orders" in consumer._command


def test_an_observer_reads_the_source(tmp_path: Path) -> None:
    """With `role = "source"` it reads the topics under their own names."""
    _, observer = clients_of(document(SMALL + 'role = "source"').scenario(), tmp_path)
    assert "--bootstrap-server=a:1" in observer._command
    assert "--topics=orders,clicks" in observer._command


def test_a_matrix_has_each_combination_in_each_repeat_in_an_order_of_its_seed() -> None:
    """The order differs from repeat to repeat, and is the same for the same seed."""
    vary = '[vary]\nrepeats = 3\nseed = {}\nproduce.acks = ["all", "1"]\nlab.brokers = [1, 2, 3]'
    found = points(document(SMALL + vary.format(1)))
    assert [point.number for point in found] == list(range(1, 19))
    for repeat in (1, 2, 3):
        settings = [tuple(p.settings.values()) for p in found if p.repeat == repeat]
        assert sorted(settings) == sorted((a, b) for a in ("all", "1") for b in (1, 2, 3))
    assert [p.settings for p in found[:6]] != [p.settings for p in found[6:12]]
    assert found == points(document(SMALL + vary.format(1)))
    assert found != points(document(SMALL + vary.format(2)))
    for point in found:
        assert point.scenario.lab is not None
        assert point.scenario.lab.brokers == point.settings["lab.brokers"]
        assert point.scenario.produce[0]["acks"] == point.settings["produce.acks"]


@pytest.mark.parametrize("shipped", list(catalogue.shipped()), ids=lambda each: each.name)
def test_what_comes_with_it_can_be_run(shipped: Document, tmp_path: Path) -> None:
    """Each has a description and a timeout, and its clients are accepted by their commands."""
    assert shipped.content["description"].endswith(".")
    assert shipped.scenario().timeout, "a night must end even if a broker never answers"
    for point in points(shipped):
        assert clients_of(point.scenario, tmp_path)


@pytest.mark.parametrize("shipped", list(catalogue.shipped()), ids=lambda each: each.name)
def test_what_comes_with_it_can_be_run_at_a_small_size(shipped: Document) -> None:
    """As `make scenarios` does."""
    _, _, *words = scenarios.command(shipped.name, Path())
    changes = dict(run._change(word) for word in words if "=" in word)
    assert points(shipped.changed(changes))


SHOWN = [
    (path.name, text)
    for path in sorted((ROOT / "docs/how-to").glob("*.md"))
    for text in re.findall(r"^```toml\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
    if "[[produce]]" in text
]


@pytest.mark.parametrize(("page", "text"), SHOWN, ids=[page for page, _ in SHOWN])
def test_what_the_documents_show_can_be_run(page: str, text: str, tmp_path: Path) -> None:
    """Each file with clients is accepted, also by the clients' commands."""
    for point in points(document(text)):
        assert clients_of(point.scenario, tmp_path), page


def test_the_documents_show_a_whole_test_of_another_mirror() -> None:
    """With producers, consumers, and a fault of the mirror."""
    (text,) = (text for page, text in SHOWN if page == "other-mirrors.md")
    scenario = document(text).scenario()
    assert scenario.produce
    assert scenario.consume
    assert [fault.part for fault in scenario.fault] == ["mirror"]


@pytest.mark.parametrize("duration", ["31s", "5m"])
def test_a_timeout_that_a_producer_exceeds_is_refused(duration: str) -> None:
    """For example, if only the duration is changed."""
    text = SMALL.replace("[lab]", 'timeout = "30s"\n[lab]')
    longer = f'[[produce]]\nid = "slow"\ntopics = "t"\nduration = "{duration}"\n'
    assert document(text).scenario().timeout == 30
    with pytest.raises(UsageError, match=f"shorter than the duration of slow, {duration}: give"):
        document(text + longer).scenario()
