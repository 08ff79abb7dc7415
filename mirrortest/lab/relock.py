"""Writes the locks anew: ``python -m mirrortest.lab.relock``, after a change of coordinates."""

from __future__ import annotations

from pathlib import Path

from mirrortest.lab import jars, jmx, mirror_maker_1

if __name__ == "__main__":
    place = Path(jars.__file__).parent
    place.joinpath("jars.lock").write_text(jars.resolve_lock())
    for part in (mirror_maker_1, jmx):
        place.joinpath(part.LOCK).write_text(jars.pin(part.COORDINATES))
