"""The options of an observation: what it reads, and where it writes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import SplitResult, urlsplit

from mirrortest.config.client_config import ClientConfig
from mirrortest.config.option import POSITIVE_SECONDS, option
from mirrortest.errors import UsageError
from mirrortest.metrics.options import MetricsOptions
from mirrortest.model.observed import OBSERVATIONS


class Endpoint(NamedTuple):
    """The name of a broker or a mirror, and the URL of its metrics."""

    name: str
    url: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read NAME=URL; raises UsageError."""
        name, _, url = text.partition("=")
        address = _split(url)
        if address is not None and address.username is not None:
            raise UsageError(
                f"--scrape {name}=: the URL has a user's name, and no password can be sent: "
                "leave it out"
            )
        if not name or address is None:
            raise UsageError(
                f"--scrape {text!r}: must be NAME=URL, for example "
                "broker1=http://localhost:9404/metrics"
            )
        return cls(name, url)


def _split(url: str) -> SplitResult | None:
    """The parts of a URL that can be requested; None if it cannot be one."""
    try:
        address = urlsplit(url)
        host = (address.hostname or "").encode("idna")  # no part of it is empty or too long
        port = address.port
    except ValueError:
        return None
    web = address.scheme in {"http", "https"} and host and port != 0
    return address if web and re.fullmatch(r"[!-~]+", url) else None


@dataclass(frozen=True, kw_only=True)
class ObserveOptions(MetricsOptions):
    """A validated request, and the options of `mirrortest observe` that give it.

    Raises:
        UsageError: the interval is too short to measure anything, `log_dir` is without a run,
            `once` is without logs, or two endpoints have one name.
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
        Path(OBSERVATIONS),
        "A folder for each observation is created here.",
        env=True,
        metavar="DIR",
    )
    log_dir: Path | None = option(
        None,
        "Log directory of --run; changes of the machine are recorded there as events.",
        env=True,
        metavar="DIR",
    )
    scrape_interval: float = option(
        10.0,
        "How often the endpoints of --scrape are read: for a broker a scrape is work.",
        kind=POSITIVE_SECONDS,
        env=True,
    )
    by_partition: bool = option(
        False, "Also the figures of each partition, of brokers and of the mirror."
    )
    endpoints: tuple[Endpoint, ...] = ()
    pids: tuple[int, ...] = ()
    matches: tuple[str, ...] = ()
    gc_logs: tuple[Path, ...] = ()
    logs: tuple[Path, ...] = ()
    configurations: tuple[Path, ...] = ()
    clusters: tuple[ClientConfig, ...] = ()
    csv: bool = False
    once: bool = False
    """Read the logs once, from their beginning, instead of observing."""

    def __post_init__(self) -> None:
        """Refuse options that cannot work."""
        if self.log_dir is not None and self.run is None:
            raise UsageError("--log-dir needs --run")
        if self.once and not (self.gc_logs or self.logs):
            raise UsageError("--once reads logs: name them with --gc-log or --log")
        names = [each.name for each in self.endpoints]
        if twice := next((each for each in names if names.count(each) > 1), None):
            raise UsageError(
                f"--scrape {twice}=: two endpoints of this name: their figures would be mixed; "
                "give each its own"
            )
        if self.interval < 0.1:
            raise UsageError(
                f"--interval {self.interval:g}s: the kernel counts CPU in hundredths of a second; "
                "use at least 100ms"
            )
