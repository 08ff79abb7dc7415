"""Which implementation of the ports is used, and what `--portable` never touches."""

from __future__ import annotations

import ast
import asyncio
import re
import ssl
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiokafka
import pytest
import typer
from typer.testing import CliRunner

import mirrortest.kafka
from mirrortest.cli.consume import consume
from mirrortest.cli.produce import produce
from mirrortest.config.client_config import ClientConfig, SecurityProtocol
from mirrortest.errors import ClusterError, UnreachableError
from mirrortest.kafka import public
from mirrortest.kafka.connecting import bootstrap_failure
from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.library import library
from mirrortest.kafka.public import fetching
from mirrortest.kafka.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable


CONFIG = ClientConfig(bootstrap_servers=("broker:9092",), portable=True)

PUBLIC = {
    "aiokafka",
    "aiokafka.admin",
    "aiokafka.admin.config_resource",
    "aiokafka.coordinator.assignors.range",
    "aiokafka.coordinator.assignors.roundrobin",
    "aiokafka.coordinator.assignors.sticky.sticky_assignor",
}
"""The modules that users import according to aiokafka's documentation."""
ROOM = Path(mirrortest.kafka.__file__).parent


def test_outside_fast_nothing_of_aiokafka_is_private() -> None:
    """No private attribute of other objects, and no module that users do not import."""
    touched: list[str] = []
    for path in sorted([*ROOM.glob("*.py"), *ROOM.glob("public/*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and re.match(r"_(?!_)", node.attr):
                own = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
                if not own and node.attr != "_make":  # a named tuple's
                    touched.append(f"{path.name}:{node.lineno} {node.attr}")
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                if module.startswith("aiokafka") and module not in PUBLIC:
                    touched.append(f"{path.name}:{node.lineno} {module}")
    assert touched == []


def test_only_the_ports_implementations_import_aiokafka() -> None:
    """Another client library would be another package and one line in `library`."""
    using = {
        str(path.relative_to(ROOM.parent))
        for path in ROOM.parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Import) and "aiokafka" in {name.name for name in node.names})
        or (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aiokafka"))
    }
    others = {name for name in using if not name.startswith(("kafka/fast/", "kafka/public/"))}
    assert others == {"kafka/library.py"}


@pytest.fixture
def unknown_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """An aiokafka version with which `fast` cannot even be imported."""
    monkeypatch.setattr(aiokafka, "__version__", "0.99.0")
    monkeypatch.delattr(mirrortest.kafka, "fast", raising=False)
    for name in [name for name in sys.modules if name.startswith("mirrortest.kafka.fast")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "mirrortest.kafka.fast", None)


@pytest.mark.usefixtures("unknown_series")
def test_an_unknown_series_is_refused_with_the_way_out() -> None:
    """One line names the installed version, the supported series and `--portable`."""
    with pytest.raises(ClusterError, match=r"aiokafka 0\.99\.0 .*aiokafka==0\.14\.\*.*--portable"):
        library(replace(CONFIG, portable=False))
    assert library(CONFIG) is public


@pytest.mark.usefixtures("unknown_series")
@pytest.mark.parametrize(
    ("verb", "more"),
    [(produce, ()), (consume, ("--run", "r1")), (consume, ("--run", "r1", "--role", "source"))],
)
def test_the_commands_go_by_the_public_calls(
    verb: Callable[..., None], more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the option or environment variable, commands reach the brokers; without, they fail."""
    program = typer.Typer()
    program.command()(verb)
    arguments = ["--bootstrap-server", "localhost:1", "--topics", "t", *more]

    def run(*options: str) -> None:
        CliRunner().invoke(program, [*arguments, *options], catch_exceptions=False)

    with pytest.raises(ClusterError, match="--portable"):
        run()
    with pytest.raises(UnreachableError, match="no Kafka broker answers at localhost:1"):
        run("--portable")
    monkeypatch.setenv("MIRRORTEST_PORTABLE", "1")
    with pytest.raises(UnreachableError):
        run()


def test_the_ledgers_brokers_are_reached_in_the_same_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`--portable` applies to the process: the ledger's own client has it, too."""
    asked: list[Any] = []
    monkeypatch.setattr(
        "mirrortest.consume.consumer.run", lambda options, **_: asked.append(options)
    )
    program = typer.Typer()
    program.command()(consume)
    arguments = ["--bootstrap-server", "h:1", "--topics", "t", "--run", "r", "--portable"]
    # The alias is given, so that no cluster is asked for it.
    more = ["--ledger-bootstrap-server", "s:1", "--source-alias", ""]
    CliRunner().invoke(program, [*arguments, *more])
    assert asked[0].client.portable
    assert asked[0].ledger_client.portable
    assert asked[0].settings["client library"] == "public API only"


async def test_topics_by_name_are_subscribed_without_asking_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A metadata request for a missing topic could create it; a pattern requests all topics."""
    asked: list[Any] = []

    class Client:
        async def start(self) -> None: ...

        async def stop(self) -> None: ...

        def subscribe(self, **arguments: Any) -> None:
            asked.append(arguments)

    monkeypatch.setattr(fetching.PublicConsumer, "client_type", staticmethod(lambda **_: Client()))

    async def nothing(partitions: list[tuple[str, int]]) -> None: ...

    async with Reader(CONFIG, group="g") as reader:
        await reader.subscribe(topics=["a.b", "c"], on_assigned=nothing, on_revoked=nothing)
    assert asked[0]["pattern"] == r"(?:a\.b|c)\Z"
    assert "topics" not in asked[0]


async def test_tls_is_tried_and_its_reason_told() -> None:
    """`try_connection` raises the cause if the listener does not use TLS."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(b"no TLS")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = replace(
        CONFIG,
        bootstrap_servers=(f"127.0.0.1:{port}",),
        security_protocol=SecurityProtocol.SSL,
    )
    async with server:
        with pytest.raises(ssl.SSLError, match="WRONG_VERSION_NUMBER"):
            await public.try_connection(config)


async def test_a_password_that_may_be_refused_is_named() -> None:
    """As aiokafka gives no reason for a refused login, the error names the settings to check."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sasl = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "hush",
    }
    config = ClientConfig.from_properties(sasl, portable=True)
    async with server:
        error = await bootstrap_failure(config, RequestError(Code.NOT_CONNECTED, "no luck"))
    check = "check security.protocol=SASL_PLAINTEXT, sasl.mechanism=PLAIN and the password"
    assert str(error).endswith(check)
    assert "hush" not in str(error)
