"""trainwiz for Python programs: what the commands print with --json, as values. docs/python.md shows how.

Importing it loads nothing else: each function imports what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["diagnose", "fit", "monitor", "plan", "runs"]


def plan(**choices: Any) -> dict[str, Any]:
    """What `trainwiz plan --json` prints: batch, memory, time, every choice with its reason, findings.

    `choices` are the options of the command by their names: `gpu="RTX 3060 12GB"`, `num_gpus=2`,
    `set={"training.seed": 7}`. Nothing is written and nothing starts. What does not fit is a finding, not an
    exception. Raises `trainwiz.core.errors.UsageError` for a choice that cannot be read.
    """
    from trainwiz.tui.choices import choices_of
    from trainwiz.tui.commands.plan import best_plan
    from trainwiz.tui.options import PLAN_OPTIONS, wanted_tier

    parsed = choices_of(choices, PLAN_OPTIONS)
    return _plain(best_plan(parsed.request, wanted_tier(parsed.tier, "full")).to_json())


def fit(
    dataset: str,
    *,
    models: tuple[str, ...] = (),
    until: str | None = None,
    hours: float | None = None,
    budget: str | None = None,
    per_hour: str | None = None,
    best: str = "largest",
    **choices: Any,
) -> dict[str, Any]:
    """What `trainwiz fit --json` prints: which models fit a card, this data and this time, best first."""
    from trainwiz.tui.choices import choices_of
    from trainwiz.tui.commands.fit import answer, document
    from trainwiz.tui.options import BY_NAME, FIT_OPTIONS

    limits: dict[str, Any] = {"until": until, "hours": hours, "budget": budget, "per_hour": per_hour}
    parsed = choices_of({**choices, "dataset": dataset, "profile": "none"}, (*FIT_OPTIONS, BY_NAME["profile"]))
    return _plain(document(answer(parsed, models=models, best=best, **limits)))


def diagnose(what: str) -> dict[str, Any]:
    """What `trainwiz diagnose --json` prints of a run, a log or the output folder of a Trainer."""
    from trainwiz.tui.commands.diagnose import document

    return _plain(document(str(what)))


def runs() -> list[dict[str, Any]]:
    """The runs of `trainwiz runs list --json`: those in ./runs, newest first."""
    from dataclasses import asdict

    from trainwiz.core.run.listing import list_runs

    return [_plain(asdict(run)) for run in list_runs()]


def monitor(what: str) -> dict[str, Any]:
    """What `trainwiz monitor --once --json` prints of a run, a folder of another tool, or a process."""
    from trainwiz.core.telemetry.discovery import find_target
    from trainwiz.tui.commands.monitor import look

    return _plain(look(find_target(str(what))).to_json())


def _plain(document: Mapping[str, Any]) -> dict[str, Any]:
    """As a program that reads the JSON gets it: numbers that JSON does not have are None, tuples are lists."""
    import json

    from trainwiz.tui.output import json_text

    plain: dict[str, Any] = json.loads(json_text(document))
    return plain
