"""Whether the compiled modules are there, and made of the sources that lie beside them."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from mirrortest.errors import InstallationError

_PACKAGE = "mirrortest.wire"
MODULES = (f"{_PACKAGE}.kernels", f"{_PACKAGE}.message_columns")
_AGAIN = "install mirrortest again (in a clone: make, or pip install -e .)"


def is_missing(failure: ImportError) -> bool:
    """Whether it is a compiled module that could not be imported."""
    return failure.name in {_PACKAGE, *MODULES}


def missing() -> InstallationError:
    """The error to raise for it."""
    return InstallationError(f"{_PACKAGE} is not compiled for this Python: {_AGAIN}")


def check() -> None:
    """Compare the modules, where they were imported, with the sources beside them.

    An installation has none; in a clone, a source may have changed.

    Raises:
        InstallationError: one is of another source.
    """
    for name in MODULES:
        module = sys.modules.get(name)
        if module is None:
            continue
        source = Path(str(module.__file__)).with_name(name.rpartition(".")[2] + ".pyx")
        # Before it told its source, it was of another one.
        made_of = getattr(module, "SOURCE", None)
        if source.exists() and hashlib.sha256(source.read_bytes()).hexdigest() != made_of:
            raise InstallationError(f"{name} is compiled of another source than {source}: {_AGAIN}")
