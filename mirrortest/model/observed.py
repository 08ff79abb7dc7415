"""The registry of an observed machine's figures: tables, names, types, units and meanings.

They are the columns of an observation's Parquet files and of their CSV copies.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from mirrortest.model.load import FLOAT, INT, TEXT

OBSERVATIONS = "observations"
"""The default folder of observations, next to that of logs."""


class Column(NamedTuple):
    """A figure of an observation; null if the system does not provide it."""

    name: str
    type: str
    unit: str
    meaning: str


class Observed(NamedTuple):
    """A table: each row is for one interval and one value of the key columns."""

    name: str
    keys: tuple[Column, ...]
    figures: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns in order."""
        return (*INTERVAL, *self.keys, *self.figures)


class Stage(NamedTuple):
    """A part of a request's time: its figure's name without the unit, and its title in charts."""

    name: str
    title: str
    meaning: str


INTERVAL = (
    Column("started_ns", INT, "ns since the epoch", "When the interval began."),
    Column("ended_ns", INT, "ns since the epoch", "When it ended."),
)


def _rate(name: str, unit: str, meaning: str) -> Column:
    return Column(f"{name}_per_second", FLOAT, f"{unit}/s", meaning)


def _ratio(name: str, meaning: str) -> Column:
    return Column(f"{name}_ratio", FLOAT, "0 to 1", meaning)


def _bytes(name: str, meaning: str) -> Column:
    return Column(f"{name}_bytes", INT, "bytes", meaning)


def _count(name: str, unit: str, meaning: str) -> Column:
    return Column(name, INT, unit, meaning)


def _mean(name: str, meaning: str) -> Column:
    return Column(f"{name}_seconds", FLOAT, "s", meaning)


HOST = Observed(
    "host",
    (),
    (
        _ratio("cpu", "CPU at work, of all CPUs: neither idle, nor waiting for I/O, nor stolen."),
        _ratio("user", "CPU in programs, those of a lower priority included."),
        _ratio("system", "CPU in the kernel, interrupts included."),
        _ratio("io_wait", "CPU idle while a request to a disk was pending."),
        _ratio("steal", "CPU that the hypervisor gave to other machines."),
        _ratio("idle", "CPU idle."),
        _rate("context_switches", "switches", "Context switches."),
        _rate("interrupts", "interrupts", "Interrupts."),
        _rate("forks", "processes", "Processes and threads created."),
        _count("running", "threads", "Threads that run or could run at the end."),
        _count("blocked", "threads", "Threads blocked by I/O at the end."),
        _ratio("cpu_pressure", "Time in which some thread waited for a CPU."),
        _ratio("io_pressure", "Time in which some thread waited for I/O."),
        _ratio("memory_pressure", "Time in which some thread waited for memory."),
        _bytes("memory", "Memory of the machine."),
        _bytes("available", "Memory that programs could get without swapping."),
        _bytes("page_cache", "Files' pages in memory."),
        _bytes("dirty", "Pages not written to their disk yet, those underway included."),
        _bytes("swap_used", "Swap in use."),
        _rate("swap_in_bytes", "bytes", "Read back from swap."),
        _rate("swap_out_bytes", "bytes", "Written to swap."),
        _rate("major_faults", "faults", "Page faults that needed a disk."),
        _rate("tcp_sent_segments", "segments", "TCP segments sent, retransmitted ones left out."),
        _rate("tcp_retransmits", "segments", "TCP segments sent again."),
        _rate("tcp_receive_errors", "segments", "TCP segments received damaged."),
    ),
)

DEVICE = Observed(
    "device",
    (Column("device", TEXT, "", "The disk, as the kernel names it."),),
    (
        _rate("reads", "requests", "Reads completed."),
        _rate("writes", "requests", "Writes completed."),
        _rate("flushes", "requests", "Flushes completed."),
        _rate("read_bytes", "bytes", "Read from the device."),
        _rate("written_bytes", "bytes", "Written to the device."),
        _ratio("read_merge", "Reads that were merged into another before the device got them."),
        _ratio("write_merge", "Writes that were merged into another before the device got them."),
        _mean("read", "Mean response time of reads, waiting included."),
        _mean("write", "Mean response time of writes, waiting included."),
        _mean("flush", "Mean time of flushes."),
        _mean("response", "Mean response time of reads and writes together."),
        Column("queue", FLOAT, "requests", "Mean number of requests that wait or are served."),
        Column(
            "waiting", FLOAT, "requests",
            "Mean number of requests that wait behind the first: the queue without the busy time.",
        ),
        _count("active", "requests", "Requests given to the device and unanswered at the end."),
        _ratio("busy", "Time in which the device had at least one request."),
    ),
)  # fmt: skip

