"""Random histories that were once judged wrongly, by the product or by the simulation.

Each is stored as a plan and the seed of its world, not as a tape: each new kind of fault changes
what a tape means.
"""

from __future__ import annotations

from .history import Stage
from .judge import Judge
from .plan import Plan, Strike

FOUND: dict[str, tuple[Plan, str]] = {
    "recreated before a group had assigned it": (
        Plan(
            partitions=2, rate=40.0, producers=2, consumers=2, group=True, direct_ledger=True,
            compacted=True, mirror_lag=3.0, idempotent=False, detailed=True,
            strikes=(
                Strike("transaction_aborted", 1.0, 0.2, 1, 161),
                Strike("ledger_copy_recreated", 1.5, 0.25, 11, 10),
                Strike("requests_lost", 3.1, 0.2, 5, 10),
                Strike("topic_recreated_unseen", 3.6, 0.35, 6, 104),
                Strike("slow_answers", 5.4, 3.75, 9, 48),
            ),
        ),
        (
            "af5c70929b72e956ba3f0088653c363a71a9305d1fa4b8a50abe0f7415eb0a8a249ce3366843fa98f831a1f6"
            "55a189b9df8514a651d80c2deb8613db"
        ),
    ),
    "states gone with all who knew them": (
        Plan(
            strikes=(
                Strike("producer_killed", 0.0, 0.2),
                Strike("topic_recreated_unseen", 1.0, 0.2),
                Strike("states_recreated", 3.2, 0.2),
                Strike("consumer_killed", 5.0, 0.2),
            ),
        ),
        "000000000000000000000000caa30000000000420a000000006faa000000004020",
    ),
    "recreated before any consumer had reached the cluster": (
        Plan(
            strikes=(
                Strike("answers_lost", 0.0, 0.2),
                Strike("answers_lost", 0.0, 0.2),
                Strike("slow_answers", 1.0, 12.0),
                Strike("retention", 10.1, 0.2),
                Strike("topic_recreated", 11.7, 0.2),
            ),
        ),
        "000000000000000000000000d1f0fa73660000ee6500000000000000000000000000000000f575",
    ),
    "recreated before any consumer had reached the cluster, after a kill": (
        Plan(
            consumer_starts=2.0,
            strikes=(
                Strike("answers_lost", 2.3, 10.0, 6, 43),
                Strike("retention", 4.7, 0.2),
                Strike("consumer_killed", 5.7, 0.3, 10, 213),
                Strike("answers_lost", 8.6, 0.2, 8),
                Strike("topic_recreated", 9.6, 0.2),
            ),
        ),
        (
            "0000000040000092000000667116a70000000000ce00009800008feb99b62b27395c06cad5d16024000000009b"
            "764468"
        ),
    ),
    "grown twice while no consumer could look": (
        Plan(
            rate=40.0, consumers=2, group=True, read_committed=True, rehash=True, mirror_lag=0.3,
            consumer_starts=0.5, second_run=True, skewed=True,
            strikes=(
                Strike("partitions_added", 1.1, 3.0, 0, 65),
                Strike("requests_lost", 1.5, 5.25, 14, 15),
                Strike("own_topics_compacted", 3.8, 3.75, 9),
                Strike("partitions_added", 4.5, 1.25, 13, 150),
                Strike("destination_down", 8.6, 3.0, 8, 121),
            ),
        ),
        (
            "e7625c4abe313130cfe9b785d174ce623c2879819e32253900f1fb12000041850f1a83ae0fa72d0d016d967ffc"
            "007a9eaf00000035c3c1d218aa485547b4"
        ),
    ),
    "a part of a state displaced by an old one, and a kill": (
        Plan(
            partitions=2, rate=40.0, producers=2, consumers=2, read_committed=True,
            transactional=True, mirror_lag=0.3, drop_every=13, consumer_starts=0.5, skewed=True,
            strikes=(
                Strike("consumer_paused", 0.2, 1.5, 3, 119),
                Strike("topic_recreated", 3.2, 0.2, 3),
                Strike("old_state_record", 5.0, 1.25, 1, 110),
                Strike("consumer_killed", 5.5, 5.25, 7, 226),
                Strike("old_ledger_record", 5.7, 10.0, 13, 248),
            ),
        ),
        "82fe00da03e4f8a160a959a5355db1b3a12df87e37267327e2710295de2377ceaab9b9016e76980000e3",
    ),
    "states cut back by an unclean election": (
        Plan(
            partitions=2, consumers=2, direct_ledger=True, source_role=True, consumer_starts=2.0,
            strikes=(
                Strike("consumer_killed", 0.0, 0.2),
                Strike("consumer_killed", 0.0, 0.2),
                Strike("topic_recreated", 2.8, 0.2, 8),
                Strike("own_topic_cut", 2.9, 0.2, 11),
            ),
        ),
        "16000000008000bc000000d2a00000000000000000000000004794000038009a1d00005b",
    ),
    "a registration cut off by an unclean election": (
        Plan(
            partitions=1, second_run=True, skewed=True,
            strikes=(
                Strike("consumer_killed", 0.0, 0.2),
                Strike("consumer_killed", 0.0, 0.2),
                Strike("consumer_killed", 0.0, 0.2),
                Strike("producer_killed", 4.5, 0.2),
                Strike("own_topic_cut", 6.4, 0.2, 0, 56),
            ),
        ),
        "0000000000000000d900a5000bc62d00000000000000000000000000000000000000000000524000000038",
    ),
    "end marks cut off before they were read back": (
        Plan(
            partitions=2, direct_ledger=True, rehash=True, mirror_lag=0.3, drop_every=7,
            second_run=True, detailed=True,
            strikes=(
                Strike("mirror_killed", 0.0, 0.2, 0, 1),
                Strike("leaderless", 0.4, 10.0, 1, 222),
                Strike("answers_lost", 1.1, 4.5, 10, 18),
                Strike("own_topic_cut_refilled", 3.8, 10.0, 8),
                Strike("foreign_records", 9.2, 3.75, 4, 222),
            ),
        ),
        (
            "7315ac9ca2abca05ad6d10fc65d6f4f3adb1de600000000001cd836ade4a12825ccaa534de3c264f8dd8"
            "007d406972da2c0b395600c8b330854bb9adea8e6e"
        ),
    ),
    "a damaged state of a topic that does not exist any more": (
        Plan(
            group=True, source_role=True, compacted=True, consumer_starts=0.5,
            strikes=(
                Strike("own_topic_cut_refilled", 0.0, 0.2, 0, 122),
                Strike("topic_recreated", 2.4, 14.0, 0, 79),
                Strike("old_state_record", 4.6, 1.0, 13, 207),
                Strike("consumer_killed", 5.4, 0.25, 12, 87),
            ),
        ),
        "00000000000087db00909209224b905333704f0336006d2c578b2e8d885dcf3c000000007a",
    ),
    "acknowledged, and the log failed before that was durable": (
        Plan(
            messages=8, producers=2, direct_ledger=True, drop_every=13, detailed=True,
            strikes=(
                Strike("own_topic_cut_refilled", 0.0, 0.2, 0, 90),
                Strike("log_fails", 0.7, 0.25, 13, 53),
                Strike("answers_lost", 7.7, 1.75, 0, 208),
            ),
        ),
        (
            "8a9dd9002300ba042a0041206300c51dff00d065000000005a5e7f00cd2d3500000000000000000000000"
            "000000000000093"
        ),
    ),
    "states and their topic gone while their consumer stands still": (
        Plan(
            partitions=3, consumers=2, direct_ledger=True, compacted=True, mirror_lag=0.3,
            drop_every=13,
            strikes=(
                Strike("unclean_election_refilled", 0.0, 0.2),
                Strike("retention_unseen", 3.4, 10.0),
                Strike("topic_recreated", 3.5, 0.2),
                Strike("states_recreated", 3.5, 0.2),
                Strike("consumer_killed", 7.0, 0.2),
            ),
        ),
        "1700000035585acf0019fb00d11e2300000000220000000000284600000000d69b000000003d22cbe1",
    ),
    "a state gone with its topic, and its consumer, while another knew it": (
        Plan(
            partitions=1, consumers=2, direct_ledger=True, mirror_lag=1.0,
            strikes=(
                Strike("answers_lost", 3.8, 4.5, 0, 207),
                Strike("topic_recreated", 4.1, 0.35, 9),
                Strike("states_recreated", 7.3, 0.2),
                Strike("consumer_killed", 10.2, 0.2),
                Strike("ledger_recreated", 10.9, 0.2),
            ),
        ),
        "00000000008a00360082c2001176c100000000002612e600cfd56600000000232900cf8900b36d",
    ),
    "killed between its end marks and its end": (
        Plan(
            mirror_lag=3.0, consumer_starts=4.0,
            strikes=(
                Strike("answers_lost", 0.0, 3.0, 11, 0),
                Strike("own_topic_stale_leader", 0.7, 10.0, 0, 74),
                Strike("topic_recreated_unseen", 1.1, 3.75, 5, 144),
                Strike("answers_lost", 5.3, 0.3, 0, 32),
                Strike("producer_killed", 11.2, 1.0, 6, 0),
            ),
        ),
        "000000000000000005d3ed73a7ccfb8a61a5900000ae004b00003500ea00203ff71f59004aebe8610006",
    ),
    "recreated before its consumer had read any of it, and another knew the one before": (
        Plan(
            partitions=1, messages=50, consumers=2, rehash=True, mirror_lag=0.3,
            consumer_starts=0.5, idempotent=False, skewed=True,
            strikes=(
                Strike("topic_recreated", 0.0, 0.2, 13, 110),
                Strike("answers_lost", 0.0, 0.2),
                Strike("consumer_paused", 0.8, 5.25, 0, 238),
                Strike("topic_recreated", 2.7, 4.5, 11, 116),
                Strike("answers_lost", 9.8, 3.75, 4),
            ),
        ),
        "00c2c7289ab7ea11fccd92c16b777818006d6ef5939a628b7400dabeade40082f88aab00ee",
    ),
    "paused until its successor and the consumers had ended": (
        Plan(
            partitions=1, messages=20, successor=1.0,
            strikes=(
                Strike("answers_lost", 0.0, 0.2),
                Strike("producer_paused", 0.8, 12.0, 10),
                Strike("own_topic_cut_refilled", 0.8999999999999999, 0.2),
                Strike("consumer_killed", 3.2, 0.2, 2),
            ),
        ),
        "0000000000000000000000000a130928000000579848007200ec8003ce1a0000000000000000000010",
    ),
    "an old record of the ledger displaced the newest, and went by an election": (
        Plan(
            partitions=1, messages=20, direct_ledger=True, rehash=True, skewed=True,
            strikes=(
                Strike("answers_lost", 0.0, 0.2),
                Strike("unclean_election_refilled", 0.0, 0.2),
                Strike("answers_lost", 1.7, 8.0),
                Strike("old_ledger_record", 5.8, 14.0, 12, 228),
                Strike("own_topic_cut", 9.1, 0.2),
            ),
        ),
        "0000000071370004cc000000958d3ad75f0ce400116f009000000000000000a500000000003c5b",
    ),
    "cut off until its successor had ended, and the ledger was deleted": (
        Plan(
            messages=50, rate=10.0, read_committed=True, consumer_starts=2.0, idempotent=False,
            skewed=True,
            successor=1.0,
            strikes=(
                Strike("answers_lost", 0.0, 0.30000000000000004, 0, 2),
                Strike("answers_lost", 0.0, 0.2),
                Strike("answers_lost", 0.0, 0.2),
                Strike("ledger_recreated", 11.3, 8.0),
                Strike("own_topics_compacted", 11.799999999999999, 12.0, 0, 52),
            ),
        ),
        "0000dfb5000000007700158ae9bfee039a80345f710790000000000062000200000000000000000000000000680710c5",
    ),
    "a leader that was cut off showed what it had not committed": (
        Plan(
            strikes=(
                Strike("answers_lost", 0.0, 0.2),
                Strike("followers_stop", 2.0999999999999996, 8.0),
                Strike("stale_leader", 5.5, 0.2),
                Strike("topic_recreated", 7.1, 0.2),
            ),
        ),
        "000000000000000000000000b84d47000000000000000000005a8dc30000002137",
    ),
    "recreated while its only reader was paused that had first seen it as it was assigned": (
        Plan(
            partitions=3, topics=2, messages=50, rate=80.0, group=True, direct_ledger=True,
            read_committed=True, rehash=True, folded=True, mirror_lag=1.0, second_group=True,
            stranger="nothing",
            strikes=(
                Strike("log_slow", 0.6000000000000001, 0.2, 10, 129),
                Strike("topic_recreated_unseen", 1.2000000000000002, 10.0, 11, 214),
                Strike("requests_lost", 7.6, 0.2),
            ),
        ),
        (
            "11d7b33f00f1810727b600f087377e8c007a81a20c63ddcbd6994cf4000000000a24833700000000"
            "97b273"
        ),
    ),
    "a leader that was elected uncleanly, and then cut off, showed that the log had diverged": (
        Plan(
            partitions=3, messages=20, consumers=2, direct_ledger=True, read_committed=True,
            transactional=True, consumer_starts=2.0,
            strikes=(
                Strike("compaction", 0.0, 12.0, 13, 91),
                Strike("answers_lost", 0.0, 0.2),
                Strike("own_topic_cut_refilled", 1.5, 10.0, 8, 136),
                Strike("own_topic_stale_leader", 1.5, 3.0, 14, 46),
            ),
        ),
        "c800708c005d00f5840c097a9ae50fe7a9b88869ffc200fe2e02006bd21d5b",
    ),
    "an answer showed end marks that an unclean election had removed meanwhile": (
        Plan(
            partitions=2, messages=30, rate=20.0, read_committed=True, transactional=True,
            mirror_lag=3.0, drop_every=13, consumer_starts=0.5, skewed=True, stamps="source",
            strikes=(
                Strike("own_topic_stops", 1.0999999999999999, 10.0, 14, 27),
                Strike("leaderless", 4.0, 0.2, 6, 7),
                Strike("unclean_election_resent", 6.300000000000001, 0.25, 15, 130),
                Strike("slow_answers", 8.399999999999999, 10.0, 4, 79),
                Strike("own_topic_cut_refilled", 11.399999999999999, 3.0, 15, 145),
            ),
        ),
        (
            "3a5122f466d2aa71e2fb839971db28246426076afb57a91e1b3d724ee0cf91fa3f34c5ef821e544bad844f4e"
            "b37df5486bb80cc57d8cda70c60d"
        ),
    ),
    "a leader that was cut off showed where an epoch ends that it has never seen": (
        Plan(
            partitions=3, topics=2, messages=8, rate=10.0, producers=2, consumers=2, group=True,
            direct_ledger=True, read_committed=True, transactional=True, compacted=True,
            drop_every=13, second_run=True,
            strikes=(
                Strike("stale_leader", 0.1, 8.0, 4, 68),
                Strike("own_topic_stale_leader", 3.1000000000000005, 0.2, 7, 171),
            ),
        ),
        (
            "0ed34db9433147e7a3f83b00f8c9f19b9cf444151f34d447abdb189602007b223bcb61e15ca70bc1217becb5"
            "e13430d6883d6f813819cf63fce3a900abd845"
        ),
    ),
    "a state whose claim was deleted with the previous topic passed for one that others read": (
        Plan(
            partitions=3, messages=50, rate=80.0, group=True, source_role=True, mirror_lag=3.0,
            drop_every=13, skewed=True, second_group=True,
            strikes=(
                Strike("unclean_election_resent", 1.3, 0.25, 8, 102),
                Strike("log_fails", 2.6, 14.0, 0, 120),
                Strike("states_recreated", 4.6000000000000005, 1.5, 8, 197),
                Strike("states_recreated", 5.6, 1.0, 15, 100),
                Strike("topic_recreated_unseen", 7.6, 14.0, 12, 69),
            ),
        ),
        (
            "2984db270232cf98552b7d700ba2c4832fdc45222ee95228c54c38d5006f640c925f278078280ddc597866b4"
            "9e072cb60000000000a1978a40badf3ea33263"
        ),
    ),
    "a hole explained messages of two keys": (
        Plan(
            partitions=2, compacted=True, copies_alone=True, rehash=True, folded=True,
            drop_every=7, consumer_starts=4.0,
            strikes=(Strike("compaction", 3.0), Strike("compaction", 5.0)),
        ),
        "000000000000000000000013",
    ),
}  # fmt: skip
"""Name -> plan and seed."""


def play_found(name: str) -> tuple[Stage, list[str]]:
    """Play one; return its stage, and the problems that the judge finds now."""
    stage = Stage(*FOUND[name])
    stage.run()
    return stage, Judge(stage).judge()
