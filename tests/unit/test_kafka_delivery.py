"""Batches reach their leaders in order, once each, and every one of them is reported."""

from __future__ import annotations

import asyncio
import gc
import weakref
from functools import partial
from typing import Any

import pytest
from aiokafka.errors import IncompatibleBrokerVersion, KafkaConnectionError

from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.fast import delivery
from mirrortest.kafka.fast.delivery import ProducerNumbers, ReadyBatch, WithdrawnError
from tests.unit.answered_delivery import (
    BACKOFF,
    DUPLICATE,
    OK,
    A,
    B,
    C,
    Encoded,
    Sending,
    failed,
)


async def test_batches_that_come_together_go_out_in_one_request_for_each_broker() -> None:
    """It has one batch of a partition; the next one waits for the answer, and keeps its place."""
    sending = Sending()
    for name, at in (("a1", A), ("b1", B), ("a2", A), ("c1", C)):
        sending.queue(name, at)
    assert await sending.sent(1) == {A: "a1", B: "b1"}
    assert await sending.sent(1, node=2) == {C: "c1"}
    assert not sending.reported
    sending.broker().answer(OK, OK)
    assert await sending.sent(2) == {A: "a2"}
    assert sending.reported == {"a1": [100], "b1": [101]}
    assert sending.encoded["a1"].sealed == [(77, 3, 0)]
    assert sending.encoded["a2"].sealed == [(77, 3, 3)]


async def test_what_a_request_has_no_room_for_comes_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers close the connection if a request is too large; every partition gets its turn."""
    monkeypatch.setattr(delivery, "_REQUEST_BYTES", 5)
    sending = Sending()
    sending.client.leaders[C] = 1
    for name, at in (("a1", A), ("a2", A), ("a3", A), ("b1", B), ("c1", C), ("larger", B)):
        sending.queue(name, at)
    for number, expected in enumerate(
        [{A: "a1", B: "b1"}, {C: "c1", A: "a2"}, {B: "larger"}, {A: "a3"}], 1
    ):
        assert await sending.sent(number) == expected
        sending.broker().answer(*(OK for _ in expected))
    await sending.until(lambda: len(sending.reported) == 6)


async def test_what_waits_behind_a_request_that_cannot_be_made_is_reported_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That request had no room for it, and nothing else would trigger another one."""
    monkeypatch.setattr(delivery, "_REQUEST_BYTES", 1)
    sending = Sending()
    sending.broker().refusal = IncompatibleBrokerVersion("produce")
    sending.queue("a1")
    sending.queue("b1", B)
    await sending.until(lambda: len(sending.reported) == 2)


async def test_a_partition_that_found_a_leader_has_one_request_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Even if the broker that led it before turns out to be unreachable."""
    sending = Sending()
    unreachable = asyncio.get_running_loop().create_future()

    async def ready(node: int) -> bool:
        assert node == 1
        return bool(await unreachable)

    monkeypatch.setattr(sending.client, "ready", ready)
    sending.client.open.discard(1)
    sending.queue("a1")
    sending.queue("b1", B)
    await asyncio.sleep(0)
    sending.client.leaders[A] = 2
    sending.queue("a2")
    assert await sending.sent(1, node=2) == {A: "a1"}
    unreachable.set_result(False)
    sending.client.leaders[B] = 2
    await sending.until(lambda: B in sending.delivery._muted)
    await sending.until(lambda: B not in sending.delivery._muted)  # its backoff is over
    sending.client.open.add(1)
    sending.client.leaders[A] = 1
    sending.queue("a3")
    await asyncio.sleep(0)
    assert not sending.broker(1).requests
    sending.broker(2).answer(OK)
    assert await sending.sent(1) == {A: "a2"}


@pytest.mark.parametrize("code", [Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_ENOUGH_REPLICAS])
async def test_a_batch_that_is_sent_again_has_its_number_and_is_not_overtaken(code: int) -> None:
    """Its partition's next batch waits behind it; other partitions do not."""
    sending = Sending()
    sending.queue("a1")
    sending.queue("b1", B)
    await sending.sent(1)
    sending.queue("a2")
    sending.queue("b2", B)
    sending.broker().answer(code, OK)
    assert await sending.sent(2) == {B: "b2"}
    sending.broker().answer(OK)
    assert await sending.sent(3) == {A: "a1"}
    sending.broker().answer(OK)
    assert await sending.sent(4) == {A: "a2"}
    assert sending.encoded["a1"].sealed == [(77, 3, 0)]
    assert sending.batches["a1"].handed_over == 2
    assert sending.reported == {"a1": [100], "b1": [101], "b2": [100]}
    assert sending.client.updates == (1 if code == Code.NOT_LEADER_OR_FOLLOWER else 0)


