"""LetterStore: where encoded sequences are kept while a run trains."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from trainwiz.core.data.proteins import EncodedProteins


class LetterStore:
    """Collects sequences in memory, or in a file that the system maps in page by page.

    The file lies in `folder` without a name: it is gone when the process ends, however it ends.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - kept for the run
        self._parts: list[np.ndarray] = []
        self._lengths: list[np.ndarray] = []
        self.rows = 0

    def add(self, proteins: EncodedProteins) -> None:
        self.rows += len(proteins.lengths)
        self._lengths.append(proteins.lengths)
        if self._file is None:
            self._parts.append(proteins.tokens)
        else:
            self._file.write(np.ascontiguousarray(proteins.tokens).data)

    def finish(self) -> EncodedProteins:
        """All that was added, in its order."""
        offsets = np.concatenate([[0], np.cumsum(np.concatenate([[0], *self._lengths]))[1:]]).astype(np.int64)
        if self._file is None:
            tokens = np.concatenate([np.empty(0, np.uint8), *self._parts])
            self._parts = []
            return EncodedProteins(tokens, offsets)
        self._file.flush()
        mapped = np.memmap(self._file, dtype=np.uint8, mode="r") if offsets[-1] else np.empty(0, np.uint8)
        return EncodedProteins(mapped, offsets)
