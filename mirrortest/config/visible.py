"""What strangers wrote, as it may be shown: names, topics and reasons that came from elsewhere.

A terminal obeys escape sequences, a log takes a line end for a new entry, and characters that turn
the direction of writing make a text read as another one.
"""

from __future__ import annotations

import re

_SPACES = "\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"
_LINES = re.compile(r"(\n)")


def visible(text: str) -> str:
    """The text in one line: what cannot be printed is escaped, as Python's `repr` does.

    That is control characters, ends of lines, overrides of direction, invisible and unassigned
    characters, and lone surrogates, which no encoding takes. No-break spaces stay.
    """
    if text.isprintable():
        return text
    shown = (each if each.isprintable() or each in _SPACES else _escaped(each) for each in text)
    return "".join(shown)


def visible_lines(text: str) -> str:
    """The same of a text of several lines, which stay lines: where these are ours."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(each if each == "\n" else visible(each) for each in _LINES.split(text))


def visible_json(text: str) -> str:
    """A JSON document with those characters in JSON's own escapes: it says the same.

    They stand in strings alone; line ends between are the document's.
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(each if each == "\n" or each.isprintable() else _json(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
