"""What needs a container is refused where there is none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from mirrortest.errors import LabError
from mirrortest.lab.control import Control
from mirrortest.lab.part import Part, inject
from mirrortest.lab.testbed import Lab

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("verb", ["delay", "rate", "cut", "reset", "heal"])
def test_what_is_no_link_has_no_faults_of_one(verb: str, tmp_path: Path) -> None:
    """The answer names what has them."""
    part = Part("A1", ["true"], tmp_path / "log")
    with pytest.raises(LabError, match=f"A1 is not a link: {verb} is for link-source or link-dest"):
        inject(part, verb)


def test_links_are_refused_between_containers() -> None:
    """In one line that says what else there is."""
    with pytest.raises(LabError, match="not containers: for those use the fault disconnect"):
        Lab(image="kafka", links=True)


@pytest.mark.parametrize("verb", ["pause", "unpause", "disconnect", "connect"])
def test_a_process_cannot_be_treated_as_a_container(verb: str, tmp_path: Path) -> None:
    """The answer says which lab could do it."""
    part = Part("A1", ["true"], tmp_path / "log")
    control = Control(cast("Lab", SimpleNamespace(part=lambda _: part)), tmp_path / "socket")
    answer = control._answer({"verb": verb, "part": "A1"})
    assert answer == {
        "error": f"A1 is not a container: {verb} needs `lab up --runtime docker`",
    }
