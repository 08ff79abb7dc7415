"""What needs a container is refused where there is none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from mirrortest.lab.control import Control
from mirrortest.lab.part import Part

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.lab.testbed import Lab


@pytest.mark.parametrize("verb", ["pause", "unpause", "disconnect", "connect"])
def test_a_process_cannot_be_treated_as_a_container(verb: str, tmp_path: Path) -> None:
    """The answer says which lab could do it."""
    part = Part("A1", ["true"], tmp_path / "log")
    control = Control(cast("Lab", SimpleNamespace(part=lambda _: part)), tmp_path / "socket")
    answer = control._answer({"verb": verb, "part": "A1"})
    assert answer == {
        "error": f"A1 is not a container: {verb} needs `lab up --runtime docker`",
    }
