"""What should set each alert off, and what should not: promtool's unit tests of the rules.

Series are told every 15 s in promtool's notation: ``0x9 3x10`` is ten times 0, then eleven times 3.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mirrortest.metrics import names
from mirrortest.metrics.names import Metric, Side
from mirrortest.model.findings import Finding, failing

RUN, TOPIC = "r", "orders"
INTERVAL = "15s"
_ALWAYS = "1x80"


class Series(NamedTuple):
    """A series by its selector, and its values."""

    series: str
    values: str


class Case(NamedTuple):
    """One alert on some series: at each time the labels of those that fire, with commas between."""

    what: str
    alert: str
    series: tuple[Series, ...]
    firing: dict[str, list[str]]


def _of(metric: Metric | str, instance: str, values: str, **labels: str) -> Series:
    name = metric if isinstance(metric, str) else metric.full_name
    if not isinstance(metric, str) and metric.side is Side.CONSUMER:
        labels.setdefault("role", "consumer")
    told = {"job": "m", "instance": instance, **labels}
    matchers = ", ".join(f'{label}="{value}"' for label, value in told.items())
    return Series(f"{name}{{{matchers}}}", values)


def _there(role: str, name: str, instance: str, values: str = _ALWAYS, **labels: str) -> Series:
    return _of(names.RUN_INFO, instance, values, run=RUN, role=role, name=name, **labels)


CARL, ANN = _there("consumer", "carl", "c"), _there("producer", "ann", "p")
_OF_TOPIC = f'run="{RUN}", topic="{TOPIC}"'
_OF_RUN = f'run="{RUN}"'
_OF_CARL = f'run="{RUN}", name="carl"'


def _found(finding: str, values: str, instance: str = "c", role: str = "consumer") -> Series:
    return _of(names.CONSUMER_FINDINGS, instance, values, topic=TOPIC, finding=finding, role=role)


def _late(le: str, values: str) -> Series:
    bucket = f"{names.CONSUMER_LATENCY.full_name}_bucket"
    return _of(bucket, "c", values, role="consumer", topic=TOPIC, since="intended", le=le)


def _acked(values: str) -> Series:
    return _of(names.PRODUCER_MESSAGES, "p", values, topic=TOPIC, outcome="acked")


def _read(values: str, **labels: str) -> Series:
    return _of(names.CONSUMER_MESSAGES, "c", values, topic=TOPIC, **labels)


def _first(values: str) -> Series:
    """First copies of the run's messages."""
    counted = f"{names.CONSUMER_LATENCY.full_name}_count"
    return _of(counted, "c", values, role="consumer", topic=TOPIC, since="intended")


def _arrive(values: str) -> tuple[Series, Series]:
    return _read(values), _first(values)


def _delivered(values: str) -> Series:
    return _of(names.CONSUMER_DELIVERED, "c", values, topic=TOPIC)


def _lag(values: str, **labels: str) -> Series:
    return _of(names.CONSUMER_LAG, "c", values, topic=TOPIC, partition="0", **labels)


def _complete(values: str, instance: str = "c", role: str = "consumer") -> Series:
    return _of(names.CONSUMER_COMPLETE, instance, values, role=role)


def _ledger_ended(values: str) -> Series:
    return _of(names.CONSUMER_LEDGER_ENDED, "c", values)


def _away(values: str) -> Series:
    return _of(names.CONSUMER_UNREACHABLE, "c", values)


def _silent(values: str, instance: str = "c") -> Series:
    return _of(names.LEDGER_AGE, instance, values)


def _least(values: str) -> Series:
    return _of(names.CONSUMER_LEAST_LATENCY, "c", values, topic=TOPIC, since="sent")


def _early(values: str) -> Series:
    return _of(names.CONSUMER_NEGATIVE, "c", values, topic=TOPIC, since="sent")


def _bound(instance: str, values: str) -> Series:
    return _of(names.CLOCK_ERROR, instance, values)


def _fullness(values: str) -> Series:
    return _of(names.CONSUMER_FULLNESS, "c", values, topic=TOPIC)


def _up(instance: str, values: str, **labels: str) -> Series:
    return _of("up", instance, values, **labels)


def cases() -> list[Case]:
    """All of them; each alert has one that sets it off and one that does not."""
    return [*_correctness(), *_targets(), *_stalled_mirror(), *_progress(), *_trust()]


