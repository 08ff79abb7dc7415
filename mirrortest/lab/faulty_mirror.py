"""The faulty mirror as a part of the lab: `mirrortest sabotage` between its clusters."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrortest.lab.mirror import AnyMirror

if TYPE_CHECKING:
    from pathlib import Path

    from mirrortest.lab.cluster import Cluster

_READY = "the mirror is ready"


@dataclass(frozen=True)
class FaultyMirrorSettings:
    """How the faulty mirror is to mirror.

    Attributes:
        spec: what it does wrong, a TOML file; None: it is a faithful mirror.
        truth: the directory where it writes down what it did, and goes on from; None: `truth` in
            the lab's own.
        topics: the regular expressions of the topics to mirror, separated by commas.
        exclude: those to leave out; None: the faulty mirror's own default.
        ledger_topic: what is copied as it is, unless an act names it.
    """

    spec: Path | None = None
    truth: Path | None = None
    topics: str = ".*"
    exclude: str | None = None
    ledger_topic: str = "mirrortest.ledger"


class FaultyMirror(AnyMirror[FaultyMirrorSettings]):
    """A mirror that does wrong on purpose and on record, in a process of its own."""

    def __init__(
        self,
        directory: Path,
        *,
        source: Cluster,
        destination: Cluster,
        settings: FaultyMirrorSettings | None = None,
    ) -> None:
        self._directory = directory
        super().__init__(
            (),
            directory,
            source=source,
            destination=destination,
            settings=settings or FaultyMirrorSettings(),
        )

    @property
    def truth(self) -> Path:
        """The directory where it writes down what it did."""
        return self.settings.truth or self._directory / "truth"

    def spawn(self) -> None:
        """Start it by its settings as they are now, and return at once."""
        wanted = self.settings
        command = [
            *(sys.executable, "-m", "mirrortest", "sabotage"),
            *("--source-bootstrap-server", self.source.bootstrap_servers),
            *("--destination-bootstrap-server", self.destination.bootstrap_servers),
            *("--source-alias", self.source.alias),
            *("--topics", wanted.topics),
            *("--ledger-topic", wanted.ledger_topic),
            *("--truth", str(self.truth.absolute())),
        ]
        if wanted.exclude is not None:
            command += ("--exclude", wanted.exclude)
        if wanted.spec is not None:
            command += ("--spec", str(wanted.spec.absolute()))
        self._command = tuple(command)
        super().spawn()

    def _runs(self) -> bool:
        return _READY in self.log_since_start()
