"""Writes `jars.lock` anew: ``python -m mirrortest.lab.relock``, after a change of coordinates."""

from __future__ import annotations

from pathlib import Path

from mirrortest.lab import jars

if __name__ == "__main__":
    Path(jars.__file__).with_name("jars.lock").write_text(jars.resolve_lock())
