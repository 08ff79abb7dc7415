r"""Java `.properties` text, read as `java.util.Properties` reads it.

Kafka's own tools load client.properties this way, so a file that works there works here:
comments (`#`, `!`), keys that end at an unescaped `=`, `:` or white space, continuation lines,
and the escapes ``\t \n \r \f \uXXXX``; any other escaped character means itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirrortest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*")
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str, *, origin: str = "properties") -> dict[str, str]:
    r"""Read properties; of a key given twice the last value counts, as in Java.

    `origin` names the text in errors. Raises UsageError for a malformed ``\uXXXX``; the error
    has the line's number, not its content, which may be a secret.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _KEY.match(line)
        raw_key = match.group() if match is not None else ""
        separator = _SEPARATOR.match(line, len(raw_key))
        raw_value = line[separator.end() if separator is not None else len(raw_key) :]
        try:
            found[_unescape(raw_key)] = _unescape(raw_value)
        except ValueError:
            raise UsageError(f"{origin}, line {number}: malformed \\uXXXX escape") from None
    return found


def parse_assignments(items: Iterable[str], *, option: str) -> dict[str, str]:
    """Read ``KEY=VALUE`` arguments without escapes; UsageError if one has no ``=``."""
    found: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            # The error repeats neither part: without the "=" all of it may be a secret.
            raise UsageError(f"{option}: write it as KEY=VALUE")
        found[key.strip()] = value
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first natural line, logical line) without comments and blanks."""
    parts: list[str] = []
    first = 0
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        line = natural.lstrip(_BLANK)
        if not any(parts):
            # No logical line has begun: for Java, a lone backslash before it does not count.
            parts = []
            if not line or line[0] in "#!":
                continue
            first = number
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            parts.append(line[:-1])
            continue
        yield first, "".join([*parts, line])
        parts = []
    if logical := "".join(parts):
        yield first, logical


def _unescape(raw: str) -> str:
    utf_16 = _ESCAPE.sub(_escaped, raw).encode("utf-16-le", "surrogatepass")
    return utf_16.decode("utf-16-le", "surrogatepass")  # two escapes can be one character


def _escaped(match: re.Match[str]) -> str:
    code = match.group(1)
    if len(code) > 1:
        return chr(int(code[1:], 16))
    if code == "u":
        raise ValueError("malformed escape")
    return _NAMED.get(code, code)
