"""A user's mistake is reported at once, in one line that names it, with exit code 2."""

from __future__ import annotations

import contextlib
import functools
import logging
import shlex
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

from mirrortest.cli import main
from mirrortest.cli.interrupt import end_at_once
from mirrortest.cli.log_output import configure_logging
from mirrortest.cli.options import check_fillable, check_writable
from mirrortest.cli.spark import spark_session
from mirrortest.config.client_properties import JAVA_INT, JAVA_LONG, integer
from mirrortest.config.run_naming import checked_topic, checked_topics
from mirrortest.config.units import checked_heap, parse_duration
from mirrortest.errors import MirrortestError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typer.testing import Result

PRODUCE = "produce --bootstrap-server localhost:1 --topics t"
CONSUME = "consume --bootstrap-server localhost:1 --run r1 --topics t"
SABOTAGE = (
    "sabotage --source-bootstrap-server localhost:1 --destination-bootstrap-server localhost:1"
)
SYNTH = "synth --log-dir logs --run r2 --messages 100"


@functools.cache
def program(verb: str) -> typer.Typer:
    """A program with this verb alone: other verbs would be built for each call, too."""
    made = typer.Typer()
    made.callback()(lambda: None)
    main.add_verb(made, verb)
    return made


def invoke(line: str, **options: Any) -> Result:
    """Run a command line in this process; mirrortest's own errors are raised."""
    words = shlex.split(line)
    return CliRunner().invoke(program(words[0]), words, catch_exceptions=False, **options)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a file and a directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{PRODUCE} --topics 'a b'", "--topics 'a b'"),
        (f"{PRODUCE} --ledger-topic ''", "--ledger-topic ''"),
        (f"{PRODUCE} --id ''", "--id ''"),
        (f"{PRODUCE} --form body --use-message-headers", "--form body and --use-message-headers"),
        (f"{PRODUCE} --throughput 1e300", "--throughput '1e300': must be in"),
        (f"{PRODUCE} --throughput 1e-300", "--throughput '1e-300': must be in"),
        (f"{PRODUCE} --log-dir file", "--log-dir file: .*file is not a directory"),
        (
            f"{PRODUCE} --log-dir s3://b/c --log-spool file/x",
            "--log-spool file/x: .*not a directory",
        ),
        (f"{PRODUCE} --report directory", "that is a directory"),
        (f"{PRODUCE} --duration 999999999d", "longer than 292 years"),
        (f"{PRODUCE} --command-property session.timeout.ms=99999999999", "at most 2147483647"),
        (f"{CONSUME} --topics ..", r"--topics '\.\.'"),
        (f"{CONSUME} --topics mirrortest.ledger", "the ledger's topic"),
        (f"{CONSUME} --topics A.mirrortest.ledger --source-alias A", "the ledger's topic"),
        (f"{CONSUME} --topics mirrortest.state", "the states' topic"),
        (f"{CONSUME} --state-topic mirrortest.ledger", "--state-topic: .* the ledger's topic"),
        (f"{CONSUME} --state-topic 'a b'", "--state-topic 'a b'"),
        (f"{CONSUME} --expect-producers 'p1,p 2'", "--expect-producers 'p 2'"),
        (f"{CONSUME} --expect-producers ''", "--expect-producers names no producer"),
        (f"{CONSUME} --consumer-group ''", "--consumer-group is empty"),
        (f"{CONSUME} --shard ''", "INDEX/OF"),
        (f"{CONSUME} --log-dir file/x", "--log-dir file/x: .*file is not a directory"),
        (f"{CONSUME} --id ''", "--id '': a name is 1 to 64"),
        (f"{CONSUME} --duration 0", "--duration must be longer than 0"),
        (f"{CONSUME} --idle-timeout 0", "--idle-timeout must be longer than 0"),
        (f"{CONSUME} --report directory", "that is a directory"),
        (f"{CONSUME} --csv x --status-file ./x", "--status-file x: --csv has this name"),
        (f"{PRODUCE} --csv x --report x", "--report x: --csv has this name"),
        (f"{SABOTAGE} --report nowhere/x", "there is no directory nowhere"),
        (f"{SABOTAGE} --ledger-topic ''", "--ledger-topic ''"),
        (f"{SABOTAGE} --source-alias ''", "copied onto themselves"),
        ("reconcile ''", "LOGDIR is empty"),
        ("reconcile logs/run=r1/", "name the directory above it, .*logs, with --run r1"),
        ("reconcile logs --master foo", "--master 'foo'"),
        ("reconcile logs --master 'local[x]'", "--master"),
        ("reconcile logs --master 'local[0]'", "--master"),
        ("reconcile logs --driver-memory 2q", "--driver-memory '2q'"),
        ("reconcile logs --output file", "--output .*file is not a directory"),
        ("reconcile logs --output ''", "--output is empty: name a directory"),
        ("reconcile logs --html nowhere/r.html", "--html .*there is no directory"),
        ("reconcile logs --html directory", "--html .*that is a directory"),
        ("reconcile logs --look-up-limit 5", "--look-up-limit is for"),
        ("report logs --output directory", "--output .*that is a directory"),
        ("report logs --junit nowhere/r.xml", "--junit .*there is no directory"),
        ("salvage directory --log-dir logs --run NO", "--run 'NO'"),
        ("salvage directory --log-dir ''", "--log-dir is empty: name the --log-dir of the killed"),
        ("observe --name 'a b'", "--name 'a b': a name is"),
        ("calibrate --directory file/x", "--directory .*file is not a directory"),
        ("run demo --output file/x", "--output .*file is not a directory"),
        ("lab up --heap much", "--heap 'much'"),
        ("lab up --directory file/x", "--directory file/x: .*file is not a directory"),
        ("lab up --mirror saboteur --truth file/x", "--truth file/x: .*file is not a directory"),
        ("lab up --mirror saboteur --offset-flush-ms 5", "--offset-flush-ms is for"),
        ("lab up --mirror-command 'copy {source}'", "lacks {destination}"),
        ("lab up --mirror-command 'copy \"{source}'", "a quotation mark is missing"),
        ("lab up --mirror saboteur --mirror-command x", "--mirror and --mirror-command: use one"),
        (
            "lab up --mirror-command '{source} {destination}' --exactly-once",
            "--exactly-once is for --mirror mirrormaker2",
        ),
        ("lab up --runtime docker --links", "links are between processes, not containers"),
        ("lab fault delay link-source 5", "TIME '5'"),
        ("lab fault rate link-source 5MB/h", "RATE '5MB/h'"),
        ("lab up --kafka-image x", "--kafka-image is for --runtime docker"),
        ("lab up --runtime jvm --kafka-image x", "--kafka-image is for --runtime docker"),
        ("lab up --broker-property a", "--broker-property: write it as KEY=VALUE"),
        ("lab create-topic 'a b'", "TOPIC 'a b'"),
        ("lab create-topic a --config b", "--config: write it as KEY=VALUE"),
        (f"{SYNTH} --topics ''", "--topics: name at least one topic"),
        (f"{SYNTH} --topics a/b", "--topics 'a/b'"),
        (f"{SYNTH} --messages 1e99", "--messages '1e99'"),
        (f"{SYNTH} --lanes 9999999999", "--lanes '9999999999': must be at most 65,535"),
        (f"{SYNTH} --run-length {'9' * 23}", "--run-length '9*': must be at most"),
        (f"{SYNTH} --throughput 0", "--throughput '0'"),
        (f"{SYNTH} --log-dir file", "--log-dir file: .*file is not a directory"),
        (f"{SYNTH} --log-dir s3://bucket/logs", "must be a local directory, not a URI"),
    ],
)
def test_a_mistake_is_told_before_anything_begins(here: Path, line: str, message: str) -> None:
    """The command contacts no broker, starts no Java, and writes nothing."""
    if line.startswith("reconcile"):
        logs = "synth --log-dir logs --run r1 --messages 10 --lanes 1"
        assert invoke(logs).exit_code == 0
    before = sorted(here.rglob("*"))
    with pytest.raises(UsageError, match=message) as error:
        invoke(line)
    assert "\n" not in str(error.value)
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(
    "line",
    [
        "calibrate --seed -1",
        "calibrate --again nowhere",
        "calibrate --directory file",
        "run demo --output file",
    ],
)
def test_a_mistake_that_the_parser_finds(here: Path, line: str) -> None:
    """Its error names the option; nothing begins."""
    result = invoke(line)
    assert result.exit_code == 2
    assert next(word for word in line.split() if word.startswith("--")) in result.output


