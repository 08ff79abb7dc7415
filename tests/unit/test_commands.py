"""Commands in the documents and in the help: the real command line reads each of them.

A block of shell commands is of language `sh`. Before a block that needs another system a comment
says which (`<!-- elsewhere: a Docker Engine -->`), and before one that a test runs its name there
(`<!-- run: install -->`).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from docs import generated
from mirrortest.compare.thresholds import DifferenceThreshold
from mirrortest.config.threshold import Threshold
from mirrortest.wire.stream import checked_run

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "docs/**/*.md", "deploy/*.md", "helm/mirrortest/*.md")
    for path in ROOT.glob(pattern)
)
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>run|elsewhere): [^\n]+ -->\n)?(?P<indent> *)```(?P<language>\w*)\n"
    r"(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_SEPARATORS = {"&&", "||", ";", "|", "&"}
_SHELL = {"cd", "jq", "wait"}
_COMMAND = re.compile(
    r"^ *(?:mirrortest|make|helm|kubectl|docker|pip|python|curl) [a-z./-]", re.MULTILINE
)


def commands(block: str) -> Iterator[list[str]]:
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


def check(command: Any, words: list[str]) -> None:
    """Read the words as the program does; AssertionError says what it refuses."""
    path = ["mirrortest"]
    while words and words[0] in getattr(command, "commands", {}):
        path.append(words.pop(0))
        command = command.commands[path[-1]]
    shown = shlex.join([*path, *words])
    assert not (words and hasattr(command, "commands")), f"{shown}: no such command"
    try:
        values = command.make_context(" ".join(path), list(words)).params
        grammar = DifferenceThreshold if path[-1] == "compare" else Threshold
        for text in values.get("thresholds") or values.get("threshold") or ():
            grammar.parse(text)
        if values.get("run") is not None:
            checked_run(values["run"])
    except Exception as error:  # typer's own errors have no public name
        raise AssertionError(f"{shown}: {getattr(error, 'message', error)}") from error


@pytest.fixture(scope="module")
def program() -> Any:
    """The whole command line."""
    return generated.program()


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A directory with the files that commands name; the environment adds no option."""
    for name in [name for name in os.environ if name.startswith("MIRRORTEST_")]:
        monkeypatch.delenv(name)
    page = (ROOT / "docs/reference/faulty-mirror.md").read_text()
    (specification,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "wrongs.toml").write_text(specification)
    (tmp_path / "orders-monday.csv").write_text("time,rate\n0,120\n15,135.5\n")
    for workload in ("climb.toml", "bench.toml"):
        (tmp_path / workload).write_text('throughput = "ramp(0, 20k, 30m)"\ntopics = "orders"\n')
    (tmp_path / "workload.json").write_text('{"topics": "orders"}')
    (tmp_path / "client.properties").write_text("security.protocol=SSL\n")
    (tmp_path / "mirrortest-calibrate/r1a2b3c4").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_each_command_is_read_by_its_program_or_marked(document: Path, program: Any) -> None:
    """Options exist, what is required is given, and values parse."""
    text = (ROOT / document).read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for block in _BLOCK.finditer(text):
        if block["language"] != "sh" or block["mark"]:
            continue
        for first, *words in commands(block["text"]):
            if first == "mirrortest":
                check(program, words)
            elif first == "make":
                assert {word for word in words if "=" not in word} <= targets, words
            elif first == "pip":
                assert words[0] == "install", words
            elif first == "python":
                assert words[0] == "-m", words
                assert importlib.util.find_spec(words[1]), words
            elif first not in _SHELL:
                assert (ROOT / first).exists(), f"{first}: mark the block as run or elsewhere"


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_commands_are_in_blocks_of_their_language(document: Path) -> None:
    """Else the test above would pass them over."""
    for block in _BLOCK.finditer((ROOT / document).read_text()):
        if not block["language"]:
            assert not _COMMAND.search(block["text"]), block["text"]


@pytest.mark.parametrize(
    "wrong",
    [
        "mirrortest consume --run nightly --sauce-alias A",
        "mirrortest consume --topics orders",
        "mirrortest consume --run nightly --deadline soon",
        "mirrortest consume --run nightly --threshold 'losst==0'",
        "mirrortest consume --run 'Night ly'",
        "mirrortest consume --run nightly && mirrortest lab fault hit mirror",
        "mirrortest nosuchverb",
    ],
)
def test_a_wrong_command_would_be_found(wrong: str, program: Any) -> None:
    """An option, a value, a verb or something required."""
    found = list(commands(wrong))
    with pytest.raises(AssertionError):
        check(program, found[-1][1:])
