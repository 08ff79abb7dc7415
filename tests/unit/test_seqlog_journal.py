"""The journal: every intact frame is read, whatever happened to the bytes around it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from mirrortest.seqlog import journal as module
from mirrortest.seqlog import rows
from mirrortest.seqlog.batches import batch_of
from mirrortest.seqlog.damage import Damage, DamageKind
from mirrortest.seqlog.journal import JournalWriter, frame, read_frames

if TYPE_CHECKING:
    from pathlib import Path


def marked(lo: int, count: int) -> pa.RecordBatch:
    """A batch of `count` rows whose offsets count from `lo`."""
    return batch_of([rows.read("t", 0, at, at + 1) for at in range(lo, lo + count)])


SIZES = (3, 1, 4, 2)
STARTS = (0, 3, 4, 8)
FRAMES = [frame(marked(lo, count), lo) for lo, count in zip(STARTS, SIZES, strict=True)]
JOURNAL = b"".join(FRAMES)
ENDS = [sum(map(len, FRAMES[: n + 1])) for n in range(len(FRAMES))]


def read(data: bytes) -> tuple[list[int], list[Damage]]:
    """The marks that can be read, and the damage."""
    damage: list[Damage] = []
    batches = list(read_frames(pa.py_buffer(data), "j", damage))
    return [mark for batch in batches for mark in batch["offset_lo"].to_pylist()], damage


def frame_of(at: int) -> int:
    """The number of the frame that byte `at` is in."""
    return next(number for number, end in enumerate(ENDS) if at < end)


def marks_without(*frames: int) -> list[int]:
    """The marks of all frames but these."""
    return [
        mark
        for number, (lo, count) in enumerate(zip(STARTS, SIZES, strict=True))
        if number not in frames
        for mark in range(lo, lo + count)
    ]


def test_a_whole_journal_has_no_damage() -> None:
    """All rows come back in order."""
    assert read(JOURNAL) == (list(range(10)), [])
    assert read(b"") == ([], [])


@given(st.integers(0, len(JOURNAL)))
def test_cut_anywhere(at: int) -> None:
    """Cut at any byte, all frames before the cut are read, and a torn one is reported."""
    marks, damage = read(JOURNAL[:at])
    complete = [number for number, end in enumerate(ENDS) if end <= at]
    assert marks == marks_without(*(set(range(4)) - set(complete)))
    if at in {0, *ENDS}:
        assert damage == []
    else:
        assert [each.kind for each in damage] == [DamageKind.TORN_TAIL]
        assert damage[0].harmless


@given(st.integers(0, len(JOURNAL) - 1), st.integers(1, 255))
def test_any_byte_garbled(at: int, flip: int) -> None:
    """One wrong byte costs only its own frame; unless that is the last, its row count is exact."""
    data = bytearray(JOURNAL)
    data[at] ^= flip
    marks, damage = read(bytes(data))
    hurt = frame_of(at)
    assert marks == marks_without(hurt)
    (reported,) = damage
    if hurt == len(FRAMES) - 1:
        # Only a greater length makes it look like a frame that was never completely written.
        longer = ENDS[-2] + 4 <= at < ENDS[-2] + 8 and data[at] > JOURNAL[at]
        assert (reported.kind, reported.rows) == (DamageKind.TORN_TAIL, 0 if longer else None)
    else:
        assert (reported.kind, reported.rows) == (DamageKind.HOLE, SIZES[hurt])
        assert not reported.harmless


@given(st.binary(max_size=400), st.integers(0, 3))
def test_rubbish_between_frames(rubbish: bytes, place: int) -> None:
    """Foreign bytes hide no frame, and are reported with no row lost."""
    cut = ENDS[place]
    marks, damage = read(JOURNAL[:cut] + rubbish + JOURNAL[cut:])
    assert marks == list(range(10))
    # At the end they may be the remains of a frame.
    assert [each.rows or 0 for each in damage] == ([0] if rubbish else [])
    if place < len(FRAMES) - 1:
        assert all(each.rows == 0 for each in damage)


@pytest.mark.parametrize(
    ("tail", "harmless"),
    [
        (module.MAGIC[:2], True),
        (FRAMES[3][:30], True),
        (bytes(9), True),
        (bytes(5000), True),
        (FRAMES[3][:40] + bytes(len(FRAMES[3]) - 40 + 1024), True),
        (FRAMES[3][:-1] + b"?", False),
        (b"?" + FRAMES[3][1:], False),
        (b"???", False),
    ],
)
def test_what_may_have_been_synced_is_no_torn_tail(tail: bytes, harmless: bool) -> None:
    """No row of an incomplete write was reported durable; those of a wrong frame may have been."""
    marks, damage = read(b"".join(FRAMES[:3]) + tail)
    assert marks == marks_without(3)
    assert [(each.kind, each.harmless) for each in damage] == [(DamageKind.TORN_TAIL, harmless)]


def test_a_whole_frame_cut_out() -> None:
    """A frame that is missing without trace is noticed: the next one counts the rows before it."""
    marks, damage = read(FRAMES[0] + FRAMES[2] + FRAMES[3])
    assert marks == marks_without(1)
    assert [(each.kind, each.rows) for each in damage] == [(DamageKind.HOLE, 1)]


@given(st.binary(max_size=300))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    """A journal of rubbish is damage, never an error."""
    marks, damage = read(data)
    assert marks == []
    assert len(damage) == (1 if data else 0)


def test_a_valid_frame_of_something_else() -> None:
    """A frame whose payload is not an Arrow stream is reported, and later frames are read."""
    payload = b"not arrow"
    crc = crc32c(payload, crc32c(module._GUARDED.pack(len(payload), 0)))
    odd = module._HEADER.pack(module.MAGIC, len(payload), 0, crc) + payload
    marks, damage = read(odd + JOURNAL)
    assert marks == list(range(10))
    assert [each.kind for each in damage] == [DamageKind.UNREADABLE]


@pytest.mark.parametrize("rubbish", [b"", b"rubbish"])
def test_rows_of_an_unreadable_frame_are_missed_once(rubbish: bytes) -> None:
    """The next frame was said to follow a missing one, and the same rows were counted again."""
    payload = b"not arrow"
    crc = crc32c(payload, crc32c(module._GUARDED.pack(len(payload), STARTS[1])))
    odd = module._HEADER.pack(module.MAGIC, len(payload), STARTS[1], crc) + payload
    marks, damage = read(FRAMES[0] + odd + rubbish + FRAMES[2] + FRAMES[3])
    assert marks == marks_without(1)
    expected = [(DamageKind.UNREADABLE, None), (DamageKind.HOLE, None)]
    assert [(each.kind, each.rows) for each in damage] == expected[: 2 if rubbish else 1]


def test_the_next_frame_is_found_across_windows() -> None:
    """Megabytes of rubbish, with the magic across the search window's edge, hide nothing."""
    lead = (1 << 20) - 1
    marks, damage = read(JOURNAL[: ENDS[0]] + bytes(lead) + module.MAGIC * 3 + JOURNAL[ENDS[0] :])
    assert marks == list(range(10))
    assert [each.kind for each in damage] == [DamageKind.HOLE]


