"""Container faults are refused without a container; failed calls of Docker are retried."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

import docker
import pytest
import requests
import structlog

from mirrortest.errors import LabError
from mirrortest.lab.docker import program
from mirrortest.lab.docker.engine import Engine, docker_errors
from mirrortest.lab.part import Part, inject
from mirrortest.lab.testbed import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.mark.parametrize("verb", ["delay", "rate", "cut", "reset", "heal"])
def test_what_is_no_link_has_no_faults_of_one(verb: str, tmp_path: Path) -> None:
    """The error names the links, which have such faults."""
    part = Part("A1", ["true"], tmp_path / "log")
    with pytest.raises(LabError, match=f"A1 is not a link: {verb} is for link-source or link-dest"):
        inject(part, verb)


def test_links_are_refused_between_containers() -> None:
    """The error names the alternative."""
    with pytest.raises(LabError, match="not containers: for those use the fault disconnect"):
        Lab(image="kafka", links=True)


@pytest.mark.parametrize("verb", ["pause", "unpause", "disconnect", "connect"])
def test_a_process_cannot_be_treated_as_a_container(verb: str, tmp_path: Path) -> None:
    """The error names the option of `lab up` that it needs."""
    part = Part("A1", ["true"], tmp_path / "log")
    with pytest.raises(LabError, match=f"A1 is not a container: {verb} needs `lab up --runtime d"):
        inject(part, verb)


class FakeContainer:
    """A container whose calls fail with `failures` in turn, and whose output is `chunks`."""

    def __init__(self, *failures: Exception | None, chunks: tuple[bytes, ...] = ()) -> None:
        self.attrs = {"State": {"Status": "running"}}
        self.failures = list(failures)
        self.paused = 0
        self._chunks = chunks

    def reload(self) -> None:
        """Change nothing."""

    def pause(self) -> None:
        self.paused += 1
        if self.failures and (failure := self.failures.pop(0)):
            raise failure

    def logs(self, *, stream: bool, follow: bool) -> Iterator[bytes]:
        assert stream
        assert follow
        failure = self.failures.pop(0) if self.failures else None
        yield self._chunks[0]
        if failure:
            raise failure
        yield from self._chunks[1:]


def container(found: FakeContainer, monkeypatch: pytest.MonkeyPatch) -> program.Container:
    monkeypatch.setattr(program, "_RETRY_SECONDS", 0.0)
    made = program.Container(cast("Any", None), "A1", mounts={})
    made._container = found
    return made


def refused(text: str) -> docker.errors.APIError:
    return docker.errors.APIError("500", explanation=text)


def test_a_container_that_was_not_frozen_in_time_is_paused_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is tried three times, with a log line per retry; another error is final."""
    busy = refused("cannot pause container: unable to freeze")
    found = FakeContainer(busy, busy)
    with structlog.testing.capture_logs() as logged:
        container(found, monkeypatch).pause()
    assert (found.paused, len(logged)) == (3, 2)
    for failures, tries in (([busy] * 4, 3), ([refused("it is paused already")], 1)):
        found = FakeContainer(*failures)
        with pytest.raises(LabError, match="Docker cannot pause A1: "):
            container(found, monkeypatch).pause()
        assert found.paused == tries


def test_a_container_s_output_is_read_on_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copying resumes after the log's last byte; five failures in a row end it, with a log line."""
    monkeypatch.setattr(program, "_RETRY_SECONDS", 0.0)
    lost = requests.ConnectionError("the engine was restarted")
    with structlog.testing.capture_logs() as logged:
        found = FakeContainer(lost, lost, chunks=(b"one\n", b"two\n"))
        program._follow(found, tmp_path / "log", "A1")
        assert (tmp_path / "log").read_text() == "one\ntwo\n"
        program._follow(found, tmp_path / "missing" / "log", "A1")
    assert [each["event"].split(", ")[1] for each in logged] == (
        ["trying again"] * 2 + ["trying again"] * 4 + ["giving up"]
    )


def test_an_engine_that_does_not_answer_in_time_is_one_line() -> None:
    """The SDK raises the error of the library below it."""
    with (
        pytest.raises(LabError, match="Docker cannot end A1: read timed out"),
        docker_errors("end A1"),
    ):
        raise requests.ReadTimeout("read timed out")


def test_without_the_sdk_a_lab_of_containers_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once, `lab up --runtime docker` ended with a traceback that did not say what to install."""
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(
        LabError, match=r"needs Docker's SDK for Python: pip install 'mirrortest\[lab\]'"
    ):
        Engine("kafka")
