"""A consumer's options, for tests that need some."""

from __future__ import annotations

from typing import Any

from mirrortest.config.client_config import ClientConfig
from mirrortest.config.run_naming import TopicMapping
from mirrortest.consume.options import ConsumeOptions


def consume_options(**changed: Any) -> ConsumeOptions:
    """Options of consumer `c` of run `r1`, with changes; without a pattern its topic is `t`."""
    options: dict[str, Any] = {
        "run": "r1",
        "name": "c",
        "client": ClientConfig.load(bootstrap_server="localhost:1"),
        "mapping": TopicMapping(),
        "thresholds": (),
    }
    if "topic_pattern" not in changed:
        options["topics"] = ("t",)
    return ConsumeOptions(**options | changed)
