"""Files that a user names."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from mirrortest.errors import UsageError
from mirrortest.host.cache import CACHE_VARIABLE, cache_directory
from mirrortest.host.user_files import expanded, local_log_place, read_properties, replace_text
from mirrortest.lab.control import sockets
from mirrortest.seqlog.location import Location


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(UsageError, match="no-such-file"):
        read_properties(tmp_path / "no-such-file")


def test_a_user_without_a_home_directory_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `~` is expanded, or the error names the path."""
    monkeypatch.setenv("HOME", "/home/me")
    assert expanded("~/logs") == Path("/home/me/logs")
    for parse in (Location.parse, lambda place: local_log_place(place, "spool")):
        with pytest.raises(UsageError, match=r"^~nosuch/x: this user has no home directory; give"):
            parse("~nosuch/x")


def test_a_process_without_a_home_directory_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """HOME is not set, and the user is not listed, as in a container of any user id."""
    for variable in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", CACHE_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    for find in (sockets, cache_directory):
        with pytest.raises(UsageError, match="or set HOME"):
            find()


def test_a_file_is_read_as_latin_1(tmp_path: Path) -> None:
    """Java reads properties files so."""
    path = tmp_path / "client.properties"
    path.write_bytes("client.id=\xe4".encode("latin-1"))
    assert read_properties(path) == {"client.id": "ä"}


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """No other file is left in its directory."""
    path = tmp_path / "report.html"
    for text in ("old", "new ü"):
        replace_text(path, text)
        assert path.read_text(encoding="utf-8") == text
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills up leaves no partial report."""
    path = tmp_path / "report.html"
    replace_text(path, "old")
    begun = Path.write_text

    def full(self: Path, text: str, **options: Any) -> int:
        begun(self, text[:2], **options)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        replace_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_mounted_by_itself_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's report on the host: no other file can take the place of a mount point."""
    path = tmp_path / "report.json"
    path.write_text("a longer text of before")

    def mounted(*_: Path) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(Path, "replace", mounted)
    replace_text(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_plain_file_is_written_to(tmp_path: Path) -> None:
    """A link, such as /dev/stdout, stays a link to the same target."""
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    for text in ("old", "new"):
        replace_text(link, text)
        assert link.is_symlink()
        assert target.read_text() == text
    replace_text(Path("/dev/null"), "x")
    assert Path("/dev/null").is_char_device()
