"""session.json, which describes a log, and the layout of a log's files.

``LOGDIR/run=R/role=producer/NAME-SESSION/{session.json, 000001.parquet, 000002.journal}``, and
``intervals.parquet``, which is ``intervals.journal`` while the session runs. Digests (SHA-256) show
whether a byte of a finished file has changed since it was written.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import UTC, datetime
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from mirrortest import __version__
from mirrortest.config.document import DocumentPart
from mirrortest.errors import SequenceLogError
from mirrortest.seqlog.damage import Damage  # noqa: TC001  # pydantic reads it
from mirrortest.seqlog.options import Detail, Role
from mirrortest.seqlog.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

SESSION_FILE = "session.json"
INTERVALS_FILE = "intervals"
"""The name of the file with the figures of each reporting interval, without its suffix."""
JOURNAL = ".journal"
PARQUET = ".parquet"

_PREFIX = "sha256:"
_DIGEST = ',\n "digest": "{}"\n}}\n'
"""The end of the file: the digest of everything before it."""
_DIGEST_AT_END = re.compile(
    re.escape(_DIGEST.format("\0")).replace("\0", f"({_PREFIX}[0-9a-f]+)").encode() + rb"\Z"
)
CHANGED = "the file changed after it was written (its digest differs)"
_CHANGED_SESSION = (
    f"{CHANGED}: restore it from a copy, or move this session's directory away to judge the run "
    "without it"
)


def file_name(number: int, suffix: str) -> str:
    """The name of a log's file; numbers count from 1."""
    return f"{number:06d}{suffix}"


def digest(data: bytes | memoryview) -> str:
    """The digest of these bytes."""
    return _PREFIX + hashlib.sha256(data).hexdigest()


