"""Imports specifications of Trogdor's workloads as workloads of mirrortest.

Trogdor is Apache Kafka's own framework for load and faults; a specification is JSON, as its
`createTask` takes it. Trogdor's rates and numbers of messages are for all topics together,
mirrortest's for each topic. Fields without a counterpart become remarks with the reason. No remark
repeats the value of a client property, which may be a secret.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from mirrortest.config.option_file import TOO_DEEP, value_of
from mirrortest.config.run_naming import checked_topics
from mirrortest.config.suggestion import did_you_mean
from mirrortest.config.units import MILLISECOND_NS, exact_duration, exact_number
from mirrortest.config.visible import visible
from mirrortest.errors import UsageError
from mirrortest.produce.workload import LOAD_PROPERTIES, WholeWorkload
from mirrortest.wire.form import Form
from mirrortest.wire.message import value_size
from mirrortest.wire.payload import MAX_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
_OPTIONS = {"acks": "acks", "compression.type": "compression", "linger.ms": "linger-ms"}
"""Client properties that have options of their own."""
_LONG_ID = 80
"""Bytes of a producer's id with a long name."""
_WINDOW_MS = 100
"""Trogdor's default window."""
_MAX_NUMBER = (1 << 63) - 1
"""The largest number that Trogdor itself reads."""
_LAST_MS = _MAX_NUMBER // MILLISECOND_NS
"""The last moment of a schedule, in the year 2262."""


class Imported(NamedTuple):
    """A workload as a document, and remarks on what it lacks of the specification."""

    document: dict[str, Any]
    remarks: list[str]


def import_trogdor(text: str, *, where: str, now_ns: int) -> Imported:
    """Read a specification: ProduceBench, ConfigurableProducer, RoundTripWorkload, ConsumeBench.

    Raises:
        UsageError: it is none of these, or has a wrong value; the text begins with `where`.
    """
    try:
        # Trogdor's own examples have comments.
        found = json.loads(_COMMENT.sub("", text))
    except RecursionError:
        raise UsageError(f"{where}: {TOO_DEEP}") from None
    except ValueError as error:
        raise UsageError(f"{where} is not JSON: {error}") from None
    task = _Table(found, where)
    spec = task.table("spec") if task.has("spec") else task
    return _Import(spec, now_ns).imported()


