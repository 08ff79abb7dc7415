"""How client properties become aiokafka's arguments, and its errors ours."""

from __future__ import annotations

import asyncio
import tempfile
from typing import TYPE_CHECKING, Any, cast

import pytest
import structlog
from aiokafka import errors
from aiokafka.conn import AIOKafkaConnection

from mirrortest.config.client_config import ClientConfig
from mirrortest.errors import ClusterError, TopicMissingError, UnreachableError, UsageError
from mirrortest.kafka.connecting import bootstrap_failure, start
from mirrortest.kafka.error_table import ACCESS_REFUSED, ERRORS, Code, RequestError, cluster_errors
from mirrortest.kafka.public.connection import (
    arguments,
    reason,
    request_error,
    request_errors,
    stop_cleanly,
)
from mirrortest.model.failure import MEANINGS, Failure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirrortest.kafka.ports import ClientPort

SECRET = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----"


def config(**properties: str) -> ClientConfig:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return ClientConfig.from_properties({"bootstrap.servers": "a:1,b:2"} | named)


def test_plain_connections_have_no_credentials() -> None:
    """Unset properties are not passed on; -1 means that idle connections stay open."""
    shared = arguments(config(connections_max_idle_ms="-1"))
    assert shared["bootstrap_servers"] == ["a:1", "b:2"]
    assert shared["connections_max_idle_ms"] is None
    assert shared["ssl_context"] is None
    assert not [key for key in shared if key.startswith("sasl")]


def test_credentials_are_passed_on() -> None:
    """SASL by SCRAM over TLS, the host name checked as in Kafka's own clients."""
    shared = arguments(
        config(
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_jaas_config='x.ScramLoginModule required username="u" password="p";',
        )
    )
    assert shared["security_protocol"] == "SASL_SSL"
    assert shared["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (shared["sasl_plain_username"], shared["sasl_plain_password"]) == ("u", "p")
    assert shared["ssl_context"].check_hostname


def test_the_host_name_is_left_unchecked_where_that_is_said() -> None:
    """`ssl.endpoint.identification.algorithm=` disables it; the certificate is still checked."""
    context = arguments(config(security_protocol="SSL", ssl_endpoint_identification_algorithm=""))[
        "ssl_context"
    ]
    assert not context.check_hostname
    assert context.verify_mode.name == "CERT_REQUIRED"


def test_a_store_that_cannot_be_read_is_named() -> None:
    """The usage error has the file and the reason."""
    missing = config(
        security_protocol="SSL", ssl_truststore_type="PEM", ssl_truststore_location="/none.pem"
    )
    with pytest.raises(UsageError, match=r"trust store /none\.pem: no such file"):
        arguments(missing)


def test_a_key_is_neither_shown_nor_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An inline key is in a file for a moment; errors do not contain it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    inline = config(
        security_protocol="SSL",
        ssl_keystore_type="PEM",
        ssl_keystore_key=SECRET,
        ssl_keystore_certificate_chain="none",
    )
    with pytest.raises(UsageError, match=r"key store ssl\.keystore\.key") as caught:
        arguments(inline)
    assert "c2VjcmV0" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "ours", "text"),
    [
        (errors.KafkaConnectionError("gone"), UnreachableError, "does not answer: x: "),
        (errors.KafkaError("Unable to get cluster metadata"), UnreachableError, "does not answer"),
        (errors.LeaderNotAvailableError(), UnreachableError, "does not answer: x: "),
        (TimeoutError(), UnreachableError, "does not answer: x: no answer in time"),
        (errors.UnknownTopicOrPartitionError(), TopicMissingError, "does not exist"),
        (
            errors.TopicAuthorizationFailedError("t"),
            ClusterError,
            "refuses: x: TOPIC_AUTHORIZATION_FAILED t",
        ),
    ],
)
def test_errors_name_the_cluster_and_what_was_done(
    error: Exception, ours: type[Exception], text: str
) -> None:
    """One line for the user, with the address."""
    with pytest.raises(ours, match=text) as caught, cluster_errors(config(), "x"), request_errors():
        raise error
    assert str(caught.value).startswith("Kafka at a:1,b:2")
    assert "\n" not in str(caught.value)


