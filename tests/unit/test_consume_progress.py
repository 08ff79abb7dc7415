"""What a consumer's progress says while nothing arrives."""

from __future__ import annotations

from dataclasses import replace

from mirrortest.consume.consume_report import QUIET_SECONDS, ConsumeProgress

DEAD = ConsumeProgress(17_778, 0.0, 17_778, 17_778, {}, 4, quiet_seconds=9.2)


def test_a_dead_mirror_does_not_look_perfect() -> None:
    """Its copy of the ledger is stalled as well: all that is acknowledged there was delivered."""
    line = str(replace(DEAD, ledger_since="16:42:08Z"))
    assert "17,778 delivered of 17,778 acknowledged" in line
    assert "; nothing has arrived for 9 s; no ledger record since 16:42:08Z" in line


def test_a_short_pause_is_not_mentioned() -> None:
    """Between two messages of a slow run there is nothing to say."""
    assert "nothing" not in str(replace(DEAD, quiet_seconds=QUIET_SECONDS - 0.1))
