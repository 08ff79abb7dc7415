"""The images of deploy/: what they contain, and what they need to run."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import tarfile
import uuid
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mirrortest
from tests.docker.images import ROOT, Container, bases, docker, inspect
from tests.lab.harness import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrortest.lab import Lab
    from tests.docker.images import Images

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

MOST_MEGABYTES = 120
PROGRAMS = {"pip", "pip3", "uv", "gcc", "cc", "g++", "c++", "ld", "make", "javac", "git"}
PACKAGES = {"pip", "ensurepip", "setuptools", "hatchling", "editables", "Cython"}
NAMES = ("mirrortest", "reconcile")


@pytest.fixture
def volume() -> Iterator[str]:
    """A volume for sequence logs."""
    name = f"mirrortest-test-{uuid.uuid4().hex[:12]}"
    docker("volume", "create", name)
    yield name
    docker("volume", "rm", "--force", name)


def files(image: str, folder: Path) -> set[str]:
    """The paths of all files of an image's file system; no directories."""
    name = f"mirrortest-test-{uuid.uuid4().hex[:12]}"
    docker("create", "--name", name, image)
    try:
        docker("export", "--output", str(folder / "root.tar"), name)
    finally:
        docker("rm", name)
    with tarfile.open(folder / "root.tar") as root:
        return {each.name for each in root if not each.isdir()}


@pytest.mark.parametrize("which", NAMES)
def test_labels_and_user(images: Images, which: str) -> None:
    """The version in the label is the package's; the user is a number, and not root."""
    image = getattr(images, which)
    settings = inspect(image)["Config"]
    labels = settings["Labels"]
    assert labels["org.opencontainers.image.version"] == mirrortest.__version__
    assert docker("run", "--rm", image, "--version") == f"mirrortest {mirrortest.__version__}"
    for name in ("title", "description", "licenses", "revision", "base.name"):
        assert labels[f"org.opencontainers.image.{name}"]
    user, group = map(int, settings["User"].split(":"))
    assert user > 0
    assert group > 0


