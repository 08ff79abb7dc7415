"""A small scenario for tests."""

from __future__ import annotations

from pathlib import Path

from mirrortest.config.option_file import parse_table
from mirrortest.scenario.matrix import Document

CUT = "[[fault]]\ndo='{}'\npart='{}'\nat='1s'\n"


SMALL = """
[lab]
[[produce]]
id = "ann"
topics = ["orders", "clicks"]
duration = "1s"
workers = 2
[[consume]]
id = "carl"
"""
IN_CONTAINERS = SMALL.replace("[lab]", "[lab]\nimage='k'\n{}")


def document(text: str, home: Path | None = None) -> Document:
    return Document("small", "small.toml", home or Path(), parse_table(text, "small.toml"))
