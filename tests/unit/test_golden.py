"""What must not change: wire bytes, records, columns, summaries, metrics, exit codes, options.

`tests/unit/golden` has a module for each kind, which builds a document, and next to it the expected
document. To write an intended change::

    python -m tests.unit.test_golden --write

The diff of these files shows it. Then ask: can a user's older logs, topics and programs be read,
or be used, as before?
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).with_name("golden")
KINDS = ("wire", "logs", "topics", "summaries", "interface")


def _rendered(kind: str) -> str:
    document = importlib.import_module(f"tests.unit.golden.{kind}").document()
    return json.dumps(document, indent=1) + "\n"


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_has_changed(kind: str) -> None:
    """Line by line; for an intended change, see the module's docstring."""
    golden = GOLDEN.joinpath(f"{kind}.json").read_text().splitlines()
    assert _rendered(kind).splitlines() == golden


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.unit.test_golden --write")
    for each in KINDS:
        GOLDEN.joinpath(f"{each}.json").write_text(_rendered(each))