INTERFACE = Observed(
    "interface",
    (Column("interface", TEXT, "", "The network interface."),),
    (
        _rate("received_bytes", "bytes", "Received."),
        _rate("sent_bytes", "bytes", "Sent."),
        _rate("received_packets", "packets", "Packets received."),
        _rate("sent_packets", "packets", "Packets sent."),
        _rate("errors", "packets", "Packets with errors, of both directions."),
        _rate("dropped", "packets", "Packets dropped, of both directions."),
    ),
)

PROCESS = Observed(
    "process",
    (
        Column("process", TEXT, "", "The name given with --match or --pid."),
        Column("pid", INT, "", "Its process id."),
    ),
    (
        _bytes("virtual", "Virtual size."),
        _bytes("resident", "Memory in use."),
        Column("cpus", FLOAT, "CPUs", "CPU at work for it: 2 is two CPUs all the time."),
        Column("user_cpus", FLOAT, "CPUs", "The part of it in the program."),
        Column("system_cpus", FLOAT, "CPUs", "The part of it in the kernel."),
        _count("threads", "threads", "Threads."),
        _count("descriptors", "files", "Open files and sockets."),
        _rate("major_faults", "faults", "Page faults that needed a disk."),
        _rate("requested_read_bytes", "bytes", "Bytes that its reads returned, sockets' included."),
        _rate("requested_written_bytes", "bytes", "Bytes that its writes took, sockets' included."),
        _rate("read_calls", "calls", "Its reads, of sockets, too."),
        _rate("read_bytes", "bytes", "Read from disks for it."),
        _rate("written_bytes", "bytes", "Written for it to the page cache, and so to disks."),
        _ratio(
            "cache_hit",
            "Of the bytes that its reads returned, those that no disk had to be read for; the "
            "bytes of sockets are among them.",
        ),
    ),
)


class GcKind(StrEnum):
    """The kind of a garbage collection event. Only pauses stop the program."""

    YOUNG = "young pause"
    FULL = "full pause"
    PAUSE = "pause"
    """A pause of a concurrent collection, for example remark."""
    CONCURRENT = "concurrent"
    """Work while the program runs; with G1, a full concurrent cycle."""
    PHASE = "phase"
    """A part of another event."""
    COLLECTION = "collection"
    """A ZGC collection, with its pauses and its concurrent work."""


PAUSES = frozenset({GcKind.YOUNG, GcKind.FULL, GcKind.PAUSE})


GC = Observed(
    "gc",
    (
        Column("log", TEXT, "", "The log's file. Each row is an event, with its own times."),
        Column("collector", TEXT, "", "Serial, Parallel, G1, ZGC, Shenandoah."),
        Column(
            "kind", TEXT, "",
            "young pause, full pause, pause (of a concurrent collection), concurrent, collection "
            "(ZGC's), or phase: a part of one of the others.",
        ),
        Column("name", TEXT, "", "What it is, as the log has it."),
        Column("cause", TEXT, "", "Why it was done, as the log has it."),
    ),
    (
        _count("number", "", "The collection's number in its JVM."),
        Column("seconds", FLOAT, "s", "How long it took."),
        _bytes("before", "Heap in use before."),
        _bytes("after", "Heap in use after."),
        _bytes("capacity", "Size of the heap."),
        _bytes("freed", "Decrease of the heap in use."),
    ),
)  # fmt: skip

LOG = Observed(
    "log",
    (
        Column("log", TEXT, "", "The log's file."),
        Column("kind", TEXT, "", "exception, error or warning."),
        Column(
            "type", TEXT, "", "The exception's class; without one, the logger that wrote the line."
        ),
    ),
    (
        _count("count", "entries", "Entries of this kind and type in the interval."),
        _count("first_ns", "ns since the epoch", "When the first of them was written."),
        _count("last_ns", "ns since the epoch", "When the last of them was written."),
        Column("example", TEXT, "", "The first of them, shortened."),
    ),
)

_ENDPOINT = Column("endpoint", TEXT, "", "The name given with --scrape.")
_TOPIC = Column("topic", TEXT, "", "The topic.")
_PARTITION = Column("partition", TEXT, "", "The partition; empty without --by-partition.")

