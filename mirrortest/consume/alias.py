"""The mirror's name for the source, found where no option gives it.

Leaving out `--source-alias` is the likeliest first mistake. The ledger rides the mirror like any
topic: where its copy has a prefix, and the topics to judge have the same one, that is the alias.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from mirrortest.config.run import TopicMapping, prefixes_of
from mirrortest.consume.judged_topics import INTERNAL
from mirrortest.errors import UsageError
from mirrortest.kafka.admin import Admin

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirrortest.consume.options import ConsumeOptions

_log = structlog.get_logger()


async def with_alias(options: ConsumeOptions) -> ConsumeOptions:
    """The same request, with the alias that the destination's topics show, if they show one.

    Raises:
        ClusterError: the cluster cannot be reached or refuses.
        UsageError: several aliases fit.
    """
    async with Admin(options.client) as admin:
        present = (await admin.matching(".*")).keys()
    found = alias_of(options, present)
    if found is None:
        return options
    note = (
        f"no --source-alias was given: {found.prefix}{options.ledger_topic} is there, so that "
        f"topics {found.prefix}* are taken for copies from {found.source_alias!r} "
        "(--source-alias '' if they are not)"
    )
    _log.info(note)
    return replace(options, mapping=found, notes=(*options.notes, note))


def alias_of(options: ConsumeOptions, present: Collection[str]) -> TopicMapping | None:
    """What the names of the destination's topics show: the mapping, or None where it is open.

    Raises UsageError where several aliases fit.
    """
    ledger = options.ledger_topic
    if ledger in present:
        return None  # the mirror keeps names, or the source is read itself
    wanted = options.topics or _matching(options, present)
    fitting = [
        (alias, separator)
        for alias, separator in prefixes_of(ledger, present)
        if wanted and all(topic.startswith(alias + separator) for topic in wanted)
    ]
    if len(fitting) > 1:
        choices = " or ".join(
            f"--source-alias {alias}" + (f" --separator {separator}" if separator != "." else "")
            for alias, separator in fitting
        )
        raise UsageError(
            f"several mirrors' copies of {ledger!r} are there, so that it is open which source is "
            f"meant: give {choices}"
        )
    return TopicMapping(source_alias=fitting[0][0], separator=fitting[0][1]) if fitting else None


def _matching(options: ConsumeOptions, present: Collection[str]) -> list[str]:
    """The topics that the pattern names, without those of mirrors and our own."""
    left_out = "|".join(
        (
            *(f".*{re.escape(name)}" for name in (options.ledger_topic, options.state_topic)),
            ".*heartbeats",
            *INTERNAL,
        )
    )
    wanted = f"(?!(?:{left_out})\\Z)(?:{options.topic_pattern})"
    return [topic for topic in present if re.fullmatch(wanted, topic)]
