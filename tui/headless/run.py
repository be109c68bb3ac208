"""`trainwiz --yes`: plan, write, start, follow. Never asks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainwiz.core.errors import EXIT_CANNOT_RUN, EXIT_FINISHED, UsageError, usage_error
from trainwiz.core.findings import sort_findings
from trainwiz.core.language import tr
from trainwiz.core.launch.portable import travel_notes
from trainwiz.core.launch.prepare import prepare_run
from trainwiz.core.launch.start import read_run_config, start_run
from trainwiz.core.plan.gather import gather
from trainwiz.core.plan.result import Plan
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.names import name_for_commands
from trainwiz.tui.choices import Choices, wrong
from trainwiz.tui.headless.alternatives import commands_that_work
from trainwiz.tui.headless.follow import follow
from trainwiz.tui.headless.reporters import Reporter, new_reporter, written_files
from trainwiz.tui.headless.signals import StopSignals
from trainwiz.tui.headless.waiting import Waiting
from trainwiz.tui.refining import improved, refining
from trainwiz.tui.tiers import wanted_tier

RESUME_CHOICES = frozenset(
    {"--resume", "--output-dir", "--profile", "--yes", "--detach", "--json", "--plain", "--debug", "--lang"}
)
TRACE_LIMIT_S = 20.0
"""A start waits no longer for better figures, unless a tier was asked for."""
ANOTHER_MACHINE = ("--gpu", "--num-gpus", "--ram", "--gpu-memory", "--tflops", "--capability")


def run_headless(choices: Choices) -> int:
    """The whole run; returns the exit code of the command.

    Raises TrainwizError for what is asked wrongly and for what cannot be written or started.
    """
    reporter = new_reporter(as_json=choices.json, plain=choices.plain)
    try:
        if choices.resume is not None:
            return resume(choices, reporter)
        return new_run(choices, reporter)
    finally:
        reporter.close()


def new_run(choices: Choices, reporter: Reporter) -> int:
    """Plan a run and start it, or only write it."""
    request = choices.request
    elsewhere = [flag for flag in ANOTHER_MACHINE if flag in choices.given]
    if elsewhere and not choices.dry_run:
        words = tr("it plans for another machine; use it with `trainwiz plan` or --dry-run")
        raise UsageError([wrong(flag, words) for flag in elsewhere])
    plan = plan_to_start(choices)
    findings = sort_findings(plan.findings)
    if plan.errors and not (choices.dry_run or request.force):
        reporter.refused(findings, commands_that_work(choices, plan), EXIT_CANNOT_RUN)
        return EXIT_CANNOT_RUN
    folder = write(plan, request.output_dir)
    reporter.plan(plan, findings)
    if choices.dry_run:
        reporter.prepared(folder, written_files(folder))
        for sentence in travel_notes(read_run_config(folder), folder.path):
            reporter.note(sentence)
        return EXIT_FINISHED
    return start_and_follow(folder, reporter, detach=choices.detach)


def plan_to_start(choices: Choices) -> Plan:
    """The plan of a run. What a GPU is to train for real is traced first, so that it does not end out of memory.

    Formulas do for a CPU and for the modes that only try: they end in a minute either way.
    """
    request = choices.request
    with Waiting(tr("reading machine, model and data")):
        gathered = gather(request)
    with refining("analytic") as refiner:
        plan = refiner.plan(gathered)
    on_gpu = plan.work is not None and plan.work.device == "cuda"
    tier = wanted_tier(choices.tier, "layers" if on_gpu and request.mode in ("train", "benchmark") else "analytic")
    if tier == "analytic" or (not choices.dry_run and not request.force and beyond_memory(plan)):
        return plan
    with refining(tier) as refiner:
        return improved(refiner, gathered, tier, limit_s=None if choices.tier else TRACE_LIMIT_S)


def beyond_memory(plan: Plan) -> bool:
    """Whether there are errors that no better estimate takes away."""
    return any(not error.code.endswith("does_not_fit") for error in plan.errors)


def write(plan: Plan, output_dir: str | None) -> RunFolder:
    with Waiting(tr("writing the run folder")):
        return prepare_run(plan, None if output_dir is None else Path(output_dir))


def resume(choices: Choices, reporter: Reporter) -> int:
    """Go on in the folder of a run, from its newest complete checkpoint or the one that is named."""
    others = [flag for flag in choices.given if flag not in RESUME_CHOICES]
    if others:
        raise UsageError(
            [wrong(flag, tr("a resumed run keeps the settings of its run.yaml; leave this out")) for flag in others]
        )
    path = Path(choices.request.output_dir or ".")
    folder = RunFolder(path)
    if not folder.is_run():
        what = tr("there is no such folder") if not path.exists() else tr("it holds no run.yaml")
        raise usage_error(
            "not_a_run",
            str(path),
            tr("{path} is not a run to resume: {what}. `trainwiz runs list`.", path=path, what=what),
        )
    return start_and_follow(folder, reporter, detach=choices.detach, checkpoint=choices.resume)


def start_and_follow(
    folder: RunFolder,
    reporter: Reporter,
    *,
    detach: bool,
    checkpoint: str | None = None,
    accept: Sequence[str] = (),
) -> int:
    """Start the keeper of the run; then leave, or stay until the end.

    A run that is followed belongs to this command: were it to vanish (killed, terminal closed), the
    keeper saves a checkpoint and stops. `detach` is for runs that outlive it.
    """
    with StopSignals() as signals:
        with Waiting(tr("starting the run")):
            start_run(folder, resume=checkpoint, tied_to_caller=not detach, accept=accept)
        reporter.prepared(folder, [])
        from trainwiz.core.nodes.worker_node import asked_of_others

        for sentence in asked_of_others(folder):
            reporter.note(sentence)
        if detach:
            reporter.note(tr("Started. Watch it: trainwiz monitor {path}", path=name_for_commands(folder.path)))
            return EXIT_FINISHED
        return follow(folder, reporter, signals, resumed=checkpoint is not None)
