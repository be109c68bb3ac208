"""Many texts in memory or in files, read one at a time; one process of a machine at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, Any

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


def memory_texts(texts: BytesIO, offsets: BytesIO) -> MemoryTexts:
    """What a TextWriter wrote there."""
    rows = len(offsets.getbuffer()) // OFFSET.itemsize - 1
    buffers = (pa.py_buffer(part.getbuffer()) for part in (offsets, texts))
    return MemoryTexts(pa.LargeStringArray.from_buffers(rows, *buffers))


def text_files(path: Path) -> tuple[Path, Path]:
    """The files with the texts and with their ends; `path` is their common name without ending."""
    return path.with_name(f"{path.name}.utf8"), path.with_name(f"{path.name}.offsets")


class FileTexts(TextStore):
    """Texts in two files, read by position: the memory of the process does not grow with what was read."""

    def __init__(self, path: Path) -> None:
        """`path` is the files' common name without ending. Raises OSError."""
        self.path = path
        # Read by place: a forked loader worker may go on with them.
        self._texts, self._offsets = map(open_file, text_files(path))
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
        return np.diff(np.fromfile(text_files(self.path)[1], OFFSET)).astype(np.int64)


class TextWriter:
    """Writes texts one after another, and where each ends: into the two files of a FileTexts, or into memory. Arrow's own
    pieces side by side took a third more memory than their bytes."""

    def __init__(self, texts: IO[bytes], offsets: IO[bytes]) -> None:
        """Raises OSError, as `add` does when the disk is full."""
        self._texts, self._offsets = texts, offsets
        self._end = 0
        offsets.write(np.zeros(1, OFFSET).tobytes())

    def add(self, texts: pa.Array) -> None:
        """Append a LargeStringArray without nulls."""
        if len(texts) == 0:
            return
        _, offset_buffer, data_buffer = texts.buffers()
        offsets = np.frombuffer(offset_buffer, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        data = memoryview(data_buffer or b"")[int(offsets[0]) : int(offsets[-1])]
        self._texts.write(data)
        self._offsets.write((offsets[1:] - offsets[0] + self._end).astype(OFFSET).tobytes())
        self._end += len(data)


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