def test_sequence_numbers_wrap_as_brokers_expect() -> None:
    """After 2^31 - 1 comes 0, for each partition by itself."""
    numbers = ProducerNumbers()
    assert [numbers.take(A, count) for count in (2**31 - 2, 5, 1)] == [0, 2**31 - 2, 3]
    assert numbers.take(B, 1) == 0


async def test_a_new_leader_gets_what_the_old_one_refused() -> None:
    """Once the requested metadata has arrived, and not before."""
    sending = Sending()
    sending.queue("a1")
    await sending.sent(1)
    update = sending.client._md_update_fut = asyncio.get_running_loop().create_future()
    sending.broker().answer(Code.NOT_LEADER_OR_FOLLOWER)
    await asyncio.sleep(10 * BACKOFF)
    assert len(sending.broker().requests) == 1
    sending.client.leaders[A] = 2
    update.set_result(True)
    assert await sending.sent(1, node=2) == {A: "a1"}


async def test_a_request_that_times_out_ends_its_connection_and_is_repeated() -> None:
    """The broker may have stored it: it has been handed over twice."""
    sending = Sending()
    sending.queue("a1")
    await sending.sent(1)
    sending.broker().answers[-1].set_exception(TimeoutError())
    await sending.sent(2)
    sending.broker().answer(DUPLICATE)
    await sending.until(lambda: sending.reported)
    assert sending.reported == {"a1": [-1]}
    assert sending.batches["a1"].handed_over == 2
    assert len(sending.broker().closed) == 1


@pytest.mark.parametrize(
    "code",
    [
        Code.MESSAGE_TOO_LARGE,
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
        Code.INVALID_PRODUCER_EPOCH,
    ],
)
async def test_a_refusal_for_good_is_reported(code: int) -> None:
    """No second try is made, and the next batch has its turn."""
    sending = Sending()
    sending.queue("a1")
    sending.queue("a2")
    await sending.sent(1)
    sending.broker().answer(code)
    assert await sending.sent(2) == {A: "a2"}
    assert sending.reported == {"a1": [failed(code)]}


async def test_an_answer_without_a_partition_leaves_no_batch_waiting() -> None:
    """Whatever the broker meant, the batch is not known to be stored."""
    sending = Sending()
    sending.queue("a1")
    sending.queue("b1", B)
    await sending.sent(1)
    sending.broker().answer(OK)
    await sending.until(lambda: len(sending.reported) == 2)
    assert sending.reported == {"a1": [100], "b1": [failed(Code.BROKE_OFF)]}


@pytest.mark.parametrize("refusal", [IncompatibleBrokerVersion("too old"), ValueError("odd")])
async def test_a_request_that_cannot_be_made_fails_its_batches(refusal: Exception) -> None:
    """Whatever the error is: otherwise their outcomes would never be reported."""
    sending = Sending()
    sending.broker().refusal = refusal
    sending.queue("a1")
    await sending.until(lambda: sending.reported)
    sending.broker().refusal = None
    sending.queue("a2")
    assert await sending.sent(1) == {A: "a2"}


async def test_a_connection_that_breaks_is_opened_anew() -> None:
    """A batch is handed over only once there is a connection."""
    sending = Sending()
    sending.client.open.clear()
    sending.client.reachable = False
    sending.queue("a1")
    await sending.until(lambda: sending.client.connects > 1)
    assert sending.batches["a1"].handed_over == 0
    sending.client.reachable = True
    await sending.sent(1)
    sending.broker().answers[-1].set_exception(KafkaConnectionError())
    await sending.sent(2)
    sending.broker().answer(OK)
    await sending.until(lambda: sending.reported)
    assert sending.reported == {"a1": [100]}


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("leader", [None, -1])
async def test_a_partition_without_leader_waits_for_one(
    leader: int | None, idempotent: bool
) -> None:
    """Metadata is requested until there is one; a request's timeout is no limit."""
    sending = Sending(seconds=0, idempotent=idempotent)
    sending.client.leaders[A] = leader
    sending.queue("a1")
    sending.queue("b1", B)
    assert await sending.sent(1) == {B: "b1"}
    await sending.until(lambda: sending.client.updates > 1)
    sending.client.leaders[A] = 2
    assert await sending.sent(1, node=2) == {A: "a1"}


