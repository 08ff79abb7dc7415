"""The lab's jars: pinned, verified, resumed, and usable offline once downloaded."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from mirrortest.errors import LabError
from mirrortest.lab import jars
from mirrortest.lab.jars import Jar


def jar(number: int) -> Jar:
    return Jar("org.example", f"part-{number}", "1.0", hashlib.sha256(content(number)).hexdigest())


def content(number: int) -> bytes:
    return f"content {number}".encode()


class Registry:
    """Replaces jgo: serves contents, and can fail."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.broken: dict[str, list[bytes | Exception]] = {}

    def context(self, place: Path, local: list[Path] | None = None) -> SimpleNamespace:
        def create_dependency(coordinate: str) -> SimpleNamespace:
            artifact = SimpleNamespace(resolve=lambda: self.resolve(place, coordinate))
            return SimpleNamespace(artifact=artifact)

        return SimpleNamespace(create_dependency=create_dependency)

    def resolve(self, place: Path, coordinate: str) -> Path:
        self.asked[coordinate] += 1
        number = int(coordinate.split("-", 1)[1].split(":", 1)[0])
        served: bytes | Exception = content(number)
        if self.broken.get(coordinate):
            served = self.broken[coordinate].pop(0)
        place.mkdir(parents=True)
        path = place / "file.jar"
        if isinstance(served, Exception):
            path.write_bytes(content(number)[:3])  # the partial file of a broken connection
            raise served
        path.write_bytes(served)
        return path


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    made = Registry()
    monkeypatch.setattr(jars, "_maven", made.context)
    monkeypatch.setattr("mirrortest.lab.jars.time.sleep", lambda _: None)
    return made


def test_the_lock_pins_what_the_lab_runs() -> None:
    """Every coordinate is in the lock, with a checksum; all of Kafka has one version."""
    locked = jars.read_lock()
    assert set(jars.COORDINATES[jars.KAFKA]) <= {one.coordinate for one in locked}
    assert {one.version for one in locked if one.group == "org.apache.kafka"} == {"4.3.1"}
    assert all(len(one.sha256) == 64 for one in locked)
    assert len({one.file_name for one in locked}) == len(locked)


def test_mirror_maker_1_has_the_jars_that_it_was_made_with() -> None:
    """Its lock has three jars of Kafka 3.9, and none of the current Kafka."""
    locked = jars.read_lock(jars.MIRROR_MAKER_1)
    assert [one.coordinate for one in locked] == [*jars.COORDINATES[jars.MIRROR_MAKER_1]]
    assert all(len(one.sha256) == 64 for one in locked)


def test_the_agent_is_locked() -> None:
    """The lock of the JMX exporter pins the jar that the coordinates name."""
    locked = jars.read_lock(jars.JMX)
    assert [jar.coordinate for jar in locked] == [*jars.COORDINATES[jars.JMX]]


@pytest.mark.parametrize("lock", jars.COORDINATES)
def test_no_lock_has_an_address(lock: str) -> None:
    """A lock pins jars, not where they come from."""
    assert "/" not in Path(jars.__file__).with_name(lock).read_text()


def test_what_is_missing_is_downloaded_and_kept(registry: Registry, tmp_path: Path) -> None:
    """All jars are returned in order; a second call requests nothing."""
    wanted = [jar(n) for n in range(20)]
    progress: list[tuple[int, int]] = []
    paths = jars.fetch(wanted, tmp_path, lambda *step: progress.append(step))
    assert [path.read_bytes() for path in paths] == [content(n) for n in range(20)]
    assert progress == [(n, 20) for n in range(1, 21)]
    registry.asked.clear()
    assert jars.fetch(wanted, tmp_path) == paths
    assert not registry.asked
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_a_broken_download_is_tried_again(registry: Registry, tmp_path: Path) -> None:
    """A broken connection and then a truncated file cost one attempt each."""
    wanted = jar(1)
    registry.broken[wanted.coordinate] = [ConnectionError("reset"), content(1)[:4]]
    (path,) = jars.fetch([wanted], tmp_path)
    assert path.read_bytes() == content(1)
    assert registry.asked[wanted.coordinate] == 3


def test_what_arrived_is_kept_when_another_cannot_be_had(
    registry: Registry, tmp_path: Path
) -> None:
    """One line names the jar and the reason; the next call requests only what is missing."""
    wanted = [jar(n) for n in range(5)]
    registry.broken[wanted[4].coordinate] = [ConnectionError("reset")] * jars.ATTEMPTS
    with pytest.raises(LabError, match=r"org.example:part-4:1.0 after 4 attempts: reset"):
        jars.fetch(wanted, tmp_path)
    # The last one's download begins after all others', and those are not cancelled.
    assert {path.name for path in tmp_path.iterdir()} == {one.file_name for one in wanted[:4]}
    registry.asked.clear()
    jars.fetch(wanted, tmp_path)
    assert registry.asked == {wanted[4].coordinate: 1}


def test_a_wrong_jar_is_never_taken(registry: Registry, tmp_path: Path) -> None:
    """A file with another checksum is refused, however often it is downloaded."""
    wanted = jar(1)
    registry.broken[wanted.coordinate] = [b"something else"] * jars.ATTEMPTS
    with pytest.raises(LabError, match="its checksum is wrong"):
        jars.fetch([wanted], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_jar_damaged_in_the_cache_is_had_anew(registry: Registry, tmp_path: Path) -> None:
    """A cached jar is used only if its checksum matches."""
    (path,) = jars.fetch([jar(1)], tmp_path)
    path.write_bytes(content(1)[:-1])
    (path,) = jars.fetch([jar(1)], tmp_path)
    assert path.read_bytes() == content(1)


def test_without_the_extra_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without cached jars and without jgo, the line names the extra."""
    monkeypatch.setattr("mirrortest.lab.jars.importlib.util.find_spec", lambda _: None)
    with pytest.raises(LabError, match=r"pip install 'mirrortest\[lab\]'"):
        jars.fetch([jar(1)], tmp_path)
