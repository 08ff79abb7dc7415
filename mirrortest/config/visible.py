"""Untrusted text in a form that is safe to show: names, topics and reasons from elsewhere.

A terminal obeys escape sequences, a line end looks like a new log entry, and characters that change
the direction of writing let a text look like another one.
"""

from __future__ import annotations

import re

_SPACES = "\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"
_LONGEST_VALUE = 80
_LONG_VALUE = re.compile(rf"'([^'\s]{{{_LONGEST_VALUE}}})[^'\s]+'")
_WITHIN = r"(?:(?![,;\s]+[\w+.-]+://)[^@])*"  # up to the next address of a list
CREDENTIALS = re.compile(rf"(?<=://)(?:[^/]*|{_WITHIN}:{_WITHIN})@")
"""The credentials before an address's host. A text may have several addresses.

A secret may contain an unquoted slash: then a colon before the @ marks it.
"""


def visible(text: str) -> str:
    """The text in one line, with characters that cannot be printed escaped as by Python's `repr`.

    These are control characters, ends of lines, overrides of direction, invisible and unassigned
    characters, and lone surrogates, which cannot be encoded. No-break spaces stay.
    """
    if text.isprintable():
        return text
    shown = (each if each.isprintable() or each in _SPACES else _escaped(each) for each in text)
    return "".join(shown)


def uri_without_secrets(uri: str) -> str:
    """A URI without credentials and query; a path as it is."""
    return CREDENTIALS.sub("", uri).partition("?")[0] if "://" in uri else uri


def shortened(text: str) -> str:
    """The text with each quoted value cut after 80 characters: the rest adds nothing."""
    return _LONG_VALUE.sub(r"'\1...'", text)


def visible_lines(text: str) -> str:
    """As `visible`, for a text of several lines of our own: their line ends stay."""
    return "\n".join(map(visible, text.split("\n")))


def visible_json(text: str) -> str:
    """A JSON document with characters that cannot be printed in JSON's own escapes.

    Only strings contain them; line ends are the document's.
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(each if each == "\n" or each.isprintable() else _json(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
