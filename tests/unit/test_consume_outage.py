"""An outage is logged once, waited out, and logged when it is over."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from mirrortest.consume import outage
from mirrortest.consume.outage import Outage
from mirrortest.errors import ClusterError, TopicMissingError, UnreachableError
from tests.unit.producing import until

AT = 1_790_000_000 * 10**9


async def test_it_is_sat_out_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the request fails meanwhile."""
    monkeypatch.setattr(outage, "_RETRY_SECONDS", 0)
    answers = iter([UnreachableError("away"), TopicMissingError("no leader yet"), 7])
    away = Outage("destination", lambda: AT)

    async def ask(question: str) -> tuple[str, int]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        assert str(away) == "destination unreachable since 2026-09-21T14:13:20Z"
        assert isinstance(answer, int)
        return question, answer

    with structlog.testing.capture_logs() as logged:
        assert await away.until_answered(ask, "how many?") == ("how many?", 7)
    assert [line["event"] for line in logged] == [
        "the destination cannot be reached, waiting for it",
        "the destination answers again",
    ]
    assert (str(away), away.why) == ("", "")
    [note] = away.notes
    assert note.startswith("the destination was unreachable once, for 0.0 s in all: latencies")
    away.begin(UnreachableError("away"))
    away.over()
    away.over()
    [note] = away.notes
    assert "2 times" in note
    assert Outage("destination").notes == []


async def test_what_is_not_answered_for_long_is_an_outage_before_the_client_gives_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client retries a request for 40 s before it fails."""
    monkeypatch.setattr(outage, "_PATIENCE_SECONDS", 0)
    away, answered = Outage("destination", lambda: AT), asyncio.Event()

    async def ask() -> int:
        await answered.wait()
        return 7

    asking = asyncio.create_task(away.noticed(ask()))
    async with asyncio.timeout(30):
        await until(lambda: bool(away.why))
        assert str(away) == "destination unreachable since 2026-09-21T14:13:20Z"
        answered.set()
        assert await asking == 7
    given_up = asyncio.create_task(away.noticed(asyncio.Event().wait()))
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up


async def test_a_refusal_is_no_outage() -> None:
    """The cluster would refuse every retry, too."""

    async def refused() -> None:
        raise ClusterError("not authorized")

    with pytest.raises(ClusterError, match="not authorized"):
        await Outage("destination").until_answered(refused)
