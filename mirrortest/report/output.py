"""Where reports go: any place that logs and results can lie in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from mirrortest.errors import MirrortestError

if TYPE_CHECKING:
    from mirrortest.seqlog.location import Location


def write_text(place: Location, text: str) -> None:
    """Write a document, replacing what was there; MirrortestError where that cannot be."""
    try:
        with place.filesystem.open_output_stream(place.path) as sink:
            sink.write(text.encode())
    except (pa.ArrowException, OSError) as error:
        raise MirrortestError(f"{place.shown}: cannot be written: {error}") from error
