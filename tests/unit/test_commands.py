"""Commands in the documents and in the help: the real command line parses each of them.

Each is also run by a test, or marked with the system that it needs: see `tests.documented`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from docs import generated
from mirrortest.compare.thresholds import DifferenceThreshold
from mirrortest.config.threshold import Threshold
from mirrortest.wire.stream import checked_run
from tests import documented
from tests.documented import BLOCK, DOCUMENTS, ROOT, sentences

if TYPE_CHECKING:
    from pathlib import Path

_SHELL = {"cd", "do", "done", "exit", "for", "jq", "set", "test", "trap", "wait"}
_COMMAND = re.compile(
    r"^ *(?:mirrortest|make|helm|kubectl|docker|pip|python|curl) [a-z./-]", re.MULTILINE
)


def check(command: Any, words: list[str]) -> None:
    """Parse the words as the program does; an AssertionError says what it refuses."""
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
    """The complete command line."""
    return generated.program()


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A directory with the files that commands name; the environment sets no option."""
    for name in [name for name in os.environ if name.startswith("MIRRORTEST_")]:
        monkeypatch.delenv(name)
    page = (ROOT / "docs/reference/faulty-mirror.md").read_text()
    (specification,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    for name in ("faults.toml", "wrongs.toml"):  # of the documents, and of the help
        (tmp_path / name).write_text(specification)
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
    for block in BLOCK.finditer(text):
        if block["language"] != "sh" or block["mark"]:
            continue
        for first, *words in sentences(block["text"]):
            if first == "mirrortest":
                check(program, words)
            elif first == "make":
                assert {word for word in words if "=" not in word} <= targets, words
            elif first == "python":
                assert words[0] == "-m", words
                assert importlib.util.find_spec(words[1]), words
            elif first not in _SHELL:
                assert (ROOT / first).exists(), f"{first}: mark the block as run or elsewhere"


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_commands_in_a_sentence_are_there_with_their_options(document: Path, program: Any) -> None:
    """Commands between backticks exist with their options; values are missing or placeholders."""
    text = BLOCK.sub("", (ROOT / document).read_text())
    for found in re.findall(r"`mirrortest ([a-z][^`\n]*)`", text):
        command, (*words,) = program, found.split()
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        assert command is not program, f"{found}: no such command"
        known = {name for each in command.params for name in each.opts}
        named = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert named <= known | {"--help"}, found


def test_each_command_is_run_by_a_test_or_marked() -> None:
    """Tests take the commands that they run from the documents; one that none takes is named."""
    run = {each.kind for each in documented.taken()}
    left = [f"{each.document}: {each}" for each in documented.shown() if each.kind not in run]
    assert not left, "no test runs it: take it by documented.commands, or mark its block"


def test_each_target_that_is_named_is_made_by_the_checks_or_runs_a_command_that_a_test_runs() -> (
    None
):
    """`.ci/` makes it, or it is a part of `make test`, or a test runs its recipe's command."""
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    recipes = dict(re.findall(r"^([a-z0-9-]+):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE))
    checks = "".join((ROOT / ".ci" / each).read_text() for each in ("run", "containers"))
    made = {
        word
        for words in re.findall(r"make ([^\n\"]+)", checks)
        for word in words.split()
        if word in recipes
    }
    ours = {each.kind for each in documented.taken()}
    for _, (program, *words) in documented.unmarked():
        if program != "make":
            continue
        for target in (word for word in words if "=" not in word):
            _, *recipe = recipes[target].split()
            own = bool(recipe) and documented.Shown(ROOT, tuple(recipe)).kind in ours
            part = recipes["test"].split()[1:] == recipe[:-1]  # of the tests a folder
            assert target in made or own or part, f"nothing makes {target}"


def test_extras_that_are_installed_are_there() -> None:
    """Each `pip install` names existing extras, also in a marked block."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = set(extras["optional-dependencies"])
    for document in DOCUMENTS:
        text = (ROOT / document).read_text()
        for found in re.findall(r"pip install [^\n]*?(?:mirrortest|[.])\[([a-z,]+)\]", text):
            assert set(found.split(",")) <= known, document


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_commands_are_in_blocks_of_their_language(document: Path) -> None:
    """Otherwise the tests above would skip them."""
    for block in BLOCK.finditer((ROOT / document).read_text()):
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
    """A wrong option, value or verb is found, and so is a missing required option."""
    found = list(sentences(wrong))
    with pytest.raises(AssertionError):
        check(program, found[-1][1:])
