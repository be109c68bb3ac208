"""The protocol buffers of event files, and the checksum of their records."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, reduce
from operator import getitem, xor

from trainwiz.core.language import mark

# The checksum of event files: CRC-32C (RFC 3720, appendix B.4), masked as TFRecord masks it.

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


# What a TensorBoard event says, from its protobuf bytes: the fields that a monitor needs, without protobuf's classes.
#
# Field numbers: tensorboard/compat/proto/{event,summary,tensor}.proto.

SESSION_START = 1
KEPT_TEXTS = frozenset({"args/text_summary"})
HPARAMS = "hparams"
"""The plugin of the settings that `add_hparams` writes, and their name among an event's texts."""
MOST_HPARAMS = 200
"""Texts that are handed on: the TrainingArguments that transformers' Trainer writes."""
LONGEST_TEXT_BYTES = 256 * 1024

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_64_BITS = (1 << 64) - 1
_FLOATS = {
    1: "<f",
    2: "<d",
    3: "<i",
    4: "<B",
    5: "<h",
    6: "<b",
    9: "<q",
    10: "<?",
    17: "<H",
    19: "<e",
    22: "<I",
    23: "<Q",
}
"""DataType of a tensor -> how one element lies in tensor_content (tensorflow/core/framework/types.proto)."""
_BFLOAT16 = 14
_VALUE_KINDS = {3: mark("histograms"), 4: mark("images"), 5: mark("histograms"), 6: mark("audio")}
_EVENT_KINDS = {4: mark("graphs"), 8: mark("run metadata"), 9: mark("graphs")}


@dataclass(slots=True)
class Event:
    """One event. Times are Unix seconds."""

    wall_time: float = 0.0
    step: int = 0
    file_version: str | None = None
    session_start: bool = False
    """The writer started again here: what was written for this step and later ones no longer holds."""
    scalars: list[tuple[str, float]] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """Kinds of what is not a scalar ("images", "text"), one for each value."""


def parse_event(data: bytes, scalar_tensors: set[str]) -> Event:
    """`scalar_tensors`: tags whose tensors are scalars, as an earlier event of the file said; added to.

    Raises ValueError for bytes that are no event.
    """
    event = Event()
    for number, wire, value in fields(data):
        if number == 1 and wire == _FIXED64 and isinstance(value, int):
            (event.wall_time,) = struct.unpack("<d", value.to_bytes(8, "little"))
        elif number == 2 and isinstance(value, int):
            event.step = value - (1 << 64) if value >> 63 else value
        elif number == 3 and isinstance(value, bytes):
            event.file_version = value.decode("utf-8", "replace")
        elif number == 5 and isinstance(value, bytes):
            for inner, _, part in fields(value):
                if inner == 1 and isinstance(part, bytes):
                    _read_value(part, event, scalar_tensors)
        elif number == 7 and isinstance(value, bytes):
            event.session_start = (1, _VARINT, SESSION_START) in list(fields(value))
        elif number in _EVENT_KINDS:
            event.others.append(_EVENT_KINDS[number])
    return event


def _read_value(data: bytes, event: Event, scalar_tensors: set[str]) -> None:
    """One Summary.Value."""
    tag, plugin, scalar, tensor, kind, content = "", None, None, None, None, b""
    for number, wire, value in fields(data):
        if number in (1, 7) and isinstance(value, bytes):
            tag = tag or value.decode("utf-8", "replace")
        elif number == 2 and wire == _FIXED32 and isinstance(value, int):
            (scalar,) = struct.unpack("<f", value.to_bytes(4, "little"))
        elif number == 8 and isinstance(value, bytes):
            tensor = value
        elif number == 9 and isinstance(value, bytes):
            plugin, content = _plugin_of(value)
        elif number in _VALUE_KINDS:
            kind = _VALUE_KINDS[number]
    if scalar is None and tensor is not None:
        if plugin == "scalars":
            scalar_tensors.add(tag)
        if tag in scalar_tensors:
            scalar = tensor_scalar(tensor)
        kind = plugin or "tensors"
    if scalar is not None:
        event.scalars.append((tag, scalar))
        return
    if plugin == HPARAMS:
        # Also what the columns of TensorBoard's own table are, and how the session ended.
        values = hyperparameters(content)
        event.texts += [(HPARAMS, json.dumps(values, ensure_ascii=False))] if values else []
        return
    if tag not in KEPT_TEXTS:
        event.others.append(kind or plugin or "others")
    elif tensor is not None and len(tensor) <= LONGEST_TEXT_BYTES:
        texts = [value for number, _, value in fields(tensor) if number == 8 and isinstance(value, bytes)]
        event.texts += [(tag, text.decode("utf-8", "replace")) for text in texts]


