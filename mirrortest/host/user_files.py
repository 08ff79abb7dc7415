"""The user's small text files, and directories for logs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from mirrortest.config.java_properties import parse_properties
from mirrortest.errors import UsageError


def expanded(path: Path | str) -> Path:
    """The path with its leading `~` expanded. Raises UsageError if that has no home directory."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UsageError(
            f"{path}: this user has no home directory; give an absolute path, or set HOME"
        ) from None


def nearest_existing(directory: Path) -> Path:
    """The directory itself if it exists, else the nearest one above it that does."""
    return next(each for each in (directory, *directory.absolute().parents) if each.exists())


def lock_directory(directory: Path) -> int:
    """Lock a directory (`flock`) until the returned descriptor is closed, or this process ends.

    Raises BlockingIOError if another process has the lock, another OSError if there are no locks.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def local_log_place(log_dir: str, log_spool: str) -> tuple[str, Path]:
    """The option that names the first local directory of a log, and that directory."""
    local = "://" not in log_dir or log_dir.startswith("file://")
    option, place = ("--log-dir", log_dir) if local else ("--log-spool", log_spool)
    return option, expanded(place.removeprefix("file://"))


def read_text(path: Path, where: str) -> str:
    """A file's text; raises UsageError in one line that begins with `where`."""
    return _read(path, where, "utf-8")


def replace_text(path: Path, text: str) -> None:
    """Write a file atomically: a reader gets either the new text or the old one.

    If it cannot be written, for example on a full disk, this raises OSError and leaves no draft.
    Links, mount points, and files that are not regular (/dev/stdout), are written to directly.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_text(text, encoding="utf-8")
        return
    draft = path.with_name(f".{path.name}.new")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        if error.errno != errno.EBUSY:  # that of a file mounted by itself, as into a container
            raise
        path.write_text(text, encoding="utf-8")


def read_properties(path: Path, where: str = "") -> dict[str, str]:
    r"""Read a properties file; `where`, by default `path`, names it if it cannot be read.

    The encoding is ISO 8859-1, as Java's; other characters are written ``\uXXXX``.
    Raises UsageError if the file cannot be read.
    """
    return parse_properties(_read(path, where or str(path), "iso-8859-1"), origin=str(path))


def _read(path: Path, where: str, encoding: str) -> str:
    try:
        return path.read_text(encoding=encoding)
    except FileNotFoundError:
        raise UsageError(f"{where}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"{where}: cannot be read: {why}") from None
