"""Recorded rates, sizes and payloads: which files are read, and why others are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from mirrortest.config.shape import Replay, SizeFile, Step
from mirrortest.errors import UsageError
from mirrortest.produce.input_files import read_payloads, read_replay, read_sizes
from mirrortest.wire.digests import digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECOND = 1_000_000_000
STEPS = (
    Step(Fraction(10), 15 * SECOND),
    Step(Fraction(5, 2), 5 * SECOND),
    Step(Fraction(0), 5 * SECOND),
)


@pytest.mark.parametrize(
    "text",
    [
        "time,rate\n100,10\n115,2.5\n120,0\n",
        "rate,host,time\n10,a,0\n2.5,b,15.0\n0,c,20\n",
        "time,rate\n2026-01-01T00:00:50Z,10\n2026-01-01T00:01:05Z,2.5\n2026-01-01T00:01:10Z,0\n",
        "time,rate\n2026-01-01 00:00:50,10\n2026-01-01 00:01:05,2.5\n2026-01-01 00:01:10,0\n",
    ],
)
def test_a_csv_file_is_read(tmp_path: Path, text: str) -> None:
    """Times are seconds or timestamps from the first row; the last step lasts as the previous."""
    file = tmp_path / "rate.csv"
    file.write_text(text)
    assert read_replay(Replay(str(file))).steps == STEPS


@pytest.mark.parametrize("timestamps", [False, True])
def test_a_parquet_file_is_read(tmp_path: Path, timestamps: bool) -> None:
    """It is recognized by its content, whatever its name is."""
    times: list[Any] = [7, 22, 27]
    if timestamps:
        times = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=each) for each in times]
    file = tmp_path / "rate"
    parquet.write_table(pa.table({"time": times, "rate": [10.0, 2.5, 0.0]}), file)
    assert read_replay(Replay(str(file))).steps == STEPS


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", "neither CSV with a header nor Parquet"),
        ("when,rate\n1,2\n", "needs one column 'time'; it has when, rate"),
        ("time,rate\n1,2\n", "needs at least two rows"),
        ("time,rate\n1,2\n2,\n", "every rate must be a number"),
        ("time,rate\n1,2\n2,x\n", "every rate must be a number"),
        ("time,rate\n1,2\ninf,2\n", "every time must be a number"),
        ("time,rate\n1,2\n1e300,2\n", "every time must be a number"),
        ("time,rate\n1,inf\n2,2\n", "every rate must be a number"),
        ("time,rate\n1,2\nx,2\n", "every time must be a number"),
        ("time,rate\n1,2\n2,-2\n", "row 2: the rate must be in 0..1e+09"),
        ("time,rate\n1,2\n1,2\n", "row 1: the next row's time must be at least 100 ms later"),
        ("time,rate\n1,0\n2,0\n", "nothing would be sent"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, answer: str) -> None:
    """The error names the file."""
    file = tmp_path / "rate.csv"
    file.write_text(text)
    with pytest.raises(UsageError) as error:
        read_replay(Replay(str(file)))
    assert str(error.value).startswith(f"replay({file}): ")
    assert answer in str(error.value)


@pytest.mark.parametrize(("read", "shape"), [(read_replay, Replay), (read_sizes, SizeFile)])
def test_a_file_that_is_not_there_is_the_users_mistake(
    tmp_path: Path, read: Callable[[Any], object], shape: Callable[[str], Any]
) -> None:
    """So is a directory."""
    with pytest.raises(UsageError, match="there is no such file"):
        read(shape(str(tmp_path / "none.csv")))
    with pytest.raises(UsageError, match="is it a file"):
        read(shape(str(tmp_path)))


@pytest.mark.parametrize("text", ["900\n1kB\n0\n", "900\r\n 1000 \r\n0b"])
def test_sizes_are_read(tmp_path: Path, text: str) -> None:
    """Each line has one size, with the units of all sizes."""
    file = tmp_path / "sizes.gz"  # a name is no reason to decompress it
    file.write_text(text)
    assert read_sizes(SizeFile(str(file))).sizes == (900, 1000, 0)


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        (b"", "the file is empty: write one size on each line"),
        (b"900\n\n1kB\n", "line 2: ''"),
        (b"900\nsize\n", "line 2: 'size': must be a size"),
        (b"\xff\xfe9\n", "line 1: "),
    ],
)
def test_another_file_of_sizes_is_refused(tmp_path: Path, raw: bytes, answer: str) -> None:
    """The error names the file and the line."""
    file = tmp_path / "sizes"
    file.write_bytes(raw)
    with pytest.raises(UsageError) as error:
        read_sizes(SizeFile(str(file)))
    assert str(error.value).startswith(f"file({file}): ")
    assert answer in str(error.value)


@pytest.mark.parametrize(
    ("raw", "delimiter", "expected"),
    [
        (b"a\nbb\n", r"\n", [b"a", b"bb"]),
        (b"a\nbb", r"\n", [b"a", b"bb"]),
        (b"a\n\nbb\n\n", r"\n", [b"a", b"", b"bb", b""]),
        (b"a\r\nb", r"\r\n", [b"a", b"b"]),
        (b"a||\xff\x00|b||", "||", [b"a", b"\xff\x00|b"]),
        (b"a\x1eb\\c\0d", r"\x1e", [b"a", b"b\\c\0d"]),
        (b"a\\b\tc", r"\\", [b"a", b"b\tc"]),
        ("a\u20acb".encode(), "\u20ac", [b"a", b"b"]),
    ],
)
def test_payloads_are_read(
    tmp_path: Path, raw: bytes, delimiter: str, expected: list[bytes]
) -> None:
    """They are any bytes between delimiters; the last one may end with the file."""
    file = tmp_path / "payloads"
    file.write_bytes(raw)
    found = read_payloads(str(file), delimiter)
    assert [
        found.data[start : start + size]
        for start, size in zip(found.starts.tolist(), found.sizes.tolist(), strict=True)
    ] == expected
    assert found.digests.tolist() == [digest(value) for value in expected]
    assert found.source == str(file)


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        (b"", "has no payload"),
        (b"\n\n", "has no payload"),
        (b"a\n" + bytes((16 << 20) + 1), "payload 2 has 16,777,217 bytes, and a message at most"),
    ],
    ids=["empty", "delimiters", "large"],
)
def test_a_file_without_payloads_that_can_be_sent_is_refused(
    tmp_path: Path, raw: bytes, answer: str
) -> None:
    """The error names the file."""
    file = tmp_path / "payloads"
    file.write_bytes(raw)
    with pytest.raises(UsageError) as error:
        read_payloads(str(file), r"\n")
    assert str(error.value).startswith(f"--payload-file {file}: ")
    assert answer in str(error.value)
