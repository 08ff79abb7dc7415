"""What must stay as it is: wire bytes, records, columns, summaries, metrics, exit codes, options.

`tests/unit/golden` has a module for each kind, which puts together a document, and beside it the
document as it is to be. A change on purpose is written by::

    python -m tests.unit.test_golden --write

and shows in the diff of these files. Then: may a user's older logs, topics or programs be read, or
be used, as before?
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
    """Line by line; see the module's docstring where a change is meant."""
    golden = GOLDEN.joinpath(f"{kind}.json").read_text().splitlines()
    assert _rendered(kind).splitlines() == golden


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.unit.test_golden --write")
    for each in KINDS:
        GOLDEN.joinpath(f"{each}.json").write_text(_rendered(each))
