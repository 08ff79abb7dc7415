"""No record that is read from a topic raises an error, however it was changed.

These are the first mutants of `python -m tests.mutants`.
"""

from __future__ import annotations

import pytest

from tests.mutants.readers import READERS
from tests.mutants.tally import Tally, read


@pytest.mark.parametrize("kind", READERS)
def test_a_changed_record_is_understood_or_counted(kind: str) -> None:
    """It raises nothing, and changes no data of other streams and partitions."""
    tally = Tally()
    for number in range(5000):
        tally.add(kind, understood=read(kind, 1, number))
    assert tally.of(kind, "understood") > 100, "some mutants must get past the rules"
    assert tally.of(kind, "counted") > 1000
