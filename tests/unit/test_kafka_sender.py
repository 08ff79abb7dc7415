"""What a sender says of a batch's end, for every way in which aiokafka can answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from aiokafka import errors
from aiokafka.structs import RecordMetadata

from mirrortest.config.client import ClientConfig
from mirrortest.errors import UsageError
from mirrortest.kafka import seam
from mirrortest.kafka.error_table import ERRORS
from mirrortest.kafka.sender import Sender, SenderDeadError
from mirrortest.model.findings import Outcome

REFUSED_BEFORE_WRITING = [errors.for_code(code) for code, row in ERRORS.items() if row.unwritten]

CONFIG = ClientConfig(bootstrap_servers=("broker:9092",), delivery_timeout_ms=60_000)


class Encoded:
    def __init__(self) -> None:
        self.buffer = bytearray(100)
        self.count = 1

    def seal(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        pass


class Producer:
    """Takes batches as an outlet does; the test says what becomes of them."""

    def __init__(self) -> None:
        self.queued: list[tuple[seam.ReadyBatch, asyncio.Future[Any]]] = []
        self.refusal: Exception | None = None
        self.abandoned = False
        self.left = 1 << 31

    def batch(self, encoded: Any) -> Any:
        return seam.ReadyBatch(encoded)

    def numbers_left(self, topic: str, partition: int) -> int:
        return self.left

    def failure(self) -> None:
        return None

    async def send(self, batch: Any, topic: str, partition: int) -> Any:
        if self.refusal is not None:
            raise self.refusal
        future = asyncio.get_running_loop().create_future()
        self.queued.append((batch, future))
        return future

    def abandon(self, why: str) -> None:
        self.abandoned = True
        for _, future in self.queued:
            if not future.done():
                future.set_exception(errors.KafkaError(why))

    async def stop(self, seconds: float, why: str) -> None:
        self.abandon(why)


@pytest.fixture
def producer() -> Producer:
    return Producer()


def sender(producer: Producer, **changes: Any) -> Sender:
    made = Sender(replace(CONFIG, **changes))
    made._outlet = producer  # type: ignore[assignment]  # it plays one
    return made


async def test_an_acknowledgement_is_acked_at_its_offset(producer: Producer) -> None:
    """The broker's word counts, also after a repetition."""
    made = sender(producer)
    ended = await made.send("t", 0, Encoded())
    batch, future = producer.queued[0]
    batch._build()
    batch._build()
    future.set_result(RecordMetadata("t", 0, None, 42, -1, 0, 0))
    sent = await ended
    assert (sent.outcome, sent.base_offset, sent.error) == (Outcome.ACKED, 42, None)
    assert sent.ended_wall_ns > 0
    assert not made._pending
    assert made.dead is None


async def test_without_acknowledgements_nothing_is_known(producer: Producer) -> None:
    """acks=0: what was sent may have arrived or not."""
    made = sender(producer, acks=0, enable_idempotence=False)
    ended = await made.send("t", 0, Encoded())
    producer.queued[0][0]._build()
    producer.queued[0][1].set_result(None)
    sent = await ended
    assert (sent.outcome, sent.base_offset) == (Outcome.UNKNOWN, -1)


@pytest.mark.parametrize("error", REFUSED_BEFORE_WRITING)
@pytest.mark.parametrize(("tries", "outcome"), [(1, Outcome.FAILED), (2, Outcome.UNKNOWN)])
async def test_a_refusal_proves_something_of_the_only_try(
    producer: Producer, error: type[Exception], tries: int, outcome: Outcome
) -> None:
    """Refused at once it was not written; refused at the second try the first may have been."""
    made = sender(producer)
    ended = await made.send("t", 0, Encoded())
    batch, future = producer.queued[0]
    for _ in range(tries):
        batch._build()
    future.set_exception(error())
    assert (await ended).outcome is outcome


@pytest.mark.parametrize(
    "error",
    [
        errors.KafkaConnectionError,
        errors.RequestTimedOutError,
        errors.NotLeaderForPartitionError,
        errors.NotEnoughReplicasAfterAppendError,
        errors.UnknownTopicOrPartitionError,
        errors.KafkaStorageError,
        errors.UnknownError,
    ],
)
async def test_what_a_broker_says_after_writing_proves_nothing(
    producer: Producer, error: type[Exception]
) -> None:
    """Errors that a broker may raise after the append, and lost connections, leave it unknown."""
    made = sender(producer)
    ended = await made.send("t", 0, Encoded())
    producer.queued[0][0]._build()
    producer.queued[0][1].set_exception(error())
    assert (await ended).outcome is Outcome.UNKNOWN


