"""The user's kubectl, in one context and namespace; errors end with kubectl's reason."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from typing import TYPE_CHECKING, Any

from mirrortest.config.suggestion import did_you_mean
from mirrortest.errors import LabError, UsageError
from mirrortest.host.error_text import reason_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SECONDS = 60
"""The longest time of a call; those that copy files have `_FETCH_SECONDS`."""
_FETCH_SECONDS = 600
_PREFIX = re.compile(r'^(error: |Error from server( \(\w+\))?: )?(error when creating "STDIN": )?')
_END_OF_ARCHIVE = bytes(1024)


class Kubectl:
    """Calls kubectl; without a context or a namespace, kubectl takes those of kubeconfig."""

    def __init__(self, context: str | None = None, namespace: str | None = None) -> None:
        self._options = [
            *(["--context", context] if context else ()),
            *(["--namespace", namespace] if namespace else ()),
        ]
        self._context = context

    def check(self) -> None:
        """Check what can be checked without asking the cluster.

        Raises:
            UsageError: kubectl is not installed, or has no such context.
            LabError: kubectl failed.
        """
        if shutil.which("kubectl") is None:
            raise UsageError("kubectl is not installed: install it")
        names = self("config", "get-contexts", "--output=name").split()
        if not names and not os.environ.get("KUBERNETES_SERVICE_HOST"):  # in a pod it needs none
            raise UsageError("kubectl has no context: set KUBECONFIG, or create ~/.kube/config")
        if self._context is not None and self._context not in names:
            valid = did_you_mean(self._context, names)
            raise UsageError(f"kubectl has no context {self._context!r}: {valid}")

    def __call__(self, *arguments: str, given: str | None = None) -> str:
        """Run kubectl with `given` as its input; returns its output.

        Raises:
            LabError: kubectl failed; the text ends with its reason.
        """
        done = self._run(
            arguments,
            _SECONDS,
            input=None if given is None else given.encode(),
            stdout=subprocess.PIPE,
        )
        return done.stdout.decode(errors="replace")

    def create(self, manifest: dict[str, Any]) -> str:
        """Create an object; returns its name. Raises LabError."""
        printed = self("create", "--filename=-", "--output=name", given=json.dumps(manifest))
        return printed.strip().rpartition("/")[2]

    def delete(self, kinds: str, *which: str, wait: bool) -> None:
        """Delete objects by name or selector, with a grace period of 1 s. Raises LabError."""
        how = ("--ignore-not-found", "--grace-period=1", f"--wait={str(wait).lower()}")
        self("delete", kinds, *which, *how, f"--timeout={_SECONDS - 5}s")

    def fetch(
        self, pod: str, container: str, directory: str, names: Sequence[str], into: Path
    ) -> None:
        """Copy `names` from a container's `directory`, in this order, with the container's tar.

        Raises:
            LabError: the copy failed, or is incomplete.
        """
        arguments = [
            *("exec", pod, f"--container={container}", "--"),
            *("tar", "--create", "--file=-", f"--directory={directory}", *names),
        ]
        try:
            with tempfile.TemporaryFile(dir=into) as file:
                self._run(arguments, _FETCH_SECONDS, stdin=subprocess.DEVNULL, stdout=file)
                file.seek(max(0, file.tell() - len(_END_OF_ARCHIVE)))
                if file.read() != _END_OF_ARCHIVE:
                    raise LabError("kubectl exec: the copy is incomplete")
                file.seek(0)
                with tarfile.open(fileobj=file) as archive:
                    archive.extractall(into, filter="data")
        except (OSError, tarfile.TarError) as error:
            raise LabError(f"files of {pod} cannot be written: {reason_of(error)}") from None

    def _run(
        self, arguments: Sequence[str], seconds: int, **streams: Any
    ) -> subprocess.CompletedProcess[bytes]:
        """Run kubectl with these streams, for at most `seconds`. Raises LabError."""
        try:
            done = subprocess.run(
                ["kubectl", *self._options, *arguments],
                stderr=subprocess.PIPE,
                timeout=seconds,
                check=False,
                process_group=0,  # Ctrl-C must not end it
                **streams,
            )
        except subprocess.TimeoutExpired:
            raise LabError(f"kubectl {arguments[0]}: no answer within {seconds} s") from None
        except OSError as error:
            raise LabError(f"kubectl cannot be run: {error.strerror}") from None
        if done.returncode:
            reason = _reason(done.stderr.decode(errors="replace"))
            raise LabError(f"kubectl {arguments[0]}: {reason}")
        return done


def _reason(output: str) -> str:
    """The last line of kubectl's errors, without the prefix."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return _PREFIX.sub("", lines[-1]) if lines else ""
