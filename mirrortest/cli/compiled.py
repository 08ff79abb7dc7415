"""Whether the compiled module is there, and made of the source that lies beside it."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from mirrortest.errors import InstallationError

_MODULE = "mirrortest.wire.kernels"
_AGAIN = "install mirrortest again (in a clone: make, or pip install -e .)"


def is_missing(failure: ImportError) -> bool:
    """Whether it is the compiled module that could not be imported."""
    return failure.name in {_MODULE, _MODULE.rpartition(".")[0]}


def missing() -> InstallationError:
    """The error to raise for it."""
    return InstallationError(f"{_MODULE} is not compiled for this Python: {_AGAIN}")


def check() -> None:
    """Compare the module, where it was imported, with the source beside it.

    An installation has none; in a clone, the source may have changed.

    Raises:
        InstallationError: it is of another source.
    """
    module = sys.modules.get(_MODULE)
    if module is None:
        return
    source = Path(str(module.__file__)).with_name("kernels.pyx")
    # Before it told its source, it was of another one.
    made_of = getattr(module, "SOURCE", None)
    if source.exists() and hashlib.sha256(source.read_bytes()).hexdigest() != made_of:
        raise InstallationError(f"{_MODULE} is compiled of another source than {source}: {_AGAIN}")
