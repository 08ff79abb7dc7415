"""Class data archives of Java: for which Java and jars, and what happens if there is none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mirrortest.errors import LabError
from mirrortest.host import class_archive
from mirrortest.host.java import Java
from mirrortest.lab import archive
from mirrortest.lab.process.runtime import Jvm

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    """A program in place of Java that always fails, and a separate cache."""
    monkeypatch.setenv("MIRRORTEST_CACHE", str(tmp_path / "cache"))
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\necho no room >&2\nexit 1\n")
    program.chmod(0o755)
    return Java(program, 17, "PATH")


def test_another_java_or_other_jars_have_another_archive(java: Java) -> None:
    """An archive for others is never found: only Java itself could detect the mismatch."""
    places = [
        class_archive.archive_path(java, "lab", ["a.jar", "b.jar"]),
        class_archive.archive_path(java, "lab", ["b.jar", "a.jar"]),
        class_archive.archive_path(java, "spark", ["a.jar", "b.jar"]),
    ]
    os.utime(java.executable, ns=(0, 0))
    places.append(class_archive.archive_path(java, "lab", ["a.jar", "b.jar"]))
    assert len(set(places)) == len(places)


def test_java_reads_an_archive_where_there_is_one(java: Java) -> None:
    """Java gets the option for an archive only if that exists."""
    jvm = Jvm(java, "a.jar")
    option = f"-XX:SharedArchiveFile={jvm.archive}"
    assert option not in jvm.command("Main")
    jvm.archive.parent.mkdir()
    jvm.archive.touch()
    assert option in jvm.command("Main")


def test_a_list_of_classes_is_that_of_several_programs(tmp_path: Path) -> None:
    """It has each line once, and classes before the lines that refer to them."""
    first, second = tmp_path / "1.list", tmp_path / "2.list"
    first.write_text("# made by Java\nb/B id: 1\n@lambda-proxy b/B run\n")
    second.write_text("a/A id: 1\nb/B id: 2\n")
    assert archive._merged([first, second]) == "a/A\nb/B\n@lambda-proxy b/B run\n"


def test_what_java_says_is_told_where_it_makes_no_archive(java: Java, tmp_path: Path) -> None:
    """The error has Java's words, and no archive exists afterwards."""
    target = tmp_path / "archive"
    with pytest.raises(LabError, match="no room"):
        archive._dump(Jvm(java, "a.jar"), tmp_path / "classes", target)
    assert not target.exists()


def test_the_command_tells_in_a_line_why_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command exits with the reason as its error; on success it prints the archive's path."""
    class_archive.run(lambda: tmp_path / "made")
    assert capsys.readouterr().out == f"{tmp_path / 'made'}\n"

    def refused() -> Path:
        raise LabError("no room")

    with pytest.raises(SystemExit) as ended:
        class_archive.run(refused)
    assert ended.value.code == "error: no room"
