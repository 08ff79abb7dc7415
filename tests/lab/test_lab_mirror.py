"""The lab mirrors, and its parts can be hurt and healed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirrortest.lab import Lab

pytestmark = pytest.mark.lab


def test_a_new_topic_is_mirrored(lab: Lab, topic_name: Callable[[], str]) -> None:
    """A topic made on the source appears in the destination, with its partitions, prefixed."""
    topic = topic_name()
    lab.source.create_topic(topic, 3)
    assert lab.mirror.wait_topic(topic) == f"A.{topic}"
    assert lab.destination.partitions(f"A.{topic}") == 3
