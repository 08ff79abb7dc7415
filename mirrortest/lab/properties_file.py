"""Writes the properties files that configure the parts of the lab."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a Java properties file; the order is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{_key(key)}={_value(text)}\n" for key, text in properties.items()))


def _key(text: str) -> str:
    text = _ascii(text)
    for special in (" ", ":", "="):
        text = text.replace(special, "\\" + special)
    return text


def _value(text: str) -> str:
    escaped = _ascii(text)
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _ascii(text: str) -> str:
    """Text as Java reads it, in ISO 8859-1 with escapes of UTF-16, which are JSON's, too."""
    return json.dumps(text)[1:-1].replace('\\"', '"')
