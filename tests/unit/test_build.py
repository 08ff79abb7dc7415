"""What is built from the sources: the archives, and the compiled modules."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from mirrortest.cli import compiled
from mirrortest.errors import InstallationError

ROOT = Path(__file__).parents[2]
WIRE = "mirrortest/wire"
COMPILED = (f"{WIRE}/kernels", f"{WIRE}/message_columns", f"{WIRE}/digests")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the sources as in a clone: no module is replaced that other tests import."""
    for name in ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py"):
        shutil.copy(ROOT / name, tmp_path)
    passed_over = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "mirrortest", tmp_path / "mirrortest", ignore=passed_over)
    return tmp_path


def _built(
    sources: Path, *targets: str, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "-d", "built"]
    return subprocess.run(
        [*command, *(word for target in targets for word in ("-t", target))],
        cwd=sources,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def _compiled(path: str) -> Path:
    """The file that is imported for a compiled module."""
    return Path(str(importlib.import_module(path.replace("/", ".")).__file__))


@pytest.mark.parametrize("path", COMPILED)
def test_what_is_cythons_is_compiled(path: str) -> None:
    """Each of Cython's modules is imported as machine code for this Python."""
    assert _compiled(path).name.endswith(EXTENSION_SUFFIXES[0])
    assert (ROOT / f"{path}.pyx").exists()


def test_all_that_is_cythons_is_known() -> None:
    """Both lists are complete: if an unlisted module were missing, there would be a traceback."""
    sources = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("mirrortest/**/*.pyx")}
    assert sources == {f"{path}.pyx" for path in COMPILED}
    assert set(compiled.MODULES) == {path.replace("/", ".") for path in COMPILED}


def test_a_wheel_has_what_is_compiled_and_a_source_distribution_its_source(sources: Path) -> None:
    """Neither has intermediate files or another Python's modules; no intermediate file remains."""
    sources.joinpath(f"{COMPILED[0]}.cpython-39-x86_64-linux-gnu.so").touch()
    # The test does not need optimized code, which takes long to compile.
    quick = sources / "cc"
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    quick.write_text(f'#!/bin/sh\nexec {compiler} "$@" -O0\n')
    quick.chmod(0o755)
    before = set(sources.rglob("*"))
    done = _built(sources, "wheel", "sdist", environment={"CC": str(quick)})
    assert done.returncode == 0, done.stderr
    (wheel,) = sources.glob("built/*.whl")
    (archive,) = sources.glob("built/*.tar.gz")
    made = {f"{path}{EXTENSION_SUFFIXES[0]}" for path in COMPILED}
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    found = {name for name in names if name.startswith(COMPILED)}
    assert found == made | {f"{path}.pyi" for path in COMPILED}
    assert "none-any" not in wheel.name
    with tarfile.open(archive) as packed_sources:
        source_names = packed_sources.getnames()
    top = source_names[0].partition("/")[0]
    kept = {
        name
        for name in source_names
        if name.startswith(tuple(f"{top}/{path}" for path in COMPILED))
    }
    assert kept == {f"{top}/{path}{kind}" for path in COMPILED for kind in (".pyi", ".pyx")}
    assert f"{top}/hatch_build.py" in source_names
    assert not [name for name in names + source_names if name.endswith((".c", ".o"))]
    aside = {"built", "__pycache__"}
    new = {path for path in set(sources.rglob("*")) - before if aside.isdisjoint(path.parts)}
    assert {path.relative_to(sources).as_posix() for path in new} == made


def test_without_a_compiler_a_line_says_what_to_install(sources: Path) -> None:
    """It is the last line of the error, and nothing is built."""
    done = _built(sources, "wheel", environment={"CC": str(sources / "no-compiler")})
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    line = done.stderr.splitlines()[-1]  # Cython may give hints before
    needed = "a C compiler and Python's headers"
    assert line.startswith(f"{min(COMPILED)}.pyx was not compiled: {needed}")
    assert "apt-get install gcc python3-dev" in line
    assert not list(sources.glob("built/*"))


def _run(sources: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program from these sources."""
    return subprocess.run(
        [sys.executable, "-m", "mirrortest", *arguments],
        cwd=sources,
        env={**os.environ, "PYTHONPATH": str(sources)},
        capture_output=True,
        text=True,
        check=False,
    )


CONSUME = ("consume", "--bootstrap-server", "127.0.0.1:1", "--topics", "A.t", "--run", "r")
PRODUCE = ("produce", "--bootstrap-server", "127.0.0.1:1", "--topics", "t", "--log-dir", "logs")


def _not_compiled(done: subprocess.CompletedProcess[str]) -> bool:
    assert (done.returncode, "Traceback" in done.stderr, "make" in done.stderr) == (1, False, True)
    return "mirrortest.wire is not compiled for this Python" in done.stderr.replace("\n", " ")


def _of_another_source(done: subprocess.CompletedProcess[str]) -> bool:
    return not _not_compiled(done) and "was compiled from another version" in done.stderr.replace(
        "\n", " "
    )


@pytest.mark.parametrize("command", [CONSUME, PRODUCE], ids=" ".join)
def test_what_is_not_compiled_or_of_another_source_is_told_in_a_line(
    sources: Path, command: tuple[str, ...]
) -> None:
    """The program ends with this line before it does anything."""
    assert _not_compiled(_run(sources, *command))
    for path in COMPILED:
        shutil.copy(_compiled(path), sources / WIRE)
    with (sources / f"{COMPILED[0]}.pyx").open("a") as source:
        source.write("\n# other\n")
    assert _of_another_source(_run(sources, *command))


def test_what_was_compiled_of_these_sources_is_used_and_nothing_older(sources: Path) -> None:
    """Modules from before a rename, or from before they named their source, are refused."""
    for path in COMPILED:
        shutil.copy(_compiled(path), sources / WIRE)
    assert "compiled" not in _run(sources, *CONSUME).stderr
    descriptor = sources / WIRE / "descriptor.py"
    written = descriptor.read_text()
    descriptor.write_text(written.replace("ROUND", "ROUNDS"))
    assert _not_compiled(_run(sources, *CONSUME))
    descriptor.write_text(written)
    (sources / WIRE / _compiled(COMPILED[0]).name).unlink()
    (sources / f"{COMPILED[0]}.py").touch()
    assert _of_another_source(_run(sources, *CONSUME))


@pytest.mark.parametrize("path", COMPILED)
def test_each_compiled_module_is_compared_with_its_source(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its source is the .pyx file next to it; an installed module has none, and is accepted."""
    module = importlib.import_module(path.replace("/", "."))
    source = tmp_path / f"{Path(path).name}.pyx"
    monkeypatch.setattr(module, "__file__", str(tmp_path / _compiled(path).name))
    compiled.check()
    shutil.copy(ROOT / f"{path}.pyx", source)
    compiled.check()
    source.write_text(source.read_text() + "\n# other\n")
    with pytest.raises(InstallationError, match=Path(path).name):
        compiled.check()
