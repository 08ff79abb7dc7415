"""One Spark session for all tests here: its start is most of their cost."""

from __future__ import annotations

import pytest

from mirrortest.reconcile.session import spark_session


@pytest.fixture(scope="session")
def spark():
    """A session on two threads."""
    with spark_session("local[2]", "1g", small=True) as session:
        yield session
