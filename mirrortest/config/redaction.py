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


def without_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties by their keys, sorted; values that are or contain secrets are hidden."""
    return {key: _shown(key, value) for key, value in sorted(properties.items())}


def command_without_secrets(words: Iterable[str]) -> list[str]:
    """A command line without secrets, also without the word after an option like ``--password``."""
    found: list[str] = []
    option = ""
    for word in map(_without_credentials, words):
        key, equals, value = word.partition("=")
        if equals:
            found.append(f"{key}={_shown(key, value)}")
        else:
            found.append(_shown(option, word))
        option = word if word.startswith("-") and not equals else ""
    return found


def _shown(key: str, value: str) -> str:
    return HIDDEN if _SECRET.search(key) else _without_credentials(value)


def _without_credentials(text: str) -> str:
    return CREDENTIALS.sub(f"{HIDDEN}@", text)
