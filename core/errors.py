"""The exceptions that carry sentences for the user, and the findings in them."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trainwiz.core.language import language, mark, tr

# Findings: what a check has to say, collected before anything is shown.

Severity = Literal["error", "warning", "note"]

SEVERITY_ORDER: dict[str, int] = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True, slots=True)
class Remedy:
    """One thing the user can do about a finding.

    `changes` maps RunConfig key paths to new values, so that a front end can apply it;
    `command` is a line that can be pasted into a shell.
    """

    text: str
    command: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    opens: str = ""
    """A list of the wizard, by the goal that it is of; such a remedy changes nothing itself."""

    @property
    def is_taken(self) -> bool:
        """Whether the wizard can take it, beside what only a person can do."""
        return bool(self.changes or self.opens)

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "command": self.command, "changes": dict(self.changes)}


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about one place: what, where, and what to do next.

    `code` is stable and machine readable (`does_not_fit`, `missing_data`, ...); `where` is a
    RunConfig key path, a file with its line, or the name of a device.
    """

    code: str
    severity: Severity
    where: str
    message: str
    remedies: tuple[Remedy, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "severity": self.severity,
            "where": self.where,
            "message": self.message,
            "remedy": self.remedies[0].text if self.remedies else None,
            "remedies": [remedy.to_json() for remedy in self.remedies],
        }


def after(text: str) -> str:
    """A sentence or a bracket behind another text: with the space between them that English has and Chinese has not."""
    return text if language() == "zh" else f" {text}"


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors first, then warnings, then notes; the order of discovery within each."""
    return tuple(sorted(findings, key=lambda finding: SEVERITY_ORDER[finding.severity]))


def has_errors(findings: Iterable[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


# The exceptions that carry sentences for the user. Anything else is a defect of trainwiz.

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
