"""The faults of a scenario: which are possible, which may overlap, and those of a plan."""

from __future__ import annotations

import pytest

from mirrortest.errors import UsageError
from mirrortest.scenario.fault import Plan
from tests.unit.scenario_documents import CUT, IN_CONTAINERS, SMALL, document


def test_each_broker_of_a_cluster_that_keeps_a_majority_can_be_removed() -> None:
    """One of three of each cluster, and two of five of one."""
    for brokers, parts in ((3, ("A3", "B3")), (5, ("A5", "A4"))):
        lab = SMALL.replace("[lab]", f"[lab]\nbrokers={brokers}")
        assert document(lab + "".join(CUT.format("remove", part) for part in parts)).scenario()


def test_a_container_can_be_paused() -> None:
    """A broker, and MirrorMaker 2 with each of its workers."""
    lab = IN_CONTAINERS.format("mirror-workers=2")
    parts = ("A1", "B1", "mirror", "mirror2")
    assert document(lab + "".join(CUT.format("pause", part) for part in parts)).scenario()


@pytest.mark.parametrize(
    ("first", "second", "overlap"),
    [
        ("at='0s'\nfor='6s'", "at='2s'\nfor='2s'", True),
        ("at='2s'\nfor='2s'", "at='0s'\nfor='6s'", True),
        ("at='0s'\nfor='2s'", "at='2s'\nfor='2s'", False),
        ("at='0s'\nfor='100s'", "at='10s'\nfor='5s'\nevery='30s'", True),
        ("at='40s'\nfor='2s'", "at='10s'\nfor='5s'\nevery='30s'", True),
        ("at='36s'\nfor='2s'", "at='10s'\nfor='5s'\nevery='30s'", False),
        ("at='70s'\nfor='2s'", "at='10s'\nfor='5s'\nevery='30s'\nuntil='70s'", False),
        ("at='0s'\nfor='2s'\nevery='9s'", "at='5s'\nfor='2s'\nevery='9s'", False),
        ("at='0s'\nfor='6s'", "after='1s'\nfor='6s'", False),
        ("at='0s'", "at='2s'", False),
    ],
)
def test_two_faults_of_one_kind_on_one_link_may_not_overlap(
    first: str, second: str, overlap: bool
) -> None:
    """The end of the shorter one ended the longer one, too. Other kinds and links may overlap."""

    def both(do: str, part: str) -> str:
        tables = f"[[fault]]\ndo='cut'\npart='link-source'\n{first}\n"
        return f"{SMALL}{tables}[[fault]]\ndo='{do}'\npart='{part}'\n{second}\n"

    assert document(both("reset", "link-source")).scenario()
    assert document(both("cut", "link-destination")).scenario()
    if not overlap:
        assert document(both("cut", "link-source")).scenario()
        return
    with pytest.raises(UsageError, match=r"fault.1: cut of link-source overlaps that of fault.0"):
        document(both("cut", "link-source")).scenario()


@pytest.mark.parametrize(
    ("faults", "later"),
    [
        ("start mirror at='40s', kill mirror at='20s'", set()),
        ("kill mirror at='20s', start mirror at='40s'", set()),
        ("kill mirror at='40s', start mirror at='20s'", {"mirror"}),
        ("start mirror at='produced', kill mirror at='20s'", set()),
        (
            "kill A1 at='50s', start A1 after='1s', kill A1 at='9s', start mirror after='1s'",
            {"mirror"},
        ),
    ],
)
def test_a_part_whose_earliest_action_is_start_does_not_run_before(
    faults: str, later: set[str]
) -> None:
    """The order in the file decided, whatever the times were."""
    found = [each.split() for each in faults.split(", ")]
    tables = [f"[[fault]]\ndo='{do}'\npart='{part}'\n{time}\n" for do, part, time in found]
    assert document(SMALL + "".join(tables)).scenario().started_later == later


def test_a_client_may_be_started_after_a_topic_of_its_name_was_created() -> None:
    """It was started at once, and the fault then failed the point."""
    create = "[[fault]]\ndo='create-topic'\ntopic='carl'\npartitions=1\nat='0s'\n"
    assert document(SMALL + create + CUT.format("start", "carl")).scenario().started_later == {
        "carl"
    }


def test_a_plan_is_the_same_for_its_seed_and_its_faults_never_overlap() -> None:
    """Each begins within the plan's time, after the one before has ended."""
    plan = {
        "do": ["kill", "stop"],
        "parts": ["A1", "mirror"],
        "every": "20s",
        "for": "10s",
        "at": "5s",
        "until": "1h",
    }
    found = Plan.model_validate({**plan, "seed": 7}).faults()
    assert found == Plan.model_validate({**plan, "seed": 7}).faults()
    assert found != Plan.model_validate({**plan, "seed": 8}).faults()
    assert len(found) > 60
    assert {(fault.do, fault.part) for fault in found} == {
        (do, part) for do in ("kill", "stop") for part in ("A1", "mirror")
    }
    free = 5.0
    for fault in found:
        assert isinstance(fault.at, float)
        assert fault.for_ is not None
        assert free - 0.01 <= fault.at < 3600
        assert 5.0 <= fault.for_ <= 15.0
        free = fault.at + fault.for_


def test_a_plan_does_to_links_what_suits_them() -> None:
    """Links get link faults with their parameters; the other faults are for other parts."""
    plan = {
        "do": ["kill", "delay", "rate", "cut"],
        "parts": ["A1", "link-source", "link-destination"],
        "delay": "100ms",
        "jitter": "10ms",
        "rate": "1MB/s",
        "every": "20s",
        "for": "10s",
        "until": "1h",
    }
    found = Plan.model_validate(plan).faults()
    links = {"link-source", "link-destination"}
    assert {(fault.do, fault.part) for fault in found} == {
        ("kill", "A1"),
        *((do, part) for do in ("delay", "rate", "cut") for part in links),
    }
    for fault in found:
        expected = {"delay": {"delay": 0.1, "jitter": 0.01}, "rate": {"rate": 1_000_000}}
        assert fault.measures(fault.do) == expected.get(fault.do, {})


@pytest.mark.parametrize(
    ("table", "links"), [("", False), (CUT.format("cut", "link-source"), True)]
)
def test_a_lab_has_links_where_something_is_done_to_one(table: str, links: bool) -> None:
    """Or if `links` is set; by default the mirror has no relay."""
    assert document(SMALL + table).scenario().with_links is links
    asked = document(SMALL.replace("[lab]", "[lab]\nlinks=true") + table)
    assert asked.scenario().with_links
