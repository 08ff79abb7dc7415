"""Shared by commands: groups of options, and checks of files and directories."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, TypeAlias

import typer

from mirrortest.config.client_config import ClientConfig
from mirrortest.config.option import SECONDS, Kind, option
from mirrortest.config.run_naming import TopicMapping
from mirrortest.config.units import parse_positive_seconds
from mirrortest.errors import UsageError
from mirrortest.host.user_files import local_log_place, nearest_existing, read_properties

MOST_WORKERS = 1024
"""More processes than any machine has cores."""

PORTABLE = (
    "Use only aiokafka's public API, for a version that mirrortest does not support: ten times the "
    "CPU, the same verdict; a message sent without an answer is never counted as failed."
)

_HOST_CHARACTERS = 40
"""Characters used of a host's name (at most 63): a name has at most 64, and workers add to it.

The last ones: names of pods differ at their ends.
"""


def machine_name() -> str:
    """This machine's name, in the characters that our names allow."""
    host = re.sub(r"[^A-Za-z0-9_-]", "-", os.uname().nodename.partition(".")[0])
    return host[-_HOST_CHARACTERS:].lstrip("-_") or "host"


def named_after_host(what: str = "") -> str:
    """A default name: this machine's name and the process id."""
    return f"{what}{machine_name()}-{os.getpid()}"


def given(context: typer.Context, name: str) -> bool:
    """Whether a parameter is on the command line, not from a default or the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def check_file_name(path: Path, option: str) -> None:
    """Refuse a directory, and a file in a directory that does not exist."""
    if path.is_dir():
        raise UsageError(f"{option} {path}: that is a directory: name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no directory {path.parent}")


def check_writable(path: Path, option: str, *, replaced: bool = True) -> None:
    """Refuse a file that cannot be written, before the work instead of after it.

    A file that is `replaced` as a whole needs a directory in which a new one can be created.
    """
    check_file_name(path, option)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"{option} {path}: you may not write there")
    in_place = path.is_symlink() or (path.exists() and not path.is_file())
    if replaced and not in_place and not os.access(path.parent, os.W_OK):
        raise UsageError(f"{option} {path}: you may not create files in {path.parent}")


def check_distinct(files: Mapping[str, Path | None]) -> None:
    """Refuse one file for two options: one would replace what the other one wrote."""
    option_of: dict[Path, str] = {}
    for name, path in files.items():
        if path is not None and (other := option_of.setdefault(path.resolve(), name)) != name:
            raise UsageError(f"{name} {path}: {other} has this name: give another")


def check_not_empty(text: str, option: str) -> None:
    """Refuse an empty name of a directory, as of an unset variable: it would mean this one."""
    if not text.strip():
        raise UsageError(f"{option} is empty: name a directory, or leave it out")


def check_fillable(directory: Path, option: str) -> None:
    """Refuse a directory that cannot be created or written to, before the work."""
    found = nearest_existing(directory)
    if not found.is_dir():
        raise UsageError(f"{option} {directory}: {found} is not a directory")
    if not os.access(found, os.W_OK):
        raise UsageError(f"{option} {directory}: you may not write to {found}")
    try:
        # Only a write shows that a file system is read-only or full.
        with tempfile.TemporaryDirectory(dir=found):
            pass
    except OSError as error:
        raise UsageError(f"{option} {directory}: cannot be written to: {error.strerror}") from error


def check_directory(text: str, option: str, of: str = "logs") -> None:
    """Refuse a local directory that does not exist; a URI is checked later."""
    from mirrortest.seqlog.location import Location

    place = Location.parse(text)
    if not place.local or Path(place.path).is_dir():
        return
    if Path(place.path).exists():
        raise UsageError(f"{option} {text}: not a directory: name the directory of the {of}")
    raise UsageError(f"{option} {text}: there is no such directory")


def check_log_places(log_dir: str, log_spool: str) -> None:
    """Refuse local directories that logs cannot be written to, before connecting to a broker."""
    for name, place in (("--log-dir", log_dir), ("--log-spool", log_spool)):
        check_not_empty(place, name)
    option, directory = local_log_place(log_dir, log_spool)
    check_fillable(directory, option)


def begin_csv_file(path: Path | None) -> None:
    """Start a new file for `--csv`, before connecting to a broker."""
    if path is None:
        return
    from mirrortest.seqlog.interval_log import begin_csv

    check_writable(path, "--csv", replaced=False)
    begin_csv(path)


def file_to_write(text: str, *, option: str) -> Path:
    """Parse a path, and refuse a file that cannot be written."""
    check_writable(Path(text), option)
    return Path(text)


@dataclass(frozen=True, kw_only=True)
class Connection:
    """How to connect to a cluster, apart from its address."""

    command_config: Path | None = option(
        None, "Kafka client properties, as Kafka's own tools take them.", env=True
    )
    command_property: list[str] | None = option(
        None, "One client property; wins over the file.", metavar="KEY=VAL"
    )
    portable: bool = option(False, PORTABLE, env=True)
    config_option: str = "--command-config"
    """The option that names the file."""

    @property
    def given(self) -> bool:
        """Whether there are any properties."""
        return self.command_config is not None or bool(self.command_property)

    def client(
        self,
        bootstrap_server: str | None,
        *,
        more_properties: Iterable[str] = (),
        defaults: Mapping[str, str] = MappingProxyType({}),
    ) -> ClientConfig:
        """The client's configuration.

        Raises:
            UsageError: a property is unknown, or has a wrong value.
        """
        file = self.command_config
        return ClientConfig.load(
            bootstrap_server=bootstrap_server,
            file_properties=read_properties(file, f"{self.config_option} {file}") if file else None,
            command_properties=(*(self.command_property or ()), *more_properties),
            defaults=defaults,
            portable=self.portable,
        )


@dataclass(frozen=True, kw_only=True)
class MirrorNames:
    """How the mirror names its copies."""

    source_alias: str | None = option(
        None,
        "The mirror's name for the source: its copies are called ALIAS.topic. By default "
        "that of the ledger's copy; --source-alias '' if the mirror keeps names (an empty "
        "variable counts as not given).",
        env=True,
    )
    separator: str = option(".", "What is between alias and topic.")
    topic_map: list[str] | None = option(
        None, "A topic that is renamed otherwise.", metavar="DEST=SOURCE"
    )

    @property
    def given(self) -> bool:
        """Whether the user gave --source-alias or --topic-map."""
        return self.source_alias is not None or bool(self.topic_map)

    def mapping(self) -> TopicMapping:
        """The mapping between the topics of source and destination."""
        return TopicMapping.parse(
            source_alias=self.source_alias or "",
            separator=self.separator,
            topic_map=tuple(self.topic_map or ()),
        )


@dataclass(frozen=True, kw_only=True)
class BothClusters:
    """How to connect to the clusters on both sides of a mirror."""

    source_bootstrap_server: str | None = option(None, "The source's brokers, HOST:PORT[,...].")
    destination_bootstrap_server: str | None = option(
        None, "The destination's brokers, HOST:PORT[,...]."
    )
    source_command_config: Path | None = option(None, "Client properties for the source's brokers.")
    destination_command_config: Path | None = option(
        None, "Client properties for the destination's brokers."
    )
    command_property: list[str] | None = option(
        None, "One client property, for both clusters.", metavar="KEY=VAL"
    )

    def clients(
        self, defaults: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, ClientConfig | None]:
        """The client configuration of each side (source, destination); None: it is not given."""
        return {
            side: None
            if server is None and file is None
            else Connection(
                command_config=file,
                command_property=self.command_property,
                config_option=f"--{side}-command-config",
            ).client(server, defaults=defaults)
            for side, server, file in (
                ("source", self.source_bootstrap_server, self.source_command_config),
                ("destination", self.destination_bootstrap_server, self.destination_command_config),
            )
        }


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where a command's summary goes."""

    report: Path | None = option(
        None, "Also write the JSON summary to this file.", kind=Kind(file_to_write, metavar="FILE")
    )
    as_json: bool = option(False, "Print the summary as JSON on stdout.", name="--json")


