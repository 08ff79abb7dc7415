"""What a consumer tells at the end: its verdict, and why it may not be final."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrortest.config.client import IsolationLevel
from mirrortest.config.threshold import Series, evaluate, undecided
from mirrortest.consume.consume_report import Basis, ConsumeReport, counts_of
from mirrortest.consume.state_store import Partition
from mirrortest.model.findings import Finding
from mirrortest.seqlog.schema import Role
from mirrortest.verify.judge import RunVerdict
from mirrortest.verify.loss import all_ends_known, ended_earlier, read_past

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrortest.consume.assignment import Assignment
    from mirrortest.consume.consumer_log import ConsumerLog
    from mirrortest.consume.consumer_metrics import ConsumerMetrics
    from mirrortest.consume.end_offsets import EndOffsetSnapshot, Views
    from mirrortest.consume.judged_topics import JudgedTopics
    from mirrortest.consume.ledger_follower import LedgerFollower
    from mirrortest.consume.options import ConsumeOptions
    from mirrortest.verify.judge import StreamVerdict
    from mirrortest.wire.stream import StreamId


class Conclusion:
    """Makes the report of what the last round found."""

    def __init__(
        self,
        options: ConsumeOptions,
        *,
        topics: JudgedTopics,
        assignment: Assignment,
        ledger: LedgerFollower,
        measures: ConsumerMetrics,
        log: ConsumerLog,
    ) -> None:
        self._options = options
        self._topics = topics
        self._assignment = assignment
        self._follower = ledger
        self._measures = measures
        self._log_rows = log

    def report(
        self,
        views: Views,
        look: EndOffsetSnapshot,
        verdicts: dict[StreamId, StreamVerdict],
        *,
        away: str,
        notes: Sequence[str] = (),
    ) -> ConsumeReport:
        """What is told.

        `away`: why the cluster could not be read to its end; empty if it was. `notes`: what befell
        the partitions of other consumers.
        """
        befell = [note for held in self._assignment.partitions.values() for note in held.notes]
        befell = list(dict.fromkeys((*befell, *notes)))
        options, measures = self._options, self._measures
        checkers = [checker for view in views.values() for checker in view.values()]
        total = RunVerdict.of(verdicts.values(), checkers)
        silence = self._follower.silence(options.run)
        counts = counts_of(total, vouched=silence is None)
        intended, sent = measures.merged_latency()
        results = evaluate(
            options.thresholds,
            counts | {"negative_latency": intended.negative},
            total=total.acked,
            latencies={Series.LATENCY: intended, Series.SENT_LATENCY: sent},
        )
        doubts = [silence] if silence else self._doubts(total, verdicts, views, look, away=away)
        if not silence:
            doubts += befell
        if away:
            doubts.insert(0, f"the {self._place} could not be read to its end: {away}")
        return ConsumeReport(
            run=options.run,
            name=options.name,
            counts=counts,
            copies=total.copies,
            verdicts=verdicts,
            latency=measures.latency,
            thresholds=results,
            inconclusive=[*doubts, *undecided(results)],
            notes=self._notes(befell),
            messages=measures.messages,
            log=self._log_rows.where,
            partitions=[f"{at.topic}-{at.partition}" for at in sorted(self._assignment.partitions)],
            role=options.role,
            backlog=measures.backlog,
            rests_on=self._rests_on(views),
        )

    def _rests_on(self, views: Views) -> dict[str, Basis]:
        """By partition: what was read of it here, and what a state of others says of it."""
        mine = self._assignment.partitions
        found: dict[str, Basis] = {}
        for topic, view in sorted(views.items()):
            for number, checker in sorted(view.items()):
                held = mine.get(Partition(topic, number))
                over = checker.messages if held is None else held.taken_over
                found[f"{topic}-{number}"] = Basis(checker.messages - over, over)
        return found

    def _notes(self, befell: list[str]) -> list[str]:
        """What a reader should know that decides nothing, and what the doubts told already."""
        notes = [*self._options.notes, *befell, *self._measures.notes()]
        client = self._options.client
        if client.portable and client.isolation_level is IsolationLevel.READ_UNCOMMITTED:
            notes.append(
                "--portable cannot see transactions: if the mirror writes in any, consume with "
                "--command-property isolation.level=read_committed, or aborted messages count as "
                "delivered"
            )
        if malformed := self._follower.ledger.malformed:
            notes.append(
                f"{malformed:,} records of the ledger's topic {self._follower.where} are none of "
                "the ledger's, or damaged: somebody else writes to it"
            )
        notes += [
            f"{topic}: the {self._place} does not say whether it compacts the topic (grant "
            "DescribeConfigs on it): what a later message of its key could explain is not lost"
            for topic in sorted(self._topics.policy_hidden)
        ]
        if not self._assignment.sees_topic_ids:
            notes.append(
                "topic ids cannot be seen, by --portable or by the brokers' version: that a topic "
                "was deleted and created again, or a partition cut back, is seen after an outage "
                "or a restart of the consumer, and where offsets go back"
            )
        return notes

    @property
    def _place(self) -> str:
        return "source" if self._options.role is Role.SOURCE else "destination"

    def _doubts(
        self,
        total: RunVerdict,
        verdicts: dict[StreamId, StreamVerdict],
        views: Views,
        look: EndOffsetSnapshot,
        *,
        away: str,
    ) -> list[str]:
        """Why the verdict is not final, though the ledger speaks."""
        options, ledger = self._options, self._follower.ledger
        doubts = []
        if not total.acked:
            doubts.append(
                "no message was acknowledged, so that nothing is proven"
                + (f": the outcome of {total.unknown:,} is unknown" if total.unknown else "")
            )
        # Topics that only happen to match a pattern need not be the run's.
        lanes = ledger.lanes_of(options.run)
        vouched = {stream.topic for stream in lanes}
        for topic in options.topics:
            source = self._topics.judges[topic].source
            if source not in vouched:
                doubts.append(
                    f"{topic}: the ledger says nothing of {source!r}: do the producers of this "
                    "run write to it, and is the alias right?"
                )
        if unknown := sum(stream not in lanes for stream in verdicts):
            doubts.append(f"the ledger says nothing of {unknown:,} streams that were seen")
        missing = sorted(set(options.expect_producers) - ledger.producers(options.run))
        if missing:
            doubts.append(f"producers never heard of: {', '.join(missing)}")
        elif not self._follower.complete(options.run, options.expect_producers):
            doubts.append("not all producers have told their end")
        if failed := ledger.failed(options.run):
            doubts.append(f"producers ended by an error, before their time: {', '.join(failed)}")
        if partial := sorted(ledger.partial(options.run)):
            doubts.append(
                f"the ledger lacks parts of {len(partial):,} lanes, or somebody else wrote one "
                f"that contradicts them: {partial[0].topic}, producer {partial[0].producer}, "
                f"lane {partial[0].lane}"
            )
        doubts += look.doubts.values()
        if blocked := look.blocked_by_transactions(views):
            doubts.append(
                f"an open transaction holds back what stands behind it: {', '.join(blocked)}"
            )
        for topic, there in look.ends.items() if not away else ():
            if any(at[0] == topic for at in look.doubts):
                continue
            if not there:
                doubts.append(f"{topic} does not exist in the {self._place}")
            elif back := ended_earlier(views[topic], there):
                doubts.append(
                    f"{topic} ends before what was read of it, so that it was made again: "
                    f"partitions {back}"
                )
            elif not all_ends_known(views[topic], there):
                doubts.append(f"{topic} has fewer partitions than it had")
            behind = [n for n in sorted(there) if not read_past(views[topic], {n: there[n]})]
            if behind:
                doubts.append(f"{topic}: not read to the end: partitions {behind}")
        for topic in sorted(self._topics.policy_hidden):
            source = self._topics.judges[topic].source
            of_topic = [v for stream, v in verdicts.items() if stream.topic == source]
            if missing_here := sum(
                verdict.having(Finding.INCONCLUSIVE).count for verdict in of_topic
            ):
                doubts.append(
                    f"{topic}: the {self._place} does not say whether it compacts the topic (grant "
                    f"DescribeConfigs on it): that may be why {missing_here:,} messages are missing"
                )
        for finding, why in (
            (Finding.IN_FLIGHT, "acknowledged, not seen, and not overdue"),
            (Finding.INCONCLUSIVE, "may have stood where nobody could read"),
        ):
            if total.counts[finding]:
                doubts.append(f"{total.counts[finding]:,} messages {why}")
        if total.bounded or total.untracked:
            doubts.append("the checker passed its memory bound: ids were given up")
        return doubts
