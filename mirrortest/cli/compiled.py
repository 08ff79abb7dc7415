"""Whether the compiled module is there, and made of the source that lies beside it."""

from __future__ import annotations

import hashlib
import importlib
import sys
from pathlib import Path

from mirrortest.errors import InstallationError

_MODULE = "mirrortest.wire.kernels"
_AGAIN = "install mirrortest again (in a clone: make, or pip install -e .)"


def check(failure: ImportError | None = None) -> None:
    """Check the module if it was imported, or look whether it is why an import failed.

    An installation has no source to compare it with; in a clone, the source may have changed.

    Raises:
        InstallationError: there is none for this Python, or it is of another source.
    """
    if failure is not None:
        try:
            importlib.import_module(_MODULE)
        except ImportError as error:
            raise InstallationError(
                f"{_MODULE} is not compiled for this Python ({error}): {_AGAIN}"
            ) from failure
    module = sys.modules.get(_MODULE)
    if module is None:
        return
    source = Path(str(module.__file__)).with_name("kernels.pyx")
    if source.exists() and hashlib.sha256(source.read_bytes()).hexdigest() != module.SOURCE:
        raise InstallationError(f"{_MODULE} is compiled of another source than {source}: {_AGAIN}")
