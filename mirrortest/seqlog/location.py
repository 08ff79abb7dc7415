"""Where logs are stored: a local path, or the URI of any file system of pyarrow."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs

from mirrortest.config.visible import uri_without_secrets
from mirrortest.errors import SequenceLogError, UsageError
from mirrortest.host.error_text import reason_of
from mirrortest.host.user_files import expanded, replace_text

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Location:
    """A path on a pyarrow file system; another machine can `parse` its `uri`.

    A URI may carry credentials: print `shown`, which leaves them out.
    """

    filesystem: Any = field(repr=False)
    path: str
    uri: str = field(repr=False, default="")

    @classmethod
    def parse(cls, text: str | Path | Location) -> Location:
        """Parse a path or URI (``s3://bucket/logs``).

        Raises:
            UsageError: no file system fits, or there is no such bucket.
            SequenceLogError: an object store that must be asked for its region is out of reach.
        """
        if isinstance(text, Location):
            return text
        if isinstance(text, Path) or "://" not in text:
            path = str(expanded(text).absolute())
            return cls(fs.LocalFileSystem(), path, path)
        if text.startswith(("s3a://", "s3n://")):
            text = f"s3{text[3:]}"  # Hadoop's names for s3
        try:
            filesystem, path = fs.FileSystem.from_uri(text)
        except OSError as error:
            shown = uri_without_secrets(text)
            if str(error).startswith("Bucket '"):
                raise UsageError(f"{shown}: there is no such bucket") from None
            raise SequenceLogError(f"{shown}: cannot be reached: {reason_of(error)}") from error
        except (pa.ArrowException, ValueError):
            # The library's text repeats the URI, and with it the credentials.
            raise UsageError(
                f"{uri_without_secrets(text)}: no file system serves this address; give "
                "a path, or a file://, s3://, gs://, abfs:// or hdfs:// URI"
            ) from None
        return cls(filesystem, path, text)

    @property
    def local(self) -> bool:
        """Whether it is this machine's file system, where appending and syncing work."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    @property
    def shown(self) -> str:
        """The location as text for users, without credentials and query."""
        return uri_without_secrets(self.uri) or self.path

    def child(self, *names: str) -> Location:
        """The location below this one; a URI keeps its query at the end."""
        base, mark, query = self.uri.partition("?") if "://" in self.uri else (self.uri, "", "")
        tail = "/".join(names)
        uri = f"{base.rstrip('/')}/{tail}{mark}{query}" if self.uri else ""
        return Location(self.filesystem, f"{self.path.rstrip('/')}/{tail}", uri)

    def below(self, path: str) -> Location:
        """The location of `path`, which is this location's path or is below it."""
        inner = path[len(self.path.rstrip("/")) :].strip("/")
        return self.child(inner) if inner else self

    def buffer(self) -> pa.Buffer:
        """The file's bytes. Raises OSError or pyarrow's errors."""
        with self.filesystem.open_input_file(self.path) as file:
            return file.read_buffer()

    def read(self) -> bytes:
        """The file's bytes as `bytes`, for small files. Raises as `buffer` does."""
        return bytes(self.buffer().to_pybytes())

    def write_text(self, text: str) -> None:
        """Write a small document, replacing an existing one. Raises OSError or pyarrow's errors.

        On a local file system, a process that is killed meanwhile leaves the old document, or none.
        """
        if self.local:
            replace_text(Path(self.path), text)
        else:
            with self.filesystem.open_output_stream(self.path) as sink:
                sink.write(text.encode())

    @contextmanager
    def checked(self, done: str) -> Iterator[None]:
        """Turn the file system's errors into a SequenceLogError: it cannot be `done` (read)."""
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise SequenceLogError(f"{self.shown}: cannot be {done}: {reason_of(error)}") from error

    @property
    def parent(self) -> Location:
        """The location above this one."""
        base, mark, query = self.uri.partition("?") if "://" in self.uri else (self.uri, "", "")
        uri = f"{base.rstrip('/').rpartition('/')[0]}{mark}{query}" if self.uri else ""
        return Location(self.filesystem, self.path.rstrip("/").rpartition("/")[0], uri)