def _correctness() -> list[Case]:
    loss, wrong = "MirrortestLoss", "MirrortestWrongMessages"
    quiet: list[str] = []
    fail = failing(exactly_once=False)
    kinds = [each.label for each in fail if each is not Finding.LOST]
    harmless = [each.label for each in Finding if each not in fail]
    return [
        Case(
            "lost messages are told at once, and no longer once they have come",
            loss,
            (CARL, _found("lost", "0x9 3x10 0x20")),
            {"2m": quiet, "3m": [_OF_TOPIC], "7m": quiet},
        ),
        Case(
            "two consumers tell of the same run: one alert",
            loss,
            (
                CARL,
                _there("consumer", "dora", "d"),
                _found("lost", "0x9 3x30"),
                _found("lost", "0x9 2x30", "d"),
            ),
            {"4m": [_OF_TOPIC]},
        ),
        Case(
            "two clusters with the same addresses, and a job each",
            loss,
            (
                *(CARL, _found("lost", "3x80")),
                _of(names.RUN_INFO, "c", _ALWAYS, job="n", run="s", role="consumer", name="carl"),
                _of(names.CONSUMER_FINDINGS, "c", "0x80", job="n", topic=TOPIC, finding="lost"),
            ),
            {"5m": [_OF_TOPIC]},
        ),
        Case(
            "what a source observer misses, the mirror did not lose",
            loss,
            (_there("source", "sue", "c"), _found("lost", "3x80", role="source")),
            {"5m": quiet},
        ),
        Case(
            "the alert ends with the run",
            loss,
            (_there("consumer", "carl", "c", "1x20 stale"), _found("lost", "3x20 stale")),
            {"4m": [_OF_TOPIC], "6m": quiet},
        ),
        Case(
            "each kind of wrong message is told",
            wrong,
            (CARL, *(_found(kind, "1x80") for kind in kinds)),
            {"1m": [f'{_OF_TOPIC}, finding="{kind}"' for kind in kinds]},
        ),
        Case(
            "what a correct mirror may do is not",
            wrong,
            (CARL, *(_found(kind, "1x80") for kind in harmless)),
            {"5m": quiet},
        ),
        Case(
            "duplicates up to one in a thousand are let pass",
            "MirrortestDuplicates",
            (
                CARL,
                _of(names.CONSUMER_ACKED, "c", "10000x80", topic=TOPIC, outcome="acked"),
                _found("duplicated", "10x9 11x70"),
            ),
            {"2m": quiet, "4m": [_OF_TOPIC]},
        ),
        Case(
            "messages that cannot be judged, for a minute, and not for moments",
            "MirrortestInconclusive",
            (CARL, _found("inconclusive", "0x9 2x2 0x9 2x20 0x40")),
            {"3m": quiet, "7m": [_OF_TOPIC], "12m": quiet},
        ),
        Case(
            "a message in flight may still be judged",
            "MirrortestInconclusive",
            (CARL, _found("in_flight", "9x80")),
            {"5m": quiet},
        ),
        Case(
            "the 99th percentile above 30 s for a minute",
            "MirrortestLatencyHigh",
            (CARL, _late("20", "0+95x80"), _late("50", "0+100x80"), _late("+Inf", "0+100x80")),
            {"30s": quiet, "4m": [_OF_TOPIC]},
        ),
        Case(
            "one in two hundred may be late",
            "MirrortestLatencyHigh",
            (CARL, _late("20", "0+995x80"), _late("50", "0+1000x80"), _late("+Inf", "0+1000x80")),
            {"5m": quiet},
        ),
    ]


