"""Event files of TensorBoard as they grow: checksum, protocol buffers, tail."""

from __future__ import annotations

import re
import struct
from functools import cache
from pathlib import Path
from typing import TypeVar

from trainwiz.core.language import tr
from trainwiz.core.lines import ByteTail
from trainwiz.core.text import is_moment

EVENT_MARK = "tfevents"
"""In the name of every event file: events.out.tfevents.<Unix time>..."""
_BEGUN = re.compile(r"tfevents\.(\d+)")


def begun_s(path: Path) -> float:
    """When an event file was begun, by its name; 0 where that does not tell."""
    found = _BEGUN.search(path.name)
    return float(found[1]) if found else 0.0


_header = struct.Struct("<QI")
_double = struct.Struct("<d")
_float = struct.Struct("<f")
_crc = struct.Struct("<I")

# The checksum of event files: CRC-32C (RFC 3720, appendix B.4), masked as TFRecord masks it.

POLYNOMIAL = 0x82F63B78


def masked_crc32c(data: bytes) -> int:
    """The checksum as it stands in a TFRecord (tensorflow/core/lib/hash/crc32c.h)."""
    table, crc = _byte_table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@cache
def _byte_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


# What an event says, from its protobuf bytes: the fields that a monitor needs, without protobuf's classes.
#
# Field numbers: tensorboard/compat/proto/{event,summary,tensor}.proto.

SESSION_START = 1
ARGUMENTS_TAG = "args/text_summary"
"""Of the only text that is handed on: the TrainingArguments that transformers' Trainer writes."""
LONGEST_TEXT_BYTES = 256 * 1024

_BYTES = 2
_LENGTHS = {0: None, 1: 8, _BYTES: None, 5: 4}
_64_BITS = (1 << 64) - 1


def read_value(data: bytes, scalar_tensors: set[str]) -> tuple[str, float | None, str | None]:
    """Tag, scalar and text of one Summary.Value, as far as a monitor needs them.

    `scalar_tensors`: tags whose tensors are scalars, as an earlier event of the file said; added to.
    """
    parts = message(data)
    tag = (_last(parts, 1, b"") or _last(parts, 7, b"")).decode("utf-8", "replace")
    # SummaryMetadata -> plugin_data -> plugin_name.
    metadata = message(_last(message(_last(parts, 9, b"")), 1, b""))
    tensor = _last(parts, 8, b"") if 8 in parts else None
    if 2 in parts:
        return tag, float(_float.unpack((_last(parts, 2, 0) & 0xFFFFFFFF).to_bytes(4, "little"))[0]), None
    if tensor is not None and _last(metadata, 1, b"") == b"scalars":
        scalar_tensors.add(tag)
    if tensor is not None and tag in scalar_tensors:
        return tag, tensor_scalar(tensor), None
    if tag != ARGUMENTS_TAG or tensor is None or len(tensor) > LONGEST_TEXT_BYTES:
        return tag, None, None
    texts = [value for value in message(tensor).get(8, ()) if isinstance(value, bytes)]
    return tag, None, texts[-1].decode("utf-8", "replace") if texts else None


def tensor_scalar(tensor: bytes) -> float | None:
    """The single float or double of a TensorProto, which is what writers of scalars make; None for any other."""
    parts = message(tensor)
    form = {1: _float, 2: _double}.get(_last(parts, 1, 0))
    # tensor_content, or float_val and double_val, packed or not.
    value = next((parts[number][-1] for number in (4, 5, 6) if parts.get(number, [b""])[-1]), None)
    if form is None or value is None:
        return None
    data = value if isinstance(value, bytes) else (value & (1 << 8 * form.size) - 1).to_bytes(form.size, "little")
    return float(form.unpack(data)[0]) if len(data) == form.size else None


Parts = dict[int, list[int | bytes]]
T = TypeVar("T", int, bytes)


def message(data: bytes) -> Parts:
    """The values of each field by its number, in order; numbers as unsigned integers. Raises ValueError where it breaks off."""
    parts: Parts = {}
    position, size = 0, len(data)
    while position < size:
        key, position = read_varint(data, position)
        number, wire = key >> 3, key & 7
        if wire not in _LENGTHS:
            raise ValueError(f"wire type {wire}")
        length = _LENGTHS[wire]
        value: int | bytes = 0
        if length is None:
            value, position = read_varint(data, position)
            length = value if wire == _BYTES else 0
        end = position + length
        if end > size or not number:
            raise ValueError("a field ends after the message")
        if length or wire == _BYTES:
            value = data[position:end] if wire == _BYTES else int.from_bytes(data[position:end], "little")
        parts.setdefault(number, []).append(value)
        position = end
    return parts


def _last(parts: Parts, number: int, otherwise: T) -> T:
    """The newest value of the field that is of the kind of `otherwise`."""
    return next((value for value in reversed(parts.get(number, ())) if isinstance(value, type(otherwise))), otherwise)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The value, 64 bits of it, and the position after it. Raises ValueError where it breaks off or has over 10 bytes."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _64_BITS, position
    raise ValueError("a number breaks off")


