"""An outage is told once, sat out, and told when it is over."""

from __future__ import annotations

import pytest
import structlog

from mirrortest.consume import outage
from mirrortest.consume.outage import Outage
from mirrortest.errors import ClusterError, TopicMissingError, UnreachableError

AT = 1_790_000_000 * 10**9


async def test_it_is_sat_out_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is asked meanwhile."""
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

    with structlog.testing.capture_logs() as told:
        assert await away.until_answered(ask, "how many?") == ("how many?", 7)
    assert [line["event"] for line in told] == [
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


async def test_a_refusal_is_no_outage() -> None:
    """It would be answered in the same way for ever."""

    async def refused() -> None:
        raise ClusterError("not authorized")

    with pytest.raises(ClusterError, match="not authorized"):
        await Outage("destination").until_answered(refused)
