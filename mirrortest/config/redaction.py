"""Configurations as they are recorded: without their secrets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirrortest.config.visible import CREDENTIALS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HIDDEN = "(hidden)"
_SECRET = re.compile(
    r"pass|pwd|secret|jaas|token|credential|private|(?:api|access|account)[._-]?key|user[._]info"
    r"|\.sas\.|(?:[._-]key|license|signature|creds?|\bsig|(?<![a-z])pw)$"
    r"|authorization:?$|\b(?:basic|bearer)$|(?-i:^-p$)",
    re.IGNORECASE,
)
"""What follows -p may be a port or a path instead: a record can do without these."""
_LOGIN = re.compile(r"(?:^-u|user|auth)$", re.IGNORECASE)
"""Names whose value is a secret only if it is USER:PASSWORD."""
_MYSQL = r"(?:mysql|mariadb)[\w-]{0,20}"
_THEN = rf"[\s\0](?:(?:(?!\b(?:curl|{_MYSQL}|sshpass|redis-cli)[\s\0]).)*?[\s\0])?"
_LOGIN_OF_PROGRAM = re.compile(
    rf"(\b(?:curl{_THEN}-u|(?:{_MYSQL}|sshpass){_THEN}-p|redis-cli{_THEN}-a)[\s\0]*)[^\0]+",
    re.DOTALL,
)
"""In words joined by ``\\0``: a secret after a short option that has other meanings elsewhere."""
_NAMED = re.compile(r"""(\s*=\s*|\s+|["']\s*:\s*)""")
"""What separates a name from its value: in ``NAME=VALUE``, in a shell's words, in JSON."""


def without_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties by their keys, sorted; values that are or contain secrets are hidden."""
    return {key: _shown(key, value) for key, value in sorted(properties.items())}


def command_without_secrets(words: Iterable[str]) -> list[str]:
    """A command line without secrets, also without the word after an option like ``--password``."""
    found: list[str] = []
    option = ""
    for word in _LOGIN_OF_PROGRAM.sub(rf"\1{HIDDEN}", "\0".join(words)).split("\0"):
        found.append(_shown(option, word))
        option = word if word.startswith("-") and "=" not in word else ""
    return found


def _shown(key: str, value: str) -> str:
    """A value; all of it is hidden, or what follows the first name of a secret in it."""
    if _is_secret(key, value):
        return HIDDEN
    shown = ""
    parts = _NAMED.split(CREDENTIALS.sub(f"{HIDDEN}@", value))
    for name, separator, text in zip(parts[:-1:2], parts[1::2], parts[2::2], strict=True):
        shown += name + separator
        if _is_secret(name, text):
            return shown + HIDDEN
    return shown + parts[-1]


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET.search(name) or (":" in value and _LOGIN.search(name)))
