"""Files that a user names."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from mirrortest.errors import UsageError
from mirrortest.host.user_files import read_properties, replace_text


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(UsageError, match="no-such-file"):
        read_properties(tmp_path / "no-such-file")


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
