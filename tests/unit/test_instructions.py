"""`make instructions`: the counted work runs. It needs none of the bench's other packages."""

from __future__ import annotations

import sys

import pytest

from tests.bench import instructions


@pytest.mark.parametrize("case", ["100 B", "encode 100 B"])
def test_what_instructions_are_counted_of_runs(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer's reader and sequence log are doubles there; the judging is the real code."""
    monkeypatch.setattr(sys, "argv", ["instructions", case, "1"])
    assert instructions.main() == 0
