"""The exceptions that carry sentences for the user. Anything else is a defect of trainwiz."""

from __future__ import annotations

import errno
from collections.abc import Iterable

from trainwiz.core.findings import Finding
from trainwiz.core.language import mark, tr

EXIT_FINISHED = 0
EXIT_TRAINING_FAILED = 1
EXIT_USAGE = 2
EXIT_CANNOT_RUN = 3
EXIT_STOPPED = 130


class TrainwizError(Exception):
    """A failure with all its findings; `exit_code` is what the command ends with."""

    def __init__(self, findings: Finding | Iterable[Finding], exit_code: int = EXIT_USAGE) -> None:
        self.findings: tuple[Finding, ...] = (findings,) if isinstance(findings, Finding) else tuple(findings)
        self.exit_code = exit_code
        super().__init__("; ".join(finding.message for finding in self.findings))


class UsageError(TrainwizError):
    """The request itself is wrong (exit 2)."""


class CannotRunError(TrainwizError):
    """The request is right and this machine cannot do it (exit 3)."""

    def __init__(self, findings: Finding | Iterable[Finding]) -> None:
        super().__init__(findings, EXIT_CANNOT_RUN)


NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the system says where a file may not grow for want of room: the disk, a quota. A limit on file sizes is no such."""

OS_REASONS = (
    mark("No such file or directory"),
    mark("Permission denied"),
    mark("Is a directory"),
    mark("Not a directory"),
    mark("File exists"),
    mark("File name too long"),
    mark("Input/output error"),
    mark("No space left on device"),
    mark("Read-only file system"),
    mark("Too many open files"),
    mark("Operation not permitted"),
    mark("Too many levels of symbolic links"),
    mark("Disk quota exceeded"),
    mark("Stale file handle"),
    mark("File too large"),
)
"""What the system says most, always in English: Python leaves the C locale of messages as it is."""


def os_reason(error: OSError) -> str:
    """Why the system refused, in the words of the chosen language where they are known."""
    return tr(error.strerror) if error.strerror else str(error)


def usage_error(code: str, where: str, message: str) -> UsageError:
    """The common case: one sentence about one place."""
    return UsageError(Finding(code=code, severity="error", where=where, message=message))
