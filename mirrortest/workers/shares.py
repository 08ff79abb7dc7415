"""What each worker is asked to do, so that together they do what the user asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirrortest.consume.options import Shard
from mirrortest.errors import UsageError
from mirrortest.wire.stream import checked_name

if TYPE_CHECKING:
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.produce.options import ProduceOptions


def producers(options: ProduceOptions, workers: int) -> list[ProduceOptions]:
    """Producers NAME.1 to NAME.N, each with its part of the rate and of the messages.

    Raises:
        UsageError: there are fewer messages than workers, or a name becomes too long.
    """
    if options.num_records is not None and options.num_records < workers:
        raise UsageError(
            f"--workers {workers}: --num-records {options.num_records} leaves some without work"
        )
    return [
        replace(
            options,
            name=_name(options.name, index),
            throughput=None if options.throughput is None else options.throughput / workers,
            num_records=None
            if options.num_records is None
            else _part(options.num_records, index, workers),
            warmup_records=_part(options.warmup_records, index, workers),
        )
        for index in range(workers)
    ]


def consumers(options: ConsumeOptions, workers: int) -> list[ConsumeOptions]:
    """Consumers NAME.1 to NAME.N: members of the group, or each with a part of the partitions.

    When it is enough is told by the first, whose verdict counts, and by whoever watches them all:
    the others read until they are stopped.
    """
    return [
        replace(
            options,
            name=_name(options.name, index),
            shard=None if options.group else shard_of(options.shard, index, workers),
            until_complete=options.until_complete and index == 0,
            duration=None,
            idle_timeout=None,
        )
        for index in range(workers)
    ]


def shard_of(shard: Shard | None, index: int, workers: int) -> Shard:
    """A worker's part of a shard, or of all partitions; `index` from 0."""
    whole = shard or Shard(1, 1)
    return Shard(whole.index + whole.of * index, whole.of * workers)


def _name(name: str, index: int) -> str:
    return checked_name(f"{name}.{index + 1}")


def _part(count: int, index: int, workers: int) -> int:
    return count // workers + (index < count % workers)
