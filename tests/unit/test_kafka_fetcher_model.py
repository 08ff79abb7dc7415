"""A fetcher returns each partition's log without gaps and in order, whatever faults occur."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle.tape import LENGTH
from tests.unit.fetch_histories import FAULTS, played


@settings(max_examples=100)
@given(st.binary(max_size=LENGTH))
def test_a_fetcher_returns_the_log(tape: bytes) -> None:
    """Reads are gapless, ordered, of one log, and complete after faults; no broker is flooded."""
    played(tape)


def test_the_histories_have_every_fault() -> None:
    """A fault that no history has would leave the test above without a meaning."""
    seen: Counter[str] = Counter()
    for number in range(100):
        seen += played(random.Random(number).randbytes(LENGTH * 2)).brokers.seen
    assert seen.keys() >= FAULTS, FAULTS - seen.keys()
