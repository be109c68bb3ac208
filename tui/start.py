"""`trainwiz` without a command: the wizard, or with --yes the headless run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr
from trainwiz.tui.choices import Choices, parse_choices
from trainwiz.tui.output import is_terminal


def start(values: Mapping[str, Any]) -> int:
    """`values` are the choices as typer read them; returns the exit code."""
    choices = parse_choices(values)
    if choices.headless:
        from trainwiz.tui.headless.run import run_headless

        return run_headless(choices)
    refuse_without_yes(choices)
    from trainwiz.tui.commands.wizard import run_wizard

    return run_wizard(choices.request, at_review="--profile" in choices.given, tier=choices.tier)


def refuse_without_yes(choices: Choices) -> None:
    """The wizard needs a terminal and takes no headless options. Raises UsageError."""
    headless_only = [flag for flag in ("--json", "--plain", "--detach") if flag in choices.given]
    if headless_only:
        flag = headless_only[0]
        raise usage_error("needs_yes", flag, tr("{flag} belongs to a headless run; add --yes to start one.", flag=flag))
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        profile = choices.request.profile or "NAME"
        raise usage_error(
            "no_terminal",
            "terminal",
            tr("The wizard needs a terminal; without one run: trainwiz --profile {profile} --yes", profile=profile),
        )
