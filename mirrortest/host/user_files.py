"""Small text files, read and written whole."""

from __future__ import annotations

import contextlib
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


def replace_text(path: Path, text: str) -> None:
    """Write a file in one step: who reads it finds all of it, or what was there before.

    Raises OSError, and leaves nothing behind, where it cannot be written: the disk may be full.
    What is no plain file, as /dev/stdout, is written to as it is.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_text(text, encoding="utf-8")
        return
    draft = path.with_name(f".{path.name}.new")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


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