class ResultFormat(StrEnum):
    """How a result is printed on stdout."""

    TEXT = "text"
    KAFKA = "kafka"


@dataclass(frozen=True, kw_only=True)
class LoadOutput(Output):
    """Where the summary of a load goes, and in which format."""

    format: ResultFormat = option(
        ResultFormat.TEXT,
        "kafka: print what kafka-producer-perf-test or kafka-consumer-perf-test prints, for "
        "scripts that parse it. The verdict is the exit code, and in --report.",
    )

    def __post_init__(self) -> None:
        """Refuse two formats at once."""
        if self.as_json and self.format is ResultFormat.KAFKA:
            raise UsageError(
                "--json and --format kafka contradict each other: leave one out; --report writes "
                "the JSON summary to a file"
            )


def _parse_interval(text: str, *, option: str) -> float:
    return parse_positive_seconds(f"{text}ms" if text.isdecimal() else text, option=option)


class ProgressMode(StrEnum):
    """How progress is shown."""

    SCREEN = "screen"
    LINES = "lines"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How progress is shown on stderr."""

    progress: ProgressMode | None = option(
        None,
        "Progress on stderr. Default: a screen on a terminal, else lines.",
        env=True,
    )
    reporting_interval: float = option(
        5.0,
        "How often --progress lines prints a line. Without a unit: milliseconds, as in Kafka's "
        "tools.",
        kind=Kind(_parse_interval, show=SECONDS.show, metavar="DURATION"),
        env=True,
    )

    status_file: Path | None = option(
        None,
        "Keep the present figures in this file, as JSON, while the run lasts.",
        kind=Kind(file_to_write, metavar="FILE"),
        env=True,
    )


@dataclass(frozen=True, kw_only=True)
class Workers:
    """How many processes share the work."""

    workers: int = option(
        1,
        "Share the work among this many processes, named NAME.1, NAME.2 and so on.",
        env=True,
        minimum=1,
        maximum=MOST_WORKERS,
    )


Portable: TypeAlias = Annotated[
    bool, typer.Option("--portable", envvar="MIRRORTEST_PORTABLE", help=PORTABLE)
]

Observations: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--observations",
        metavar="DIR",
        help="Directory of observations (mirrortest observe --output), for the report; repeatable. "
        "One called observations next to that of the logs is found.",
    ),
]

Details: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--details", help="Also print the tables: by partition, topic and minute, and missing ids."
    ),
]
