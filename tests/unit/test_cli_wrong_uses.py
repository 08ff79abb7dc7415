"""What a user mistypes gives one line that says what to do, an exit code, and no wait."""

from __future__ import annotations

import re
import shlex
import sys
from typing import TYPE_CHECKING

import pytest

from mirrortest.cli import main
from mirrortest.errors import JavaMissingError
from mirrortest.host.java import find_java
from mirrortest.wire.form import Form
from mirrortest.wire.message import value_size

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Use = Callable[[str], tuple[object, str]]

PRODUCE = "produce --bootstrap-server localhost:1 --topics t"
OBSERVE = "observe --once --gc-log typo --output o"
CONSUME = "consume --bootstrap-server localhost:1 --run r1 --topics t"
REFUSED = "no Kafka broker answers at localhost:1: connection refused"
"""How a correct use ends: nothing listens at that address."""

USES = [
    # (command line, exit code, the line that it prints)
    (f"{PRODUCE} --throughput 5k", 1, REFUSED),
    (f"{PRODUCE} --throughput fast", 2, "--throughput 'fast': must be a number, for example 500"),
    (f"{PRODUCE} --throughput -3", 2, "--throughput '-3': cannot be negative; -1 is unlimited"),
    (f"{PRODUCE} --throughput 'gaussian(500, 50, every=10s)' --seed 7", 1, REFUSED),
    (f"{PRODUCE} --throughput 'rmap(0, 5, 1m)'", 2, "no shape 'rmap': did you mean ramp?"),
    (f"{PRODUCE} --throughput ramp", 2, "--throughput 'ramp' needs arguments: ramp(FROM, TO, DUR"),
    (f"{PRODUCE} --command-config /none", 2, "--command-config /none: there is no such file"),
    (f"{CONSUME} --ledger-command-config /none", 2, "--ledger-command-config /none: there is no"),
    (
        "doctor --destination-bootstrap-server localhost:1 --destination-command-config /none",
        2,
        "--destination-command-config /none: there is no such file",
    ),
    ("report /none", 2, "RESULT /none: there is no such directory"),
    (f"{PRODUCE} --throughput 'replay(/none.csv)'", 2, "replay(/none.csv): there is no such file"),
    (f"{PRODUCE} --message-size 'file(/none)'", 2, "file(/none): there is no such file"),
    (f"{PRODUCE} --payload-file /none", 2, "the messages' ids must be in headers: add --form hea"),
    (f"{PRODUCE} --payload-file /none --form headers", 2, "/none: there is no such file"),
    (f"{PRODUCE} --payload-delimiter '\\|'", 2, "write the text between two payloads"),
    (f"{PRODUCE} --throughput 10 --duration 5s --warmup-records 50", 2, "of the 50 messages that"),
    (f"{PRODUCE} --workers 4 --num-records 10 --warmup-records 9", 1, REFUSED),
    (f"{PRODUCE} --workers 4 --num-records 3", 2, "--workers 4: --num-records 3 must be at least"),
    (f"{PRODUCE} --batch-messages 'gaussian(16, 4)' --start-at +1s", 1, REFUSED),
    (f"{PRODUCE} --message-size 'choice(100:0.9, 10kB:0.1)'", 1, REFUSED),
    (f"{PRODUCE} --message-size 'uniform(1, 17MiB)'", 2, "--message-size must be at most 16MiB"),
    (f"{PRODUCE} --message-size 'unifrom(1, 2)'", 2, "did you mean uniform?"),
    (f"{PRODUCE} --create-topics --topic-config segment.ms", 2, "write KEY=VALUE, for example"),
    (f"{PRODUCE} --topic-config a=b", 2, "describe new topics: add --create-topics"),
    (f"{PRODUCE} --batch-messages 0", 2, "--batch-messages '0': must be at least 1"),
    (f"{PRODUCE} --batch-messages 'uniform(1, 2)'", 2, "no shape 'uniform': use gaussian"),
    (f"{PRODUCE} --start-at 2026-01-31T08:00:00", 2, "write a time with its offset, for example"),
    (f"{PRODUCE} --start-at 2026-01-31T08:00:00Z", 1, REFUSED),
    (f"{PRODUCE} --start-at +5", 2, "did you mean 5s?"),
    (f"{PRODUCE} --num-records 1e6", 1, REFUSED),
    (f"{PRODUCE} --num-records 10k --warmup-records 1k", 1, REFUSED),
    (f"{PRODUCE} --num-records 1.5", 2, "--num-records '1.5': must be a whole number"),
    (f"{PRODUCE} --num-records many", 2, "--num-records 'many': must be a number, for example 500"),
    (f"{PRODUCE} --compression zip", 2, "--compression 'zip': did you mean gzip?"),
    (f"{PRODUCE} --compression none", 1, REFUSED),
    (f"{PRODUCE} --form bdy", 2, "--form 'bdy': did you mean body?"),
    (f"{PRODUCE} --log-detail all", 2, "--log-detail 'all': use intervals or messages"),
    (f"{PRODUCE} --metrics-port 70000", 2, "--metrics-port '70000': must be at most 65,535"),
    (f"{CONSUME} --hide-header", 2, "kafka-consumer-perf-test's lines: add --format kafka"),
    (f"{CONSUME} --show-detailed-stats", 2, "lines: add --format kafka"),
    (f"{CONSUME} --format kafka --show-detailed-stats --hide-header", 1, REFUSED),
    (f"{PRODUCE} --workers 0", 2, "--workers '0': must be at least 1"),
    (f"{PRODUCE} --duration -5s", 2, "--duration '-5s': a duration cannot be negative"),
    (f"{PRODUCE} --duration 5", 2, "(ns, us, ms, s, m, h, d); did you mean 5s?"),
    (f"{PRODUCE} --retention 500us", 2, "--retention '500us': finer than a millisecond"),
    (f"{PRODUCE} --message-size 30MB", 2, "--message-size must be at most 16MiB"),
    (f"{PRODUCE} --log-dir ''", 2, "--log-dir is empty: name a directory, or leave it out"),
    (f"{PRODUCE} --log-dir file:///dev/null/x", 2, "/dev/null is not a directory"),
    (f"{PRODUCE} --topics 'orders,'", 2, "--topics 'orders,': a name is missing before or after"),
    (f"{PRODUCE} clicks", 2, "unexpected argument clicks: lists are written with commas"),
    (f"{PRODUCE} --througput 5", 2, "there is no option --througput; did you mean --throughput?"),
    ("produce --broker-list localhost:1 --topic t", 1, REFUSED),
    ("produce --bootstrap-server localhost --topics t", 2, "localhost has no port; use HOST:PORT"),
    ("produce --bootstrap-server nosuchhost.invalid:9092 --topics t", 1, "cannot be resolved"),
    ("consume --bootstrap-server localhost:1 --run r1 --topic t --group g", 1, REFUSED),
    (f"{CONSUME} --threshold losst==0", 2, "there is no metric 'losst': did you mean lost?"),
    (f"{CONSUME} --threshold 'p99<2s'", 2, "there is no metric 'p99': did you mean p(99)?"),
    (f"{CONSUME} --threshold 'sentlatency.max<2s'", 2, "did you mean sent_latency?"),
    (f"{CONSUME} --topic-map x=y", 2, "--topic-map x=y: 'x' is not read: add it to --topics"),
    (f"{CONSUME} --topics A.orders --topic-map A.order=o", 2, "did you mean A.orders=o?"),
    (f"{CONSUME} --topic-map L=mirrortest.ledger", 1, REFUSED),
    (f"{CONSUME} --run nightly-2025-11-24", 2, "letters and digits; did you mean nightly20251124?"),
    (f"{CONSUME} --run {'R' * 400}", 2, f"--run '{'R' * 80}...': a run's id is"),
    (f"{CONSUME} --use-message-headers --role sorce", 2, "--role 'sorce': did you mean source?"),
    (f"{CONSUME} --role sorce", 2, "--role 'sorce': did you mean source?"),
    (f"{CONSUME} --until complet", 2, "--until 'complet': did you mean complete?"),
    ("reconcile nosuchdir", 2, "LOGDIR nosuchdir: there is no such directory"),
    ("reconcile afile", 2, "LOGDIR afile: not a directory: name the directory of the logs"),
    ("report afile", 2, "RESULT afile: not a directory: name the directory of the reconciliation"),
    ("report --log-dir nosuchdir", 2, "--log-dir nosuchdir: there is no such directory"),
    ("report --png", 2, "option '--png' requires an argument (see mirrortest report --help)"),
    ("observe --command-property acks=1", 2, "no cluster is given: use --bootstrap-server"),
    ("observe --name a/b", 2, "--name 'a/b': a name is 1 to 64 letters"),
    ("consme", 2, "did you mean 'consume', 'compare'?"),
    ("recncile", 2, "did you mean 'reconcile'?"),
]


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Use:
    """Run a command line in the test's directory: its exit code, and what it prints on stderr."""
    monkeypatch.chdir(tmp_path)

    def used(line: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["mirrortest", *shlex.split(line)])
        with pytest.raises(SystemExit) as ended:
            main.run()
        return ended.value.code, capfd.readouterr().err

    return used