def _plugin_of(metadata: bytes) -> tuple[str | None, bytes]:
    """SummaryMetadata -> plugin_data.plugin_name and plugin_data.content."""
    for number, _, value in fields(metadata):
        if number == 1 and isinstance(value, bytes):
            data = {inner: part for inner, _, part in fields(value) if isinstance(part, bytes)}
            return (data[1].decode("utf-8", "replace") if 1 in data else None), data.get(2, b"")
    return None, b""


def hyperparameters(content: bytes) -> dict[str, str | float | bool]:
    """HParamsPluginData -> session_start_info.hparams; {} where it is about something else."""
    found: dict[str, str | float | bool] = {}
    for number, _, start in fields(content):
        for inner, _, entry in fields(start) if number == 3 and isinstance(start, bytes) else ():
            if inner != 1 or not isinstance(entry, bytes) or len(found) >= MOST_HPARAMS:
                continue
            pair = {place: part for place, _, part in fields(entry)}
            key, held = pair.get(1), pair.get(2)
            if not isinstance(key, bytes) or not isinstance(held, bytes):
                continue
            name = key.decode("utf-8", "replace")
            for kind, _, value in fields(held):
                if kind == 2 and isinstance(value, int):
                    (number_value,) = struct.unpack("<d", value.to_bytes(8, "little"))
                    # torch writes 50 as 50.0.
                    found[name] = int(number_value) if number_value.is_integer() else number_value
                elif kind == 3 and isinstance(value, bytes):
                    found[name] = value.decode("utf-8", "replace")
                elif kind == 4 and isinstance(value, int):
                    found[name] = bool(value)
    return found


def tensor_scalar(tensor: bytes) -> float | None:
    """The single element of a TensorProto as a float; None for text and for more or fewer elements."""
    dtype, content, single = 0, b"", None
    for number, wire, value in fields(tensor):
        if number == 1 and isinstance(value, int):
            dtype = value
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif number in (5, 6, 7, 10, 11, 13, 16, 17):
            single = (number, wire, value)
    if content:
        if dtype == _BFLOAT16 and len(content) == 2:
            return float(struct.unpack("<f", b"\0\0" + content)[0])
        form = _FLOATS.get(dtype)
        return float(struct.unpack(form, content)[0]) if form and len(content) == struct.calcsize(form) else None
    return _typed_element(dtype, *single) if single else None


def _typed_element(dtype: int, number: int, wire: int, value: int | bytes) -> float | None:
    """The element of float_val, double_val, int_val ... of a TensorProto, packed or not."""
    if number in (5, 6):
        form, size = ("<f", 4) if number == 5 else ("<d", 8)
        if wire == _VARINT:
            return None
        data = value if isinstance(value, bytes) else value.to_bytes(8 if wire == _FIXED64 else 4, "little")
        return float(struct.unpack(form, data)[0]) if len(data) == size else None
    if isinstance(value, bytes):
        whole, end = read_varint(value, 0)
        if end != len(value):
            return None
        value = whole
    if number == 13:
        half = (value & 0xFFFF).to_bytes(2, "little")
        return float(struct.unpack("<f", b"\0\0" + half)[0] if dtype == _BFLOAT16 else struct.unpack("<e", half)[0])
    return float(value - (1 << 64) if value >> 63 and number in (7, 10) else value)


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """(number, wire type, value) of each field; numbers as unsigned integers. Raises ValueError where it breaks off."""
    position, size = 0, len(data)
    while position < size:
        key, position = read_varint(data, position)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, position = read_varint(data, position)
            yield number, wire, value
            continue
        if wire == _BYTES:
            length, position = read_varint(data, position)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire}")
        end = position + length
        if end > size or not number:
            raise ValueError("a field ends after the message")
        part = data[position:end]
        yield number, wire, part if wire == _BYTES else int.from_bytes(part, "little")
        position = end


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
