"""Writes the properties files that configure the parts of the lab."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a Java properties file; the order is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{_key(key)}={_value(text)}\n" for key, text in properties.items()))


def _key(text: str) -> str:
    for special in ("\\", " ", ":", "="):
        text = text.replace(special, "\\" + special)
    return text


def _value(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return "\\" + escaped if escaped.startswith(" ") else escaped
