"""What a consumer writes into its session, beside the rows."""

from __future__ import annotations

import json
from pathlib import Path

from mirrortest.config.client import ClientConfig
from mirrortest.config.run import TopicMapping
from mirrortest.consume.logbook import Logbook
from mirrortest.consume.options import ConsumeOptions


async def test_topics_and_partitions_that_come_later_are_in_the_session(tmp_path):
    """The reconciliation judges by the counts that consumers saw, the last ones included."""
    options = ConsumeOptions(
        run="r1",
        name="c",
        client=ClientConfig.load(bootstrap_server="localhost:1"),
        mapping=TopicMapping.parse(source_alias="A"),
        thresholds=(),
        topic_pattern="A[.].*",
        log_dir=str(tmp_path),
    )
    log = await Logbook.open(options, session="s", cluster="x", partitions={"A.t": 3})

    def told():
        topics = json.loads((Path(log.where) / "session.json").read_text())["topics"]
        return {topic: about["destination_partitions"] for topic, about in topics.items()}

    async with log:
        assert told() == {"t": 3}
        await log.know({"A.t": 5, "A.u": 2})
        assert told() == {"t": 5, "u": 2}
        await log.know({"A.u": 2})
        assert told() == {"t": 5, "u": 2}
    assert told() == {"t": 5, "u": 2}
