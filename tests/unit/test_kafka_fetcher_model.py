"""A fetcher returns each partition's log, gapless and in order, whatever its requests meet."""

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
    """Gapless, in order and of one log, and all of it once faults end; brokers are not flooded."""
    played(tape)


def test_the_histories_have_every_fault() -> None:
    """Or the test above would hold for want of them."""
    seen: Counter[str] = Counter()
    for number in range(100):
        seen += played(random.Random(number).randbytes(LENGTH * 2)).brokers.seen
    assert seen.keys() >= FAULTS, FAULTS - seen.keys()
