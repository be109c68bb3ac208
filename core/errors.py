"""The exceptions that carry sentences for the user. Anything else is a defect of trainwiz."""

from __future__ import annotations

from collections.abc import Iterable

from trainwiz.core.findings import Finding

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


def usage_error(code: str, where: str, message: str) -> UsageError:
    """The common case: one sentence about one place."""
    return UsageError(Finding(code=code, severity="error", where=where, message=message))