BROKER = Observed(
    "broker",
    (_ENDPOINT,),
    (
        _rate("messages_in", "messages", "Messages written by clients."),
        _rate("bytes_in", "bytes", "Written by clients."),
        _rate("bytes_out", "bytes", "Read by clients."),
        _rate("replication_bytes_in", "bytes", "Fetched from leaders by this broker's followers."),
        _rate("replication_bytes_out", "bytes", "Fetched by followers on other brokers."),
        _rate("failed_produce_requests", "requests", "Produce requests that failed."),
        _rate("failed_fetch_requests", "requests", "Fetch requests that failed."),
        _ratio("handler_idle", "Time in which request handlers had nothing to do."),
        _ratio("network_idle", "Time in which network threads had nothing to do."),
        _rate("isr_shrinks", "events", "Replicas that left the in-sync replicas."),
        _rate("isr_expands", "events", "Replicas that came back to them."),
        _count("under_replicated_partitions", "partitions", "Partitions that miss a replica."),
        _count("offline_partitions", "partitions", "Partitions without a leader."),
        _count("under_min_isr_partitions", "partitions", "Partitions below min.insync.replicas."),
        _count("leaders", "partitions", "Partitions that it leads."),
        _count("produce_purgatory", "requests", "Produce requests that wait for replicas."),
        _count("fetch_purgatory", "requests", "Fetch requests that wait for data."),
        _rate("purgatory_expirations", "requests", "Expired fetch requests."),
        _rate("unclean_elections", "elections", "Leaders elected out of sync."),
        _rate("elections", "elections", "Leaders elected, where the controller counts them."),
        _mean("election", "Mean time of an election in the interval, where it is measured."),
        _rate("eligible_elections", "elections", "Leaders elected out of the eligible replicas."),
        _mean("quorum_election", "Mean time of the controllers' own elections."),
        _rate("quorum_high_watermark", "records", "Metadata records committed by the quorum."),
        _count("replica_max_lag", "messages", "The largest lag of a follower on this broker."),
        _count("replica_lag", "messages", "The lags of its followers together."),
        _rate("flushes", "flushes", "Flushes of logs to their disks."),
        _mean("flush", "Mean time of a flush in the interval."),
        _mean("flush_p99", "99 % of flushes were faster, as the broker estimates."),
    ),
)

STAGES = (
    Stage("request_queue", "in the queue", "Mean time in the request queue."),
    Stage("local", "at the log", "Mean time at the log."),
    Stage("remote", "in purgatory", "Mean time in purgatory: for replicas, or for data."),
    Stage("response_queue", "response queue", "Mean time of the response in its queue."),
    Stage("send", "sending", "Mean time to send the response."),
    Stage("throttle", "throttled", "Mean time throttled by quotas."),
)  # fmt: skip
"""The stages that make up a request's time, in order."""

REQUEST = Observed(
    "request",
    (_ENDPOINT, Column("request", TEXT, "", "Produce, FetchConsumer, FetchFollower, Metadata.")),
    (
        _rate("requests", "requests", "Requests."),
        _mean("total", "Mean time of a request in the interval."),
        _mean("total_p99", "99 % of requests were faster, as the broker estimates."),
        *(_mean(each.name, each.meaning) for each in STAGES),
    ),
)

PARTITION = Observed(
    "partition",
    (_ENDPOINT, _TOPIC, _PARTITION),
    (
        _rate("end_offset", "offsets", "Growth of the end offset."),
        _count("under_replicated", "", "1 while it misses a replica."),
        _count("replica_lag", "messages", "The lag of this broker's follower."),
    ),
)

MIRROR = Observed(
    "mirror",
    (_ENDPOINT, _TOPIC, _PARTITION),
    (
        _rate("records", "records", "Records that MirrorMaker 2 copied."),
        _rate("bytes", "bytes", "Their bytes."),
        _mean(
            "replication_latency",
            "Mean from a record's time to its copy; the worst partition.",
        ),
        _mean("replication_latency_max", "The longest of these."),
        _mean("record_age", "Mean from a record's time to when it was read; the worst partition."),
        _mean("record_age_max", "The longest of these."),
    ),
)

TABLES = (HOST, DEVICE, INTERFACE, PROCESS, GC, LOG, BROKER, REQUEST, PARTITION, MIRROR)
