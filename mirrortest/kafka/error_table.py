"""The table of Kafka errors: what the user sees, and whether a request can be repeated.

Ports raise `RequestError`, OSError and errors of `mirrortest.errors`. A RequestError has a code: a
broker's code (-1 and above), or one of ours (below -1) for an error in the client.
"""

from __future__ import annotations

import contextlib
import socket
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from mirrortest.errors import (
    ClusterError,
    PartitionCountError,
    TopicMissingError,
    UnreachableError,
)
from mirrortest.host.error_text import reason_of
from mirrortest.model.failure import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrortest.config.client_config import ClientConfig

TRANSIENT_ERRORS = (UnreachableError, TopicMissingError)
"""Errors that may pass by themselves; any other error is permanent."""


class Code(IntEnum):
    """The error codes that the table or a caller uses; brokers have more."""

    NO_PARTITION = -10
    """The topic exists, but the partition does not."""
    NO_OFFSET = -9
    """The partition was not sought, and its group has no committed offset."""
    ILLEGAL_STATE = -8
    COMMIT_FAILED = -7
    ACCESS_REFUSED = -6
    """Authentication failed without a broker's code, as when it closes the connection."""
    BROKE_OFF = -5
    """The client ended by itself or was abandoned: it sends nothing any more."""
    GAVE_UP_WAITING = -4
    """The client repeated a request until its timeout."""
    NO_ANSWER = -3
    NOT_CONNECTED = -2
    UNKNOWN = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    NOT_CONTROLLER = 41
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    OFFSET_NOT_AVAILABLE = 78
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103


class ErrorTraits(NamedTuple):
    """How mirrortest treats an error."""

    error: type[ClusterError] = ClusterError
    """The exception that the user sees."""
    retriable: bool = False
    """Whether the same request may succeed later."""
    unwritten: bool = False
    """Whether brokers return it only before they append a batch, never after."""
    failure: Failure = Failure.OTHER
    """The failure category of messages that were not acknowledged because of it."""


_LEADER_CHANGES = ErrorTraits(UnreachableError, retriable=True, failure=Failure.UNREACHABLE)
_TOO_LARGE = ErrorTraits(unwritten=True, failure=Failure.TOO_LARGE)
_NOT_AUTHORIZED = ErrorTraits(failure=Failure.NOT_AUTHORIZED)
_WRITE_NOT_AUTHORIZED = ErrorTraits(unwritten=True, failure=Failure.NOT_AUTHORIZED)
_PRODUCER_STATE = ErrorTraits(unwritten=True, failure=Failure.PRODUCER_STATE)
_REFUSED_BATCH = ErrorTraits(unwritten=True, failure=Failure.REFUSED)

