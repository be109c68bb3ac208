"""What f1 says: the focused field, its present value with origin and reason, and all findings in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.core.findings import Finding
from trainwiz.core.language import mark, tr
from trainwiz.tui.screens.plan_fields import MAPPINGS, STEPS, FieldSpec, shown_key, shown_value
from trainwiz.tui.screens.plan_state import PlanState, field_problem
from trainwiz.tui.widgets.field_row import ORIGINS

if TYPE_CHECKING:
    from trainwiz.core.config import RunConfig

STEP_HELP = (
    mark("What this machine is, and the profile that fills in everything else."),
    mark("What is trained. Its size decides memory and time more than anything else."),
    mark("What it learns from: look at the rows that were found."),
    mark("Goals first, implementation below. Every value says who chose it and why."),
    mark("Everything that will be written, before it is. Enter on a button does what the button says."),
)


def help_parts(
    state: PlanState, spec: FieldSpec | None, findings: tuple[Finding, ...]
) -> tuple[str, list[tuple[str, str]]]:
    """(title, [(heading, text)]) for the focused field, or for the step where no field has the focus."""
    said = [(tr("Finding"), _finding_text(finding)) for finding in findings]
    if spec is None:
        return tr(STEPS[state.step]), [(tr("This step"), tr(STEP_HELP[state.step])), *said]
    text = spec.help
    parts = [
        (tr("What"), tr(text.what)),
        (tr("Why"), tr(text.why)),
        (tr("Safe choice"), tr(text.safe)),
        (tr("What it costs"), tr(text.cost)),
    ]
    if state.plan is not None and "." in spec.keys[0]:
        config = state.plan.config
        key = shown_key(spec, config)
        origin = config.origin(key)
        value, by = shown_value(spec, config) or tr("not set"), tr(ORIGINS.get(origin.origin, origin.origin))
        because = tr("{value} ({origin}: {reason})", value=value, origin=by, reason=tr(origin.reason))
        parts.append((tr("Now"), because if origin.reason else tr("{value} ({origin})", value=value, origin=by)))
        parts += _entries(config, key)
        parts.append((tr("Command-line equivalent"), f"--set {key}=..."))
    problem = [(tr("Problem"), field_problem(state, spec))]
    return tr(spec.label), [*problem, *parts, *said]


def _entries(config: RunConfig, key: str) -> list[tuple[str, str]]:
    """Each entry of a mapping with its own origin and reason: the variables of the environment."""
    if key not in MAPPINGS:
        return []
    parts = []
    for name, value in config.value(key).items():
        origin = config.origin(f"{key}.{name}") if f"{key}.{name}" in config.origins else config.origin(key)
        by = tr(ORIGINS.get(origin.origin, origin.origin))
        words = tr("{value} ({origin}: {reason})", value=value, origin=by, reason=tr(origin.reason))
        parts.append((name, words if origin.reason else tr("{value} ({origin})", value=value, origin=by)))
    return parts


def _finding_text(finding: Finding) -> str:
    remedies = (
        tr("{change}: {command}", change=one.text, command=one.command) if one.command else one.text
        for one in finding.remedies
    )
    return "\n".join([finding.message, *(f"  {remedy}" for remedy in remedies)])
