"""`trainwiz` in a terminal: the wizard. Without a profile it opens on the demo, so that five enters end in a small run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trainwiz.core.plan.request import PlanRequest
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.plain import plain_text
from trainwiz.tui.screens.plan import PlanScreen

FIRST_PROFILE = "cpu-demo"
SETTINGS_FILE = ".trainwiz.yaml"


def wizard_request(request: PlanRequest, folder: Path) -> tuple[PlanRequest, bool]:
    """(the request to open with, whether to open at the review).

    A profile that was asked for opens at the review. Else the folder's own profile fills the form
    (`trainwiz profiles use`); without one, the demo.
    """
    if request.profile is not None:
        return request, True
    name = None
    if (folder / SETTINGS_FILE).exists():
        # Reads YAML, which is not needed for the first frame of most starts.
        from trainwiz.core.profile.current import current_profile

        name = current_profile(folder)
    return replace(request, profile=name or FIRST_PROFILE), False


def run_wizard(request: PlanRequest) -> int:
    """Run the wizard in this terminal; returns the exit code. The caller has made sure that there is a terminal."""
    request, at_review = wizard_request(request, Path.cwd())
    app = TrainwizApp(lambda: PlanScreen(request, at_review=at_review))
    code = app.run()
    for line in app.farewell.splitlines():
        print(plain_text(line))
    if code is None:
        return app.return_code or 0
    return code
