"""Which aiokafka the seam is made for, and the error for another one."""

from __future__ import annotations

from mirrortest.errors import ClusterError

SERIES = "0.14"
"""The series of aiokafka that `seam` is made for."""


def refusal(what: str) -> ClusterError:
    """The error for an aiokafka whose insides are not those that are known."""
    return ClusterError(
        f"this aiokafka cannot be used: {what}; install 'aiokafka=={SERIES}.*', as mirrortest is "
        "tested with, or say --portable: then produce, consume and reconcile go by its public "
        "calls, which costs more"
    )