Scalar = tuple[str | None, int, float, float]
"""Tag, step, value, Unix time. Tag None: the writer started again at this step."""

HEADER_BYTES = 12
FOOTER_BYTES = 4
LONGEST_CHECKED_BYTES = 4096
"""Longer records hold pictures and graphs: passed over by their (checked) length, their content unchecked."""
LONGEST_KEPT_BYTES = 1024 * 1024
LONGEST_RECORD_BYTES = 1 << 40
"""A length above this is no length."""


class EventFileTail(ByteTail):
    """New scalars of an event file, which may still grow.

    A record that is not whole yet waits. A record with a wrong checksum is left out, and all after one whose
    length is none, as TensorBoard does; `damaged_bytes` counts both. `refusal` is one sentence when the file is no event file. `arguments` is the newest text of ARGUMENTS_TAG.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._forget()

    def _forget(self) -> None:
        self.records = 0
        self.damaged_bytes = 0
        self.refusal: str | None = None
        self.first_time_s: float | None = None
        self.last_time_s: float | None = None
        self.arguments: str | None = None
        self._scalar_tensors: set[str] = set()
        self._rest = b""
        self._passing_bytes = 0
        self._is_broken = False

    def _restart(self) -> None:
        super()._restart()
        self._forget()

    def read_new(self) -> list[Scalar]:
        """Scalars of the next READ_BYTES at most, in file order; call again while `behind` is true."""
        data = self.read_bytes()
        if self._is_broken:
            self.damaged_bytes += len(data)
        if not data or self.refusal or self._is_broken:
            return []
        if self._passing_bytes:
            passed = min(self._passing_bytes, len(data))
            self._passing_bytes -= passed
            data = data[passed:]
        data = self._rest + data
        if not self.records and not self._begins_well(data):
            return []
        scalars: list[Scalar] = []
        self._rest = data[self._read_records(data, scalars) :]
        return scalars

    def _begins_well(self, data: bytes) -> bool:
        """Whether the file can be an event file; False also while too little of it is there (that waits)."""
        if len(data) >= HEADER_BYTES and _length_of(data[:HEADER_BYTES]) is None:
            self.refusal = tr(
                "{path} is not a TensorBoard event file: it does not start with a record.", path=self.path
            )
        elif len(data) < HEADER_BYTES:
            self._rest = data
        return self.refusal is None and len(data) >= HEADER_BYTES

    def _read_records(self, data: bytes, scalars: list[Scalar]) -> int:
        """Read the whole records of `data`; the position where the rest begins."""
        position, size = 0, len(data)
        while size - position >= HEADER_BYTES:
            length = _length_of(data[position : position + HEADER_BYTES])
            if length is None:
                self._is_broken = True
                self.damaged_bytes += size - position
                return size
            start = position + HEADER_BYTES
            end = start + length
            if end + FOOTER_BYTES > size:
                if length <= LONGEST_KEPT_BYTES:
                    break
                self._passing_bytes = end + FOOTER_BYTES - size
                return size
            record = data[start:end]
            if length <= LONGEST_CHECKED_BYTES and masked_crc32c(record) != _crc.unpack_from(data, end)[0]:
                self.damaged_bytes += end + FOOTER_BYTES - position
            else:
                self.records += 1
                self._read_event(record, scalars)
            position = end + FOOTER_BYTES
        return position

    def _read_event(self, record: bytes, scalars: list[Scalar]) -> None:
        try:
            parts = message(record)
            (wall_time,) = _double.unpack(_last(parts, 1, 0).to_bytes(8, "little"))
            step = _last(parts, 2, 0)
            step = step - (1 << 64) if step >> 63 else step
            starts_again = SESSION_START in message(_last(parts, 7, b"")).get(1, ())
            found = message(_last(parts, 5, b"")).get(1, ())
            values = [read_value(value, self._scalar_tensors) for value in found if isinstance(value, bytes)]
        except (ValueError, struct.error):
            self.damaged_bytes += len(record) + HEADER_BYTES + FOOTER_BYTES
            return
        self.last_time_s = time_s = wall_time if is_moment(wall_time) else self.last_time_s or 0.0
        self.first_time_s = self.first_time_s or time_s or None
        if starts_again:
            scalars.append((None, step, 0.0, time_s))
        scalars += [(tag, step, scalar, time_s) for tag, scalar, _ in values if scalar is not None]
        self.arguments = next((text for *_, text in reversed(values) if text is not None), self.arguments)


def _length_of(header: bytes) -> int | None:
    """The length that a record's header gives; None where its checksum says that it is none."""
    length, crc = _header.unpack(header)
    return int(length) if length <= LONGEST_RECORD_BYTES and masked_crc32c(header[:8]) == crc else None
