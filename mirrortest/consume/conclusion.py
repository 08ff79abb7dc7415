"""What a consumer logs and reports at its end: the verdict, and why it might not be final."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from mirrortest.config.client_config import IsolationLevel
from mirrortest.config.threshold import Series, evaluate, undecided
from mirrortest.consume.assigned_partition import JudgedUpTo
from mirrortest.consume.consume_report import Basis, ConsumeReport, counts_of
from mirrortest.consume.topic_judge import TopicRound
from mirrortest.model.findings import OPEN, Finding
from mirrortest.model.topic_partition import TopicPartition
from mirrortest.results.words import (
    in_transactions,
    partitions,
    several_processes,
    stamped,
    unproven_copies,
)
from mirrortest.seqlog.options import Role
from mirrortest.verify.judge import RunVerdict
from mirrortest.verify.loss import all_ends_known, ended_earlier, read_past

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mirrortest.consume.assigned_partition import AssignedPartition
    from mirrortest.consume.context import ConsumerContext
    from mirrortest.consume.end_offsets import EndOffsetSnapshot, Views
    from mirrortest.consume.partition_views import PartitionViews
    from mirrortest.verify.judge import StreamVerdict
    from mirrortest.wire.stream import StreamId


def conclusion(
    context: ConsumerContext,
    states: PartitionViews,
    views: Views,
    snapshot: EndOffsetSnapshot,
    *,
    ours: Iterable[AssignedPartition],
    complete: bool,
    unreachable: str,
) -> ConsumeReport:
    """Log and report the verdict of the last round.

    `ours` are the partitions that this consumer judged last. `unreachable` is why the cluster could
    not be read to its end; empty if it was.
    """
    verdicts = final_verdicts(context, views, complete=complete)
    if not unreachable:
        context.log.ends_asked(snapshot.at_ns)
    _log_expired(context, states, views, snapshot)
    for stream, verdict in verdicts.items():
        context.log.verdict(stream, verdict)
    context.log.vouched(context.ledger.ledger)
    # Last: a log with them, of a consumer that was killed here, has all that they rest on.
    log_tails(context, states, views, snapshot, ours)
    notes = [
        note
        for at, saved in states.saved()
        if at.topic in snapshot.ends
        for note in (saved.notes if saved else [f"{at}: the state of its consumer cannot be read"])
    ]
    notes += [
        f"{at}: a saved state was lost, or the topic was recreated before its "
        "consumer began: messages that may have been read or deleted before are inconclusive"
        for at in states.lost()
        if at.topic in snapshot.ends
    ]
    judges = context.topics.judges
    notes += [in_transactions(topic) for topic in snapshot.ends if judges[topic].uncommitted]
    rerouted = {saved.rerouted_from for _, saved in states.saved() if saved}
    rerouted |= {assigned.rerouted_from for assigned in context.partitions.values()}
    policies = sorted(filter(None, rerouted))
    concluded = _Conclusion(context, views, snapshot, verdicts, unreachable, policies)
    return concluded.report(notes)


def final_verdicts(
    context: ConsumerContext, views: Views, *, complete: bool
) -> dict[StreamId, StreamVerdict]:
    """The verdict on each stream; in a `complete` run, the ledger has every stream."""
    return {
        stream: verdict
        for topic, view in views.items()
        for stream, verdict in sorted(
            TopicRound(context.topics.judges[topic], context.ledger.ledger, view, closed=complete)
            .completed()
            .verdicts.items(),
            key=itemgetter(0),
        )
    }


def _log_expired(
    context: ConsumerContext, states: PartitionViews, views: Views, snapshot: EndOffsetSnapshot
) -> None:
    """Log the seqs whose deadlines had passed at the snapshot, for topics whose ends it has.

    If the reconciliation finds a message missing below these ends, it is lost if its seq is logged
    here. This way it need not compare this host's wall clock with the producers'. Nothing is logged
    of a topic if an earlier topic of its name, or an unreadable or lost state, was read by another
    consumer: only that consumer's log shows what it read, and this log may be missing.
    """
    unreadable = states.unreadable()
    for topic, view in views.items():
        ends, judge = snapshot.ends.get(topic), context.topics.judges[topic]
        unknown = topic in unreadable or judge.lost_states is not None
        if ends and not unknown and all_ends_known(view, ends):
            for stream, numbers in judge.losses.all_expired(snapshot.elapsed_ns):
                context.log.expired(stream, numbers)


def log_tails(
    context: ConsumerContext,
    states: PartitionViews,
    views: Views,
    snapshot: EndOffsetSnapshot,
    ours: Iterable[AssignedPartition],
) -> None:
    """Log where each partition ended and, for our partitions, how far they were judged.

    A consumer that is assigned a partition while it ends logs nothing of it. So each consumer logs
    the ends of all partitions, even of those that no consumer has read yet.
    """
    mine = {assigned.at: assigned.reached for assigned in ours}
    unjudged = {
        at: JudgedUpTo(
            context.topics.judges[topic].source, number, 0, 0, states.read_position(at).topic_id
        )
        for topic, ends in snapshot.ends.items()
        for number, end in ends.items()
        if end and number not in views.get(topic, ())
        for at in (TopicPartition(topic, number),)
    }
    others = {
        at: JudgedUpTo(
            context.topics.judges[at.topic].source,
            at.partition,
            saved.identity,
            views[at.topic][at.partition].next_offset,
            saved.topic_id,
            saved.cuts,
        )
        for at, saved in states.saved()
        if saved and at not in mine and at.partition in views.get(at.topic, ())
    }
    for at, reached in sorted((unjudged | others | mine).items()):
        end = snapshot.ends.get(at.topic, {}).get(at.partition)
        if end is None:
            continue
        if at in mine:
            context.log.tail(reached, end)
        elif end >= reached.next_offset:
            # Only its own consumer logs how far it was judged.
            context.log.tail(reached._replace(next_offset=0), end)


def _damaged(others: Views) -> Iterator[str]:
    """Notes on messages that seem damaged, in topics that are not the run's."""
    for topic, view in sorted(others.items()):
        if found := sum(checker.streamless[Finding.CORRUPTED] for checker in view.values()):
            yield unproven_copies(topic, found)


