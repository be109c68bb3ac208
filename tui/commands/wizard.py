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


def wizard_request(request: PlanRequest, folder: Path, at_review: bool | None = None) -> tuple[PlanRequest, bool]:
    """(the request to open with, whether to open at the review).

    A request for nothing at all gets the default profile. Without `at_review`, a profile that is
    not the default one counts as asked for, and opens at the review.
    """
    default = default_profile(folder)
    if request.profile is None and not request.overrides:
        request = replace(request, profile=default)
    if at_review is None:
        at_review = request.profile not in (None, default)
    return request, at_review


def _last_words(state: PlanState) -> str:
    """The command of what was chosen and not started, however the wizard was left; empty for nothing."""
    if not state.changed:
        return ""
    from trainwiz.tui.screens.plan_command import command_line

    return tr("Command-line equivalent:  {command}", command=command_line(state.request))


def run_wizard(request: PlanRequest, *, at_review: bool | None = None, tier: str | None = None) -> int:
    """Run the wizard in this terminal; returns the exit code. The caller has made sure that there is a terminal.

    `at_review` says whether a profile was asked for by name; None guesses it from the request. `tier` is how far the
    figures are refined while it is open; None leaves it to TRAINWIZ_TIER, and else to the best. Raises UsageError.
    """
    wanted = wanted_tier(tier, "full")
    opened, review = wizard_request(request, Path.cwd(), at_review)
    screen = PlanScreen(opened, at_review=review, tier=wanted)
    app = TrainwizApp(lambda: screen)
    code = app.run()
    for line in (app.farewell or _last_words(screen.state)).splitlines():
        print(plain_text(line))
    if code is None:
        return app.return_code or 0
    return code
