"""Where a message has its header."""

from __future__ import annotations

from enum import StrEnum


class Form(StrEnum):
    """Where a message has its header: in the record's value, or in Kafka headers."""

    BODY = "body"
    HEADERS = "headers"
