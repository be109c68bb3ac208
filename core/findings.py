"""Findings: what a check has to say, collected before anything is shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trainwiz.core.language import language

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
