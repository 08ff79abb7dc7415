"""session.json: what stands beside a log's files, so that the log explains itself.

Layout: ``LOGDIR/run=R/role=producer/NAME-SESSION/{session.json, 000001.parquet, 000002.journal}``.
"""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mirrortest import __version__
from mirrortest.errors import SequenceLogError
from mirrortest.seqlog.batches import Detail
from mirrortest.seqlog.damage import Damage  # noqa: TC001  # pydantic reads it
from mirrortest.seqlog.digest import PREFIX, digest
from mirrortest.seqlog.schema import SCHEMA_VERSION, Role

SESSION_FILE = "session.json"
_DIGEST = ',\n "digest": "{}"\n}}\n'
"""How the file ends: with the digest of all that stands before."""
_DIGEST_AT_END = re.compile(
    re.escape(_DIGEST.format("\0")).replace("\0", f"({PREFIX}[0-9a-f]+)").encode() + rb"\Z"
)
_CHANGED = (
    "its bytes are not those that were written (its digest differs): restore it from a copy, or "
    "move this session's directory away to judge the run without it"
)


def new_session_id(now_ns: int) -> str:
    """An id that sorts by its start and is unlike any other's: ``20260101T101500Z-1f2e3d4c``."""
    return session_id(now_ns, secrets.token_hex(4))


def session_id(now_ns: int, tag: str) -> str:
    """The id of a session that started then; `tag` is what makes it unlike any other's."""
    at = datetime.fromtimestamp(now_ns // 1_000_000_000, tz=UTC)
    return f"{at:%Y%m%dT%H%M%SZ}-{tag}"


class _Model(BaseModel):
    # A newer writer's additions do not hinder a reader; a new meaning raises the version.
    model_config = ConfigDict(frozen=True, extra="ignore")


class Topic(_Model):
    """A source topic as this session knew it; None is not known (yet).

    `earlier_counts` are partition counts that the destination had before. `compacted` tells whether
    the topic that was read has been seen to be compacted, `policy_hidden` whether its cluster does
    not say; `uncommitted` whether messages of the run were read whose transactions may have been
    aborted.
    """

    destination: str | None = None
    source_partitions: int | None = None
    destination_partitions: int | None = None
    earlier_counts: tuple[int, ...] = ()
    compacted: bool = False
    uncommitted: bool = False
    policy_hidden: bool = False


class FileNote(_Model):
    """A finished file of the session, the number of its rows, and the digest of its bytes.

    `digest` is None in logs of versions that wrote none.
    """

    name: str
    rows: int
    digest: str | None = None


class Session(_Model):
    """One process's log of one run: who wrote it, with which settings, and whether it ended.

    `started_ns` and `ended_ns` are ns since the epoch; `ended_ns` is null while the session runs,
    and for ever if it crashed. `looked_ns` is when a consumer asked for the last time where the
    partitions end; null: as it ended. `expiry_logged` says that a consumer logs, as it ends, which
    numbers' deadlines were past then (`expired` rows); `clock_error_ns` is how far its wall clock
    may have been off at most, as the kernel said at the start; null: it did not say. `clean` says
    that all rows are in the listed files. `spooled` says that the last of them may still lie in a
    spool: nobody has brought them home. `clusters` maps `source` and `destination` to cluster
    ids. `settings` is what the user asked for, by option and without secrets: for people to read.
    `damage` is what a salvage could not read. `digested` says that the file carried its own digest;
    versions before wrote none.
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
    clean: bool = False
    spooled: bool = False
    topics: dict[str, Topic] = Field(default_factory=dict)
    expect_partition: str | None = None
    deadline_ns: int | None = None
    clusters: dict[str, str] = Field(default_factory=dict)
    settings: dict[str, str] = Field(default_factory=dict)
    files: tuple[FileNote, ...] = ()
    damage: tuple[Damage, ...] = ()
    digested: bool = Field(default=True, exclude=True)

    @model_validator(mode="after")
    def _readable(self) -> Self:
        if self.schema_version > SCHEMA_VERSION:
            raise ValueError(f"columns of version {self.schema_version}")
        return self

    @property
    def horizon_ns(self) -> int | None:
        """What was acknowledged by then, by this host's clock, was due when it looked last.

        None where it has not ended: then nobody knows when it did.
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

        A file without a digest is of a version before, unless digests of other files stand in it.
        """
        told = _DIGEST_AT_END.search(raw)
        if told is not None and digest(raw[: told.start()]) != told[1].decode():
            raise SequenceLogError(f"{where}: {_CHANGED}")
        try:
            session = cls.model_validate_json(raw)
        except ValidationError as error:
            first = error.errors()[0]
            at = ".".join(map(str, first["loc"])) or "content"
            raise SequenceLogError(
                f"{where}: not a session of this version of mirrortest: {at}: {first['msg']}"
            ) from None
        if told is None and any(note.digest is not None for note in session.files):
            raise SequenceLogError(f"{where}: {_CHANGED}")
        return session.model_copy(update={"digested": told is not None})
