"""Bundles have a limited size, however many rows there are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mirrortest.reconcile.bundle import bundles, opened

MOST = 16 << 20
OVERHEAD = 1 << 16
"""The most bytes that a bundle has in addition to its rows."""


@pytest.mark.parametrize("rows", [0, 1, 1_000, 700_000])
def test_many_rows_are_several_bundles(rows: int) -> None:
    """Spark has several copies of each in memory; a million missing messages take 100 MB."""
    table = pa.table(
        {
            "number": pa.array(range(rows), pa.int64()),
            "text": pa.repeat(pa.scalar("acknowledged at the source, not mirrored"), rows),
        }
    )
    found = list(bundles("absent", 3, 5, table))
    assert all(each["packed"].nbytes < MOST + OVERHEAD for each in found)
    assert len(found) == max(1, -(-table.nbytes // MOST))
    assert {each["part"][0].as_py() for each in found} == {3}
    together = [part for each in found for part in opened(each["packed"])]
    assert pa.concat_tables(together).equals(table)
    assert [part.num_rows for part in together] == [each["number"][0].as_py() for each in found]


def test_a_row_is_never_cut() -> None:
    """A row is in one bundle, however large it is."""
    table = pa.table({"text": ["x" * (MOST + 1), "y"]})
    assert [each["number"][0].as_py() for each in bundles("scanned", 0, 0, table)] == [1, 1]
