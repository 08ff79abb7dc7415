"""What should set MirrortestMirrorStalled off, and what should not."""

from __future__ import annotations

from grafana.alert_series import (
    ANN,
    CARL,
    OF_RUN,
    OF_TOPIC,
    TOPIC,
    Case,
    acked,
    arrive,
    away,
    complete,
    delivered,
    findings,
    first_copies,
    lag,
    ledger_ended,
    of,
    reading,
    silent,
)
from mirrortest.metrics import names


def stalled_mirror() -> list[Case]:
    """All cases of MirrortestMirrorStalled."""
    alert = "MirrortestMirrorStalled"
    quiet: list[str] = []
    produced = (ANN, CARL, acked("0+100x80"))
    stops = arrive("0+100x20 2000x60")
    others_arrive = reading("0+100x80")
    going_on, there = complete("0x80"), away("0x80")
    begun = delivered("2000x80")
    # With a record every 20 s, and with none any more.
    pauses, dies = silent("10 5 15x78"), silent("0x20 0+15x60")
    return [
        Case(
            "acknowledged and never read, with consumers at the end",
            alert,
            (*produced, *stops, lag("0x80"), going_on, there),
            {"5m": quiet, "9m": [OF_TOPIC]},
        ),
        Case(
            "a topic that never arrives",
            alert,
            (*produced, going_on, there),
            {"30s": quiet, "4m": [OF_TOPIC]},
        ),
        Case(
            "it goes on again",
            alert,
            (*produced, *arrive("0+100x20 2000x20 2000+100x40"), lag("0x80"), going_on, there),
            {"9m": [OF_TOPIC], "12m": quiet},
        ),
        Case(
            "consumers that lag are not the mirror's fault",
            alert,
            (*produced, *arrive("2000x80"), lag("9x80"), going_on, there),
            {"9m": quiet},
        ),
        Case(
            "a cluster that is away is not the mirror's fault",
            alert,
            (*produced, *arrive("2000x80"), lag("0x80"), going_on, away("1x80")),
            {"9m": quiet},
        ),
        Case(
            "without consumers in sight nothing is said of the mirror",
            alert,
            (ANN, acked("0+100x80")),
            {"9m": quiet},
        ),
        Case(
            "from the destination alone: the run has not ended, and nothing arrives any more",
            alert,
            (CARL, *stops, begun, lag("0x80"), going_on, there, ledger_ended("0x80"), dies),
            {"5m": quiet, "9m": [OF_RUN]},
        ),
        Case(
            "from the destination alone: what the ledger vouches for never arrives",
            alert,
            (CARL, findings("in_flight", "0x9 0+100x70"), going_on, there, pauses),
            {"2m": quiet, "6m": [OF_TOPIC]},
        ),
        Case(
            "both: one alert for the topic",
            alert,
            (
                CARL,
                findings("in_flight", "0x20 5x60"),
                *(*stops, begun, lag("0x80"), going_on, there, ledger_ended("0x80"), dies),
            ),
            {"9m": [OF_TOPIC]},
        ),
        Case(
            "what consumers have before them is not the mirror's fault",
            alert,
            (CARL, *stops, findings("in_flight", "0x20 5x60"), lag("0x20 5x60"), going_on, pauses),
            {"9m": quiet},
        ),
        Case(
            "producers that pause are alive, and all that they sent has arrived",
            alert,
            (CARL, *stops, begun, lag("0x80"), going_on, there, ledger_ended("0x80"), pauses),
            {"9m": quiet},
        ),
        Case(
            "a first burst between two scrapes, and a pause",
            alert,
            (ANN, CARL, acked("0 0 1000x78"), *arrive("0 0 1000x78"), lag("0x80"), there),
            {"2m": quiet, "3m": quiet},
        ),
        Case(
            "a run that has ended is not stalled",
            alert,
            (CARL, *stops, begun, lag("0x80"), complete("0x20 1x60"), there),
            {"9m": quiet},
        ),
        Case(
            "a consumer that waits for its run to begin is not stalled",
            alert,
            (CARL, *arrive("0x80"), delivered("0x80"), lag("0x80"), going_on, there),
            {"9m": quiet},
        ),
        Case(
            "other messages arrive, as another run's or further copies, and none of the run",
            alert,
            (*produced, others_arrive, first_copies("0+100x20 2000x60"), lag("0 50x79"), there),
            {"5m": quiet, "9m": [OF_TOPIC]},
        ),
        Case(
            "from the destination alone: the run has not ended, and only other messages arrive",
            alert,
            (
                *(CARL, others_arrive, first_copies("0+100x20 2000x60"), begun, lag("0 50x79")),
                *(going_on, there, ledger_ended("0x80"), dies),
            ),
            {"5m": quiet, "9m": [OF_RUN]},
        ),
        Case(
            "others' messages before a run has begun",
            alert,
            (
                *(CARL, others_arrive, first_copies("0x80"), delivered("0x80"), lag("0x80")),
                *(going_on, there, ledger_ended("0x80"), dies),
            ),
            {"9m": quiet},
        ),
        Case(
            "consumers read many other messages before those of the run",
            alert,
            (*produced, reading("0+1000x80"), first_copies("0x80"), lag("80000-1000x80"), there),
            {"9m": quiet},
        ),
        Case(
            "all that arrives has no latency: it was there before the consumer",
            alert,
            (
                *(*produced, reading("0+100x80"), first_copies("0x80"), lag("9x80"), there),
                of(names.CONSUMER_BACKLOG, "c", "0+100x80", topic=TOPIC),
            ),
            {"9m": quiet},
        ),
        Case(
            "all that arrives seems to arrive before it was sent",
            alert,
            (
                *(*produced, reading("0+100x80"), first_copies("0x80"), lag("0x80"), there),
                of(names.CONSUMER_NEGATIVE, "c", "0+100x80", topic=TOPIC, since="intended"),
            ),
            {"9m": quiet},
        ),
    ]