async def test_what_was_never_handed_over_has_failed(producer: Producer) -> None:
    """Expired in the queue, or not even queued: it was not written."""
    made = sender(producer, acks=1, enable_idempotence=False)
    ended = await made.send("t", 0, Encoded())
    producer.queued[0][1].set_exception(errors.LeaderNotAvailableError())
    assert (await ended).outcome is Outcome.FAILED
    for refusal in (errors.KafkaTimeoutError(), AssertionError("Unrecognized partition")):
        producer.refusal = refusal
        sent = await (await made.send("t", 7, Encoded()))
        assert sent.outcome is Outcome.FAILED
    assert sent.error == "t-7: the partition does not exist"
    assert made.dead is None


async def test_an_idempotent_sender_ends_with_its_first_failure(producer: Producer) -> None:
    """What waits has failed, what is on its way still gets its answer, more is refused."""
    made = sender(producer)
    first = await made.send("t", 0, Encoded())
    on_its_way = await made.send("t", 1, Encoded())
    answered = await made.send("t", 2, Encoded())
    waiting = await made.send("t", 0, Encoded())
    for batch, _ in producer.queued[:3]:
        batch._build()
    producer.queued[0][1].set_exception(errors.MessageSizeTooLargeError())
    # In the same response another batch is acknowledged.
    producer.queued[2][1].set_result(RecordMetadata("t", 2, None, 5, -1, 0, 0))
    assert (await first).outcome is Outcome.FAILED
    assert (await waiting).outcome is Outcome.FAILED
    assert (await answered).outcome is Outcome.ACKED
    assert (await on_its_way).outcome is Outcome.UNKNOWN
    assert producer.abandoned
    assert made.dead == ("sending to broker:9092 broke off: t-0: MESSAGE_SIZE_TOO_LARGE")
    with pytest.raises(SenderDeadError, match="broke off"):
        await made.send("t", 0, Encoded())
    with pytest.raises(seam.WithdrawnError):
        producer.queued[3][0]._build()


async def test_a_delivery_timeout_ends_the_sender(producer: Producer) -> None:
    """No answer in time: unknown, withdrawn, and the queue behind it ends."""
    made = sender(producer, delivery_timeout_ms=1)
    ended = await made.send("t", 0, Encoded())
    batch = producer.queued[0][0]
    batch._build()
    sent = await ended
    assert sent.outcome is Outcome.UNKNOWN
    assert sent.error == "t-0: no acknowledgement within 0.001 s"
    assert batch.withdrawn
    assert made.dead is not None


async def test_a_stop_settles_everything(producer: Producer) -> None:
    """Handed over: unknown. Not handed over: failed. Nothing stays open."""
    made = sender(producer)
    unknown = await made.send("t", 0, Encoded())
    failed = await made.send("t", 1, Encoded())
    producer.queued[0][0]._build()
    assert not await made.flush(0)
    await made.stop()
    await made.stop()
    assert (await unknown).outcome is Outcome.UNKNOWN
    assert (await failed).outcome is Outcome.FAILED
    assert not made._pending


async def test_sends_of_one_partition_keep_their_order(producer: Producer) -> None:
    """However long handing over takes, batches stand in the order of the calls."""
    gate = asyncio.Event()
    taken: list[int] = []

    async def send(batch: Any, topic: str, partition: int) -> Any:
        if not taken:
            await gate.wait()
        taken.append(batch.record_count())
        return asyncio.get_running_loop().create_future()

    producer.send = send  # type: ignore[method-assign]  # what is played may change
    made = sender(producer)
    calls = []
    for count in (1, 2, 3):
        encoded = Encoded()
        encoded.count = count
        calls.append(asyncio.create_task(made.send("t", 0, encoded)))
        await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*calls)
    assert taken == [1, 2, 3]


def test_transactions_are_refused() -> None:
    """An acknowledged message of a transaction may still be aborted: outcomes would not be true."""
    with pytest.raises(UsageError, match=r"transactional\.id"):
        Sender(replace(CONFIG, transactional_id="x"))
