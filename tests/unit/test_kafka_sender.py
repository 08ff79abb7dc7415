"""Which outcome a sender reports for a batch, for every way in which a producer can answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mirrortest.config.client_config import ClientConfig
from mirrortest.errors import UsageError
from mirrortest.kafka.error_table import ERRORS, Code, RequestError
from mirrortest.kafka.fast.delivery import ReadyBatch, WithdrawnError
from mirrortest.kafka.sender import Sender, SenderDeadError
from mirrortest.model.failure import Failure
from mirrortest.model.findings import Outcome

if TYPE_CHECKING:
    from mirrortest.kafka.ports import OnDelivery

REFUSED_BEFORE_WRITING = [code for code, row in ERRORS.items() if row.unwritten]

CONFIG = ClientConfig(bootstrap_servers=("broker:9092",), delivery_timeout_ms=60_000)


class Encoded:
    def __init__(self) -> None:
        self.buffer = bytearray(100)
        self.count = 1

    def seal(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        pass


class Producer:
    """A `ports.ProducerPort`; the test decides how each batch ends."""

    def __init__(self) -> None:
        self.queued: list[tuple[ReadyBatch, OnDelivery]] = []
        self.unanswered: list[OnDelivery] = []
        self.refusal: RequestError | None = None
        self.abandoned = False
        self.left = 1 << 31

    def batch(self, encoded: Any) -> Any:
        return ReadyBatch(encoded)

    def numbers_left(self, topic: str, partition: int) -> int:
        return self.left

    def failure(self) -> None:
        return None

    def send(self, batch: Any, topic: str, partition: int, on_delivery: OnDelivery) -> None:
        if self.refusal is not None:
            on_delivery(None, self.refusal)
            return
        batch.queued = True
        self.queued.append((batch, on_delivery))
        self.unanswered.append(on_delivery)

    def acknowledge(self, index: int, offset: int | None) -> None:
        self._answer(self.queued[index][1], offset, None)

    def fail(self, index: int, code: int) -> None:
        self._answer(self.queued[index][1], None, RequestError(code))

    def _answer(self, on_delivery: OnDelivery, offset: int | None, error: Any) -> None:
        self.unanswered.remove(on_delivery)
        asyncio.get_running_loop().call_soon(on_delivery, offset, error)

    def abandon(self, why: str) -> None:
        self.abandoned = True

    async def stop(self, seconds: float) -> None:
        for on_delivery in [*self.unanswered]:
            self._answer(on_delivery, None, RequestError(Code.BROKE_OFF, "stopped"))


@pytest.fixture
def producer() -> Producer:
    return Producer()


def sender(producer: Producer, **changes: Any) -> Sender:
    made = Sender(replace(CONFIG, **changes))
    made._producer = producer  # type: ignore[assignment]  # a test double
    return made


async def test_an_acknowledgement_is_acked_at_its_offset(producer: Producer) -> None:
    """The broker's acknowledgement counts, also after a retry."""
    made = sender(producer)
    ended = made.send("t", 0, Encoded())
    batch, _ = producer.queued[0]
    batch.data()
    batch.data()
    producer.acknowledge(0, 42)
    sent = await ended
    assert (sent.outcome, sent.base_offset, sent.error) == (Outcome.ACKED, 42, None)
    assert not made._pending
    assert made.dead is None


async def test_who_does_not_wait_any_more_holds_nobody_up(producer: Producer) -> None:
    """Cancelling a task that awaits a batch's future cancels it; other batches go on."""
    made = sender(producer)
    futures = [made.send("t", 0, Encoded()) for _ in range(2)]
    futures[0].cancel()
    for batch, on_delivery in producer.queued:
        batch.data()
        on_delivery(7, None)
    assert (await futures[1]).base_offset == 7
    assert not made._pending


async def test_without_acknowledgements_nothing_is_known(producer: Producer) -> None:
    """With acks=0, a sent batch may or may not have arrived."""
    made = sender(producer, acks=0, enable_idempotence=False)
    ended = made.send("t", 0, Encoded())
    producer.queued[0][0].data()
    producer.acknowledge(0, None)
    sent = await ended
    assert (sent.outcome, sent.base_offset) == (Outcome.UNKNOWN, -1)
    assert sent.failure is Failure.NO_ACKS


@pytest.mark.parametrize("error", REFUSED_BEFORE_WRITING)
@pytest.mark.parametrize(("tries", "outcome"), [(1, Outcome.FAILED), (2, Outcome.UNKNOWN)])
async def test_a_refusal_proves_something_of_the_only_try(
    producer: Producer, error: int, tries: int, outcome: Outcome
) -> None:
    """A refused first try was not written; if a retry is refused, the first try may have been."""
    made = sender(producer)
    ended = made.send("t", 0, Encoded())
    batch, _ = producer.queued[0]
    for _ in range(tries):
        batch.data()
    producer.fail(0, error)
    assert (await ended).outcome is outcome


