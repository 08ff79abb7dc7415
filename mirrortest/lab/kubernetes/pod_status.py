"""The status of a client's pod, from Kubernetes' answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from mirrortest import __version__
from mirrortest.lab.kubernetes.manifest import CLIENT, KEEPER

_HOPELESS = {
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
}
"""Reasons of a waiting container that do not pass by themselves."""


@dataclass(frozen=True)
class PodStatus:
    """The status of a client's pod.

    Attributes:
        started: the client's container runs or has ended.
        exit_code: the exit code of the client's container; None before its end.
        reason: why that container or the pod ended, or why it does not start yet.
        hopeless: it will not start, or its files cannot be fetched.
    """

    started: bool = False
    exit_code: int | None = None
    reason: str = ""
    hopeless: bool = False

    @classmethod
    def of(cls, pod: dict[str, Any]) -> Self:
        """Read a pod's object of the API."""
        status = pod.get("status", {})
        states = {
            each["name"]: each.get("state", {}) for each in status.get("containerStatuses", ())
        }
        client, keeper = states.get(CLIENT, {}), states.get(KEEPER, {})
        of_pod = _text(status) if status.get("phase") == "Failed" else ""
        if ended := client.get("terminated"):
            why = "" if ended.get("reason") in {"Completed", "Error"} else _text(ended)
            return cls(started=True, exit_code=int(ended["exitCode"]), reason=of_pod or why)
        if lost := keeper.get("terminated"):
            why = f"exit code {lost['exitCode']}, {_text(lost)}"
            return cls(
                started="running" in client,
                reason=f"the container that keeps its files ended ({why}): does the image have "
                f"mirrortest {__version__}?",
                hopeless=True,
            )
        if of_pod:  # evicted before anything ran, or its node is lost
            return cls(reason=of_pod, hopeless=True)
        if "running" in client:
            return cls(started=True)
        waiting = client.get("waiting", {}), keeper.get("waiting", {})
        for each in waiting:
            if each.get("reason") in _HOPELESS:
                return cls(reason=_text(each), hopeless=True)
        conditions = status.get("conditions", ())
        unscheduled = (
            _text(each)
            for each in conditions
            if each.get("type") == "PodScheduled" and each.get("status") == "False"
        )
        return cls(reason=next(unscheduled, "") or _text(waiting[0]))


def _text(of: dict[str, Any]) -> str:
    """A reason with its message, if it has one."""
    return ": ".join(filter(None, (of.get("reason", ""), of.get("message", ""))))
