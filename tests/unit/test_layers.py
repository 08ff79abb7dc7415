"""The layers of the packages: imports point down only."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import mirrortest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

ROOT = Path(mirrortest.__file__).parent

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "model", ""}),
    frozenset({"wire", "verify", "timing", "config"}),
    frozenset({"kafka", "seqlog", "metrics", "host", "results"}),
    frozenset({"produce", "consume", "reconcile", "lab", "report", "faults", "doctor", "observe"}),
    frozenset({"compare", "scenario", "selftest", "workers"}),
    frozenset({"cli", "__main__"}),
)
APPLICATIONS = next(rooms for rooms in LAYERS if "produce" in rooms)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}

CORE_MAY_NOT = {
    "aiokafka", "asyncio", "os", "pathlib", "prometheus_client", "pyarrow", "pyspark",
    "random", "socket", "subprocess", "threading", "time",
    "posix",  # in compiled modules: system calls
}  # fmt: skip


@functools.cache
def _imports(path: Path) -> set[str]:
    if path.suffix == ".pyx":
        return _compiled_imports(path.read_text())
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where an arrow points"
            names.add(node.module or "")
    return names


def _compiled_imports(source: str) -> set[str]:
    """The imports of Cython, which `ast` does not parse; `cimport` is one, too."""
    froms = re.findall(r"^\s*from\s+(\S+)\s+c?import\b", source, re.MULTILINE)
    assert not any(name.startswith(".") for name in froms)
    lists = re.findall(r"^\s*c?import\s+([^#\n]+)", source, re.MULTILINE)
    return {*froms, *(name.split()[0] for names in lists for name in names.split(","))}


def _room(dotted: str) -> str:
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 else ""


def _modules() -> list[tuple[str, Path]]:
    return [
        (path.relative_to(ROOT).parts[0].removesuffix(".py").replace("__init__", ""), path)
        for pattern in ("*.py", "*.pyx")
        for path in sorted(ROOT.rglob(pattern))
    ]


def test_every_room_has_its_layer() -> None:
    """A new package is assigned to a layer on purpose."""
    assert {room for room, _ in _modules()} <= set(LEVEL)


def test_no_modules_import_each_other() -> None:
    """There is no import cycle, imports within functions included, those for types excluded."""
    files: dict[str, Path] = {}
    for path in ROOT.rglob("*.py"):
        dotted = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        files[dotted.removesuffix(".__init__")] = path
    graph = {name: set(_runs(path, files)) - {name} for name, path in files.items()}
    graphlib.TopologicalSorter(graph).prepare()


def _runs(path: Path, files: Collection[str]) -> Iterator[str]:
    """Yield the modules among `files` that a module imports at run time."""
    tree = ast.parse(path.read_text())
    for_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & {*files}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                named = f"{node.module}.{alias.name}"
                yield from {named if named in files else node.module} & {*files}


def test_arrows_point_down_only() -> None:
    """No module imports from a layer above its own."""
    upward = [
        f"{path.relative_to(ROOT)} imports {name}"
        for room, path in _modules()
        for name in _imports(path)
        if name.split(".")[0] == "mirrortest" and LEVEL[_room(name)] > LEVEL[room]
    ]
    assert upward == []


def test_no_application_imports_another() -> None:
    """Code that several of them need is in a layer below."""
    sideways = [
        f"{path.relative_to(ROOT)} imports {name}"
        for room, path in _modules()
        if room in APPLICATIONS
        for name in _imports(path)
        if name.split(".")[0] == "mirrortest" and _room(name) in APPLICATIONS - {room}
    ]
    assert sideways == []


def test_the_core_reads_no_clock_and_does_no_io() -> None:
    """Model, wire, verify, timing and config import nothing that reaches outside."""
    reaching = [
        f"{path.relative_to(ROOT)} imports {name}"
        for room, path in _modules()
        if LEVEL[room] <= LEVEL["wire"]
        for name in _imports(path)
        if name.split(".")[0] in CORE_MAY_NOT
        and not (room == "config" and name == "pathlib")  # an option's type is Path
    ]
    assert reaching == []


def test_the_core_opens_no_file() -> None:
    """Its callers read files, and pass text and bytes."""
    opening = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "exists", "is_file"}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for room, path in _modules()
        if LEVEL[room] <= LEVEL["wire"] and path.suffix == ".py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in opening
    ]
    assert found == []


def test_imports_of_what_is_compiled_are_read() -> None:
    """Each form of import in Cython is found."""
    source = (
        "# cython: language_level=3\n"
        "import numpy as np, mirrortest.wire.varint\n"
        "cimport cython  # its directives\n"
        "from libc.string cimport memcmp\n"
        "def one():\n"
        "    from mirrortest.errors import MirrortestError\n"
    )
    expected = {"numpy", "mirrortest.wire.varint", "cython", "libc.string", "mirrortest.errors"}
    assert _compiled_imports(source) == expected
    assert any(path.suffix == ".pyx" for _, path in _modules())


def test_aiokafka_stays_behind_one_room() -> None:
    """Only `kafka` imports the client library."""
    leaks = [
        str(path.relative_to(ROOT))
        for room, path in _modules()
        if room != "kafka" and any(name.split(".")[0] == "aiokafka" for name in _imports(path))
    ]
    assert leaks == []