class DigestingFile:
    """A file open for writing that digests what is appended: the intended bytes, not the disk's.

    It has the methods that a Parquet writer uses. The caller closes the file that it opened.
    """

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        """The digest of all bytes written so far."""
        return _PREFIX + self._hash.hexdigest()

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes; returns how many. Raises OSError."""
        self._hash.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        """How many bytes the file has."""
        return self._file.tell()

    def flush(self) -> None:
        """Flush to the operating system. Raises OSError."""
        self._file.flush()


def new_session_id(now_ns: int) -> str:
    """A unique id that sorts by its start: ``20260101T101500Z-1f2e3d4c``."""
    return session_id(now_ns, secrets.token_hex(4))


def session_id(now_ns: int, tag: str) -> str:
    """The id of a session that started then; `tag` makes it unique."""
    at = datetime.fromtimestamp(now_ns // 1_000_000_000, tz=UTC)
    return f"{at:%Y%m%dT%H%M%SZ}-{tag}"


class Incarnation(DocumentPart):
    """An incarnation of partitions that a session read, or whose state it read.

    Attributes:
        number: the `topic_identity` of its rows; the consumers of one group count alike.
        topic_id: Kafka's id of the topic, the same for all these partitions.
        cuts: how often these partitions had been truncated before.
        since_ns: when the session first saw it.
    """

    number: int
    topic_id: str
    cuts: int = 0
    since_ns: int
    partitions: tuple[int, ...]


class Topic(DocumentPart):
    """A source topic as this session saw it; None is unknown (yet).

    Attributes:
        earlier_counts: partition counts that the destination had before.
        compacted: the topic that was read has been compacted at some time.
        policy_hidden: the cluster does not report the topic's cleanup policy.
        uncommitted: messages of the run were read whose transactions may have been aborted.
        stamped: messages were read whose timestamps brokers had set (LogAppendTime).
        stamped_at_source: the source's brokers set the timestamps of the topic's records.
        incarnations: of its partitions, if the cluster has topic ids; empty in logs of older
            versions.
        below_zero_ns: how far the lowest latency was below zero. It is exact once the session has
            ended; before, it is at least half of that. 0: no latency was below zero, or an older
            version wrote the log.
    """

    destination: str | None = None
    source_partitions: int | None = None
    destination_partitions: int | None = None
    earlier_counts: tuple[int, ...] = ()
    compacted: bool = False
    uncommitted: bool = False
    policy_hidden: bool = False
    stamped: bool = False
    stamped_at_source: bool = False
    incarnations: tuple[Incarnation, ...] = ()
    below_zero_ns: int = 0

    def united(self, other: Topic) -> Topic:
        """The topic as two copies of a session.json together record it."""
        partitions = self.destination_partitions, other.destination_partitions
        most = _most(*partitions)
        counts = {*self.earlier_counts, *other.earlier_counts, *partitions} - {None, most}
        flags = "compacted", "uncommitted", "policy_hidden", "stamped", "stamped_at_source"
        return self.model_copy(
            update={
                **{name: getattr(self, name) or getattr(other, name) for name in flags},
                "destination": self.destination or other.destination,
                "source_partitions": _most(self.source_partitions, other.source_partitions),
                "destination_partitions": most,
                "earlier_counts": tuple(sorted(counts)),
                "incarnations": tuple(dict.fromkeys((*self.incarnations, *other.incarnations))),
                "below_zero_ns": max(self.below_zero_ns, other.below_zero_ns),
            }
        )


def _most(*numbers: int | None) -> int | None:
    return max((number for number in numbers if number is not None), default=None)


class Note(DocumentPart):
    """A finished file: how many rows it has, and the digest of its bytes."""

    rows: int
    digest: str


class FileNote(DocumentPart):
    """A finished file of the session, the number of its rows, and the digest of its bytes.

    `digest` is None in logs of older versions.
    """

    name: str
    rows: int
    digest: str | None = None

    def rank(self) -> tuple[int, str]:
        """Of several files of this name, the one with the highest rank counts."""
        return self.rows, self.digest or ""


class Session(DocumentPart):
    """One process's log of one run: its writer, its settings, and whether it ended.

    Times are ns since the epoch.

    Attributes:
        ended_ns: null while the session runs, and if it crashed.
        looked_ns: when a consumer last read the partitions' end offsets; null: when it ended.
        expiry_logged: at its end a consumer logs the seqs whose deadline has passed (`expired`).
        clock_error_ns: the kernel's bound on the wall clock's error at the start; null: unknown.
        clocks_set_ns: by how much a consumer's latencies may be off because its wall clock or a
            producer's was set; 0: no clock was set, or an older version wrote the log.
        clean: all rows are in the listed files.
        judged_before: policies other than `expect_partition` that had judged the states from which
            a consumer continued.
        spooled: the last rows may be in a journal, here or in a spool, until the session ends or
            is salvaged.
        clusters: cluster ids of `source` and `destination`.
        settings: the options as the user gave them, without secrets, for users to read.
        client: the properties of its Kafka client as it uses them, by Kafka's names, without
            secrets; empty in logs of older versions.
        workload: what a producer was asked to send, as `produce --workload` reads it, without
            defaults.
        intervals: the file with the figures of each reporting interval, once it is finished.
        damage: what a salvage could not read.
        digested: the file had its own digest; older versions wrote none.
    """

    version: Literal[1] = 1
    schema_version: int = SCHEMA_VERSION
    mirrortest: str = __version__
    run: str
    role: Role
    name: str
    session: str
    detail: Detail = Detail.INTERVALS
    incarnation: int | None = None
    started_ns: int
    ended_ns: int | None = None
    looked_ns: int | None = None
    expiry_logged: bool = False
    clock_error_ns: int | None = None
    clocks_set_ns: int = 0
    clean: bool = False
    spooled: bool = False
    topics: dict[str, Topic] = Field(default_factory=dict)
    expect_partition: str | None = None
    judged_before: tuple[str, ...] = ()
    deadline_ns: int | None = None
    clusters: dict[str, str] = Field(default_factory=dict)
    settings: dict[str, str] = Field(default_factory=dict)
    client: dict[str, str] = Field(default_factory=dict)
    workload: dict[str, Any] = Field(default_factory=dict)
    files: tuple[FileNote, ...] = ()
    intervals: FileNote | None = None
    damage: tuple[Damage, ...] = ()
    digested: bool = Field(default=True, exclude=True)

    @model_validator(mode="after")
    def _readable(self) -> Self:
        if self.schema_version > SCHEMA_VERSION:
            raise ValueError(f"columns of version {self.schema_version}")
        return self

    @property
    def reader(self) -> str:
        """The group whose consumers count incarnations alike: a consumer group, or all shards."""
        return self.settings.get("consumer group", "shards")

    @property
    def horizon_ns(self) -> int | None:
        """Messages acknowledged by then were due at the session's last end-offset snapshot.

        It is a time of this host's clock; None if the session has not ended.
        """
        if self.ended_ns is None:
            return None
        looked = self.ended_ns if self.looked_ns is None else min(self.looked_ns, self.ended_ns)
        return looked - (self.deadline_ns or 0)

    @property
    def folders(self) -> tuple[str, str, str]:
        """The names of its directory and those above it, below LOGDIR."""
        return (f"run={self.run}", f"role={self.role.value}", f"{self.name}-{self.session}")

    def encode(self) -> bytes:
        """The file's content, with its digest at the end."""
        content = self.model_dump_json(indent=1).encode().removesuffix(b"\n}")
        return content + _DIGEST.format(digest(content)).encode()

    @classmethod
    def decode(cls, raw: bytes, where: str) -> Session:
        """Read the file's content; raises SequenceLogError that names `where`.

        A file without a digest is an older version's, unless it lists digests of other files.
        """
        found = _DIGEST_AT_END.search(raw)
        if found is not None and digest(raw[: found.start()]) != found[1].decode():
            raise SequenceLogError(f"{where}: {_CHANGED_SESSION}")
        try:
            session = cls.model_validate_json(raw)
        except ValidationError as error:
            first = error.errors()[0]
            at = ".".join(map(str, first["loc"])) or "content"
            raise SequenceLogError(
                f"{where}: not a session of this version of mirrortest: {at}: {first['msg']}"
            ) from None
        if found is None and any(note.digest is not None for note in session.files):
            raise SequenceLogError(f"{where}: {_CHANGED_SESSION}")
        return session.model_copy(update={"digested": found is not None})

    def rank(self) -> tuple[int, int, bool, bytes]:
        """Of copies of a session.json, the newest has the highest rank, as far as it shows."""
        rows = sum(note.rows for note in self.files)
        return self.ended_ns or 0, rows, not self.spooled, self.encode()

    def united(self, copies: Sequence[Session]) -> Session:
        """This session.json with all that its copies record of what can only grow."""
        topics = dict(self.topics)
        notes: dict[str, FileNote] = {}
        for each in copies:
            for name, topic in each.topics.items():
                topics[name] = topic.united(topics.get(name, topic))
            for note in each.files:
                notes[note.name] = max(note, notes.get(note.name, note), key=FileNote.rank)
        files = {*notes.values()}
        damage = (each.damage for each in copies if files.intersection(each.files))
        policies = {policy for each in copies for policy in each.judged_before}
        return self.model_copy(
            update={
                "topics": topics,
                "files": tuple(sorted(files, key=lambda note: note.name)),
                "damage": tuple(dict.fromkeys(chain(self.damage, *damage))),
                "incarnation": _most(*(each.incarnation for each in copies)),
                "judged_before": tuple(sorted(policies)),
                "clocks_set_ns": max(each.clocks_set_ns for each in copies),
            }
        )