@dataclass(frozen=True)
class _Conclusion:
    """What the report is built from; `unreachable` is as in `conclusion`."""

    context: ConsumerContext
    views: Views
    snapshot: EndOffsetSnapshot
    verdicts: dict[StreamId, StreamVerdict]
    unreachable: str
    rerouted_from: Sequence[str]
    """Earlier --expect-partition policies; what they judged is judged anew by the present one."""

    def report(self, notes: Iterable[str]) -> ConsumeReport:
        """The report; `notes` are about other consumers' partitions."""
        context, options, metrics = self.context, self.context.options, self.context.metrics
        of_partitions = [note for each in self._ours for note in each.notes]
        of_partitions = list(dict.fromkeys((*of_partitions, *notes)))
        of_run = context.topics.of_run(self.views)
        others = {topic: view for topic, view in self.views.items() if topic not in of_run}
        total = RunVerdict.of(
            self.verdicts.values(),
            [checker for topic in of_run for checker in self.views[topic].values()],
            [checker for view in others.values() for checker in view.values()],
        )
        missing_reason = context.ledger.missing_reason(options.run)
        counts = counts_of(total, with_ledger=missing_reason is None)
        unknown = [missing_reason] if missing_reason else self._unknown(total)
        if self.unreachable:
            unknown.insert(0, f"the {self._side} could not be read to its end: {self.unreachable}")
        outstanding = None if unknown else sum(total.counts[each] for each in OPEN)
        intended, sent = metrics.merged_latency()
        results = evaluate(
            options.thresholds,
            counts | {"negative_latency": intended.negative},
            total=total.acked,
            latencies={Series.LATENCY: intended, Series.SENT_LATENCY: sent},
            excused=total.excused,
            outstanding=outstanding,
        )
        doubts = unknown if missing_reason else [*unknown, *self._open(total), *of_partitions]
        return ConsumeReport(
            run=options.run,
            name=options.name,
            counts=counts,
            copies=total.copies,
            verdicts=self.verdicts,
            latency=metrics.latency,
            thresholds=results,
            inconclusive=[*doubts, *undecided(results)],
            notes=[*self._notes(of_partitions), *_damaged(others)],
            reading=metrics.reading(self._lag),
            log=context.log.where,
            partitions=[str(at) for at in sorted(context.partitions)],
            role=options.role,
            backlog=metrics.backlog,
            rests_on=self._rests_on(),
            excused=total.excused,
            outstanding=outstanding,
        )

    @property
    def _lag(self) -> int | None:
        """Messages left to judge in our partitions; None if an end is unknown."""
        lags = self.snapshot.lags(self._ours)
        return None if len(lags) < len(self._ours) else sum(lags.values())

    @property
    def _ours(self) -> list[AssignedPartition]:
        """Our partitions of the run's topics; other topics only happen to match the pattern."""
        partitions = self.context.partitions.values()
        return [each for each in partitions if each.at.topic in self.snapshot.ends]

    def _rests_on(self) -> dict[str, Basis]:
        """By partition: how many messages this process read, and how many come from states."""
        mine = self.context.partitions
        found: dict[str, Basis] = {}
        for topic, view in sorted(self.views.items()):
            for number, checker in sorted(view.items()):
                assigned = mine.get(TopicPartition(topic, number))
                from_states = checker.messages if assigned is None else assigned.taken_over
                found[f"{topic}-{number}"] = Basis(checker.messages - from_states, from_states)
        return found

    def _notes(self, of_partitions: list[str]) -> list[str]:
        """The report's remarks; those on partitions are among the doubts, too."""
        notes = [*self.context.options.notes, *of_partitions, *self.context.metrics.notes()]
        notes += self.context.stalls.notes
        client, run = self.context.options.client, self.context.options.run
        metrics = self.context.metrics
        read = metrics.backlog.total() + metrics.merged_latency()[0].count
        before = sum(each.taken_over for each in self._ours)
        if before and not read and before == sum(each.checker.messages for each in self._ours):
            notes.append(
                f"this consumer read no message of run {run}: all had been judged before it "
                "started. For a new test use a new --run"
            )
        if self.rerouted_from:
            notes.append(
                f"messages were judged by --expect-partition {', '.join(self.rerouted_from)} "
                "before: their partition was judged again by --expect-partition "
                f"{self.context.options.expect_partition}"
            )
        if client.portable and client.isolation_level is IsolationLevel.READ_UNCOMMITTED:
            notes.append(
                "--portable cannot see transactions: if the mirror writes in any, consume with "
                "--command-property isolation.level=read_committed, or aborted messages count as "
                "delivered"
            )
        if malformed := self.context.ledger.ledger.malformed:
            notes.append(
                f"{malformed:,} records in the ledger topic {self.context.ledger.where} are "
                "damaged or not ledger records: another program writes to it"
            )
        notes += [
            f"{topic}: no permission to see whether the {self._side} compacts the topic (grant "
            "DescribeConfigs on it): a missing message is not lost where a later message of its "
            "key could explain it"
            for topic in sorted(self.context.topics.policy_hidden)
        ]
        topics = self.context.topics
        at_source = {topics.judges[topic].source for topic in topics.stamped_at_source}
        notes += [stamped(topic, self._side) for topic in sorted(topics.stamped)]
        notes += [stamped(topic, "source") for topic in sorted(at_source)]
        if not self.context.reader.sees_topic_ids:
            notes.append(
                "no topic ids (--portable, or brokers older than Kafka 3.1): a topic that was "
                "recreated or a partition that was truncated is detected only after an outage, "
                "after a restart of the consumer, and where offsets go back"
            )
        return notes

    @property
    def _side(self) -> str:
        return "source" if self.context.options.role is Role.SOURCE else "destination"

    def _unknown(self, total: RunVerdict) -> list[str]:
        """Why it is unknown, by the ledger, what was sent, or what of it arrived."""
        options, ledger = self.context.options, self.context.ledger.ledger
        doubts = []
        if not total.acked:
            doubts.append(
                "no message was acknowledged, so nothing is proven"
                + (f": the outcome of {total.unknown:,} is unknown" if total.unknown else "")
            )
        # Only named topics: those that match a pattern need not be the run's.
        lanes, with_ledger = ledger.lanes_of(options.run), self.context.topics.recorded
        for topic in options.topics:
            source = self.context.topics.judges[topic].source
            if source not in with_ledger:
                doubts.append(
                    f"{topic}: the ledger has no records of {source!r}: do the producers of this "
                    "run write to it, and is the alias right?"
                )
        if unknown := sum(stream not in lanes for stream in self.verdicts):
            doubts.append(f"the ledger has no records of {unknown:,} streams that were read")
        missing = sorted(set(options.expect_producers) - ledger.producers(options.run))
        if missing:
            doubts.append(f"producers without a record in the ledger: {', '.join(missing)}")
        elif not self.context.ledger.complete(options.run, options.expect_producers):
            doubts.append("not all producers have recorded their end")
        if contested := ledger.contested(options.run):
            doubts.append(several_processes(contested))
        if partial := sorted(ledger.partial(options.run)):
            doubts.append(
                f"the ledger lacks parts of {len(partial):,} lanes, or another program wrote "
                f"one that contradicts them: {partial[0].topic}, producer {partial[0].producer}, "
                f"lane {partial[0].lane}"
            )
        doubts += self.snapshot.doubts.values()
        if blocked := self.snapshot.blocked_by_transactions(self.views):
            doubts.append(f"an open transaction blocks all records behind it: {', '.join(blocked)}")
        for topic, there in self.snapshot.ends.items() if not self.unreachable else ():
            if any(at[0] == topic for at in self.snapshot.doubts):
                continue
            if not there:
                doubts.append(f"{topic} does not exist in the {self._side}")
            elif back := ended_earlier(self.views[topic], there):
                doubts.append(
                    f"{topic} ends below the offsets that were read, so it was recreated: "
                    f"{partitions(back)}"
                )
            elif not all_ends_known(self.views[topic], there):
                doubts.append(f"{topic} has fewer partitions than it had")
            behind = [n for n in sorted(there) if not read_past(self.views[topic], {n: there[n]})]
            if behind:
                doubts.append(f"{topic}: not read to the end: {partitions(behind)}")
        if total.bounded or total.untracked:
            doubts.append("the checker reached its memory limit and dropped ids")
        return doubts

    def _open(self, total: RunVerdict) -> list[str]:
        """Why the verdict is not final, although it is known what was sent and all is read."""
        doubts = []
        if failed := self.context.ledger.ledger.failed(self.context.options.run):
            doubts.append(f"producers failed before they had sent everything: {', '.join(failed)}")
        for topic in sorted(self.context.topics.policy_hidden):
            source = self.context.topics.judges[topic].source
            of_topic = [v for stream, v in self.verdicts.items() if stream.topic == source]
            if missing_here := sum(
                verdict.having(Finding.INCONCLUSIVE).count for verdict in of_topic
            ):
                doubts.append(
                    f"{topic}: no permission to see whether the {self._side} compacts the topic "
                    f"(grant DescribeConfigs on it): that may be why {missing_here:,} messages are "
                    "missing"
                )
        holes = any(checker.holes for view in self.views.values() for checker in view.values())
        emptied = ", or that compaction emptied" if holes else ""
        for finding, why in (
            (Finding.IN_FLIGHT, "acknowledged, not seen, and not overdue"),
            (
                Finding.INCONCLUSIVE,
                f"may have been in offsets that no consumer could read{emptied}",
            ),
        ):
            if total.counts[finding]:
                doubts.append(f"{total.counts[finding]:,} messages {why}")
        return doubts
