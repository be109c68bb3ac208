"""Starting from the wizard: write the run folder and, unless only writing was asked for, start the run."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from trainwiz.core.errors import TrainwizError
from trainwiz.core.language import tr
from trainwiz.core.launch.prepare import prepare_run
from trainwiz.core.launch.start import start_run
from trainwiz.core.plan.request import PlanRequest
from trainwiz.core.plan.result import Plan
from trainwiz.core.run.folder import RunFolder

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
        return tr("Started  {path}\nWatch it with  trainwiz monitor {path}", path=path)


def start_plan(kind: StartKind, plan: Plan, request: PlanRequest, said: str = "") -> Started:
    """Write and start, in the folder that was `said` before where there is still nothing. Failures are sentences."""
    if request.force and plan.errors:
        plan = replace(plan, config=plan.config.model_copy(update={"forced": True}))
    try:
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
