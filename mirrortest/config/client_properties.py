"""How client properties are declared and read, and the warnings about those without effect."""

from __future__ import annotations

import difflib
import re
from dataclasses import MISSING, field
from typing import TYPE_CHECKING, Any, TypeVar

from mirrortest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from enum import StrEnum

T = TypeVar("T")
E = TypeVar("E", bound="StrEnum")

_SERVER = re.compile(
    r"(?:[A-Za-z_]+://)?(?P<address>(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5}))"
)
_LONGEST_LABEL = 63

SET_BY_MIRRORTEST = {
    "auto.offset.reset": "the checker's state decides where to start reading",
    "enable.auto.commit": "positions are stored with the checker's state",
    "auto.commit.interval.ms": "positions are stored with the checker's state",
    "group.id": "use --consumer-group",
    "key.serializer": "mirrortest writes its own messages",
    "value.serializer": "mirrortest writes its own messages",
    "key.deserializer": "mirrortest reads its own messages",
    "value.deserializer": "mirrortest reads its own messages",
    "partitioner.class": "the lane of a message determines its partition",
    "retries": "sends are retried until delivery.timeout.ms",
    "config.providers": "write the value itself, or substitute it before",
}
"""Properties that mirrortest sets itself, and why."""

WITHOUT_EFFECT = frozenset(
    {
        "allow.auto.create.topics", "api.version.request", "check.crcs",
        "client.dns.lookup", "default.api.timeout.ms", "exclude.internal.topics",
        "group.protocol", "group.remote.assignor", "interceptor.classes", "max.block.ms",
        "max.in.flight.requests.per.connection", "max.poll.records", "metadata.max.idle.ms",
        "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples",
        "metrics.recording.level", "metrics.sample.window.ms", "receive.buffer.bytes",
        "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retry.backoff.max.ms",
        "sasl.client.callback.handler.class", "sasl.kerberos.service.name",
        "sasl.login.callback.handler.class", "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms",
        "ssl.cipher.suites", "ssl.enabled.protocols", "ssl.engine.factory.class",
        "ssl.keymanager.algorithm", "ssl.keystore.password", "ssl.protocol", "ssl.provider",
        "ssl.secure.random.implementation", "ssl.trustmanager.algorithm",
        "ssl.truststore.password", "transaction.timeout.ms",
    }
)  # fmt: skip
"""Properties of Kafka's Java client that this client does not use."""


def prop(
    key: str, read: Callable[[str], Any], default: Any = MISSING, *, secret: bool = False
) -> Any:
    """Declare a dataclass field for the property `key`; `read` raises ValueError."""
    return field(default=default, metadata={"key": key, "read": read}, repr=not secret)


def typed(key: str, text: str, read: Callable[[str], T], *, secret: bool = False) -> T:
    """Read a property's value; UsageError names the key, and the value unless it is a secret."""
    try:
        return read(text)
    except ValueError as error:
        shown = "" if secret else f"={text}"
        raise UsageError(f"client property {key}{shown}: {error}") from None


JAVA_INT, JAVA_LONG = (1 << 31) - 1, (1 << 63) - 1
"""The largest int and long of Kafka's own clients and protocol."""


def integer(least: int = 0, most: int = JAVA_INT) -> Callable[[str], int]:
    """A reader of decimal integers from `least` to `most`."""

    def read(text: str) -> int:
        if re.fullmatch(r"[+-]?[0-9]{1,19}", text) is None:
            raise ValueError("not an integer")
        value = int(text)
        if value < least:
            raise ValueError(f"must be at least {least}")
        if value > most:
            raise ValueError(f"must be at most {most}")
        return value

    return read


def one_of(names: type[E]) -> Callable[[str], E]:
    """A reader of an enumeration's values; case does not matter."""
    by_name = {member.value.lower(): member for member in names}

    def read(text: str) -> E:
        member = by_name.get(text.lower())
        if member is None:
            raise ValueError("not supported; one of " + ", ".join(names))
        return member

    return read


def boolean(text: str) -> bool:
    """Read true or false."""
    if text.lower() not in {"true", "false"}:
        raise ValueError("must be true or false")
    return text.lower() == "true"


def acks(text: str) -> int:
    """Read `acks`: -1 is all."""
    values = {"all": -1, "-1": -1, "0": 0, "1": 1}
    if text.lower() not in values:
        raise ValueError("must be one of all, 1, 0")
    return values[text.lower()]


def words(text: str) -> list[str]:
    """Read a list separated by commas."""
    found = [item.strip() for item in text.split(",") if item.strip()]
    if not found:
        raise ValueError("must not be empty")
    return found


def servers(text: str) -> tuple[str, ...]:
    """Read a list of HOST:PORT; a listener's ``PROTOCOL://`` in front is dropped, as Kafka does."""
    found: list[str] = []
    for item in words(text):
        match = _SERVER.fullmatch(item)
        if match is None or not 0 < int(match["port"]) < 65536:
            why = "is not HOST:PORT" if ":" in item else "has no port"
            example = f"{item.partition(':')[0] or 'localhost'}:9092"
            raise ValueError(f"{item} {why}; use HOST:PORT, for example {example}")
        labels = match["address"].rpartition(":")[0].removesuffix(".").split(".")
        if not all(0 < len(label) <= _LONGEST_LABEL for label in labels):
            raise ValueError(
                f"{item}: the parts of a host name each have 1 to {_LONGEST_LABEL} characters"
            )
        found.append(match["address"])
    return tuple(found)


def check_store(
    store: str, kind: str, location: str | None, inline: Mapping[str, str | None]
) -> None:
    """Check that a key or trust store can be read here: PEM, as a file or inline, not both."""
    given = [name for name, value in inline.items() if value is not None]
    if location is None and not given:
        return
    if kind != "PEM":
        file = location or "STORE"
        raise UsageError(
            f"{store}.type={kind} cannot be read here: convert it to PEM by 'keytool "
            f"-importkeystore -srckeystore {file} -destkeystore store.p12 -deststoretype PKCS12' "
            f"and 'openssl pkcs12 -in store.p12 -out store.pem', then set {store}.type=PEM and "
            f"{store}.location"
        )
    if location is not None and given:
        raise UsageError(f"give either {store}.location or {store}.{given[0]}, not both")
    if given and len(given) != len(inline):
        raise UsageError(f"{store}: give " + " and ".join(f"{store}.{name}" for name in inline))


def warnings(properties: Iterable[str], known: frozenset[str]) -> tuple[str, ...]:
    """One line for each property without effect: the reason, or the nearest valid name."""
    lines: list[str] = []
    for key in properties:
        if key in known:
            continue
        if key in SET_BY_MIRRORTEST:
            lines.append(f"client property {key} is ignored: {SET_BY_MIRRORTEST[key]}")
        elif key in WITHOUT_EFFECT:
            lines.append(f"client property {key} has no effect in mirrortest")
        else:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.8)
            hint = f"; did you mean {near[0]}?" if near else ""
            lines.append(f"client property {key} is unknown{hint}")
    return tuple(lines)
