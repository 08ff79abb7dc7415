"""Whether the compiled modules exist, and were compiled from the sources next to them."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from mirrortest.errors import InstallationError

_PACKAGE = "mirrortest.wire"
MODULES = tuple(f"{_PACKAGE}.{name}" for name in ("digests", "kernels", "message_columns"))
_AGAIN = "install mirrortest again (in a clone: make, or pip install -e .)"


def is_missing(failure: ImportError) -> bool:
    """Whether it is a compiled module that could not be imported."""
    return failure.name in {_PACKAGE, *MODULES}


def missing() -> InstallationError:
    """The error to raise for it."""
    return InstallationError(f"{_PACKAGE} is not compiled for this Python: {_AGAIN}")


def check() -> None:
    """Compare the imported modules with the sources next to them.

    An installation has none; in a clone, a source may have changed.

    Raises:
        InstallationError: one was compiled from another source.
    """
    for name in MODULES:
        module = sys.modules.get(name)
        if module is None:
            continue
        source = Path(str(module.__file__)).with_name(name.rpartition(".")[2] + ".pyx")
        made_of = getattr(module, "SOURCE", None)
        if source.exists() and hashlib.sha256(source.read_bytes()).hexdigest() != made_of:
            raise InstallationError(
                f"{name} was compiled from another version of {source}: {_AGAIN}"
            )
