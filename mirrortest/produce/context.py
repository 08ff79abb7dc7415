"""State that the parts of one producer share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirrortest.produce.clock import Clock

if TYPE_CHECKING:
    from mirrortest.produce.options import ProduceOptions
    from mirrortest.produce.pace import Pace
    from mirrortest.produce.recording import TopicNumbers
    from mirrortest.timing.shaped_rate import ShapedRate


@dataclass
class ProducerContext:
    """One producer's options, clock and counts; its incarnations share them."""

    options: ProduceOptions
    clock: Clock = field(default_factory=Clock)
    numbers: dict[str, TopicNumbers] = field(default_factory=dict)
    """By topic."""
    paces: dict[tuple[str, int], Pace] = field(default_factory=dict)
    """(topic, index of the lane) -> its schedule"""
    rates: dict[str, float | ShapedRate | None] = field(default_factory=dict)
    """topic -> messages/s or schedule of all producers together; None: unlimited"""
    began_ns: int = 0
    """When the schedules began, monotonic ns."""
    late_ns: int = 0
    """How long before the producer was ready; it skips what was due then."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Messages that were not acknowledged, by reason."""

    @property
    def skipped(self) -> int:
        """Messages of all topics that were due before the producer was ready."""
        return sum(pace.skipped for pace in self.paces.values())
