"""The command that does what the wizard is about to do, the start of a run, and what f1 says."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainwiz.core.config.request import PlanRequest
from trainwiz.core.defaults import profile_words
from trainwiz.core.errors import Finding, TrainwizError
from trainwiz.core.hardware.install import need
from trainwiz.core.language import mark, tr
from trainwiz.core.launch.prepare import prepare_run
from trainwiz.core.launch.start import start_run
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.words import mode_words
from trainwiz.core.run.folder import RunFolder
from trainwiz.tui.options import MACHINE_FIELDS, OPTIONS
from trainwiz.tui.screens.plan_fields import STEPS, Setting
from trainwiz.tui.screens.plan_machine import names_another
from trainwiz.tui.screens.plan_state import PlanState, field_problem

if TYPE_CHECKING:
    pass


# The command that does without a screen what the wizard is about to do.

_FLAGS = {option.key: option for option in OPTIONS if option.key}


def command_line(request: PlanRequest) -> str:
    """One line for a shell; every value of the request is in it."""
    words = ["trainwiz", *profile_words(request.profile)]
    for key, value in request.overrides.items():
        words += _choice(key, value)
    words += mode_words(request)
    for key, name in {**MACHINE_FIELDS, **{name: name for name in ("trace_steps", "output_dir", "name")}}.items():
        setting = getattr(request, name)
        if setting is not None:
            words += [f"--{key.replace('_', '-')}", str(setting)]
    if request.force:
        words.append("--force")
    # A run for another machine is written here and started there.
    return shlex.join([*words, "--dry-run" if names_another(request) else "--yes"])


def _choice(key: str, value: Any) -> list[str]:
    option = _FLAGS.get(key)
    if option is None or value is None or isinstance(value, dict):
        return ["--set", f"{key}={_scalar(value)}"]
    if isinstance(value, list):
        # Names that commas can separate.
        is_plain = value and all(isinstance(one, str) and one.strip() and "," not in one for one in value)
        return [option.flag, ",".join(value)] if is_plain else ["--set", f"{key}={_scalar(value)}"]
    if option.kind == "switch":
        return [option.flag if value else f"--no-{option.flag.removeprefix('--')}"]
    return [option.flag, _scalar(value)]


def _scalar(value: Any) -> str:
    """A text stands as it is: the command and the wizard read it in the same way."""
    return value if isinstance(value, str) else json.dumps(value)


# Starting from the wizard: write the run folder and, unless only writing was asked for, start the run.

StartKind = Literal["start", "detached", "write"]


@dataclass(frozen=True, slots=True)
class Started:
    """How a start went. `folder` is None when it did not work, and `problem` says why."""

    kind: StartKind
    folder: RunFolder | None = None
    problem: str = ""

    @property
    def words(self) -> str:
        """What to say in the terminal after leaving the wizard."""
        if self.folder is None:
            return self.problem
        path = shlex.quote(str(self.folder.path))
        if self.kind == "write":
            return tr("Written  {path}\nStart it with  {path}/launch.sh", path=path)
        return tr("Started  {path}\nMonitor it with  trainwiz monitor {path}", path=path)


def start_plan(kind: StartKind, plan: Plan, request: PlanRequest, said: str = "") -> Started:
    """Write and start, in the folder that was `said` before where there is still nothing. Failures are sentences."""
    if request.force and plan.errors:
        plan = replace(plan, config=plan.config.model_copy(update={"forced": True}))
    try:
        if kind != "write":
            need(machine=plan.machine)
        folder = prepare_run(plan, _folder(request, said))
        if kind != "write":
            start_run(folder)
    except TrainwizError as error:
        return Started(kind, problem=" ".join(finding.message for finding in error.findings))
    return Started(kind, folder)


def _folder(request: PlanRequest, said: str) -> Path | None:
    """Where the run goes; None: a new name."""
    if request.output_dir:
        return Path(request.output_dir).expanduser()
    return Path(said) if said and not os.path.lexists(said) else None


# What f1 says: the focused field, its present value with origin and reason, and all findings in full.

STEP_HELP = (
    mark("This machine, and the profile that provides all other settings."),
    mark("The model to train. Its size affects memory and time more than anything else."),
    mark("The training data. Check the rows that were found."),
    mark("Goals first, implementation below. Every value shows who chose it and why."),
    mark("Review everything before it is written. Press enter on a button to activate it."),
)


def help_parts(
    state: PlanState, spec: Setting | None, findings: tuple[Finding, ...]
) -> tuple[str, list[tuple[str, str]]]:
    """(title, [(heading, text)]) for the focused field, or for the step where no field has the focus."""
    said = [(tr("Finding"), _finding_text(finding)) for finding in findings]
    if spec is None:
        return tr(STEPS[state.step]), [(tr("This step"), tr(STEP_HELP[state.step])), *said]
    texts = {tr("What"): spec.what, tr("Why"): spec.why, tr("Safe choice"): spec.safe, tr("Cost"): spec.cost}
    parts = [(heading, tr(text)) for heading, text in texts.items() if text]
    return tr(spec.label), [(tr("Problem"), field_problem(state, spec)), *parts, *said]


def _finding_text(finding: Finding) -> str:
    remedies = (
        tr("{change}: {command}", change=one.text, command=one.command) if one.command else one.text
        for one in finding.remedies
    )
    return "\n".join([finding.message, *(f"  {remedy}" for remedy in remedies)])