def _targets() -> list[Case]:
    alert = "MirrortestTargetDown"
    quiet: list[str] = []
    ends = "1x20 stale"
    carl, ann = _there("consumer", "carl", "c", ends), _there("producer", "ann", "p", ends)
    carl_is_down = [f'job="m", instance="c", {_OF_CARL}']
    falls, stays = _up("c", "1x20 0x320"), _up("p", "1x340")
    still_there = _there("producer", "ann", "p", "1x340")
    return [
        Case(
            "a consumer does not answer while its producer does, for an hour",
            alert,
            (carl, falls, still_there, stays),
            {"5m": quiet, "6m": quiet, "8m": carl_is_down, "66m": quiet},
        ),
        Case(
            "one that comes back within two minutes was replaced",
            alert,
            (carl, _up("c", "1x20 0x6 1x60"), still_there, stays),
            {"6m": quiet, "9m": quiet},
        ),
        Case(
            "a pod that is still discovered and does not answer, whoever else does",
            alert,
            (carl, _up("c", "1x20 0x60", pod="c-1")),
            {"8m": carl_is_down},
        ),
        Case(
            "a pod that has ended is no target any more",
            alert,
            (carl, _up("c", "1x20 stale", pod="c-1"), still_there, stays),
            {"9m": quiet},
        ),
        Case(
            "where targets stay listed, a run of which nothing answers has ended",
            alert,
            (carl, falls, ann, _up("p", "1x20 0x60")),
            {"9m": quiet},
        ),
        Case(
            "a producer that ended before the run's last verdict",
            alert,
            (ann, _up("p", "1x20 0x60"), CARL, _complete("0x20 1x60"), _up("c", "1x80")),
            {"9m": quiet},
        ),
        Case(
            "a consumer whose run is complete only at the source",
            alert,
            (
                _there("source", "sue", "s"),
                *(_complete("0x20 1x60", "s", "source"), _up("s", "1x80", pod="s-1")),
                *(carl, _complete("0x20 stale"), _up("c", "1x20 0x60", pod="c-1")),
                *(ann, _up("p", "1x20 0x60", pod="p-1")),
            ),
            {"9m": carl_is_down},
        ),
        Case(
            "a consumer whose topics nobody has judged, though another one is complete",
            alert,
            (
                *(carl, _complete("0x20 stale"), falls),
                *(_there("consumer", "dora", "d"), _complete("0x20 1x60", "d"), _up("d", "1x80")),
            ),
            {"9m": carl_is_down},
        ),
        Case(
            "a consumer that was complete and has ended, while another one goes on",
            alert,
            (
                *(carl, _complete("0x19 1 stale"), falls),
                *(_there("consumer", "dora", "d"), _complete("0x80", "d"), _up("d", "1x80")),
            ),
            {"9m": quiet},
        ),
        Case(
            "a consumer that was complete in an earlier run",
            alert,
            (*(carl, _complete("0x5 1x5 0x9 stale"), falls, still_there, stays),),
            {"9m": carl_is_down},
        ),
        Case(
            "an observer of machines is not missed, and does not show that a run goes on",
            alert,
            (
                _there("observer", "o1", "o1", ends),
                _up("o1", "1x20 0x60"),
                _there("observer", "o2", "o2"),
                _up("o2", "1x80"),
                carl,
                falls,
            ),
            {"9m": quiet},
        ),
        Case(
            "a target that never took part in a run",
            alert,
            (still_there, stays, _up("broker", "0x80")),
            {"9m": quiet},
        ),
    ]


