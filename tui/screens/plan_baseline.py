"""What the profile alone would be, on the same machine: what the review compares the plan with.

The review is drawn in the first frame of `trainwiz --profile NAME`: what plans is imported when it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainwiz.core.errors import TrainwizError
from trainwiz.core.language import tr
from trainwiz.core.plan.request import PlanRequest

if TYPE_CHECKING:
    from trainwiz.core.config import RunConfig
    from trainwiz.core.config.differences import ConfigDifference
    from trainwiz.core.hardware.machine import Machine
    from trainwiz.core.plan.gather import DataAnswer, Gathered
    from trainwiz.core.plan.result import Plan


@dataclass(frozen=True, slots=True)
class Baseline:
    """The profile's own run, resolved. `problem` says why there is none."""

    request: PlanRequest
    """The one that was asked for, without the user's values."""
    folder: str = ""
    config: RunConfig | None = None
    files: Mapping[str, str] | None = None
    problem: str = ""

    def differences(self, plan: Plan) -> tuple[ConfigDifference, ...]:
        from trainwiz.core.config.differences import config_differences

        return () if self.config is None else config_differences(self.config, plan.config)


def profile_request(request: PlanRequest) -> PlanRequest:
    """The request without the user's values: profile, machine and mode stay, the folder too.

    Where there is no profile, what is trained on what stays: without it there is nothing to compare.
    """
    kept = {} if request.profile is not None else request.overrides
    subject = {key: value for key, value in kept.items() if key.startswith(("model.", "data.sources", "task"))}
    return replace(request, overrides=subject, name=None)


def profile_alone(
    request: PlanRequest,
    here: Machine,
    folder: str,
    plan: Callable[[Gathered], Plan],
    read_data: Callable[[RunConfig], DataAnswer],
) -> Baseline:
    """The run of the profile of `request` alone, on the machine `here`, as it would be written into `folder`.

    Every failure comes back as a sentence.
    """
    import trainwiz.core.plan.gather as edge
    from trainwiz.tui.screens.plan_reader import planned_files

    alone = profile_request(request)
    try:
        known = edge.gather_known(alone, edge.gather_profile(alone, here), here)
        answer = edge.without_data(known, here) or read_data(known.config)
        planned = plan(edge.with_data(known, *answer))
        return Baseline(alone, folder, planned.config, planned_files(planned, Path(folder)))
    except TrainwizError as error:
        return Baseline(alone, folder, problem=" ".join(finding.message for finding in error.findings))
    except OSError as error:
        place = error.filename or folder
        return Baseline(alone, folder, problem=tr("{place}: {reason}.", place=place, reason=error.strerror or error))