def test_the_table_retries_what_aiokafka_calls_retriable() -> None:
    """For every error of aiokafka, even without a row of its own."""
    classes: set[Any] = {each for each in vars(errors).values() if isinstance(each, type)}
    named = {each for each in classes if issubclass(each, errors.KafkaError)}
    for kind in named - {errors.BrokerResponseError}:
        assert request_error(kind()).traits.retriable == kind.retriable, kind


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ProducerFenced(), Code.INVALID_PRODUCER_EPOCH),
        (errors.KafkaConnectionError("away"), Code.NOT_CONNECTED),
        (errors.StaleMetadata(), Code.NOT_CONNECTED),
        (errors.UnknownMemberIdError(), Code.UNKNOWN_MEMBER_ID),
        (ConnectionResetError(104, "reset"), Code.NOT_CONNECTED),
        (TimeoutError(), Code.NO_ANSWER),
        (errors.UnsupportedCodecError("zip"), Code.UNKNOWN),
    ],
)
def test_every_error_has_a_code(error: Exception, code: Code) -> None:
    """It is the broker's own code if there is one."""
    assert request_error(error).code == code


class _FakeLibrary:
    """A listener that refuses; aiokafka's own connection is in its error."""

    def __init__(self, refusal: Exception) -> None:
        self.refusal = refusal

    async def try_connection(self, _: ClientConfig) -> None:
        with request_errors():
            raise self.refusal


async def test_sasl_where_none_is_asked_for_is_told_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error names the listener's own protocol, and prints no object of aiokafka."""
    refusal = errors.IllegalSaslStateError(AIOKafkaConnection("a", 1))
    monkeypatch.setattr("mirrortest.kafka.connecting.library", lambda _: _FakeLibrary(refusal))
    secured = config(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_jaas_config='x.PlainLoginModule required username="u" password="p";',
    )
    text = str(await bootstrap_failure(secured, request_error(refusal)))
    assert text.startswith("Kafka at a:1,b:2 refuses us: this listener does not use SASL: ")
    assert "set security.protocol=PLAINTEXT instead of SASL_PLAINTEXT" in text
    assert reason(refusal) == "ILLEGAL_SASL_STATE"


async def _stops() -> None:
    """Stop as it should."""


async def _hangs() -> None:
    await asyncio.Event().wait()


async def _was_cancelled() -> None:
    raise asyncio.CancelledError


async def _fails() -> None:
    raise errors.KafkaConnectionError("gone")


@pytest.mark.parametrize(
    ("stop", "in_order"),
    [(_stops, True), (_hangs, False), (_was_cancelled, False), (_fails, False)],
)
async def test_a_client_that_cannot_stop_holds_nothing_up(
    stop: Callable[..., Any], in_order: bool
) -> None:
    """Nor is the cancellation of one of its own tasks mistaken for one of ours."""
    assert await stop_cleanly(stop, 0.01) is in_order


async def test_a_listener_that_never_answers_is_named_while_it_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is logged again and again until the client has started."""
    monkeypatch.setattr("mirrortest.kafka.connecting._FIRST_LOG_SECONDS", 0)
    monkeypatch.setattr("mirrortest.kafka.connecting._REPEAT_SECONDS", 0)
    answers = asyncio.Event()

    class Client:
        async def start(self) -> None:
            await answers.wait()

    with structlog.testing.capture_logs() as logged:
        starting = asyncio.ensure_future(start(config(), cast("ClientPort", Client()), "x"))
        async with asyncio.timeout(60):
            while len(logged) < 2:  # noqa: ASYNC110  # a log has no event
                await asyncio.sleep(0)
        answers.set()
        await starting
        shown = len(logged)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(logged) == shown
    assert all(each["event"].startswith("still trying ") for each in logged)
    assert all(":" in each["event"] for each in logged)


def test_an_error_that_ends_sends_has_a_category() -> None:
    """No error in the table is `other`, except that of an admin's partition counts.

    Any other code of a broker is `other`; every category has a meaning.
    """
    nameless = {code for code, row in ERRORS.items() if row.failure is Failure.OTHER}
    assert nameless == {Code.INVALID_PARTITIONS}
    assert {ERRORS[code].failure for code in ACCESS_REFUSED} == {Failure.NOT_AUTHORIZED}
    assert RequestError(9999).traits.failure is Failure.OTHER
    assert set(MEANINGS) == set(Failure)
