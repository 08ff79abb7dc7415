"""The header of Kafka's record batch format v2: 61 bytes, all integers big-endian.

::

     0 base offset i64       23 last offset delta i32    51 producer epoch i16
     8 length i32 (from 12)  27 first timestamp i64      53 base sequence i32
    12 leader epoch i32      35 max timestamp i64        57 record count i32
    16 magic i8 = 2          43 producer id i64          61 records
    17 CRC-32C u32 (from 21)
    21 attributes i16: codec 0-7 | 8 log append time | 16 transactional | 32 control
"""

from __future__ import annotations

import struct

Buffer = bytes | bytearray | memoryview

HEADER_SIZE = 61
MAGIC = 2
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

HEADER = struct.Struct(">qiibIhiqqqhii")
PRODUCER = struct.Struct(">qhi")
LENGTH_AT, LENGTH_FROM = 8, 12
EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT, CRC_FROM = 17, 21
ATTRIBUTES_AT = 21
PRODUCER_AT = 43
COUNT_AT = 57
