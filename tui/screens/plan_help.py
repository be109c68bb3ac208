"""What f1 says: the focused field, its present value with origin and reason, and all findings in full."""

from __future__ import annotations

from trainwiz.core.findings import Finding
from trainwiz.tui.screens.plan_fields import STEPS, FieldSpec, shown_key, shown_value
from trainwiz.tui.screens.plan_state import PlanState, field_problem

STEP_HELP = (
    "What this machine is, and the profile that fills in everything else.",
    "What is trained. Its size decides memory and time more than anything else.",
    "What it learns from: look at the rows that were found.",
    "What you want first, how it is done below. Every value says who chose it and why.",
    "Everything that will be written, before it is. Enter on a button does what the button says.",
)


def help_parts(
    state: PlanState, spec: FieldSpec | None, findings: tuple[Finding, ...]
) -> tuple[str, list[tuple[str, str]]]:
    """(title, [(heading, text)]) for the focused field, or for the step where no field has the focus."""
    said = [("Finding", _finding_text(finding)) for finding in findings]
    if spec is None:
        return STEPS[state.step], [("This step", STEP_HELP[state.step]), *said]
    text = spec.help
    parts = [("What", text.what), ("Why", text.why), ("Safe choice", text.safe), ("What it costs", text.cost)]
    if state.plan is not None and "." in spec.keys[0]:
        config = state.plan.config
        key = shown_key(spec, config)
        origin = config.origin(key)
        because = f": {origin.reason}" if origin.reason else ""
        parts.append(("Now", f"{shown_value(spec, config) or 'not set'} ({origin.origin}{because})"))
        parts.append(("As a choice of the command", f"--set {key}=..."))
    problem = [("Problem", field_problem(state, spec))]
    return spec.label, [*problem, *parts, *said]


def _finding_text(finding: Finding) -> str:
    remedies = [f"  {remedy.text}{f': {remedy.command}' if remedy.command else ''}" for remedy in finding.remedies]
    return "\n".join([finding.message, *remedies])
