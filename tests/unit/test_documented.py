"""Commands of the documents that need no cluster and no Spark, run as they are written there."""

from __future__ import annotations

import http.server
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from pyarrow import fs

from mirrortest.cli import main
from mirrortest.model.observed import HOST
from mirrortest.seqlog import rows
from mirrortest.seqlog.batches import batch_of
from mirrortest.seqlog.files import find_sessions
from mirrortest.seqlog.journal import JournalWriter
from mirrortest.seqlog.location import Location
from mirrortest.seqlog.options import Role
from mirrortest.seqlog.session import Session
from mirrortest.seqlog.session_directory import SessionDirectory
from tests import documented
from tests.compared import produced, write
from tests.lifetime import end_with_parent
from tests.made_observation import at, write_observation
from tests.made_result import RUN, Made
from tests.unit.test_produce_trogdor import PRODUCE_BENCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.documented import Shown

HERE = Path(__file__).parent
JUDGED = {0, 3, 99}
"""Exit codes of a command that did its work, whatever the verdict."""


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run in an empty directory, without options from the environment."""
    for name in [name for name in os.environ if name.startswith("MIRRORTEST_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command in this process, and check that it wrote the files that it names."""

    def run(
        shown: Shown, *more: str, places: Mapping[str, str] | None = None, codes: Any = (0,)
    ) -> str:
        words = documented.adapted(shown.words, places) if places else list(shown.words)
        monkeypatch.setattr(sys, "argv", ["mirrortest", *words, *more])
        with pytest.raises(SystemExit) as ended:
            main.run()
        printed = capfd.readouterr()
        assert ended.value.code in codes, printed.err
        for option, value in itertools.pairwise(words):
            if option in {"--html", "--output", "--junit"}:
                assert Path(value).exists(), option
        return printed.out

    return run