class _Table:
    """An object of the specification; it notes which of its fields were read."""

    def __init__(self, found: Any, where: str) -> None:
        if not isinstance(found, dict):
            raise UsageError(f"{where}: must be an object: {{ ... }}")
        self.where = where
        self._fields: dict[str, Any] = found
        self._taken: set[str] = set()
        self._tables: dict[str, _Table] = {}

    def has(self, name: str) -> bool:
        """Whether the object has this field."""
        return name in self._fields

    def all(self) -> dict[str, Any]:
        """All fields, for an object whose field names are data."""
        self._taken |= self._fields.keys()
        return self._fields

    def take(self, name: str) -> Any:
        """A field's value; None if it is null or absent."""
        self._taken.add(name)
        return self._fields.get(name)

    def properties(self) -> dict[str, str | int | float]:
        """All fields, for an object of Kafka's properties; those that are null are left out."""
        return {
            name: self._property(name, value)
            for name, value in self.all().items()
            if value is not None
        }

    def _property(self, name: str, value: Any) -> str | int | float:
        """A property's value as Kafka reads it: not True, nor 16384.0."""
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, str | int | float):
            raise UsageError(f"{self.where}: {visible(name)}: must be a text or a number")
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def text(self, name: str) -> str:
        """A field's text; empty if it is absent."""
        value = self.take(name)
        if not isinstance(value, str | None):
            raise UsageError(f"{self.where}: {name}: must be a text")
        return value or ""

    def number(
        self, name: str, *, default: int = 0, least: int | None = None, most: int = _MAX_NUMBER
    ) -> Fraction:
        """A field's number; `default` if it is absent."""
        value = self.take(name)
        if value is None:
            return Fraction(default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(f"{self.where}: {name}: must be a number")
        if not abs(value) <= most:  # also for NaN
            raise UsageError(f"{self.where}: {name}: must be a number of at most {most}")
        if least is not None and value < least:
            raise UsageError(f"{self.where}: {name}: must be at least {least}")
        return Fraction(value)

    def table(self, name: str) -> _Table:
        """A field's object; without fields if it is absent."""
        found = _Table(self.take(name) or {}, f"{self.where}: {name}")
        return self._tables.setdefault(name, found)

    def unread(self) -> list[str]:
        """The fields that were not read, nested ones included."""
        below = [
            f"{name}.{each}" for name, table in self._tables.items() for each in table.unread()
        ]
        return [*sorted(self._fields.keys() - self._taken), *below]


class _Import:
    def __init__(self, spec: _Table, now_ns: int) -> None:
        self._spec = spec
        self._now_ns = now_ns
        self._document: dict[str, Any] = {}
        self._remarks: list[str] = []

    def imported(self) -> Imported:
        """Read the specification."""
        spec = self._spec
        kind = spec.text("class").rpartition(".")[2]
        readers: dict[str, Callable[[], None]] = {
            "ProduceBenchSpec": self._produce_bench,
            "ConfigurableProducerSpec": self._configurable_producer,
            "RoundTripWorkloadSpec": self._round_trip,
            "ConsumeBenchSpec": self._consume_bench,
        }
        if kind not in readers:
            raise UsageError(
                f"{spec.where}: class {kind!r}: {did_you_mean(kind, readers)}: other "
                "specifications are no workloads of producers or consumers"
            )
        servers = spec.text("bootstrapServers")
        if servers:
            self._remark("bootstrapServers", f"give --bootstrap-server {servers}")
        for node in ("producerNode", "consumerNode", "clientNode"):
            if spec.text(node):
                self._remark(node, "start the command on that machine")
        readers[kind]()
        self._times()
        for name in spec.unread():
            self._remark(name, "this field is not supported for this class")
        value_of(self._document, WholeWorkload, spec.where)
        return Imported(self._document, self._remarks)

    def _remark(self, field: str, why: str) -> None:
        self._remarks.append(f"{field}: {why}")

    # -- the four classes -----------------------------------------------------------------------

    def _produce_bench(self) -> None:
        spec = self._spec
        self._several_topics()
        self._value(spec.table("valueGenerator"), {"type": "constant", "size": 512})
        self._key()
        if spec.take("transactionGenerator") is not None:
            self._remark("transactionGenerator", "producers send outside of transactions")
        if spec.take("inactiveTopics"):
            self._remark("inactiveTopics", "topics without load are not created: create them first")
        if spec.take("useConfiguredPartitioner"):
            self._remark("useConfiguredPartitioner", "messages go to all partitions in turn")
        if spec.take("skipFlush"):
            self._remark("skipFlush", "nothing is flushed: batches wait for linger-ms at most")
        self._client("producerConf")

    def _configurable_producer(self) -> None:
        spec = self._spec
        topics = self._topics("activeTopic")
        if len(topics) != 1:
            raise UsageError(f"{spec.where}: activeTopic: must be one topic, not {len(topics)}")
        self._flush(spec.table("flushGenerator"))
        self._throughput(spec.table("throughputGenerator"))
        self._value(spec.table("valueGenerator"), {})
        self._key()
        partition = spec.number("activePartition")
        if partition >= 0:
            self._document["only-partition"] = int(partition)
        self._client("producerConf")

    def _round_trip(self) -> None:
        spec = self._spec
        self._several_topics()
        self._value(
            spec.table("valueGenerator"), {"type": "uniformRandom", "size": 32, "padding": 10}
        )
        self._client("producerConf")
        if spec.take("consumerConf"):
            self._remark("consumerConf", "give consume these properties by --command-config")
        self._remark("class", "the messages are read and judged by mirrortest consume")

    def _consume_bench(self) -> None:
        spec = self._spec
        names = spec.take("activeTopics") or []
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            raise UsageError(f"{spec.where}: activeTopics: must be a list of topics: [...]")
        topics = dict.fromkeys(name.partition(":")[0] for name in names)
        if any(":" in name for name in names):
            self._remark(
                "activeTopics", "consume reads all partitions; --shard selects a share of them"
            )
        self._document["topics"] = ",".join(topics)
        threads = spec.number("threadsPerWorker", default=1) or spec.number("threadCount")
        most = spec.number("maxMessages")
        consume = ["mirrortest consume", f"--topics {','.join(topics)}"]
        if most:
            consume.append(f"--num-records {int(most * threads)}")
        if threads > 1:
            consume.append(f"--workers {int(threads)}")
        if group := spec.text("consumerGroup"):
            consume.append(f"--consumer-group {group}")
        self._remark("class", f"it only reads, which is: {' '.join(consume)}")
        self._remark("class", "the workload has its topics; give it the load that is to be read")
        if spec.take("targetMessagesPerSec"):
            self._remark("targetMessagesPerSec", "consumers read as fast as messages arrive")
        if spec.take("recordProcessor"):
            self._remark("recordProcessor", "latencies are always measured, from each message")
        self._client("consumerConf")

    # -- what they share ------------------------------------------------------------------------

    def _times(self) -> None:
        spec = self._spec
        start_ns = int(spec.number("startMs", most=_LAST_MS) * MILLISECOND_NS)
        if start_ns > self._now_ns:
            moment = datetime.fromtimestamp(start_ns / 1e9, UTC)
            self._document["start-at"] = moment.isoformat(timespec="milliseconds")
        elif start_ns > 0:
            self._remark("startMs", "it is in the past: the load begins at once, as in Trogdor")
        if duration := spec.number("durationMs"):
            self._document["duration"] = exact_duration(int(duration * MILLISECOND_NS))

    def _several_topics(self) -> None:
        """Read topics that share a rate and a number of messages."""
        spec = self._spec
        count = len(self._topics("activeTopics"))
        # Trogdor sends at least one message in each of its windows.
        rate = max(spec.number("targetMessagesPerSec"), Fraction(1000, _WINDOW_MS))
        self._document["throughput"] = float(rate / count)
        most = spec.number("maxMessages")
        each = -(-most // count)
        if each < 1:
            raise UsageError(f"{spec.where}: maxMessages: must be at least 1")
        self._document["num-records"] = int(each)
        if each * count != most:
            self._remark("maxMessages", f"{int(each * count):,}, so that all topics get as many")

    def _topics(self, name: str) -> list[str]:
        """Read the topics, and how they are created; return their names."""
        topics = self._spec.table(name)
        names = ",".join(topics.all())
        found = list(checked_topics(names, option=topics.where))
        if not found:
            raise UsageError(f"{topics.where}: must name at least one topic")
        created: list[dict[str, Any]] = []
        for topic in topics.all():
            created.append(self._new_topic(topics.table(topic), f"{name}: {topic}"))
            if created[-1] != created[0]:
                self._remark(
                    f"{name}: {topic}", "all topics are created with the first one's settings"
                )
        self._document |= {"topics": names, "create-topics": True, **created[0]}
        return found

    def _new_topic(self, spec: _Table, field: str) -> dict[str, Any]:
        count = max(int(spec.number("numPartitions")), 0) or 1
        replicas = max(int(spec.number("replicationFactor")), 0) or 3
        assigned = spec.table("partitionAssignments").all()
        if assigned:
            count = len(assigned)
            self._remark(f"{field}: partitionAssignments", "brokers are chosen by Kafka")
        configs = spec.table("configs").properties()
        found = {"partitions": count, "replication-factor": replicas}
        settings = [f"{key}={value}" for key, value in configs.items()]
        return found | ({"topic-config": settings} if settings else {})

    def _key(self) -> None:
        if self._spec.take("keyGenerator") is not None:
            self._remark("keyGenerator", "a key is its lane's number, by which order is judged")

    def _flush(self, spec: _Table) -> None:
        match spec.text("type"):
            case "":
                return
            case "constant":
                count = int(spec.number("messagesPerFlush", least=1))
                self._document["batch-messages"] = count
            case "gaussian":
                mean = spec.number("messagesPerFlushAverage", least=1)
                deviation = spec.number("messagesPerFlushDeviation", least=0)
                self._document["batch-messages"] = f"gaussian({_shown(mean)}, {_shown(deviation)})"
            case other:
                raise UsageError(f"{spec.where}: type {other!r}: use constant or gaussian")

    def _throughput(self, spec: _Table) -> None:
        kind = spec.text("type")
        window = max(int(spec.number("windowSizeMs")), 0) or _WINDOW_MS
        windows_per_second = Fraction(1000, window)
        if kind == "constant":
            count = spec.number("messagesPerWindow") * windows_per_second or spec.number(
                "messagesPerSecond"
            )
            self._document["throughput"] = float(count) if count > 0 else -1
            return
        if kind != "gaussian":
            raise UsageError(f"{spec.where}: type {kind!r}: use constant or gaussian")
        # The second names are those of Trogdor's own example.
        mean = spec.number("messagesPerWindowAverage", least=0) * windows_per_second
        mean = mean or spec.number("messagesPerSecondAverage", least=0)
        deviation = spec.number("messagesPerWindowDeviation", least=0) * windows_per_second
        deviation = deviation or spec.number("messagesPerSecondDeviation", least=0)
        windows = spec.number("windowsUntilRateChange", least=1, default=1)
        every = exact_duration(int(windows * 1000 / windows_per_second * MILLISECOND_NS))
        shape = f"gaussian({_shown(mean)}, {_shown(deviation)}, every={every})"
        self._document["throughput"] = shape

    def _value(self, spec: _Table, default: dict[str, Any]) -> None:
        if not spec.has("type"):
            spec = _Table(default, spec.where)
        kind = spec.text("type")
        if kind == "randomComponent":
            self._choice(spec)
            return
        size = spec.number("size", least=0)
        constant = Fraction(kind.casefold().endswith("constant") or kind == "sequential")
        match kind:
            case "constant" | "sequential" | "timestampRandom" | "timestampConstant":
                self._size(int(size))
            case "uniformRandom":
                self._size(int(size))
                constant = spec.number("padding", least=0) / size if size else constant
            case "gaussianTimestampRandom" | "gaussianTimestampConstant":
                mean = spec.number("messageSizeAverage", least=1)
                deviation = spec.number("messageSizeDeviation", least=0)
                every = max(int(spec.number("messagesUntilSizeChange")), 1)
                sizes = f"gaussian({round(mean)}, {round(deviation)}, every={every})"
                self._document["message-size"] = sizes
                self._seed(spec)
            case "null":
                self._remark("valueGenerator", "every message has a value, which carries its id")
            case other:
                raise UsageError(f"{spec.where}: type {other!r}: is not a Trogdor generator")
        share = round(min(constant, Fraction(1)) * 100)
        if share:
            self._document["payload-compressibility"] = share / 100

    def _seed(self, spec: _Table) -> None:
        if seed := spec.number("seed", least=0):
            self._document["seed"] = int(seed)

    def _size(self, size: int) -> None:
        self._document["message-size"] = size
        _, fill = value_size(_LONG_ID, Form.BODY, min(size, MAX_SIZE))
        if fill is None:
            self._document["form"] = Form.HEADERS.value
            self._remark(
                "valueGenerator",
                f"{size} bytes are too few for a message's id and its proof: they are in headers",
            )

    def _choice(self, spec: _Table) -> None:
        """Read several generators; only their sizes are used."""
        parts = []
        components = spec.take("components")
        if not isinstance(components, list):
            raise UsageError(f"{spec.where}: components: must be a list: [...]")
        for found in components:
            component = _Table(found, f"{spec.where}: components")
            of = component.table("component")
            share = component.number("percent", least=1)
            size = of.number("size") or of.number("messageSizeAverage")
            parts.append(f"{int(size)}:{_shown(share)}")
        self._document["message-size"] = f"choice({', '.join(parts)})"
        self._seed(spec)
        self._remark(
            "valueGenerator", "only the sizes of its components are used, not their contents"
        )

    def _client(self, name: str) -> None:
        """Read the client properties of the load; remarks name the option for the others."""
        properties = {
            **self._spec.table("commonClientConf").properties(),
            **self._spec.table(name).properties(),
        }
        elsewhere: list[str] = []
        for key, value in properties.items():
            if name == "producerConf" and key in _OPTIONS:
                self._document[_OPTIONS[key]] = "all" if str(value) == "-1" else value
            elif name == "producerConf" and key in LOAD_PROPERTIES:
                self._document.setdefault("command-property", []).append(f"{key}={value}")
            else:
                elsewhere.append(key)
        elsewhere += self._spec.table("adminClientConf").all()
        for key in dict.fromkeys(elsewhere):
            self._remark(f"client property {key}", "give it by --command-config")


def _shown(number: Fraction) -> str:
    return exact_number(float(number))
