"""Many texts in memory or in files, read one at a time; one process of a machine at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from trainwiz.core.files import open_file

# One process of this machine at a time: the first builds a file, the others wait and find it.


@contextmanager
def file_lock(lock: Path) -> Iterator[bool]:
    """Hold an exclusive `flock` on the file `lock`, which is made and stays. It is gone with its process.

    Waiting here has no time limit, unlike a barrier of the process group. False on a file system
    without locks, where nothing is held: what is built must be renamed into its place. Raises OSError.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


# TextStore: many texts in memory or in files, read one at a time.

BATCH_TEXTS = 1000
TEXT_ENDING, OFFSET_ENDING = ".utf8", ".offsets"
OFFSET = np.dtype("<i8")


class TextStore(ABC):
    """Texts by number. Safe in loader workers, forked or spawned: nothing is shared but read-only bytes."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of texts."""

    @abstractmethod
    def __getitem__(self, number: int) -> str:
        """The text with this number, from 0. Raises IndexError."""

    @property
    @abstractmethod
    def lengths(self) -> np.ndarray:
        """(n,) int64: UTF-8 bytes of each text."""

    def batches(self, rows: np.ndarray) -> Iterator[list[str]]:
        """The texts of `rows` (int64 numbers) in that order, some at a time."""
        for start in range(0, len(rows), BATCH_TEXTS):
            yield [self[number] for number in rows[start : start + BATCH_TEXTS].tolist()]

    def __iter__(self) -> Iterator[str]:
        return map(self.__getitem__, range(len(self)))


class MemoryTexts(TextStore):
    """Texts as one Arrow array: 8 bytes a text beside its letters."""

    def __init__(self, texts: pa.Array) -> None:
        """A LargeStringArray without nulls."""
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, number: int) -> str:
        text: str = self._texts[checked(number, len(self))].as_py()
        return text

    @property
    def lengths(self) -> np.ndarray:
        lengths: np.ndarray = pc.binary_length(self._texts).to_numpy()
        return lengths


class Collector:
    """Collects texts for a MemoryTexts. Arrow's own pieces side by side took a third more memory than their bytes."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._ends = [np.zeros(1, OFFSET)]

    def add(self, texts: pa.Array) -> None:
        """Append a LargeStringArray without nulls."""
        data, ends = _letters(texts)
        self._ends.append(ends + len(self._data))
        self._data += data

    def finish(self) -> MemoryTexts:
        """All that was added, in its order."""
        ends = np.concatenate(self._ends)
        buffers = pa.py_buffer(ends), pa.py_buffer(self._data)
        return MemoryTexts(pa.LargeStringArray.from_buffers(len(ends) - 1, *buffers))


def _letters(texts: pa.Array) -> tuple[memoryview, np.ndarray]:
    """(UTF-8 bytes of a LargeStringArray without nulls, (n,) int64 end of each text in them)."""
    if len(texts) == 0:
        return memoryview(b""), np.empty(0, OFFSET)
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = memoryview(data_buffer or b"")[int(offsets[0]) : int(offsets[-1])]
    return data, (offsets[1:] - offsets[0]).astype(OFFSET)


class FileTexts(TextStore):
    """Texts in two files, read by position: the memory of the process does not grow with what was read."""

    def __init__(self, path: Path) -> None:
        """`path` is the files' common name without ending. Raises OSError."""
        self.path = path
        # Read by place: a forked loader worker may go on with them.
        self._texts, self._offsets = (
            open_file(path.with_name(path.name + end)) for end in (TEXT_ENDING, OFFSET_ENDING)
        )
        self._count = os.fstat(self._offsets.fileno()).st_size // OFFSET.itemsize - 1

    def __reduce__(self) -> tuple[Any, ...]:
        # A spawned worker opens the files itself.
        return FileTexts, (self.path,)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> str:
        place = checked(number, self._count) * OFFSET.itemsize
        start, stop = np.frombuffer(os.pread(self._offsets.fileno(), 2 * OFFSET.itemsize, place), OFFSET).tolist()
        return os.pread(self._texts.fileno(), stop - start, start).decode("utf-8")

    @property
    def lengths(self) -> np.ndarray:
        path = self.path.with_name(self.path.name + OFFSET_ENDING)
        return np.diff(np.fromfile(path, OFFSET)).astype(np.int64)


class TextWriter:
    """Writes the two files of a FileTexts."""

    def __init__(self, path: Path) -> None:
        """`path`: common name of the files. Raises OSError."""
        self.rows = 0
        self._end = 0
        self._files = [path.with_name(path.name + ending).open("wb") for ending in (TEXT_ENDING, OFFSET_ENDING)]
        self._files[1].write(np.zeros(1, OFFSET).tobytes())

    def add(self, texts: pa.Array) -> None:
        """Append a LargeStringArray without nulls. Raises OSError when the disk is full."""
        data, ends = _letters(texts)
        self._files[0].write(data)
        self._files[1].write((ends + self._end).tobytes())
        self._end += len(data)
        self.rows += len(texts)

    def close(self) -> None:
        for file in self._files:
            file.close()


def checked(number: int, count: int) -> int:
    """`number` itself; IndexError where there is no such text."""
    if not 0 <= number < count:
        raise IndexError(f"text {number} of {count}")
    return number


# The protein alphabet of ESM-2, and sequences as its numbers.


ESM_VOCABULARY: tuple[str, ...] = (
    "<cls>", "<pad>", "<eos>", "<unk>",
    "L", "A", "G", "V", "S", "E", "R", "T", "I", "D", "P", "K", "Q", "N", "F", "Y", "M", "H", "W", "C",
    "X", "B", "U", "Z", "O", ".", "-", "<null_1>", "<mask>",
)  # fmt: skip
"""The 33 tokens of ESM-2 in the order of its vocab.txt (facebook/esm2_t6_8M_UR50D)."""

CLS, PAD, EOS, UNK = 0, 1, 2, 3
MASK = 32
FIRST_RESIDUE, LAST_RESIDUE = 4, 23
"""Numbers of the 20 standard amino acids, L to C."""
SPECIAL_TOKENS = 2
"""Tokens added to each sequence: <cls> before, <eos> after."""

LETTERS = "".join(token for token in ESM_VOCABULARY if len(token) == 1)
"""In upper case; files may have them in lower case too."""
OUTSIDE = f"[^{re.escape(LETTERS + LETTERS.lower())}Jj]"
"""A letter that is not in the alphabet. J (leucine or isoleucine, not told apart) is one of protein files that ESM-2 does not
have: it is read as <unk>, as the original tokenizer does."""


def _number_table() -> np.ndarray:
    """(256,) uint8: byte of an ASCII letter, upper or lower case -> token number."""
    table = np.full(256, UNK, dtype=np.uint8)
    for letter in LETTERS:
        table[[ord(letter), ord(letter.lower())]] = ESM_VOCABULARY.index(letter)
    return table


NUMBERS = _number_table()


def trim_proteins(texts: pa.Array) -> pa.Array:
    """Sequences without surrounding blanks and without the `*` that marks a stop codon."""
    return pc.utf8_rtrim(pc.utf8_trim_whitespace(texts), characters="*")