@pytest.mark.parametrize("shown", documented.commands("report", but="--png"), ids=str)
def test_reports(
    shown: Shown, run: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports of a result, of two sides' logs, and with observations; --open opens the page."""
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    for folder in ("mirrortest-logs", "logs-dc1"):
        Made(minutes=1, topics=("orders",)).write(tmp_path / folder)
    (tmp_path / "logs-dc2" / f"run={RUN}").mkdir(parents=True)
    for folder in ("observations-dc1", "observations-dc2"):
        write_observation(tmp_path / folder, {HOST: [at(0, 1, cpu_ratio=0.5)]})
    page = Path(run(shown, places={"n20261127": RUN, "ci123": RUN}).split()[0])
    assert page.read_text().startswith("<!doctype html>")
    assert len(opened) == ("--open" in shown.words)


@pytest.mark.parametrize("shown", documented.commands("compare"), ids=str)
def test_comparisons(shown: Shown, run: Callable[..., str], tmp_path: Path) -> None:
    """Comparisons of two directories with repeats, of two summaries, of a history."""
    for side, slow in (("before", 1.0), ("after", 1.2), ("nightly", 1.0)):
        for repeat in range(1, 5):
            document = produced(f"{side}{repeat}", p99=slow + repeat / 100)
            document["session"] = f"20260101T0{repeat}0000Z-1"
            write(tmp_path / side / str(repeat) / "produce.json", document)
    for day in ("monday", "tuesday"):
        write(tmp_path / f"{day}.json", produced(day))
    assert run(shown, codes=JUDGED)


@pytest.mark.parametrize("shown", documented.commands("import trogdor"), ids=str)
def test_imports(shown: Shown, run: Callable[..., str], tmp_path: Path) -> None:
    """A Trogdor specification becomes a workload."""
    (tmp_path / "bench.json").write_text(json.dumps(PRODUCE_BENCH))
    run(shown)


@pytest.mark.parametrize("shown", documented.commands("scenarios"), ids=str)
def test_scenarios_are_listed_and_shown(shown: Shown, run: Callable[..., str]) -> None:
    """All are listed by name; one is shown as its file."""
    assert ("[[produce]]" if shown.words[1:] else "demo") in run(shown)


@pytest.mark.parametrize("shown", documented.commands("synth"), ids=str)
def test_synthetic_logs(shown: Shown, run: Callable[..., str], tmp_path: Path) -> None:
    """With far fewer messages, each command writes logs."""
    smaller = {"1e9": "1e4", "1e8": "1e4", "1000": "10"}
    if "--lost" in shown.words:
        smaller["1e8"] = "1e3"
    run(shown, places=smaller)
    assert list(tmp_path.glob("logs/run=*/role=*"))


@pytest.mark.parametrize("shown", documented.commands("salvage"), ids=str)
def test_salvages(
    shown: Shown, run: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that a killed session left are uploaded, here to an object store in memory."""
    store = Location(fs._MockFileSystem(), "bucket/logs")
    found = Location.parse
    monkeypatch.setattr(
        Location, "parse", lambda text: store if text == "s3://bucket/logs" else found(text)
    )
    about = Session(run="n20261127", role=Role.CONSUMER, name="c", session="s", started_ns=1)
    spool = SessionDirectory.create(store, about, tmp_path / "mirrortest-spool")
    writer = JournalWriter(spool.path / "000001.journal")
    writer.append([batch_of([rows.read("t", 0, 0, 1)])])
    writer.close()
    spool.release()
    run(shown, places={"/spool": "mirrortest-spool"})
    assert not list((tmp_path / "mirrortest-spool").iterdir())
    (session,) = find_sessions(store)
    assert [each.rows for each in session.session.files] == [1]


@pytest.fixture
def metrics() -> Iterator[str]:
    """The address of a server with a broker's metrics."""

    class Scraped(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the library's name
            self.send_response(200)
            self.end_headers()
            self.wfile.write((HERE / "scrapes/broker.txt").read_bytes())

        def log_message(self, *_: object) -> None:
            """Log no requests."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Scraped) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
        server.shutdown()


@pytest.fixture
def broker() -> Iterator[int]:
    """The pid of a process with a broker's name."""
    command = [sys.executable, "-c", "input()", "kafka.Kafka", "config/A1.properties"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=end_with_parent,  # noqa: PLW1509  # it only makes a system call
    ) as process:  # fmt: skip
        yield process.pid
        process.kill()


@pytest.mark.parametrize("shown", documented.commands("observe", but="--bootstrap-server"), ids=str)
def test_observations(
    shown: Shown, run: Callable[..., str], tmp_path: Path, metrics: str, broker: int
) -> None:
    """Observations of processes, logs, endpoints and files, for some tenths of a second."""
    for name in ("gc.log", "A1-gc.log"):
        shutil.copy(HERE / "gc_logs/g1-25.log", tmp_path / name)
    (tmp_path / "server.log").write_text("[2026-01-01 00:00:00,000] ERROR no (kafka.x)\n")
    (tmp_path / "server.properties").write_text("node.id=1\n")
    hosts = ("broker-1", "mirror", "localhost", "mm2")
    places = {f"http://{host}:9404/metrics": metrics for host in hosts}
    places |= {f"/var/log/kafka/{name}": name for name in ("gc.log", "server.log")}
    places |= {"4711": str(broker), "4712": str(os.getpid())}
    short = () if "--once" in shown.words else ("--interval", "100ms", "--duration", "250ms")
    observed = json.loads(run(shown, *short, "--json", places=places))
    assert observed["intervals"] or "--once" in shown.words


@pytest.mark.parametrize("shell", ["bash", "sh"])
@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ({}, 0),
        ({"reconcile": 99}, 99),
        ({"consume": 3, "produce": 1}, 3),
        ({"produce": 1}, 1),
        ({"reconcile": 99, "consume": 3, "produce": 1, "report": 1}, 99),
        ({"report": 1}, 1),
    ],
)
def test_the_pipelines_recipe_fails_for_what_failed_and_always_reports(
    tmp_path: Path, shell: str, codes: dict[str, int], code: int
) -> None:
    """A shell runs the block of docs/how-to/ci.md with -e, and a stub instead of `mirrortest`."""
    page = (documented.ROOT / "docs/how-to/ci.md").read_text()
    (recipe,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    programs = tmp_path / "bin"
    programs.mkdir()
    stub = programs / "mirrortest"
    ends = "".join(f"{verb}) exit {number};; " for verb, number in codes.items())
    stub.write_text(f'#!/bin/sh\necho "$1" >> "{tmp_path}/called"\ncase "$1" in {ends}esac\n')
    stub.chmod(0o755)
    done = subprocess.run(
        [shell, "-e", "-c", recipe],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    called = (tmp_path / "called").read_text().split()
    assert sorted(called) == ["consume", "produce", "reconcile", "report"]
    assert called[-2:] == ["reconcile", "report"]


def test_modules_are_run(tmp_path: Path) -> None:
    """Each `python -m` command of the documents runs, and writes to its --output."""
    found = [words for _, words in documented.unmarked() if words[0] == "python"]
    assert found
    for _, *words in found:
        done = subprocess.run(
            [sys.executable, *words],
            env={**os.environ, "PYTHONPATH": str(documented.ROOT)},
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        output = tmp_path / words[words.index("--output") + 1]
        assert all(map(yaml.safe_load, (path.read_text() for path in output.rglob("*.y*ml"))))
        assert re.search("https://grafana.example", "".join(
            path.read_text() for path in output.rglob("*.y*ml")))  # fmt: skip
