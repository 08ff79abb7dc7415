"""The name that a user probably meant."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_CLOSE = 0.6
"""The least similarity, from 0 to 1, of a name that is suggested."""


def closest(typed: str, valid: Iterable[str]) -> str | None:
    """The valid name that is most similar to what was typed; None if none is similar."""
    by_lower = {name.lower(): name for name in valid}
    found = difflib.get_close_matches(typed.lower(), by_lower, n=1, cutoff=_CLOSE)
    return by_lower[found[0]] if found else None


def did_you_mean(typed: str, valid: Iterable[str]) -> str:
    """``did you mean lost?``, or else the valid names, without a full stop."""
    names = list(valid)
    found = closest(typed, names)
    return f"did you mean {found}?" if found else f"use {' or '.join(_grouped(names))}"


def _grouped(names: list[str]) -> list[str]:
    """The names but the last as one text, and the last."""
    return [", ".join(names[:-1]), names[-1]] if len(names) > 1 else names