def test_the_writer_counts_and_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large batches become several frames; rows and bytes are counted; the file must be new."""
    monkeypatch.setattr(module, "FRAME_ROWS", 4)
    path = tmp_path / "000001.journal"
    writer = JournalWriter(path)
    writer.append([marked(0, 10), marked(10, 0), marked(10, 3)])
    writer.sync()
    assert (writer.rows, writer.size) == (13, path.stat().st_size)
    writer.close()
    writer.close()
    data = path.read_bytes()
    assert read(data) == (list(range(13)), [])
    assert data.count(module.MAGIC) == 4
    with pytest.raises(FileExistsError):
        JournalWriter(path)


def test_partial_writes_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that takes only a part of the bytes is continued."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:100])))
    writer = JournalWriter(tmp_path / "j.journal")
    writer.append([marked(0, 9)])
    writer.close()
    assert read((tmp_path / "j.journal").read_bytes()) == (list(range(9)), [])


def test_damage_reads_as_one_line() -> None:
    """The text names the place, the kind and what is lost."""
    assert str(Damage(DamageKind.HOLE, "x", "why", 3)) == "x: hole: why (lost: 3 rows)"
    assert str(Damage(DamageKind.TORN_TAIL, "x", "why", 0)).endswith("(lost: no durable row)")
    assert str(Damage(DamageKind.MISSING, "x", "why")).endswith("(lost: unknown rows)")
