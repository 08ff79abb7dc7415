"""Check that the compiled modules exist and match the sources next to them."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from mirrortest.errors import InstallationError

_PACKAGE = "mirrortest.wire"
MODULES = tuple(f"{_PACKAGE}.{name}" for name in ("digests", "kernels", "message_columns"))
_REINSTALL = "install mirrortest again (in a clone: make, or pip install -e .)"


def is_missing(failure: ImportError) -> bool:
    """Whether an import failed because a compiled module is missing."""
    return failure.name in {_PACKAGE, *MODULES}


def missing() -> InstallationError:
    """The error to raise for a missing compiled module."""
    return InstallationError(f"{_PACKAGE} is not compiled for this Python: {_REINSTALL}")


def check() -> None:
    """Compare the imported modules with the sources next to them.

    An installed package has no sources. In a clone, a source may have changed since.

    Raises:
        InstallationError: a module was compiled from another version of its source.
    """
    for name in MODULES:
        module = sys.modules.get(name)
        if module is None:
            continue
        source = Path(str(module.__file__)).with_name(name.rpartition(".")[2] + ".pyx")
        source_digest = getattr(module, "SOURCE", None)
        if source.exists() and hashlib.sha256(source.read_bytes()).hexdigest() != source_digest:
            raise InstallationError(
                f"{name} was compiled from another version of {source}: {_REINSTALL}"
            )
