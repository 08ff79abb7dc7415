"""What the documents name exists: modules, files, headings, targets of `make`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import mirrortest
from docs import generated
from mirrortest.cli import main
from mirrortest.config.threshold import Threshold
from mirrortest.model.verdict import ExitCode

PACKAGE = Path(mirrortest.__file__).parent
ROOT = PACKAGE.parent
SCHEMAS = generated.REFERENCE / "schemas"
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "docs/**/*.md", "deploy/*.md", "helm/mirrortest/*.md")
    for path in ROOT.glob(pattern)
)
ROOMS = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=str)


def _text(document: Path) -> str:
    return (ROOT / document).read_text()


def _outside_of_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ +(.*)$", _outside_of_code(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("room", ROOMS)
def test_the_design_names_every_module(room: str) -> None:
    """And no module that does not exist."""
    found = re.search(rf"^\| `{room}` \| (.*) \|$", _text(Path("DESIGN.md")), re.MULTILINE)
    assert found is not None, f"DESIGN.md has no row for {room}"
    named = set(re.findall(r"`(\w+)`", found[1]))
    there = {
        path.stem
        for path in (PACKAGE / room).iterdir()
        if (path.suffix in {".py", ".pyx"} or path.is_dir()) and not path.stem.startswith("__")
    }
    obvious = {room, *(main._VERBS if room == "cli" else ())}  # "one file a verb"
    assert named - obvious == there - obvious


def test_the_design_can_be_read_in_one_go() -> None:
    """It has at most 3,000 words: what one module alone explains is in that module."""
    assert len(_text(Path("DESIGN.md")).split()) <= 3000


def test_the_readme_is_short() -> None:
    """It has at most 1,200 words: all else is in docs/."""
    assert len(_text(Path("README.md")).split()) <= 1200


def test_each_page_is_in_the_sites_contents() -> None:
    """Each page of docs/; alerts' runbooks are included by a pattern."""
    index = _text(Path("docs/index.md"))
    for page in (path for path in DOCUMENTS if path.parts[0] == "docs" and path.name != "index.md"):
        entry = str(page.relative_to("docs").with_suffix(""))
        assert f"\n{entry}\n" in index or entry.startswith("runbooks/Mirrortest"), page


def test_the_changelog_keeps_its_form() -> None:
    """Keep a Changelog's form: releases with dates, the newest first, known kinds of changes."""
    text = _text(Path("CHANGELOG.md"))
    first, *releases = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert first == "[Unreleased]"
    dates = [re.fullmatch(r"\[\d+\.\d+\.\d+\] - (\d{4}-\d{2}-\d{2})", each) for each in releases]
    assert all(dates), releases
    assert [each[1] for each in dates if each] == sorted(
        (each[1] for each in dates if each), reverse=True
    )
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= kinds
    lines = re.findall(r"^- .*$", text, re.MULTILINE)
    assert len(lines) == len(set(lines))


@each_document
def test_links_lead_somewhere(document: Path) -> None:
    """Linked files and headings of this repository exist."""
    text = _text(document)
    for link in re.findall(r"\]\(([^)\s]+)\)", _outside_of_code(text)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / document).parent / path if path else ROOT / document
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target.read_text()), link


@each_document
def test_pictures_are_there_and_small(document: Path) -> None:
    """Pictures in Markdown and in HTML; `make screenshots` takes them."""
    found = re.findall(r'(?:!\[[^\]]*\]\(|src="|srcset=")([^")]+[.](?:png|svg))', _text(document))
    for picture in found:
        path = (ROOT / document).parent / picture
        assert path.stat().st_size < 200_000, picture


@each_document
def test_files_and_targets_that_are_named_are_there(document: Path) -> None:
    """Paths between backticks, and targets of `make`."""
    text = _text(document)
    rooms = "docs|tests|deploy|helm|grafana|mirrortest|[.]ci"
    for path in re.findall(rf"`((?:{rooms})/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for target in re.findall(r"(?:`|^|&& )make ([a-z0-9-]+)", text, re.MULTILINE):
        assert target in targets, target


@each_document
def test_modules_that_are_named_are_there(document: Path) -> None:
    """`room/module` between backticks, without the package's name."""
    for name in re.findall(rf"`((?:{'|'.join(ROOMS)})/[a-z_/]+)`", _text(document)):
        there = [PACKAGE / name, *(PACKAGE / f"{name}{end}" for end in (".py", ".pyx"))]
        assert any(path.exists() for path in there), name


def test_what_is_to_be_made_is_no_file() -> None:
    """All targets are phony: else a file of a target's name would keep it from running."""
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    targets = re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE)
    phony = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert set(" ".join(phony).split()) == set(targets)


def test_the_reference_is_what_the_code_says() -> None:
    """The generated files of docs/reference are current; `make reference` writes them."""
    stale = [
        str(path)
        for path, text in generated.files().items()
        if not (generated.REFERENCE / path).exists()
        or (generated.REFERENCE / path).read_text() != text
    ]
    assert not stale, "run make reference"
    schemas = {f"{path.relative_to(generated.REFERENCE)}" for path in SCHEMAS.glob("*")}
    assert schemas <= {str(path) for path in generated.files()}


@pytest.mark.parametrize("kind", ["produce", "consume"])
def test_every_field_of_a_summary_is_explained(kind: str) -> None:
    """Of the summaries without a schema; the golden file has their fields."""
    golden = json.loads((ROOT / "tests/unit/golden/summaries.json").read_text())
    page = _text(Path("docs/reference/sequence-log.md"))
    table = page.partition(f"| `{kind}` | |")[2].partition("\n\n")[0]
    explained = re.findall(
        r"`(\w+)`", "\n".join(line.split("|")[1] for line in table.split("\n")[2:])
    )
    assert set(explained) == set(golden[kind]["all fields"])


def test_examples_of_thresholds_are_thresholds() -> None:
    """Each example of the table below the grammar, without the shell's quotes."""
    page = _text(Path("docs/reference/thresholds.md"))
    table = page.partition("| example | holds if |")[2].partition("\n\n")[0]
    examples = re.findall(r"^\| `'?([^`']+)'?`", table, re.MULTILINE)
    assert len(examples) > 3
    for example in examples:
        Threshold.parse(example)


def test_every_exit_code_is_explained() -> None:
    """The page has its number and its name."""
    page = _text(Path("docs/reference/exit-codes.md"))
    for code in ExitCode:
        assert f"| {code.value} | `{code.name}` |" in page


def test_runbooks_and_dashboards_are_as_many_as_are_told() -> None:
    """`README.md` and `docs/how-to/watch.md` give the right numbers."""
    words = {7: "seven", 13: "thirteen"}
    dashboards = len(list((ROOT / "grafana/dashboards").glob("*.json")))
    runbooks = len(list((ROOT / "docs/runbooks").glob("Mirrortest*.md")))
    for document in ("README.md", "docs/how-to/watch.md"):
        text = " ".join(_text(Path(document)).split()).lower()
        assert re.search(rf"{words[dashboards]}( grafana)? dashboards", text), document
        assert f"{words[runbooks]} alerts" in text, document