@pytest.mark.parametrize(
    "error",
    [
        Code.NOT_CONNECTED,
        Code.REQUEST_TIMED_OUT,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.KAFKA_STORAGE_ERROR,
        Code.UNKNOWN,
    ],
)
async def test_what_a_broker_says_after_writing_proves_nothing(
    producer: Producer, error: int
) -> None:
    """Errors that a broker may raise after the append, and lost connections, leave it unknown."""
    made = sender(producer)
    ended = made.send("t", 0, Encoded())
    producer.queued[0][0].data()
    producer.fail(0, error)
    assert (await ended).outcome is Outcome.UNKNOWN


async def test_what_was_never_handed_over_has_failed(producer: Producer) -> None:
    """A batch that expired in the queue, or was never queued, was not written."""
    made = sender(producer, acks=1, enable_idempotence=False)
    ended = made.send("t", 0, Encoded())
    producer.fail(0, Code.LEADER_NOT_AVAILABLE)
    assert (await ended).outcome is Outcome.FAILED
    for code in (Code.GAVE_UP_WAITING, Code.NO_PARTITION):
        producer.refusal = RequestError(code)
        sent = await made.send("t", 7, Encoded())
        assert sent.outcome is Outcome.FAILED
    assert (sent.error, sent.failure) == ("t-7: NO_PARTITION", Failure.TOPIC_MISSING)
    assert made.dead is None


async def test_an_idempotent_sender_ends_with_its_first_failure(producer: Producer) -> None:
    """Waiting batches fail, batches in flight still get their response, new ones are refused."""
    made = sender(producer)
    first = made.send("t", 0, Encoded())
    on_its_way = made.send("t", 1, Encoded())
    answered = made.send("t", 2, Encoded())
    waiting = made.send("t", 0, Encoded())
    for batch, _ in producer.queued[:3]:
        batch.data()
    producer.fail(0, Code.MESSAGE_TOO_LARGE)
    # In the same response another batch is acknowledged.
    producer.acknowledge(2, 5)
    producer.fail(1, Code.BROKE_OFF)
    ends = [await each for each in (first, waiting, answered, on_its_way)]
    assert [(sent.outcome, sent.failure) for sent in ends] == [
        (Outcome.FAILED, Failure.TOO_LARGE),
        (Outcome.FAILED, Failure.WITHDRAWN),
        (Outcome.ACKED, None),
        (Outcome.UNKNOWN, Failure.UNREACHABLE),
    ]
    assert producer.abandoned
    assert made.dead == ("sending to broker:9092 broke off: t-0: MESSAGE_TOO_LARGE")
    with pytest.raises(SenderDeadError, match="broke off"):
        made.send("t", 0, Encoded())
    with pytest.raises(WithdrawnError):
        producer.queued[3][0].data()


async def test_a_delivery_timeout_ends_the_sender(producer: Producer) -> None:
    """A batch without a response in time is unknown and withdrawn."""
    made = sender(producer, delivery_timeout_ms=1)
    ended = made.send("t", 0, Encoded())
    batch = producer.queued[0][0]
    batch.data()
    sent = await ended
    assert sent.outcome is Outcome.UNKNOWN
    assert sent.error == "t-0: no acknowledgement within 0.001 s"
    assert sent.failure is Failure.TIMEOUT
    assert batch.withdrawn
    assert made.dead is not None


async def test_a_stop_settles_everything(producer: Producer) -> None:
    """A batch that was handed over is unknown, any other one failed; none stays pending."""
    made = sender(producer)
    unknown = made.send("t", 0, Encoded())
    failed = made.send("t", 1, Encoded())
    producer.queued[0][0].data()
    assert not await made.flush(0)
    await made.stop()
    await made.stop()
    assert (await unknown).outcome is Outcome.UNKNOWN
    assert (await failed).outcome is Outcome.FAILED
    assert (await unknown).failure is (await failed).failure is Failure.WITHDRAWN
    assert not made._pending


async def test_a_batch_that_was_not_queued_leaves_no_hole(producer: Producer) -> None:
    """It has no sequence number, so an idempotent sender goes on."""
    made = sender(producer)
    producer.refusal = RequestError(Code.UNKNOWN_TOPIC_OR_PARTITION)
    sent = await made.send("t", 7, Encoded())
    assert (sent.outcome, sent.failure) == (Outcome.FAILED, Failure.TOPIC_MISSING)
    assert made.dead is None


def test_transactions_are_refused() -> None:
    """An acknowledged message of a transaction may still be aborted: its outcome would be wrong."""
    with pytest.raises(UsageError, match=r"transactional\.id"):
        Sender(replace(CONFIG, transactional_id="x"))
