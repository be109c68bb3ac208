"""Files that hold tensors: are they whole, by their own record of what they hold?"""

from __future__ import annotations

import math
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

from trainwiz.core.json_text import parse_json
from trainwiz.core.language import tr
from trainwiz.core.small_file import open_at_once, open_file

LONGEST_SAFETENSORS_HEADER_BYTES = 100_000_000
BITS: dict[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F16": 16, "BF16": 16, "I16": 16, "U16": 16,
    "F32": 32, "I32": 32, "U32": 32, "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
"""Bits of one number of each type; a type that is not here is not counted."""
SMALL_ZIP_BYTES = 1 << 20
"""Up to this size every byte of an archive is checked against its checksums."""
LOOKS = 32
LOOK_BYTES = 4096


def safetensors_problem(path: Path) -> str | None:
    """One sentence when the file is not what its own header says; None when it is whole.

    The tensors must lie end to end without gaps, each as long as its type and shape say, up to the
    last byte of the file; and not all of its second half may be zeros, as a loss of power leaves it.
    Format: 8 bytes little-endian length of the header, the header as JSON, the tensors
    (https://huggingface.co/docs/safetensors).
    """
    size = path.stat().st_size
    with open_file(path) as file:
        start = file.read(8)
        if len(start) < 8:
            return tr("{name} is empty or cut off", name=path.name)
        (length,) = struct.unpack("<Q", start)
        if length > min(size - 8, LONGEST_SAFETENSORS_HEADER_BYTES):
            return tr("{name} is cut off", name=path.name)
        try:
            header = parse_json(file.read(length))
            tensors = [entry for name, entry in header.items() if name != "__metadata__"]
            ends = _ends(tensors)
        except (ValueError, LookupError, TypeError, AttributeError):
            return tr("{name} has no readable header", name=path.name)
    if ends is None:
        return tr("{name} has tensors that overlap or do not fit their shape", name=path.name)
    expected = 8 + length + ends
    if size != expected:
        return tr(
            "{name} has {size} bytes instead of {expected}", name=path.name, size=f"{size:,}", expected=f"{expected:,}"
        )
    if _second_half_is_zero(path, 8 + length, size):
        return tr("{name} holds only zeros in its second half", name=path.name)
    return None


def _ends(tensors: list[Any]) -> int | None:
    """Where the last tensor ends; None where they overlap, leave a gap or contradict their shapes."""
    place = 0
    for begin, end, tensor in sorted((*tensor["data_offsets"], number) for number, tensor in enumerate(tensors)):
        entry = tensors[tensor]
        bits = BITS.get(entry["dtype"])
        if begin != place or end < begin:
            return None
        if bits is not None and (end - begin) * 8 != math.prod(entry["shape"]) * bits:
            return None
        place = end
    return int(place)


def _second_half_is_zero(path: Path, begin: int, end: int) -> bool:
    """By `LOOKS` looks of 4 KiB. A file of less than that in all is not judged: few numbers may well be zero."""
    middle = begin + (end - begin) // 2
    if end - middle < LOOKS * LOOK_BYTES:
        return False
    last = end - LOOK_BYTES
    with open(path, "rb", buffering=0, opener=open_at_once) as file:
        places = (middle + (last - middle) * number // (LOOKS - 1) for number in range(LOOKS))
        return not any(os.pread(file.fileno(), LOOK_BYTES, place).strip(b"\0") for place in places)


def zip_problem(path: Path, name: str) -> str | None:
    """One sentence when what torch.save wrote is not whole; `name` is what it is called in it.

    It writes an uncompressed zip whose directory comes last: a file that was cut off has none.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            end = max((entry.header_offset + entry.compress_size for entry in archive.infolist()), default=0)
            size = path.stat().st_size
            if end == 0 or end > size:
                return tr("{name} is cut off", name=name)
            if size <= SMALL_ZIP_BYTES and archive.testzip() is not None:
                return tr("{name} does not match its checksums", name=name)
    except (zipfile.BadZipFile, ValueError, struct.error, EOFError, NotImplementedError):
        return tr("{name} is cut off", name=name)
    return None
