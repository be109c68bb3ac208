"""A quick fingerprint of a file of any size: all of a small one, evenly spaced blocks of a large one."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from trainwiz.core.small_file import open_at_once

BLOCK_BYTES = 65_536
BLOCKS = 16


def sampled_digest(path: Path, blocks: int = BLOCKS) -> str:
    """Hash of the size and of `blocks` blocks of 64 KiB, the first and the last among them; 2 or more.

    A file of at most that size is read whole. A change of a larger one that keeps its size and lies
    wholly between the blocks is not seen. 1 MiB is read at most by default. Raises OSError, also for a pipe.
    """
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb", buffering=0, opener=open_at_once) as file:
        size = os.fstat(file.fileno()).st_size
        digest.update(f"{size}:".encode())
        for offset in _offsets(size, max(2, blocks)):
            digest.update(os.pread(file.fileno(), BLOCK_BYTES, offset))
    return digest.hexdigest()


def _offsets(size: int, blocks: int) -> list[int]:
    if size <= blocks * BLOCK_BYTES:
        return list(range(0, size, BLOCK_BYTES))
    last = size - BLOCK_BYTES
    return [last * number // (blocks - 1) for number in range(blocks)]
