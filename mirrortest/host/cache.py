"""The directory of downloads and other files that can be created again."""

from __future__ import annotations

import os
from pathlib import Path

from mirrortest.host.user_files import expanded

CACHE_VARIABLE = "MIRRORTEST_CACHE"
"""The environment variable that names the directory."""


def cache_directory() -> Path:
    """$MIRRORTEST_CACHE, else the user's cache directory."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else expanded("~/.cache")) / "mirrortest"
