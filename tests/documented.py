"""The commands of the documents, as they are written there, and the tests that run them.

A test gets the commands of a verb by `commands("report")`, filtered by an option with `only=` or
`but=`. It runs all of them, and fails if one fails. So tests run what the documents say. A new
command is run without a change to a test, or `tests/unit/test_commands.py` names it as one that no
test takes. The test provides the files and clusters that commands name; `adapted` replaces
addresses, sizes and times.

A block of shell commands has the language `sh`. A comment before a block names the other system
that it needs (`<!-- elsewhere: a Docker Engine -->`), or the block's name for a walk that runs it
(`<!-- run: install -->`).
"""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "docs/**/*.md", "deploy/*.md", "helm/mirrortest/*.md")
    for path in ROOT.glob(pattern)
)
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>run|elsewhere): [^\n]+ -->\n)?(?P<indent> *)```(?P<language>\w*)\n"
    r"(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_SEPARATORS = {"&&", "||", ";", "|", "&"}
_GROUPS = {"import", "lab"}
"""Verbs with subcommands."""


class Shown(NamedTuple):
    """A command of mirrortest as a document shows it: the words after `mirrortest`."""

    document: Path
    words: tuple[str, ...]

    @property
    def verb(self) -> str:
        """The verb, with its subcommand if it has one."""
        below = 2 if self.words[0] in _GROUPS else 1
        return " ".join(self.words[:below])

    @property
    def kind(self) -> tuple[str, ...]:
        """Commands of one kind differ only in names and values: running one of them is enough.

        `--set` gives a scenario other values, so it does not make another kind. An empty value
        means that a default does not apply, so it does.
        """
        words = [re.sub(r"\S+[.]toml$", "FILE", word) for word in self.words]
        if self.verb == "reconcile":
            words = [re.sub(r"^(?!-)(?!reconcile).*", "DIR", word) for word in words]
        values = {at + 1 for at, word in enumerate(words) if word.startswith("-")}
        free = [
            word for at, word in enumerate(words) if at not in values and not word.startswith("-")
        ]
        options = sorted(word for word in words if word.startswith("-") and word != "--set")
        shapes = re.findall(r"\b\w+(?=[(])", " ".join(self.words))
        empty = [word for word in words if not word]
        return (*free, *options, *shapes, *empty)

    def __str__(self) -> str:
        return shlex.join(["mirrortest", *self.words])


def sentences(block: str) -> Iterator[list[str]]:
    """The words of each command of a block, without comments, assignments and redirections."""
    for line in block.replace("\\\n", " ").splitlines():
        words: list[str] = []
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        redirected = False
        for word in [*lexer, ";"]:
            if redirected or word == ">":
                redirected = word == ">"
                continue
            if word not in _SEPARATORS:
                words.append(word)
                continue
            while words and re.match(r"\w+=", words[0]):
                words.pop(0)
            if words:
                yield words
            words = []


def unmarked() -> Iterator[tuple[Path, list[str]]]:
    """Each command of a block that is not marked as run or elsewhere, with its document."""
    for document in DOCUMENTS:
        for block in BLOCK.finditer((ROOT / document).read_text()):
            if block["language"] == "sh" and not block["mark"]:
                for words in sentences(block["text"]):
                    yield document, words


def shown() -> Iterator[Shown]:
    """The unmarked commands of mirrortest."""
    for document, (program, *words) in unmarked():
        if program == "mirrortest":
            yield Shown(document, tuple(words))


def commands(verb: str, *, only: str = "", but: str = "") -> list[Shown]:
    """The longest command of each kind of a verb, with the word `only` and without `but`."""
    found: dict[tuple[str, ...], Shown] = {}
    for each in shown():
        if (
            each.verb == verb
            and (not only or only in each.words)
            and (not but or but not in each.words)
        ):
            found[each.kind] = max(found.get(each.kind, each), each, key=lambda one: len(one.words))
    assert found, f"the documents show no {verb} {only}: who runs it has nothing to run"
    return list(found.values())


def taken() -> list[Shown]:
    """The commands that tests take, according to the calls of `commands` in their sources."""
    found: dict[Shown, None] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        text = file.read_text()
        if "documented" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "documented.commands":
                options: Any = {each.arg: ast.literal_eval(each.value) for each in node.keywords}
                found.update(dict.fromkeys(commands(ast.literal_eval(node.args[0]), **options)))
    return list(found)


def adapted(words: tuple[str, ...], places: Mapping[str, str]) -> list[str]:
    """Replace what a document names by what a test has, also within a word."""
    pattern = re.compile("|".join(rf"(?<![\w.-]){re.escape(each)}(?![\w.-])" for each in places))
    return [pattern.sub(lambda found: places[found[0]], word) for word in words]
