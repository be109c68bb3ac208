"""The members of a tar file, plain or gzip: all of them, or a sentence. The library ends silently at what is broken."""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

from trainwiz.core.data.reader import unreadable
from trainwiz.core.errors import os_reason
from trainwiz.core.language import tr
from trainwiz.core.small_file import open_file

GZIP_MAGIC = b"\x1f\x8b"
REST = 1 << 20
"""Read at once of what follows the last member, so that gzip can compare its checksum."""


class _Archive(tarfile.TarFile):
    ended = False
    """The last block was the zeros that end an archive. Another archive may follow, as after `cat a.tar b.tar`."""


class _Member(tarfile.TarInfo):
    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> _Member:
        archive = cast(_Archive, tarfile)
        try:
            found = super().fromtarfile(archive)
        except EndOfArchive:
            archive.ended = True
            raise
        except BrokenHeader as error:
            if archive.ended and isinstance(error, NoHeader):
                raise
            raise NotWhole(str(error)) from None
        archive.ended = False
        return found


EndOfArchive, NoHeader = tarfile.EOFHeaderError, tarfile.EmptyHeaderError  # type: ignore[attr-defined]
BrokenHeader, NotWhole = tarfile.HeaderError, tarfile.ReadError


class TarFile:
    """One tar file, read from its beginning to its end each time."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError for a file that cannot be read."""
        self.path = path
        self.share_read = 0.0
        """Of the file's bytes, in the pass that is under way."""
        self._size = path.stat().st_size
        try:
            with open_file(path) as raw:
                self.packed = raw.read(2) == GZIP_MAGIC
        except OSError as error:
            raise self._unreadable(error) from None

    def members(self, readable: Callable[[tarfile.TarInfo], bool]) -> Iterator[tuple[tarfile.TarInfo, bytes | None]]:
        """The members in order; with each that is `readable` its bytes, where the file is packed and has no places.

        Raises UsageError where the file is broken, cut off, or changed by the way.
        """
        try:
            with ExitStack() as opened:
                raw = opened.enter_context(open_file(self.path))
                unpacked = opened.enter_context(gzip.GzipFile(fileobj=raw)) if self.packed else None
                tar = opened.enter_context(
                    _Archive.open(
                        fileobj=unpacked or raw,
                        mode="r|" if self.packed else "r:",
                        tarinfo=_Member,
                        # Zeros alone: what is no header is an error of _Member.
                        ignore_zeros=True,
                    )
                )
                for member in tar:
                    # The library keeps every member that it has seen.
                    tar.members = []  # type: ignore[attr-defined]
                    at = os.lseek(raw.fileno(), 0, os.SEEK_CUR) if self.packed else member.offset_data + member.size
                    self.share_read = min(1.0, at / max(self._size, 1))
                    found = tar.extractfile(member) if readable(member) and self.packed else None
                    yield member, None if found is None else found.read()
                while unpacked is not None and unpacked.read(REST):
                    pass
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            detail = str(error) or type(error).__name__
            raise unreadable(
                str(self.path), tr("is not a whole tar file ({detail}); get it again.", detail=detail)
            ) from None
        except OSError as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: OSError) -> Exception:
        return unreadable(str(self.path), tr("cannot be read: {reason}.", reason=os_reason(error)))
