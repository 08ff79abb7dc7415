"""What this machine must provide: a disciplined clock, a place for logs, Java."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from mirrortest.config.units import format_duration
from mirrortest.doctor.check import Check, Level
from mirrortest.errors import JavaMissingError
from mirrortest.host.java import find_newest_java
from mirrortest.host.user_files import local_log_place, nearest_existing
from mirrortest.metrics.kernel_clock import known_clock_error_ns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LEAST_FREE = 1 << 30
_MOST_CLOCK_ERROR_NS = 100_000_000


def host_checks(log_dir: str, log_spool: str) -> Iterator[Check]:
    """Check the clock, the log directory and Java."""
    yield clock_check(known_clock_error_ns())
    yield disk_check(local_log_place(log_dir, log_spool)[1])
    yield java_check()


def clock_check(error_ns: int | None) -> Check:
    """Judge the kernel's bound of the wall clock's error; None: unknown."""
    subject = "clock"
    if error_ns is None:
        return Check(
            Level.WARNING,
            subject,
            "the kernel has no error bound for this clock: latencies have no error bar",
            "run an NTP daemon (chrony, systemd-timesyncd) on this machine and on all others of "
            "the test; inside a container, on its host",
        )
    found = f"this machine's clock is at most {format_duration(error_ns)} off"
    if error_ns > _MOST_CLOCK_ERROR_NS:
        return Check(
            Level.WARNING,
            subject,
            f"{found}: latencies are no more exact than that",
            "see why NTP does not come closer: `chronyc tracking` or `timedatectl timesync-status`",
        )
    return Check(Level.OK, subject, found)


def disk_check(directory: Path) -> Check:
    """Check whether logs can be written, and how much space is free."""
    subject = "sequence log"
    exists = nearest_existing(directory)
    if not exists.is_dir():
        return Check(Level.ERROR, subject, f"{exists} is not a directory", "give another --log-dir")
    if not os.access(exists, os.W_OK):
        return Check(
            Level.ERROR,
            subject,
            f"no permission to write to {exists}",
            "give another --log-dir, or the permission",
        )
    free = shutil.disk_usage(exists).free
    found = f"{directory.absolute()}: {free / 1e9:,.1f} GB free"
    if free < _LEAST_FREE:
        return Check(
            Level.WARNING,
            subject,
            found,
            "free some space: a log takes some bytes for each message that fails a check or is "
            "interleaved with others, with --log-detail messages for every message",
        )
    return Check(Level.OK, subject, found)


def java_check() -> Check:
    """Check whether the reconciliation can run on this machine."""
    try:
        java = find_newest_java("mirrortest reconcile")
    except JavaMissingError as error:
        return Check(
            Level.WARNING,
            "Java",
            str(error),
            "do so if this machine is to run `mirrortest reconcile`; producers and consumers need "
            "no Java",
        )
    return Check(Level.OK, "Java", f"Java {java.major} ({java.origin}): {java.executable}")
