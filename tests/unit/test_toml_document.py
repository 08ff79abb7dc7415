"""A user's TOML, read as a model: the errors for mistakes."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict, Field

from mirrortest.config.option_file import parse_document
from mirrortest.config.toml_document import parse_toml
from mirrortest.errors import UsageError


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    kill_at: float = Field(default=1.0, alias="kill-at")


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    part: list[_Part] = []
    one: _Part | None = None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("parts = 1", "file.toml: parts: there is no such setting; did you mean part?"),
        (
            "[[part]]\nkill-ad = 1.0",
            "file.toml: part.0.kill-ad: there is no such setting; did you mean kill-at?",
        ),
        (
            "[one]\nkill_at = 1.0",
            "file.toml: one.kill_at: there is no such setting; did you mean kill-at?",
        ),
        ("xyz = 1", "file.toml: xyz: there is no such setting"),
        ("one = 3", "file.toml: one: it must be a table: { ... }"),
    ],
)
def test_a_wrong_key_names_its_place_and_the_key_that_was_meant(text: str, answer: str) -> None:
    """The suggestion is a key of the same table."""
    with pytest.raises(UsageError) as caught:
        parse_toml(text, _Document, "file.toml")
    assert str(caught.value) == answer


@pytest.mark.parametrize("text", ["a = " + "[" * 2000 + "]" * 2000, '{"a":' * 2000 + "}" * 2000])
def test_nesting_that_no_reader_follows_is_one_line(text: str) -> None:
    """The error is one line, in TOML and in JSON."""
    with pytest.raises(UsageError, match=r"^file: lists or tables are nested too deeply: "):
        parse_document(text, "file")
