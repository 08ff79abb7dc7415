"""kubectl: its errors, the files that it copies, and when it cannot be used."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

import pytest

from mirrortest.errors import LabError, UsageError
from mirrortest.lab.kubernetes.kubectl import Kubectl
from mirrortest.lab.kubernetes.manifest import KEEPER

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake kubectl: it prints the returned file, and fails with the text of $SAID, if any."""
    script = tmp_path / "bin" / "kubectl"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\ncat "$ANSWER"\n[ -z "$SAID" ] || { echo "$SAID" >&2; exit 1; }\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent), prepend=":")
    answer = tmp_path / "answer"
    answer.touch()
    monkeypatch.setenv("ANSWER", str(answer))
    monkeypatch.setenv("SAID", "")
    return answer


def archive() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name in ("logs/a", "clients/b"):
            entry = tarfile.TarInfo(name)
            entry.size = 3
            tar.addfile(entry, io.BytesIO(b"abc"))
    return file.getvalue()


def test_files_come_whole_or_not_at_all(kubectl: Path, tmp_path: Path) -> None:
    """A stream that breaks off between two files looks like a complete archive."""
    into = tmp_path / "into"
    into.mkdir()
    kubectl.write_bytes(archive()[:1024])
    with pytest.raises(LabError, match="the copy is incomplete"):
        Kubectl().fetch("p", KEEPER, "/point", ["logs"], into)
    assert list(into.iterdir()) == []
    kubectl.write_bytes(archive())
    Kubectl().fetch("p", KEEPER, "/point", ["logs"], into)
    assert (into / "clients" / "b").read_bytes() == b"abc"


def test_what_keeps_files_from_coming_is_an_error_in_one_line(
    kubectl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The destination directory is missing, or kubectl is."""
    kubectl.write_bytes(archive())
    with pytest.raises(LabError, match="files of p cannot be written: No such file or directory"):
        Kubectl().fetch("p", KEEPER, "/point", ["logs"], tmp_path / "nowhere")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match="kubectl cannot be run: No such file or directory"):
        Kubectl().fetch("p", KEEPER, "/point", ["logs"], tmp_path)


def test_what_kubectl_says_is_the_reason(
    kubectl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its text, without its prefix."""
    monkeypatch.setenv("SAID", 'Error from server (NotFound): namespaces "x" not found')
    for call in (
        lambda: Kubectl().create({}),
        lambda: Kubectl().fetch("p", KEEPER, "/point", ["logs"], tmp_path),
    ):
        with pytest.raises(LabError) as caught:
            call()
        assert str(caught.value).partition(": ")[2] == 'namespaces "x" not found'


def test_a_context_that_does_not_exist_is_refused_with_what_was_meant(kubectl: Path) -> None:
    """So is a kubectl without a context."""
    with pytest.raises(UsageError, match="kubectl has no context: set KUBECONFIG"):
        Kubectl().check()
    kubectl.write_text("staging\nproduction\n")
    Kubectl("staging").check()
    with pytest.raises(UsageError, match=r"no context 'stagin': did you mean staging\?"):
        Kubectl("stagin").check()


def test_without_kubectl_the_user_is_told_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` finds that before anything is started."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="kubectl is not installed: install it"):
        Kubectl().check()
