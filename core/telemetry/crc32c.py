"""The checksum of event files: CRC-32C (RFC 3720, appendix B.4), masked as TFRecord masks it."""

from __future__ import annotations

from functools import cache, reduce
from operator import getitem, xor

POLYNOMIAL = 0x82F63B78
SHORT_BYTES = 160
"""Up to this length (nearly all records of scalars) a table for each place makes it faster."""


def masked_crc32c(data: bytes) -> int:
    """The checksum as it stands in a TFRecord (tensorflow/core/lib/hash/crc32c.h)."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    length = len(data)
    if length > SHORT_BYTES:
        return _crc_by_bytes(data)
    # A CRC is linear: that of the zeros of this length, with what each byte at its place changes.
    tables, zeros = _short_tables(length)
    return reduce(xor, map(getitem, tables, data), zeros)


def _crc_by_bytes(data: bytes) -> int:
    table = _byte_table()
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


@cache
def _short_tables(length: int) -> tuple[tuple[list[int], ...], int]:
    places = _place_tables()
    return tuple(reversed(places[:length])), _crc_by_bytes(bytes(length))


@cache
def _place_tables() -> list[list[int]]:
    """What a byte changes, by how many bytes come after it."""
    last = _byte_table()
    places = [last]
    while len(places) < SHORT_BYTES:
        places.append([last[value & 0xFF] ^ value >> 8 for value in places[-1]])
    return places


@cache
def _byte_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table
