"""A check after every unit test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirrortest.kafka.public import connection

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _no_client_is_left() -> Iterator[None]:
    """Every stop of a client has ended by the test's end, even if no caller waits for it."""
    yield
    assert not [each for each in connection._stopping if not each.done()]
