"""`trainwiz plan`: the preview alone, as text or as JSON. Writes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from trainwiz.core.config import OriginKind
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import EXIT_FINISHED, sort_findings
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.plan.gather import gather
from trainwiz.core.plan.refine import RefineTier
from trainwiz.core.plan.result import Choice, Plan
from trainwiz.core.text import plain_text
from trainwiz.tui.choices import parse_choices
from trainwiz.tui.headless.plan_text import number_lines
from trainwiz.tui.headless.waiting import Waiting, improved, refining
from trainwiz.tui.options import wanted_tier
from trainwiz.tui.output import say, say_findings, say_json, say_labelled
from trainwiz.tui.text import cells, pad

ORIGIN_WORDS: dict[OriginKind, str] = {
    "detected": mark("detected"),
    "profile": mark("profile"),
    "you": mark("you"),
    "solved": mark("solved"),
}
WIDEST_VALUE = 24
LIMIT_S = 120.0
"""For all traces of one plan; each is killed at 60 s."""


def run_plan(values: Mapping[str, Any], *, verbose: bool) -> int:
    """`values` are the choices as typer read them. Errors in the plan are shown and are not an exit code."""
    choices = parse_choices(values)
    plan = best_plan(choices.request, wanted_tier(choices.tier, "full"))
    if choices.json:
        say_json(plan.to_json())
        return EXIT_FINISHED
    for line in number_lines(plan, datetime.now(), verbose=verbose):
        say_labelled(line)
    for line in choice_lines(plan, verbose=verbose):
        say(line)
    findings = sort_findings(plan.findings)
    if findings:
        say()
        say_findings(findings)
    return EXIT_FINISHED


def best_plan(request: PlanRequest, tier: RefineTier) -> Plan:
    """The plan with the figures of `tier`; Ctrl-C while they are made ends with the best so far."""
    with refining(tier) as refiner:
        with Waiting(tr("reading machine, model and data")):
            gathered = gather(request)
        return improved(refiner, gathered, tier, limit_s=LIMIT_S, interruptible=True)


def choice_lines(plan: Plan, *, verbose: bool) -> list[str]:
    """The choices with who made them; all of them with `verbose`, else those that were not simply given."""
    shown = [choice for choice in plan.choices if verbose or choice.origin in ("detected", "solved", "you")]
    if not shown:
        return []
    keys = max(len(choice.key) for choice in shown)
    values = min(WIDEST_VALUE, max(cells(value_text(choice)) for choice in shown))
    lines = ["", tr("Choices")]
    lines += [choice_line(choice, keys, values) for choice in shown]
    hidden = len(plan.choices) - len(shown)
    if hidden:
        lines.append("  " + trn("{n} more from the profile: --verbose", "{n} more from the profile: --verbose", hidden))
    return lines


def choice_line(choice: Choice, key_width: int, value_width: int) -> str:
    reason = plain_text(tr(choice.reason))
    value = value_text(choice)
    origin = pad(tr(ORIGIN_WORDS[choice.origin]), 8)
    return f"  {choice.key:<{key_width}}  {pad(value, value_width)}  {origin}  {reason}".rstrip()


def value_text(choice: Choice) -> str:
    return plain_text(choice.value if isinstance(choice.value, str) else json.dumps(choice.value, default=str), 60)
