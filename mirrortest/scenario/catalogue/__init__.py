"""Find and read scenarios: those that come with mirrortest, and users' own."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from mirrortest.config.option_file import parse_table
from mirrortest.config.suggestion import did_you_mean
from mirrortest.errors import UsageError
from mirrortest.host.user_files import read_text
from mirrortest.scenario.directory import read_directory
from mirrortest.scenario.matrix import Document

if TYPE_CHECKING:
    from collections.abc import Iterator

_SUFFIX = ".toml"
_FILES = {
    file.name.removesuffix(_SUFFIX): file
    for file in resources.files(__name__).iterdir()
    if file.name.endswith(_SUFFIX)
}


def shipped() -> Iterator[Document]:
    """The scenarios that come with mirrortest, by name."""
    for name in sorted(_FILES):
        yield Document(name, name, Path(), parse_table(text(name), name))


def text(name: str) -> str:
    """The file of a scenario that comes with mirrortest; raises UsageError if there is none."""
    if name not in _FILES:
        raise UsageError(f"there is no scenario {name}: {did_you_mean(name, sorted(_FILES))}")
    return _FILES[name].read_text("utf-8")


def find(name: str) -> Document:
    """Find a scenario: a file, a directory of six, or one of this name that comes with mirrortest.

    Raises:
        UsageError: nothing has this name, or the scenario has a mistake.
    """
    path = Path(name)
    if path.is_dir():
        return read_directory(path)
    if path.is_file():
        return Document(path.stem, name, path.parent, parse_table(read_text(path, name), name))
    try:
        return Document(name, name, Path(), parse_table(text(name), name))
    except UsageError as error:
        raise UsageError(
            f"there is no file {name}, and {error} (see mirrortest scenarios)"
        ) from None