def test_logs_that_cannot_be_written_are_an_error_in_one_line(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the operating system's reason, which no check beforehand could predict."""

    def refused(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mirrortest.selftest.synthesis.synthesize", refused)
    with pytest.raises(MirrortestError, match="--log-dir logs: No space left on device"):
        invoke(SYNTH)


def test_the_ledgers_topic_is_the_same_variable_on_both_sides() -> None:
    """One environment must not give producers and consumers different ledgers."""
    for line in (PRODUCE, CONSUME):
        with pytest.raises(UsageError, match="--ledger-topic 'no topic'"):
            invoke(line, env={"MIRRORTEST_LEDGER_TOPIC": "no topic"})


@pytest.mark.parametrize(
    "line",
    [
        "lab up --heap much",
        "lab up --runtime docker --kafka-image x --heap much",
        f"{PRODUCE} --use-message-headers --throughput -3",
        f"{PRODUCE} --form headers --use-message-headers --throughput -3",
    ],
)
def test_what_the_environment_says_contradicts_nothing(line: str) -> None:
    """It is set for other calls as well, so it is no conflict; the next mistake is reported."""
    environment = {"MIRRORTEST_KAFKA_IMAGE": "x", "MIRRORTEST_FORM": "body"}
    with pytest.raises(UsageError, match=r"--heap 'much'|--throughput '-3': cannot be"):
        invoke(line, env=environment)


def test_places_are_looked_at_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Usable ones pass, new or to be replaced; unwritable ones are refused."""
    (tmp_path / "old").touch()
    check_writable(tmp_path / "old", "--report")
    check_writable(tmp_path / "new", "--report")
    check_fillable(tmp_path, "--output")
    check_fillable(tmp_path / "a" / "b", "--output")
    monkeypatch.setattr("os.access", lambda path, _: path != tmp_path)
    check_writable(tmp_path / "old", "--csv", replaced=False)
    with pytest.raises(UsageError, match="you may not create files in"):
        check_writable(tmp_path / "old", "--report")  # it failed at the end of the run
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(UsageError, match="you may not write"):
        check_writable(tmp_path / "new", "--report")
    with pytest.raises(UsageError, match="you may not write"):
        check_fillable(tmp_path / "a", "--output")


def test_who_interrupts_a_librarys_call_gets_no_trace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Py4J logs its own interrupt as an error, with a traceback: only other errors are shown."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger("aiokafka"), "level", logging.NOTSET)
    configure_logging()
    reentrant = ConnectionError("a network error")
    reentrant.__context__ = RuntimeError("reentrant call inside <_io.BufferedReader name=3>")
    for error in (KeyboardInterrupt(), reentrant, OSError("told")):
        try:
            raise error
        except (KeyboardInterrupt, OSError):
            logging.exception("while sending a command")  # noqa: LOG015  # as Py4J does
    shown = capsys.readouterr().err
    assert "KeyboardInterrupt" not in shown
    assert "reentrant" not in shown
    assert "OSError: told" in shown
    assert not sys.exc_info()[0]


def test_an_interrupt_puts_spark_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does so even if a library replaced the handler; a second one ends the process."""
    before = signal.getsignal(signal.SIGINT)
    put_away = []

    @contextlib.contextmanager
    def session(*_: object) -> Iterator[None]:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            yield
        finally:
            put_away.append(signal.getsignal(signal.SIGINT))

    monkeypatch.setattr("mirrortest.reconcile.spark_session.spark_session", session)
    with pytest.raises(KeyboardInterrupt), spark_session():
        signal.raise_signal(signal.SIGINT)
    assert put_away == [end_at_once]
    assert signal.getsignal(signal.SIGINT) is before


def test_what_spark_fails_with_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user does not see a Spark worker's traceback; other errors are left as they are."""

    class PythonException(Exception):  # noqa: N818  # PySpark's name for it
        __module__ = "pyspark.errors.exceptions.captured"

    given = "mirrortest.reconcile.spark_session.spark_session"
    monkeypatch.setattr(given, lambda *_: contextlib.nullcontext())
    trace = (
        "An exception was thrown from Python:\nTraceback ...\nIndexError: 7 is out of bounds\n\n"
    )
    message = r"Spark failed: IndexError: 7 is out of bounds; to see Spark"
    with pytest.raises(MirrortestError, match=message), spark_session():
        raise PythonException(trace)
    with pytest.raises(ZeroDivisionError), spark_session():
        raise ZeroDivisionError


def test_an_error_of_spark_is_asked_for_its_text_while_java_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PySpark's errors get their text from Java: without Java that would end in a traceback."""
    runs = []

    @contextlib.contextmanager
    def session(*_: object) -> Iterator[None]:
        runs.append(True)
        try:
            yield
        finally:
            runs.clear()

    class CapturedException(Exception):  # noqa: N818  # PySpark's name for it
        __module__ = "pyspark.errors.exceptions.captured"

        def __str__(self) -> str:
            assert runs
            return "ArrowInvalid: it overflowed"

    monkeypatch.setattr("mirrortest.reconcile.spark_session.spark_session", session)
    message = "Spark failed: ArrowInvalid: it overflowed; to see"
    with pytest.raises(MirrortestError, match=message), spark_session():
        raise CapturedException


def test_a_spark_that_does_not_start_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java, which has the error's text, has ended by then: asking it ended in a traceback."""

    class Py4JJavaError(Exception):
        __module__ = "py4j.protocol"

        def __str__(self) -> str:
            raise ConnectionRefusedError

    @contextlib.contextmanager
    def session(*_: object) -> Iterator[None]:
        raise Py4JJavaError
        yield

    monkeypatch.setattr("mirrortest.reconcile.spark_session.spark_session", session)
    message = "Spark failed: the lines of its log above have the reason; to see"
    with pytest.raises(MirrortestError, match=message), spark_session():
        pass


def test_what_numbers_and_names_may_be() -> None:
    """Values at the bounds are allowed, those beyond are refused."""
    assert parse_duration(f"{(1 << 63) - 1}ns", option="--x") == (1 << 63) - 1
    assert integer()(str(JAVA_INT)) == JAVA_INT
    assert integer(0, JAVA_LONG)("999999999999") == 999_999_999_999
    with pytest.raises(ValueError, match="at most"):
        integer()(str(JAVA_INT + 1))
    assert checked_topic("a" * 249, option="--x") == "a" * 249
    assert checked_topics(" a ,b.C_d-1", option="--x") == ("a", "b.C_d-1")
    assert checked_topics("load[9-11],x", option="--x") == ("load9", "load10", "load11", "x")
    assert checked_topics("A.load[08-10].eu", option="--x") == (
        "A.load08.eu", "A.load09.eu", "A.load10.eu",
    )  # fmt: skip
    for wrong in ("load[2-1]", "load[0-10000]"):
        with pytest.raises(UsageError, match="a range goes upwards and has at most 10,000 topics"):
            checked_topics(wrong, option="--x")
    for wrong in ("load[1]", "load[1-2][1-2]", "load[a-b]", "load[-1-2]"):
        with pytest.raises(UsageError, match="a topic's name is"):
            checked_topics(wrong, option="--x")
    for wrong in ("a" * 250, "", ".", "..", "a\n", "ä"):
        with pytest.raises(UsageError, match="a topic's name is"):
            checked_topic(wrong, option="--x")
    for heap in ("2g", "512M", "1T", "1073741824"):
        assert checked_heap(heap, option="--heap") == heap
    with pytest.raises(UsageError, match="--heap '4': that is in bytes; did you mean 4g"):
        checked_heap("4", option="--heap")
    for heap in ("", "0", "-1g", "2gb", "2 g"):
        with pytest.raises(UsageError, match="--heap"):
            checked_heap(heap, option="--heap")
