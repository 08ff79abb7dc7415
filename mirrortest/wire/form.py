"""Where a message has its header, and the names of its Kafka headers."""

from __future__ import annotations

from enum import StrEnum

ID, SEQ, TIME, PROOF = "id", "seq", "ts", "d"
HEADER_NAMES = (ID, SEQ, TIME, PROOF)
ANCESTOR_HEADER_NAMES = (ID, SEQ)


class Form(StrEnum):
    """Where a message has its header: in the record's value, or in Kafka headers."""

    BODY = "body"
    HEADERS = "headers"
