"""What should set each alert off, and what should not: promtool's unit tests of the rules."""

from __future__ import annotations

from typing import Any

from grafana.alert_series import (
    ALWAYS,
    ANN,
    CARL,
    INTERVAL,
    OF_CARL,
    OF_RUN,
    OF_TOPIC,
    TOPIC,
    Case,
    away,
    clock_bound,
    complete,
    findings,
    fullness,
    lag,
    late,
    least_latency,
    ledger_ended,
    negative,
    of,
    process,
    reading,
    silent,
    up,
)
from grafana.stalled_mirror_cases import stalled_mirror
from mirrortest.metrics import names
from mirrortest.model.findings import Finding, failing


def cases() -> list[Case]:
    """All of them; each alert has one that sets it off and one that does not."""
    return [*_correctness(), *_targets(), *stalled_mirror(), *_progress(), *_trust()]


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
            (CARL, findings("lost", "0x9 3x10 0x20")),
            {"2m": quiet, "3m": [OF_TOPIC], "7m": quiet},
        ),
        Case(
            "two consumers tell of the same run: one alert",
            loss,
            (
                CARL,
                process("consumer", "dora", "d"),
                findings("lost", "0x9 3x30"),
                findings("lost", "0x9 2x30", "d"),
            ),
            {"4m": [OF_TOPIC]},
        ),
        Case(
            "two clusters with the same addresses, and a job each",
            loss,
            (
                *(CARL, findings("lost", "3x80")),
                of(names.RUN_INFO, "c", ALWAYS, job="n", run="s", role="consumer", name="carl"),
                of(names.CONSUMER_FINDINGS, "c", "0x80", job="n", topic=TOPIC, finding="lost"),
            ),
            {"5m": [OF_TOPIC]},
        ),
        Case(
            "what a source observer misses, the mirror did not lose",
            loss,
            (process("source", "sue", "c"), findings("lost", "3x80", role="source")),
            {"5m": quiet},
        ),
        Case(
            "the alert ends with the run",
            loss,
            (process("consumer", "carl", "c", "1x20 stale"), findings("lost", "3x20 stale")),
            {"4m": [OF_TOPIC], "6m": quiet},
        ),
        Case(
            "each kind of wrong message is told",
            wrong,
            (CARL, *(findings(kind, "1x80") for kind in kinds)),
            {"1m": [f'{OF_TOPIC}, finding="{kind}"' for kind in kinds]},
        ),
        Case(
            "what a correct mirror may do is not",
            wrong,
            (CARL, *(findings(kind, "1x80") for kind in harmless)),
            {"5m": quiet},
        ),
        Case(
            "duplicates up to one in a thousand are let pass",
            "MirrortestDuplicates",
            (
                CARL,
                of(names.CONSUMER_ACKED, "c", "10000x80", topic=TOPIC, outcome="acked"),
                findings("duplicated", "10x9 11x70"),
            ),
            {"2m": quiet, "4m": [OF_TOPIC]},
        ),
        Case(
            "messages that cannot be judged, for a minute, and not for moments",
            "MirrortestInconclusive",
            (CARL, findings("inconclusive", "0x9 2x2 0x9 2x20 0x40")),
            {"3m": quiet, "7m": [OF_TOPIC], "12m": quiet},
        ),
        Case(
            "a message in flight may still be judged",
            "MirrortestInconclusive",
            (CARL, findings("in_flight", "9x80")),
            {"5m": quiet},
        ),
        Case(
            "the 99th percentile above 30 s for a minute",
            "MirrortestLatencyHigh",
            (
                CARL,
                late("20", "0+95x80"),
                late("50", "0+100x80"),
                late("+Inf", "0+100x80"),
            ),
            {"30s": quiet, "4m": [OF_TOPIC]},
        ),
        Case(
            "one in two hundred may be late",
            "MirrortestLatencyHigh",
            (
                CARL,
                late("20", "0+995x80"),
                late("50", "0+1000x80"),
                late("+Inf", "0+1000x80"),
            ),
            {"5m": quiet},
        ),
    ]


