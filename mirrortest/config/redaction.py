"""Configurations as they are recorded: without their secrets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirrortest.config.visible import CREDENTIALS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HIDDEN = "(hidden)"
_SECRET = re.compile(
    r"passw|passphrase|secret|jaas|token|credential|private|api[._-]?key|user[._]info|[._]key$",
    re.IGNORECASE,
)
_NAMED = re.compile(r"""(=|\s|["']\s*:)""")
"""What separates a name from its value: in ``NAME=VALUE``, in a shell's words, in JSON."""


def without_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties by their keys, sorted; values that are or contain secrets are hidden."""
    return {key: _shown(key, value) for key, value in sorted(properties.items())}


def command_without_secrets(words: Iterable[str]) -> list[str]:
    """A command line without secrets, also without the word after an option like ``--password``."""
    found: list[str] = []
    option = ""
    for word in words:
        found.append(_shown(option, word))
        option = word if word.startswith("-") and "=" not in word else ""
    return found


def _shown(key: str, value: str) -> str:
    """A value; all of it is hidden, or what follows the first name of a secret in it."""
    if _SECRET.search(key):
        return HIDDEN
    shown = ""
    *named, last = _NAMED.split(CREDENTIALS.sub(f"{HIDDEN}@", value))
    for name, separator in zip(named[::2], named[1::2], strict=True):
        shown += name + separator
        if _SECRET.search(name):
            return shown + HIDDEN
    return shown + last