@pytest.mark.timeout(20)  # however busy the machine is: no use waits for anything
@pytest.mark.parametrize(("line", "code", "printed"), USES, ids=[use[0][:60] for use in USES])
def test_a_wrong_use_gets_one_line_and_an_exit_code(
    tmp_path: Path, use: Use, line: str, code: int, printed: str
) -> None:
    """The line is the last one; there is no traceback, no box and no library's wording."""
    (tmp_path / "afile").touch()
    ended, shown = use(line)
    assert ended == code, shown
    last = shown.splitlines()[-1]
    assert last.startswith("error: "), shown
    assert printed.lower() in last.lower()
    assert not any(each in shown for each in ("Traceback", "Errno", "╭", "Usage:"))


@pytest.mark.parametrize(
    "line",
    [
        f"{CONSUME} --command-config typo",
        f"{CONSUME} --ledger-bootstrap-server localhost:1 --ledger-command-config typo",
        f"{CONSUME} --ledger-bootstrap-server localhost:1 --command-config typo",
        f"{OBSERVE} --command-config typo --bootstrap-server a:1 --bootstrap-server b:1",
        "doctor --topics t --source-command-config typo --destination-command-config typo",
    ],
)
def test_a_misspelt_client_property_is_reported_once_whichever_cluster_it_is_for(
    tmp_path: Path, use: Use, line: str
) -> None:
    (tmp_path / "typo").write_text("bootstrap.servers=localhost:1\nrequest.timeout.mss=1000")
    _, shown = use(line)
    warning = "warning: client property request.timeout.mss is unknown; did you mean"
    assert shown.count(warning) == 1, shown


def test_java_home_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another installed Java is not used, as the user did not ask for it."""
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    with pytest.raises(JavaMissingError, match=r"JAVA_HOME=/nonexistent: .* or unset it"):
        find_java("Spark", "x")


@pytest.mark.parametrize(
    ("options", "noticed"),
    [
        ("--message-size 10", True),
        ("--message-size 'uniform(10, 1000)'", True),
        ("--message-size 10 --form headers", False),
        ("--message-size 100", False),
    ],
)
def test_messages_too_small_for_their_proof_are_reported_before_the_first(
    use: Use,
    options: str,
    noticed: bool,  # a column of the table
) -> None:
    """The warning names the least size with room for it, and messages of that size have it."""
    _, shown = use(f"{PRODUCE} --id p --run r {options}")
    found = re.search(r"less than (\d+) bytes .* --form headers", shown)
    assert (found is not None) == noticed
    if found is not None:
        least = int(found[1])
        assert value_size(len(b"p@r.1"), Form.BODY, least) == (least, 0)
        assert value_size(len(b"p@r.1"), Form.BODY, least - 1)[1] is None