def _stalled_mirror() -> list[Case]:
    alert = "MirrortestMirrorStalled"
    quiet: list[str] = []
    produced = (ANN, CARL, _acked("0+100x80"))
    stops = _arrive("0+100x20 2000x60")
    others_arrive = _read("0+100x80")
    going_on, there = _complete("0x80"), _away("0x80")
    begun = _delivered("2000x80")
    # With a record every 20 s, and with none any more.
    pauses, dies = _silent("10 5 15x78"), _silent("0x20 0+15x60")
    return [
        Case(
            "acknowledged and never read, with consumers at the end",
            alert,
            (*produced, *stops, _lag("0x80"), going_on, there),
            {"5m": quiet, "9m": [_OF_TOPIC]},
        ),
        Case(
            "a topic that never arrives",
            alert,
            (*produced, going_on, there),
            {"30s": quiet, "4m": [_OF_TOPIC]},
        ),
        Case(
            "it goes on again",
            alert,
            (*produced, *_arrive("0+100x20 2000x20 2000+100x40"), _lag("0x80"), going_on, there),
            {"9m": [_OF_TOPIC], "12m": quiet},
        ),
        Case(
            "consumers that lag are not the mirror's fault",
            alert,
            (*produced, *_arrive("2000x80"), _lag("9x80"), going_on, there),
            {"9m": quiet},
        ),
        Case(
            "a cluster that is away is not the mirror's fault",
            alert,
            (*produced, *_arrive("2000x80"), _lag("0x80"), going_on, _away("1x80")),
            {"9m": quiet},
        ),
        Case(
            "without consumers in sight nothing is said of the mirror",
            alert,
            (ANN, _acked("0+100x80")),
            {"9m": quiet},
        ),
        Case(
            "from the destination alone: the run has not ended, and nothing arrives any more",
            alert,
            (CARL, *stops, begun, _lag("0x80"), going_on, there, _ledger_ended("0x80"), dies),
            {"5m": quiet, "9m": [_OF_RUN]},
        ),
        Case(
            "from the destination alone: what the ledger vouches for never arrives",
            alert,
            (CARL, _found("in_flight", "0x9 0+100x70"), going_on, there, pauses),
            {"2m": quiet, "6m": [_OF_TOPIC]},
        ),
        Case(
            "both: one alert for the topic",
            alert,
            (
                CARL,
                _found("in_flight", "0x20 5x60"),
                *(*stops, begun, _lag("0x80"), going_on, there, _ledger_ended("0x80"), dies),
            ),
            {"9m": [_OF_TOPIC]},
        ),
        Case(
            "what consumers have before them is not the mirror's fault",
            alert,
            (CARL, *stops, _found("in_flight", "0x20 5x60"), _lag("0x20 5x60"), going_on, pauses),
            {"9m": quiet},
        ),
        Case(
            "producers that pause are alive, and all that they sent has arrived",
            alert,
            (CARL, *stops, begun, _lag("0x80"), going_on, there, _ledger_ended("0x80"), pauses),
            {"9m": quiet},
        ),
        Case(
            "a first burst between two scrapes, and a pause",
            alert,
            (ANN, CARL, _acked("0 0 1000x78"), *_arrive("0 0 1000x78"), _lag("0x80"), there),
            {"2m": quiet, "3m": quiet},
        ),
        Case(
            "a run that has ended is not stalled",
            alert,
            (CARL, *stops, begun, _lag("0x80"), _complete("0x20 1x60"), there),
            {"9m": quiet},
        ),
        Case(
            "a consumer that waits for its run to begin is not stalled",
            alert,
            (CARL, *_arrive("0x80"), _delivered("0x80"), _lag("0x80"), going_on, there),
            {"9m": quiet},
        ),
        Case(
            "other messages arrive, as another run's or further copies, and none of the run",
            alert,
            (*produced, others_arrive, _first("0+100x20 2000x60"), _lag("0 50x79"), there),
            {"5m": quiet, "9m": [_OF_TOPIC]},
        ),
        Case(
            "from the destination alone: the run has not ended, and only other messages arrive",
            alert,
            (
                *(CARL, others_arrive, _first("0+100x20 2000x60"), begun, _lag("0 50x79")),
                *(going_on, there, _ledger_ended("0x80"), dies),
            ),
            {"5m": quiet, "9m": [_OF_RUN]},
        ),
        Case(
            "others' messages before a run has begun",
            alert,
            (
                *(CARL, others_arrive, _first("0x80"), _delivered("0x80"), _lag("0x80")),
                *(going_on, there, _ledger_ended("0x80"), dies),
            ),
            {"9m": quiet},
        ),
        Case(
            "consumers read many other messages before those of the run",
            alert,
            (*produced, _read("0+1000x80"), _first("0x80"), _lag("80000-1000x80"), there),
            {"9m": quiet},
        ),
        Case(
            "all that arrives has no latency: it was there before the consumer",
            alert,
            (
                *(*produced, _read("0+100x80"), _first("0x80"), _lag("9x80"), there),
                _of(names.CONSUMER_BACKLOG, "c", "0+100x80", topic=TOPIC),
            ),
            {"9m": quiet},
        ),
        Case(
            "all that arrives seems to arrive before it was sent",
            alert,
            (
                *(*produced, _read("0+100x80"), _first("0x80"), _lag("0x80"), there),
                _of(names.CONSUMER_NEGATIVE, "c", "0+100x80", topic=TOPIC, since="intended"),
            ),
            {"9m": quiet},
        ),
    ]


