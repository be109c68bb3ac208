"""`trainwiz` in a terminal: the wizard. Without a profile it opens on the demo, so that five enters end in a small run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trainwiz.core.config.request import PlanRequest
from trainwiz.core.defaults import default_profile
from trainwiz.core.language import tr
from trainwiz.core.text import plain_text
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.options import wanted_tier
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_state import PlanState


def wizard_request(request: PlanRequest, folder: Path) -> PlanRequest:
    """A request for nothing at all gets the default profile."""
    if request.profile is None and not request.overrides:
        return replace(request, profile=default_profile(folder))
    return request


def _last_words(state: PlanState) -> str:
    """The command of what was chosen and not started, however the wizard was left; empty for nothing."""
    if not state.changed:
        return ""
    from trainwiz.tui.screens.plan_command import command_line

    return tr("Command-line equivalent:  {command}", command=command_line(state.request))


def run_wizard(request: PlanRequest, *, at_review: bool = False, tier: str | None = None) -> int:
    """Run the wizard in this terminal; returns the exit code. The caller has made sure that there is a terminal.

    `at_review`: a profile was asked for by name. `tier` is how far the figures are refined while it is open; None leaves
    it to TRAINWIZ_TIER, and else to the best. Raises UsageError.
    """
    wanted = wanted_tier(tier, "full")
    screen = PlanScreen(wizard_request(request, Path.cwd()), at_review=at_review, tier=wanted)
    app = TrainwizApp(lambda: screen)
    code = app.run()
    for line in (app.farewell or _last_words(screen.state)).splitlines():
        print(plain_text(line))
    return code if code is not None else app.return_code or 0
