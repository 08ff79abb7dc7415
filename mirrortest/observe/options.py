"""What is to be observed, and where that is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mirrortest.config.option import POSITIVE_SECONDS, option
from mirrortest.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class ObserveOptions:
    """A validated request, and the options of `mirrortest observe` that give it.

    Raises:
        UsageError: the interval is too short to measure anything.
    """

    name: str
    run: str | None = None
    interval: float = option(
        1.0, "How often everything is read; at least 100ms.", kind=POSITIVE_SECONDS, env=True
    )
    duration: float | None = option(
        None, "End after this time. Default: at Ctrl-C or SIGTERM.", kind=POSITIVE_SECONDS, env=True
    )
    output: Path = option(
        Path("observations"),
        "A folder for each observation is created here.",
        env=True,
        metavar="DIR",
    )
    pids: tuple[int, ...] = ()
    matches: tuple[str, ...] = ()
    gc_logs: tuple[Path, ...] = ()
    logs: tuple[Path, ...] = ()
    csv: bool = False
    once: bool = False
    """Read logs from their beginning and end, instead of observing what comes."""

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if self.once and not (self.gc_logs or self.logs):
            raise UsageError("--once reads logs: name them with --gc-log or --log")
        if self.interval < 0.1:
            raise UsageError(
                f"--interval {self.interval:g}s: the kernel counts CPU in hundredths of a second; "
                "use at least 100ms"
            )