def test_a_wrong_version_is_not_built(images: Images) -> None:
    """A build for another version than the package's fails, and the error says what to do."""
    given = {**(bases() or {}), "VERSION": "0.0.0.dev9"}
    arguments = [f"--build-arg={name}={value}" for name, value in given.items()]
    done = subprocess.run(
        [
            "docker",
            "build",
            "--force-rm",
            "-f",
            "deploy/Dockerfile",
            "--target",
            "wheel",
            *arguments,
            ".",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert f"VERSION={mirrortest.__version__}" in done.stdout + done.stderr


@pytest.mark.parametrize("which", NAMES)
def test_only_what_the_lock_names(images: Images, which: str) -> None:
    """Every installed package except mirrortest is in the lock, with the same version."""
    ask = (
        "import importlib.metadata as m, json;"
        "print(json.dumps({d.name.lower().replace('_', '-').replace('.', '-'): d.version"
        " for d in m.distributions()}))"
    )
    image = getattr(images, which)
    found = json.loads(docker("run", "--rm", "--entrypoint", "python", image, "-c", ask))
    assert found.pop("mirrortest") == mirrortest.__version__
    lock = (ROOT / "requirements.lock").read_text()
    # A name may occur twice, for newer and for older Pythons.
    pinned = set(re.findall(r"^([a-z0-9.-]+)==([^ ;]+)", lock, re.MULTILINE))
    assert found
    assert set(found.items()) <= pinned


@pytest.mark.slow
@pytest.mark.parametrize("which", NAMES)
def test_no_build_tool_is_left(images: Images, which: str, tmp_path: Path) -> None:
    """No image contains an installer, compiler or linker; only the one with Spark contains Java."""
    paths = files(getattr(images, which), tmp_path)
    names = {Path(path).name for path in paths}
    assert "mirrortest" in names
    assert not names & PROGRAMS
    assert not {part for path in paths for part in Path(path).parts} & PACKAGES
    assert ("java" in names) == (which == "reconcile")
    assert ("pyspark" in names) == (which == "reconcile")


@pytest.mark.slow
def test_the_image_is_small(images: Images, tmp_path: Path) -> None:
    """The layers above the base are small enough for every node to pull."""
    docker("save", "--output", str(tmp_path / "image.tar"), images.mirrortest)
    below = set(inspect(images.base)["RootFS"]["Layers"])
    layers = inspect(images.mirrortest)["RootFS"]["Layers"]
    compressed = 0
    with tarfile.open(tmp_path / "image.tar") as saved:
        listed = saved.extractfile("manifest.json")
        assert listed is not None
        manifest = json.load(listed)[0]
        for digest, name in zip(layers, manifest["Layers"], strict=True):
            if digest in below:
                continue
            squeeze = zlib.compressobj(6)
            layer = saved.extractfile(name)
            assert layer is not None
            while chunk := layer.read(1 << 20):
                compressed += len(squeeze.compress(chunk))
            compressed += len(squeeze.flush())
    assert 0 < compressed < MOST_MEGABYTES * 1_000_000


@pytest.mark.parametrize("which", NAMES)
def test_layers_keep_nothing_of_the_build(images: Images, which: str) -> None:
    """Neither history nor environment names a package index, whose URL may contain secrets."""
    image = getattr(images, which)
    shown = docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", image)
    shown += json.dumps(inspect(image)["Config"]["Env"])
    assert "/opt/mirrortest" in shown
    assert "INDEX" not in shown


@pytest.mark.parametrize("which", NAMES)
def test_a_signal_ends_process_one_before_it_runs(images: Images, which: str) -> None:
    """SIGTERM ends process 1 during start-up, though the kernel drops signals without a handler."""
    number = int(signal.SIGTERM)
    early = (
        "import os, signal\n"
        "from mirrortest.cli import main, start\n"
        "assert os.getpid() == 1\n"
        f"main.run = lambda: os.kill(1, {number}) or signal.pause()\n"
        "start.run()\n"
    )
    image = getattr(images, which)
    with Container(image, "-c", early, options=("--entrypoint", "python")) as container:
        assert container.wait(seconds=60) == 128 + number


@pytest.mark.lab
@pytest.mark.slow
def test_produce_consume_reconcile(images: Images, lab: Lab, volume: str) -> None:
    """A whole run from the images, with a read-only root and no capability, passes on all sides."""
    run, topic = f"r{uuid.uuid4().hex[:8]}", f"orders.{uuid.uuid4().hex[:8]}"
    logs = ("--volume", f"{volume}:/logs")
    produce = Container(
        images.mirrortest,
        "produce",
        *("--bootstrap-server", lab.source.bootstrap_servers, "--run", run, "--id", "p1"),
        *("--topics", topic, "--create-topics", "--partitions", "2", "--num-records", "20000"),
        "--json",
        options=logs,
    )
    with produce:
        sent = produce.answer()
    assert sent["whole"]["acked"] == 20_000
    consume = Container(
        images.mirrortest,
        "consume",
        *("--bootstrap-server", lab.destination.bootstrap_servers, "--run", run, "--id", "c1"),
        *("--topics", f"A.{topic}", "--source-alias", "A", "--expect-producers", "p1"),
        "--json",
        options=logs,
    )
    with consume:
        judged = consume.answer(seconds=240)
    assert judged["counts"]["delivered"] == 20_000
    reconcile = Container(
        images.reconcile, "reconcile", "/logs", "--run", run, "--json", options=logs
    )
    with reconcile:
        result = reconcile.answer(seconds=240)
    assert result["counts"]["delivered"] == 20_000
    assert result["counts"]["lost"] == 0


@pytest.mark.lab
@pytest.mark.slow
def test_sigterm_drains(images: Images, lab: Lab, volume: str) -> None:
    """A producer that `docker stop` ends has reported every written message; none is unknown."""
    run, topic = f"r{uuid.uuid4().hex[:8]}", f"drained.{uuid.uuid4().hex[:8]}"
    logs = ("--volume", f"{volume}:/logs")
    produce = Container(
        images.mirrortest,
        "produce",
        *("--bootstrap-server", lab.source.bootstrap_servers, "--run", run, "--id", "p1"),
        *("--topics", topic, "--create-topics", "--partitions", "2", "--throughput", "2000"),
        "--json",
        options=logs,
    )
    consume = Container(
        images.mirrortest,
        "consume",
        *("--bootstrap-server", lab.source.bootstrap_servers, "--run", run, "--id", "c1"),
        *("--role", "source", "--topics", topic, "--json"),
        options=logs,
    )
    with produce, consume:
        until(
            lambda: sum(lab.source.end_offsets(topic).values()) > 5_000 or not produce.runs,
            seconds=120,
            what="5,000 messages",
        )
        assert produce.stop() == 0, produce.stderr
        sent = json.loads(produce.stdout)
        assert sent["whole"]["acked"] == sum(lab.source.end_offsets(topic).values()) > 5_000
        assert not sent["whole"]["unknown"]
        judged = consume.answer(seconds=120)
        assert judged["counts"]["delivered"] == sent["whole"]["acked"]
