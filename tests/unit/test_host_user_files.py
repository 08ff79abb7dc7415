"""Files that a user names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirrortest.errors import UsageError
from mirrortest.host.user_files import read_properties

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(UsageError, match="no-such-file"):
        read_properties(tmp_path / "no-such-file")


def test_a_file_is_read_as_latin_1(tmp_path: Path) -> None:
    """As Java reads it."""
    path = tmp_path / "client.properties"
    path.write_bytes("client.id=\xe4".encode("latin-1"))
    assert read_properties(path) == {"client.id": "ä"}
