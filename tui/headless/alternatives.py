"""What works here when a run cannot be started: whole commands, each with what it does."""

from __future__ import annotations

import shlex

from trainwiz.core.defaults import DEFAULT_PROFILE, GUIDE_SUFFIX
from trainwiz.core.findings import Finding
from trainwiz.core.language import tr
from trainwiz.core.plan.result import Plan
from trainwiz.tui.choices import Choices


def needs_another_machine(finding: Finding) -> bool:
    """Whether another machine would help; against wrong data or a wrong argument a written folder does not."""
    by_machine = finding.where.startswith("engine.") or finding.where in ("hardware", "memory", "host_ram")
    return by_machine and not finding.code.endswith("_not_supported")


def commands_that_work(choices: Choices, plan: Plan) -> list[tuple[str, str]]:
    """(command, what it does), the nearest to what was asked first."""
    asked = shlex.join(choices.words)
    profile = choices.request.profile
    commands: list[tuple[str, str]] = []
    if profile and profile.endswith(GUIDE_SUFFIX):
        fitting = profile.removesuffix(GUIDE_SUFFIX)
        commands.append((f"trainwiz plan --profile {shlex.quote(fitting)}", tr("the plan that fits this card")))
    if choices.request.mode != "smoke":
        named = f" --profile {shlex.quote(profile)}" if profile else ""
        what = tr("the same engine with a tiny model, here and now")
        if plan.config.engine.strategy == "fsdp" and plan.config.engine.device != "cuda":
            what = tr("a tiny model, here and now")
        commands.append((f"trainwiz{named} --smoke --yes", what))
    if any(needs_another_machine(finding) for finding in plan.errors):
        commands.append(
            (f"trainwiz {asked} --dry-run".replace("  ", " "), tr("write the folder, for the machine that can"))
        )
    gpu = next((gpu.catalogue_name for gpu in plan.machine.gpus if gpu.catalogue_name), None)
    if gpu is not None and choices.request.gpu is None:
        commands.append((f"trainwiz plan {asked} --gpu {shlex.quote(gpu)}".replace("  ", " "), tr("look at the plan")))
    if profile != DEFAULT_PROFILE:
        commands.append((f"trainwiz --profile {DEFAULT_PROFILE} --yes", tr("the demo, which runs on any machine")))
    return commands
