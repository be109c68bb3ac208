"""`trainwiz data show`: a row of the data as the model will read it, and what of it is learnt."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwiz.core.errors import UsageError, has_errors, usage_error
from trainwiz.core.hardware.install import need
from trainwiz.core.language import tr
from trainwiz.core.text import plain_text
from trainwiz.core.tracing.chats import look_at_rows
from trainwiz.tui.choices import parse_choices
from trainwiz.tui.output import paint, say, say_findings, say_json, say_rows, width_of
from trainwiz.tui.plan_words import chat_lines

WIDTH = 100
"""In a pipe."""


def run_show(choices: Mapping[str, Any], source: str, row: int) -> None:
    """Raises UsageError for data or a model that cannot be read."""
    from trainwiz.core.plan.data_findings import chat_findings
    from trainwiz.core.plan.gather import gather, plan_gathered

    asked = parse_choices({**choices, "dataset": source})
    gathered = gather(asked.request, show=row - 1)
    if has_errors(gathered.findings) and gathered.data is None:
        raise UsageError([finding for finding in gathered.findings if finding.severity == "error"])
    plan = plan_gathered(gathered)
    seen = plan.data.chats if plan.data is not None else None
    need(machine=gathered.machine)
    look = seen or look_at_rows(plan.config, Path.cwd(), (row - 1,))
    if look.problem:
        message = tr("Can't show the rows: {problem}.", problem=look.problem.rstrip("."))
        raise usage_error("rows_not_seen", "data.sources.0", message)
    if not look.shown:
        raise usage_error("no_such_row", "--row", tr("Row {row} is not among the rows that were read.", row=row))
    findings = list(chat_findings(plan))
    if asked.json:
        told = [
            {"code": one.code, "severity": one.severity, "message": one.message}
            for one in findings
            if one.code != "what_is_learnt"
        ]
        say_json({"look": look.to_json(), "findings": told})
        return
    (shown,) = look.shown
    counts = tr(
        "loss on {learnt} of {tokens} tokens, those between ⟦ ⟧", learnt=sum(shown.learnt), tokens=len(shown.pieces)
    )
    place = f"{plain_text(shown.place)}: {counts}"
    say_rows([(tr("Data"), plain_text(source)), (tr("Row {row}", row=row), place)])
    say()
    for line in chat_lines(shown, (width_of(sys.stdout) or WIDTH) - 2):
        say("  " + "".join(paint(text, "good") if is_learnt else text for text, is_learnt in line))
    say()
    say_findings(findings)
