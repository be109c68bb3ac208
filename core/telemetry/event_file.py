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

ARGUMENTS_TAG = "args/text_summary"
"""Of the only text that is handed on: the TrainingArguments that transformers' Trainer writes."""
LONGEST_TEXT_BYTES = 256 * 1024

_FIXED_BYTES = {1: 8, 5: 4}
"""Wire type of a number that is not packed -> its length."""
_64_BITS = (1 << 64) - 1


def read_value(data: bytes, scalar_tensors: set[str]) -> tuple[str, float | None, str | None]:
    """Tag, scalar and text of one Summary.Value, as far as a monitor needs them.

    `scalar_tensors`: tags whose tensors are scalars, as an earlier event of the file said; added to.
    """
    parts = message(data)
    tag = _last(parts, 1, b"").decode("utf-8", "replace")
    if 2 in parts:
        return tag, float(_float.unpack(_last(parts, 2, b""))[0]), None
    # SummaryMetadata -> plugin_data -> plugin_name.
    metadata = message(_last(message(_last(parts, 9, b"")), 1, b""))
    tensor = message(_last(parts, 8, b"")) if len(_last(parts, 8, b"")) <= LONGEST_TEXT_BYTES else {}
    if _last(metadata, 1, b"") == b"scalars":
        scalar_tensors.add(tag)
    if tag in scalar_tensors:
        return tag, tensor_scalar(tensor), None
    text = _last(tensor, 8, b"").decode("utf-8", "replace")
    return tag, None, text if tag == ARGUMENTS_TAG and text else None


def tensor_scalar(tensor: Parts) -> float | None:
    """The single float or double of a TensorProto, which is what writers of scalars make; None for any other."""
    form = {1: _float, 2: _double}.get(_last(tensor, 1, 0))
    # tensor_content, or float_val and double_val, packed or not.
    data = next((found for number in (4, 5, 6) if (found := _last(tensor, number, b""))), b"")
    return float(form.unpack(data)[0]) if form is not None and len(data) == form.size else None


Parts = dict[int, list[int | bytes]]
T = TypeVar("T", int, bytes)


def message(data: bytes) -> Parts:
    """The values of each field by its number, in order: varints as unsigned integers, all others as bytes. Raises
    ValueError where it breaks off."""
    parts: Parts = {}
    position = 0
    while position < len(data):
        key, position = read_varint(data, position)
        number, wire = key >> 3, key & 7
        value: int | bytes
        if wire == 0:
            value, position = read_varint(data, position)
        else:
            length = _FIXED_BYTES.get(wire)
            if wire == 2:
                length, position = read_varint(data, position)
            if length is None or not number or position + length > len(data):
                raise ValueError(number)
            value, position = data[position : position + length], position + length
        parts.setdefault(number, []).append(value)
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


Scalar = tuple[str, int, float, float]
"""Tag, step, value, Unix time."""

HEADER_BYTES = 12
FOOTER_BYTES = 4
LONGEST_CHECKED_BYTES = 4096
"""Longer records hold pictures and graphs: their content is not checked, their length is."""
LONGEST_RECORD_BYTES = 1 << 40
"""A length above this is no length."""


class EventFileTail(ByteTail):
    """New scalars of an event file, which may still grow.

    A record that is not whole yet waits. A record with a wrong checksum is left out, and all after one whose
    length is none, as TensorBoard does; `damaged_bytes` counts both. `refusal` is one sentence when the file is no
    event file. `arguments` is the newest text of ARGUMENTS_TAG.
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
        self._is_broken = False

    def _restart(self) -> None:
        super()._restart()
        self._forget()

    def read_new(self) -> list[Scalar]:
        """Scalars of the next READ_BYTES at most, in file order; call again while `behind` is true."""
        new = self.read_bytes()
        data, position, scalars = self._rest + new, 0, list[Scalar]()
        while len(data) - position >= HEADER_BYTES and not self._is_broken:
            start = position + HEADER_BYTES
            length = _length_of(data[position:start])
            if length is None:
                self._is_broken = True
                if not self.records and not self.damaged_bytes:
                    self.refusal = tr(
                        "{path} is not a TensorBoard event file: it does not start with a record.", path=self.path
                    )
                break
            end = start + length + FOOTER_BYTES
            if end > len(data):
                break
            record, crc = data[start : start + length], data[start + length : end]
            is_damaged = length <= LONGEST_CHECKED_BYTES and _crc.pack(masked_crc32c(record)) != crc
            if is_damaged or not self._read_event(record, scalars):
                self.damaged_bytes += end - position
            else:
                self.records += 1
            position = end
        if self._is_broken:
            self.damaged_bytes += len(data) - position
            position = len(data)
        self._rest = data[position:]
        return scalars

    def _read_event(self, record: bytes, scalars: list[Scalar]) -> bool:
        """Whether it is an event; its scalars are added to `scalars`."""
        try:
            parts = message(record)
            (wall_time,) = _double.unpack(_last(parts, 1, bytes(8)))
            found = message(_last(parts, 5, b"")).get(1, ())
            values = [read_value(value, self._scalar_tensors) for value in found if isinstance(value, bytes)]
        except (ValueError, struct.error):
            return False
        step = _last(parts, 2, 0)
        step = step - (1 << 64) if step >> 63 else step
        self.last_time_s = time_s = wall_time if is_moment(wall_time) else self.last_time_s or 0.0
        self.first_time_s = self.first_time_s or time_s or None
        scalars += [(tag, step, scalar, time_s) for tag, scalar, _ in values if scalar is not None]
        self.arguments = next((text for *_, text in reversed(values) if text is not None), self.arguments)
        return True


def _length_of(header: bytes) -> int | None:
    """The length that a record's header gives; None where its checksum says that it is none."""
    length, crc = _header.unpack(header)
    return int(length) if length <= LONGEST_RECORD_BYTES and masked_crc32c(header[:8]) == crc else None
