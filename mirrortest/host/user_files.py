"""Small text files that a user names, read whole; what cannot be read is one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.config.java_properties import parse_properties
from mirrortest.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def read_text(path: Path, where: str) -> str:
    """What a file holds; raises UsageError in one line that begins with `where`."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"{where}: cannot be read: {why}") from None


def read_properties(path: Path) -> dict[str, str]:
    r"""Read a properties file.

    The encoding is ISO 8859-1, as Java's; other characters are written ``\uXXXX``.
    Raises UsageError where the file cannot be read.
    """
    try:
        text = path.read_text(encoding="iso-8859-1")
    except OSError as error:
        raise UsageError(f"cannot read properties file {path}: {error.strerror}") from error
    return parse_properties(text, origin=str(path))