ERRORS: dict[int, ErrorTraits] = {
    Code.NO_PARTITION: ErrorTraits(TopicMissingError, failure=Failure.TOPIC_MISSING),
    Code.ACCESS_REFUSED: _NOT_AUTHORIZED,
    Code.BROKE_OFF: ErrorTraits(UnreachableError, failure=Failure.UNREACHABLE),
    Code.GAVE_UP_WAITING: ErrorTraits(UnreachableError, failure=Failure.TIMEOUT),
    Code.NO_ANSWER: ErrorTraits(UnreachableError, retriable=True, failure=Failure.TIMEOUT),
    Code.NOT_CONNECTED: ErrorTraits(UnreachableError, retriable=True, failure=Failure.UNREACHABLE),
    Code.CORRUPT_MESSAGE: _REFUSED_BATCH,
    Code.UNKNOWN_TOPIC_OR_PARTITION: ErrorTraits(
        TopicMissingError, retriable=True, failure=Failure.TOPIC_MISSING
    ),
    Code.LEADER_NOT_AVAILABLE: _LEADER_CHANGES,
    Code.NOT_LEADER_OR_FOLLOWER: _LEADER_CHANGES,
    Code.REQUEST_TIMED_OUT: ErrorTraits(UnreachableError, retriable=True, failure=Failure.TIMEOUT),
    Code.MESSAGE_TOO_LARGE: _TOO_LARGE,
    Code.COORDINATOR_LOAD_IN_PROGRESS: _LEADER_CHANGES,
    Code.COORDINATOR_NOT_AVAILABLE: _LEADER_CHANGES,
    Code.NOT_COORDINATOR: _LEADER_CHANGES,
    Code.INVALID_TOPIC: _REFUSED_BATCH,
    Code.RECORD_LIST_TOO_LARGE: _TOO_LARGE,
    Code.NOT_ENOUGH_REPLICAS: ErrorTraits(
        UnreachableError, retriable=True, unwritten=True, failure=Failure.NOT_ENOUGH_REPLICAS
    ),
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorTraits(
        UnreachableError, retriable=True, failure=Failure.NOT_ENOUGH_REPLICAS
    ),
    Code.INVALID_REQUIRED_ACKS: _REFUSED_BATCH,
    Code.TOPIC_AUTHORIZATION_FAILED: _WRITE_NOT_AUTHORIZED,
    Code.CLUSTER_AUTHORIZATION_FAILED: _WRITE_NOT_AUTHORIZED,
    Code.INVALID_TIMESTAMP: _REFUSED_BATCH,
    Code.UNSUPPORTED_SASL_MECHANISM: _NOT_AUTHORIZED,
    Code.ILLEGAL_SASL_STATE: _NOT_AUTHORIZED,
    Code.INVALID_PARTITIONS: ErrorTraits(PartitionCountError),
    Code.NOT_CONTROLLER: _LEADER_CHANGES,
    Code.UNSUPPORTED_FOR_MESSAGE_FORMAT: _REFUSED_BATCH,
    Code.POLICY_VIOLATION: _REFUSED_BATCH,
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER: _PRODUCER_STATE,
    Code.INVALID_PRODUCER_EPOCH: _PRODUCER_STATE,
    Code.KAFKA_STORAGE_ERROR: _LEADER_CHANGES,
    Code.SASL_AUTHENTICATION_FAILED: _NOT_AUTHORIZED,
    Code.UNKNOWN_PRODUCER_ID: _PRODUCER_STATE,
    Code.FENCED_LEADER_EPOCH: _LEADER_CHANGES,
    Code.UNKNOWN_LEADER_EPOCH: _LEADER_CHANGES,
    Code.OFFSET_NOT_AVAILABLE: _LEADER_CHANGES,
}
_OTHER_ERROR = ErrorTraits()

ACCESS_REFUSED = frozenset(
    {
        Code.ACCESS_REFUSED,
        Code.UNSUPPORTED_SASL_MECHANISM,
        Code.ILLEGAL_SASL_STATE,
        Code.SASL_AUTHENTICATION_FAILED,
    }
)
"""Errors of a failed authentication."""
GROUP_MOVED_ON = frozenset(
    {
        Code.COMMIT_FAILED,
        Code.ILLEGAL_STATE,
        Code.ILLEGAL_GENERATION,
        Code.REBALANCE_IN_PROGRESS,
        Code.UNKNOWN_MEMBER_ID,
    }
)
"""Errors of an offset commit that came too late: the group is rebalancing or has rebalanced."""


class RequestError(Exception):
    """A request to Kafka failed; the text is the reason, on one line.

    Attributes:
        code: a `Code`, or another broker code.
    """

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text or getattr(code, "name", f"error {code}"))
        self.code = code

    @property
    def traits(self) -> ErrorTraits:
        """The error's entry in the table."""
        return ERRORS.get(self.code, _OTHER_ERROR)


def addresses(config: ClientConfig) -> str:
    """The cluster's name in errors: its bootstrap servers."""
    return ",".join(config.bootstrap_servers)


def cluster_error(config: ClientConfig, doing: str, error: RequestError | OSError) -> ClusterError:
    """The exception that the user sees if a request fails while `doing` something."""
    if not isinstance(error, RequestError):
        code = Code.NO_ANSWER if isinstance(error, TimeoutError) else Code.NOT_CONNECTED
        error = RequestError(code, reason(error))
    where, kind = f"Kafka at {addresses(config)}", error.traits.error
    if kind is TopicMissingError:
        return kind(f"{where}: {doing}: the topic or partition does not exist")
    if kind is UnreachableError:
        return kind(f"{where} does not answer: {doing}: {error}")
    return kind(f"{where} refuses: {doing}: {error}")


@contextlib.contextmanager
def cluster_errors(config: ClientConfig, doing: str) -> Iterator[None]:
    """Convert a port's errors into ClusterErrors with the cluster's address."""
    try:
        yield
    except (RequestError, OSError) as error:
        raise cluster_error(config, doing, error) from error


def reason(error: BaseException | None) -> str:
    """An error's text on one line; its class name if it has no text."""
    if isinstance(error, (ConnectionError, FileNotFoundError, PermissionError)) and error.errno:
        return reason_of(error).lower()
    if isinstance(error, socket.gaierror):
        return "the host name cannot be resolved: is it spelled correctly?"
    fallback = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    return " ".join(str(error).split()) or fallback
