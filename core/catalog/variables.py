"""The rules of profiles/environment.yaml: which environment variables a run gets or should not have, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from trainwiz.core.findings import Severity

RULES_FILE = "environment.yaml"


@dataclass(frozen=True, slots=True)
class VariableChoice:
    """A value that a run gets where the conditions hold and nobody set another one."""

    variable: str
    value: str
    """May hold {interface} and other words of the situation."""
    when: Mapping[str, bool]
    """Condition (a field of a Situation) -> what it must be."""
    contradicted: Severity
    """Of the finding where somebody set another value."""
    text: str
    """The reason, without its full stop; in English, for `tr`, with the words of the situation in braces."""
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VariableConflict:
    """A value of somebody's that does not go with what the run has."""

    variable: str
    when: Mapping[str, bool]
    severity: Severity
    text: str
    sources: tuple[str, ...]
    values: tuple[str, ...] = field(default=())
    """The values that are meant, in lower case; () for any."""
    instead: str | None = None
    """The value that would do; None takes the variable away."""
    renamed: str | None = None
    """What the variable is called today."""


@dataclass(frozen=True, slots=True)
class VariableRules:
    choices: tuple[VariableChoice, ...]
    conflicts: tuple[VariableConflict, ...]


@cache
def load_variable_rules() -> VariableRules:
    """All rules, in the order of the file."""
    import yaml  # plans need it, and what only reads a run does not

    text = resources.files("trainwiz.profiles").joinpath(RULES_FILE).read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    return VariableRules(
        tuple(VariableChoice(**_row(row)) for row in document["choices"]),
        tuple(VariableConflict(**_row(row)) for row in document["conflicts"]),
    )


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
