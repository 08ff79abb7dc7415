"""What a faulty mirror's writers do about writes that fail."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrortest.config.client_config import ClientConfig
from mirrortest.errors import ClusterError
from mirrortest.faults.records import RawRecord
from mirrortest.faults.writers import RefusedError, Writers
from mirrortest.kafka.error_table import Code, RequestError
from mirrortest.kafka.sender import Sent
from mirrortest.model.findings import Outcome


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (Code.MESSAGE_TOO_LARGE, RefusedError),
        (Code.RECORD_LIST_TOO_LARGE, RefusedError),
        (Code.INVALID_TIMESTAMP, RefusedError),
        (Code.TOPIC_AUTHORIZATION_FAILED, RefusedError),
        (Code.NOT_ENOUGH_REPLICAS, ClusterError),
    ],
)
async def test_a_record_that_the_destination_refuses_for_good_ends_the_mirror(
    code: Code, raised: type[Exception]
) -> None:
    """It was written again without end: the refusals were looked for by other names."""
    error = RequestError(code, "t")

    async def send(*_: object) -> Sent:
        return Sent(Outcome.FAILED, -1, str(error), error.traits.failure)

    sender: Any = SimpleNamespace(send=send)
    client = ClientConfig(bootstrap_servers=("dc:9092",))
    writers = Writers(sender, client, cast("Any", None))
    writers.put("t", 0, RawRecord(b"x", 0), ())
    with pytest.raises(raised) as found:
        await writers.drain()
    assert type(found.value) is raised
    await writers.stop()
