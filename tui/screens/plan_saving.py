"""Keeping the choices of the wizard as a profile: asks for a name, writes the file, says what happened."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from textual.app import App
from trainwiz.core.errors import TrainwizError
from trainwiz.core.plain import plain_text
from trainwiz.core.plan.request import PlanRequest

LONGEST_MESSAGE = 300
SHOWN_S = 8.0


def ask_and_save(app: App[Any], request: PlanRequest) -> None:
    """Ask for a name and save; a name that cannot be used is said, and nothing is written."""
    from trainwiz.tui.widgets.chooser import Chooser

    app.push_screen(Chooser("Save as a profile of mine", (), "", "type a name"), partial(_save, app, request))


def of_a_setup(request: PlanRequest) -> PlanRequest:
    """The request without what belongs to one run: its name, its folder, its mode."""
    return replace(
        request, name=None, output_dir=None, force=False, mode="train", overfit_batches=None, trace_steps=None
    )


def _save(app: App[Any], request: PlanRequest, name: str | None) -> None:
    if name is None:
        return
    from trainwiz.core.profile.save import save_profile

    try:
        saved = save_profile(name, of_a_setup(request))
    except TrainwizError as error:
        message = " ".join(finding.message for finding in error.findings)
        app.notify(plain_text(message, LONGEST_MESSAGE), severity="error", timeout=SHOWN_S, markup=False)
        return
    words = f"{saved.name} is saved: trainwiz --profile {saved.name}"
    app.notify(plain_text(words, LONGEST_MESSAGE), timeout=SHOWN_S, markup=False)