async def test_a_broker_that_stamps_records_says_so_in_its_answer() -> None:
    """But to a duplicate it answers with the batch's own timestamp."""
    sending = Sending()
    sending.queue("a1")
    await sending.sent(1)
    sending.broker().answer(Code.REQUEST_TIMED_OUT)
    await sending.sent(2)
    sending.broker().answer(OK, stamped_ms=5)
    sending.queue("b1", B)
    await sending.sent(3)
    sending.broker().answer(OK)
    await sending.until(lambda: "b1" in sending.reported)
    assert not sending.delivery.stamped
    sending.queue("b2", B)
    await sending.sent(4)
    sending.broker().answer(OK, stamped_ms=5)
    await sending.until(lambda: "b2" in sending.reported)
    assert sending.delivery.stamped == {B.topic}


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_batch_is_sent_again_until_it_is_given_up(idempotent: bool) -> None:
    """Through an election and an outage longer than a request's timeout; its sender has a limit."""
    sending = Sending(seconds=0, idempotent=idempotent)
    sending.queue("a1")
    for number in (1, 2):
        await sending.sent(number)
        sending.broker().answer(Code.NOT_LEADER_OR_FOLLOWER)
    await sending.until(lambda: sending.client.updates > 1)
    sending.client.open.clear()
    sending.client.reachable = False
    await sending.until(lambda: sending.client.connects > 1)
    sending.client.reachable = True
    assert await sending.sent(3) == {A: "a1"}
    assert not sending.reported
    assert len(sending.encoded["a1"].sealed) == 1


async def test_without_acknowledgements_what_is_written_has_no_offset() -> None:
    """No broker answers; the next batch follows once the connection took the previous one."""
    sending = Sending(acks=0, idempotent=False)
    sending.queue("a1")
    sending.queue("a2")
    assert await sending.sent(2) == {A: "a2"}
    await sending.until(lambda: len(sending.reported) == 2)
    assert sending.reported == {"a1": [None], "a2": [None]}


async def test_a_withdrawn_batch_is_never_given_out() -> None:
    """Its bytes can no longer reach a connection; it has used no sequence numbers."""
    sending = Sending()
    sending.queue("a1")
    sending.queue("a2")
    sending.batches["a1"].withdrawn = True
    assert await sending.sent(1) == {A: "a2"}
    assert sending.reported == {"a1": [failed(Code.UNKNOWN)]}
    assert sending.batches["a1"].handed_over == 0
    assert sending.encoded["a2"].sealed == [(77, 3, 0)]
    with pytest.raises(WithdrawnError):
        sending.batches["a1"].data()


async def test_once_abandoned_only_what_is_underway_gets_its_answer() -> None:
    """Waiting batches fail at once; one that would be sent again fails at its answer."""
    sending = Sending()
    for name, at in (("a1", A), ("b1", B), ("a2", A)):
        sending.queue(name, at)
    await sending.sent(1)
    sending.delivery.abandon("as asked")
    assert sending.reported == {"a2": [failed(Code.BROKE_OFF)]}
    with pytest.raises(RequestError, match="as asked"):
        sending.queue("a3")
    answered = asyncio.ensure_future(sending.delivery.wait_idle(60))
    await asyncio.sleep(0)
    assert not answered.done()
    sending.broker().answer(OK, Code.NOT_LEADER_OR_FOLLOWER)
    await answered
    assert sending.reported == {
        "a2": [failed(Code.BROKE_OFF)], "a1": [100], "b1": [failed(Code.NOT_LEADER_OR_FOLLOWER)],
    }  # fmt: skip
    assert len(sending.broker().requests) == 1


async def test_what_waits_for_its_next_try_fails_when_all_is_abandoned() -> None:
    """Each batch is reported once."""
    sending = Sending()
    sending.queue("a1")
    await sending.sent(1)
    sending.broker().answer(Code.NOT_LEADER_OR_FOLLOWER)
    await sending.until(lambda: sending.client.updates)
    sending.delivery.abandon("as asked")
    await asyncio.sleep(10 * BACKOFF)
    assert sending.reported == {"a1": [failed(Code.BROKE_OFF)]}
    assert len(sending.broker().requests) == 1


def _append(waiting: list[Any], _offset: int | None, _error: RequestError | None) -> None:
    waiting.append("ended")


@pytest.mark.parametrize("code", [OK, Code.MESSAGE_TOO_LARGE])
async def test_a_batch_goes_once_it_has_ended(code: int) -> None:
    """Its callback refers to it: its megabyte must not wait for the garbage collector."""
    sending = Sending()
    gc.collect()
    gc.disable()
    try:
        batch = ReadyBatch(Encoded("a1"))
        waiting: list[Any] = [batch]
        sending.delivery.queue(batch, A, partial(_append, waiting))
        reference = weakref.ref(batch)
        await sending.sent(1)
        sending.broker().answer(code)
        await sending.until(partial(waiting.__contains__, "ended"))
        del batch, waiting
        await asyncio.sleep(0)
        assert reference() is None
    finally:
        gc.enable()
