"""The commands of the documents, as they are written there, and which test runs each of them.

A test takes the commands of a verb by `commands("report")`, with `only=` or `but=` an option of
theirs, runs all of them, and fails for one that fails. So what a document says is what is run, and
a command that is added is run without further ado, or `tests/unit/test_commands.py` names it as
one that no test takes. Files and clusters that commands name are the test's to lay out; `adapted`
puts addresses, sizes and times of its own in the place of theirs.

A block of shell commands is of language `sh`. Before a block that needs another system a comment
says which (`<!-- elsewhere: a Docker Engine -->`), and before one that a walk runs its name there
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
"""Verbs that have verbs below them."""


class Shown(NamedTuple):
    """A command of mirrortest as a document shows it: the words behind `mirrortest`."""

    document: Path
    words: tuple[str, ...]

    @property
    def verb(self) -> str:
        """Of a verb below another one, both."""
        below = 2 if self.words[0] in _GROUPS else 1
        return " ".join(self.words[:below])

    @property
    def kind(self) -> tuple[str, ...]:
        """Commands of one kind differ in names and values alone: running one of them is enough.

        `--set` gives a scenario other values, so it makes no other kind either.
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
        return (*free, *options, *shapes)

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
    """Those of them that are mirrortest's."""
    for document, (program, *words) in unmarked():
        if program == "mirrortest":
            yield Shown(document, tuple(words))


def commands(verb: str, *, only: str = "", but: str = "") -> list[Shown]:
    """One of each kind of a verb's commands, with an option (or word) or without one."""
    found: dict[tuple[str, ...], Shown] = {}
    for each in shown():
        if each.verb == verb and (not only or only in each.words) and but not in each.words:
            found[each.kind] = max(found.get(each.kind, each), each, key=lambda one: len(one.words))
    assert found, f"the documents show no {verb} {only}: who runs it has nothing to run"
    return list(found.values())


def taken() -> list[Shown]:
    """What the tests take: their calls of `commands` are read from their sources."""
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
    """Words with what a test has in the place of what a document names, be it within a word."""
    whole = re.compile("|".join(rf"(?<![\w.-]){re.escape(each)}(?![\w.-])" for each in places))
    return [whole.sub(lambda found: places[found[0]], word) for word in words]