def _targets() -> list[Case]:
    alert = "MirrortestTargetDown"
    quiet: list[str] = []
    ends = "1x20 stale"
    carl, ann = (
        process("consumer", "carl", "c", ends),
        process("producer", "ann", "p", ends),
    )
    carl_is_down = [f'job="m", instance="c", {OF_CARL}']
    falls, stays = up("c", "1x20 0x320"), up("p", "1x340")
    still_there = process("producer", "ann", "p", "1x340")
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
            (carl, up("c", "1x20 0x6 1x60"), still_there, stays),
            {"6m": quiet, "9m": quiet},
        ),
        Case(
            "a pod that is still discovered and does not answer, whoever else does",
            alert,
            (carl, up("c", "1x20 0x60", pod="c-1")),
            {"8m": carl_is_down},
        ),
        Case(
            "a pod that has ended is no target any more",
            alert,
            (carl, up("c", "1x20 stale", pod="c-1"), still_there, stays),
            {"9m": quiet},
        ),
        Case(
            "where targets stay listed, a run of which nothing answers has ended",
            alert,
            (carl, falls, ann, up("p", "1x20 0x60")),
            {"9m": quiet},
        ),
        Case(
            "a producer that ended before the run's last verdict",
            alert,
            (ann, up("p", "1x20 0x60"), CARL, complete("0x20 1x60"), up("c", "1x80")),
            {"9m": quiet},
        ),
        Case(
            "a consumer whose run is complete only at the source",
            alert,
            (
                process("source", "sue", "s"),
                *(complete("0x20 1x60", "s", "source"), up("s", "1x80", pod="s-1")),
                *(carl, complete("0x20 stale"), up("c", "1x20 0x60", pod="c-1")),
                *(ann, up("p", "1x20 0x60", pod="p-1")),
            ),
            {"9m": carl_is_down},
        ),
        Case(
            "a consumer whose topics nobody has judged, though another one is complete",
            alert,
            (
                *(carl, complete("0x20 stale"), falls),
                *(
                    process("consumer", "dora", "d"),
                    complete("0x20 1x60", "d"),
                    up("d", "1x80"),
                ),
            ),
            {"9m": carl_is_down},
        ),
        Case(
            "a consumer that was complete and has ended, while another one goes on",
            alert,
            (
                *(carl, complete("0x19 1 stale"), falls),
                *(process("consumer", "dora", "d"), complete("0x80", "d"), up("d", "1x80")),
            ),
            {"9m": quiet},
        ),
        Case(
            "a consumer that was complete in an earlier run",
            alert,
            (*(carl, complete("0x5 1x5 0x9 stale"), falls, still_there, stays),),
            {"9m": carl_is_down},
        ),
        Case(
            "an observer of machines is not missed, and does not show that a run goes on",
            alert,
            (
                process("observer", "o1", "o1", ends),
                up("o1", "1x20 0x60"),
                process("observer", "o2", "o2"),
                up("o2", "1x80"),
                carl,
                falls,
            ),
            {"9m": quiet},
        ),
        Case(
            "a target that never took part in a run",
            alert,
            (still_there, stays, up("broker", "0x80")),
            {"9m": quiet},
        ),
    ]


def _progress() -> list[Case]:
    ledger, consumer = "MirrortestLedgerSilent", "MirrortestConsumerStalled"
    quiet: list[str] = []
    falls_silent, there = silent("1x20 1+15x60"), away("0x80")
    workers = tuple(process("consumer", "carl", "c", worker=str(n)) for n in range(2))
    return [
        Case(
            "the ledger has said nothing for a minute",
            ledger,
            (CARL, falls_silent, ledger_ended("0x80")),
            {"5m": quiet, "9m": [OF_RUN]},
        ),
        Case(
            "once it has ended it may be silent, though a long deadline keeps the run open",
            ledger,
            (CARL, falls_silent, ledger_ended("0x20 1x60"), complete("0x80")),
            {"9m": quiet},
        ),
        Case(
            "a consumer that never heard of it",
            ledger,
            (CARL, of("process_start_time_seconds", "c", "0x80"), ledger_ended("0x80")),
            {"45s": quiet, "4m": [OF_RUN]},
        ),
        Case(
            "a producer's own silence is not the consumers'",
            ledger,
            (ANN, silent("900x80", "p")),
            {"9m": quiet},
        ),
        Case(
            "it lags and reads nothing",
            consumer,
            (CARL, reading("0+100x20 2000x60"), lag("5x80"), there),
            {"5m": quiet, "9m": [OF_CARL]},
        ),
        Case(
            "it lags and reads", consumer, (CARL, reading("0+1x80"), lag("5000x80"), there),
            {"9m": quiet},
        ),
        Case(
            "its cluster does not answer for a while",
            consumer,
            (CARL, reading("0+100x20 2000x60"), lag("0x80"), away("0x20 1x20 0x40")),
            {"5m": quiet, "8m": [OF_CARL], "12m": quiet},
        ),
        Case(
            "of two workers one is stalled: the consumer reads",
            consumer,
            (*workers, reading("0+9x80", worker="0"), reading("0x80", worker="1"),
             lag("1x80", worker="1")),
            {"9m": quiet},
        ),
        Case(
            "a producer is behind for a minute, and not for moments",
            "MirrortestProducerBehindSchedule",
            (ANN, of(names.PRODUCER_BEHIND, "p", "0x8 1x2 0x10 1x20 0x40", topic=TOPIC)),
            {"3m": quiet, "8m": [f'{OF_TOPIC}, name="ann"'], "12m": quiet},
        ),
    ]  # fmt: skip


def _trust() -> list[Case]:
    skew = "MirrortestClockSkew"
    quiet: list[str] = []
    return [
        Case(
            "messages arrive 0.3 s before they were sent, until they no longer do",
            skew,
            (CARL, negative("0x8 0+5x20 100x40"), least_latency("0.01x8 -0.3x80")),
            {"1m": quiet, "4m": [OF_RUN], "12m": quiet},
        ),
        Case(
            "by as much as the bound allows",
            skew,
            (CARL, negative("0+5x80"), least_latency("-0.05x80")),
            {"5m": quiet},
        ),
        Case(
            "a producer's clock was set by a second",
            skew,
            (ANN, of(names.CLOCK_STEPPED, "p", "0x10 1x60")),
            {"2m": quiet, "3m": [OF_RUN], "8m": quiet},
        ),
        Case(
            "nothing sets one side's clock any more",
            "MirrortestClockUnbounded",
            (ANN, CARL, clock_bound("c", "0.01x80"), clock_bound("p", "0.02x10 16x60")),
            {"2m": quiet, "5m": [OF_RUN]},
        ),
        Case(
            "more than four fifths of the memory bound",
            "MirrortestCheckerNearBound",
            (CARL, fullness("0.1x10 0.85x20 0.2x40")),
            {"2m": quiet, "5m": [OF_TOPIC], "10m": quiet},
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