def _progress() -> list[Case]:
    ledger, consumer = "MirrortestLedgerSilent", "MirrortestConsumerStalled"
    quiet: list[str] = []
    falls_silent, there = _silent("1x20 1+15x60"), _away("0x80")
    workers = tuple(_there("consumer", "carl", "c", worker=str(n)) for n in range(2))
    return [
        Case(
            "the ledger has said nothing for a minute",
            ledger,
            (CARL, falls_silent, _ledger_ended("0x80")),
            {"5m": quiet, "9m": [_OF_RUN]},
        ),
        Case(
            "once it has ended it may be silent, though a long deadline keeps the run open",
            ledger,
            (CARL, falls_silent, _ledger_ended("0x20 1x60"), _complete("0x80")),
            {"9m": quiet},
        ),
        Case(
            "a consumer that never heard of it",
            ledger,
            (CARL, _of("process_start_time_seconds", "c", "0x80"), _ledger_ended("0x80")),
            {"45s": quiet, "4m": [_OF_RUN]},
        ),
        Case(
            "a producer's own silence is not the consumers'",
            ledger,
            (ANN, _silent("900x80", "p")),
            {"9m": quiet},
        ),
        Case(
            "it lags and reads nothing",
            consumer,
            (CARL, _read("0+100x20 2000x60"), _lag("5x80"), there),
            {"5m": quiet, "9m": [_OF_CARL]},
        ),
        Case(
            "it lags and reads", consumer, (CARL, _read("0+1x80"), _lag("5000x80"), there),
            {"9m": quiet},
        ),
        Case(
            "its cluster does not answer for a while",
            consumer,
            (CARL, _read("0+100x20 2000x60"), _lag("0x80"), _away("0x20 1x20 0x40")),
            {"5m": quiet, "8m": [_OF_CARL], "12m": quiet},
        ),
        Case(
            "of two workers one is stalled: the consumer reads",
            consumer,
            (*workers, _read("0+9x80", worker="0"), _read("0x80", worker="1"),
             _lag("1x80", worker="1")),
            {"9m": quiet},
        ),
        Case(
            "a producer is behind for a minute, and not for moments",
            "MirrortestProducerBehindSchedule",
            (ANN, _of(names.PRODUCER_BEHIND, "p", "0x8 1x2 0x10 1x20 0x40", topic=TOPIC)),
            {"3m": quiet, "8m": [f'{_OF_TOPIC}, name="ann"'], "12m": quiet},
        ),
    ]  # fmt: skip


def _trust() -> list[Case]:
    skew = "MirrortestClockSkew"
    quiet: list[str] = []
    return [
        Case(
            "messages arrive 0.3 s before they were sent, until they no longer do",
            skew,
            (CARL, _early("0x8 0+5x20 100x40"), _least("0.01x8 -0.3x80")),
            {"1m": quiet, "4m": [_OF_RUN], "12m": quiet},
        ),
        Case(
            "by as much as the bound allows",
            skew,
            (CARL, _early("0+5x80"), _least("-0.05x80")),
            {"5m": quiet},
        ),
        Case(
            "a producer's clock was set by a second",
            skew,
            (ANN, _of(names.CLOCK_STEPPED, "p", "0x10 1x60")),
            {"2m": quiet, "3m": [_OF_RUN], "8m": quiet},
        ),
        Case(
            "nothing sets one side's clock any more",
            "MirrortestClockUnbounded",
            (ANN, CARL, _bound("c", "0.01x80"), _bound("p", "0.02x10 16x60")),
            {"2m": quiet, "5m": [_OF_RUN]},
        ),
        Case(
            "more than four fifths of the memory bound",
            "MirrortestCheckerNearBound",
            (CARL, _fullness("0.1x10 0.85x20 0.2x40")),
            {"2m": quiet, "5m": [_OF_TOPIC], "10m": quiet},
        ),
    ]


def rules_tests() -> dict[str, Any]:
    """A file for `promtool test rules`. What fires is asked of ALERTS: labels, not the texts."""
    return {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": INTERVAL,
        "tests": [_tested(case) for case in cases()],
    }


def _tested(case: Case) -> dict[str, Any]:
    asked = f'ALERTS{{alertname="{case.alert}", alertstate="firing"}}'
    samples = [
        {
            "expr": f"sum without (severity) ({asked})",
            "eval_time": time,
            "exp_samples": [
                {
                    "labels": f'{{alertname="{case.alert}", alertstate="firing", {labels}}}',
                    "value": 1,
                }
                for labels in expected
            ],
        }
        for time, expected in case.firing.items()
    ]
    return {
        "name": f"{case.alert}: {case.what}",
        "interval": INTERVAL,
        "input_series": [{"series": each.series, "values": each.values} for each in case.series],
        "promql_expr_test": samples,
    }
