"""The edge that reads the world: profile, machine, model and data of a request, and the plan from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.config import RunConfig
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.data.lengths import packs_rows
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.errors import Finding, Remedy, TrainwizError, sort_findings
from trainwiz.core.estimate.traced import NO_EVIDENCE, Evidence
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.measurement import data_digest, device_key, model_digest
from trainwiz.core.language import tr
from trainwiz.core.plan.devices import choose_devices, choose_target
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.recipe import with_init
from trainwiz.core.plan.result import Plan, plan_command
from trainwiz.core.plan.tasks import (
    names_no_data,
    no_data_findings,
    other_task_findings,
    task_is_known,
    unnamed_data,
    with_run_name,
    with_task_of,
)
from trainwiz.core.profile.profile import Profile

# What a plan says of a measurement before it is made: the settings that it will belong to.


def planned_fields(plan: Plan) -> dict[str, Any] | None:
    """Fields of a Measurement as JSON values; None where a measurement would not say what it was made on or of."""
    work, engine = plan.work, plan.config.engine
    if work is None or not work.model_config or plan.machine.hypothetical or engine.nodes > 1:
        return None
    devices, _ = choose_devices(plan.machine, plan.config)
    machine = device_key(plan.machine, devices.device, devices.gpus)
    if machine is None:
        return None
    usual = plan.usual or work
    pairs = work.architecture.kind == "encoder-decoder"
    versions = plan.machine.libraries.versions
    return {
        "machine": machine,
        "model": model_digest(work.model_config),
        "model_name": plan.config.model.name,
        "task": work.task,
        "micro_batch": work.micro_batch,
        "accumulation": work.accumulation,
        "world_size": work.world_size,
        "length": work.length,
        "target_length": work.target_length if pairs else 0,
        "precision": work.precision,
        "attention": work.attention,
        "checkpointing": work.checkpointing,
        "optimizer": work.optimizer,
        "strategy": work.strategy,
        "offload": work.offload,
        "lora_rank": work.lora_rank,
        "lora_targets": list(work.lora_targets),
        "loss_chunk": work.loss_chunk,
        "padded": work.padded,
        "lora_dropout": work.lora_dropout,
        "label_smoothing": work.label_smoothing,
        "clipping": work.clipping,
        "compiled": engine.compile,
        "packed": packs_rows(plan.config),
        "tf32": bool(engine.tf32) if devices.device == "cuda" else None,
        "threads": engine.cpu_threads if devices.device == "cpu" else None,
        "usual_length": usual.length,
        "usual_target_length": usual.target_length if pairs else None,
        "data": data_digest(plan.config),
        "workers": plan.config.data.workers,
        "prefetch": plan.config.data.prefetch,
        "versions": {name: str(versions[name]) for name in ("torch", "transformers") if versions.get(name)},
    }


# The edge that reads the world: profile, machine, model and data of a request, and the plan from them.

OUTPUT_ROOT = "runs"
NO_TASK_READS = frozenset({"missing_data", "unreadable_data", "empty_data", "mixed_formats"})
"""Findings about data that hold for every task."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a plan is made from. `model` and `data` are None where `findings` says why."""

    profile: Profile | None
    config: RunConfig
    machine: Machine
    model: ModelSpec | None
    data: DataSummary | None
    findings: tuple[Finding, ...] = ()


def probe_here(request: PlanRequest) -> Machine:
    """This machine, with the free disk of the folder that the run would be written to."""
    from trainwiz.core.hardware.read import probe_machine

    return probe_machine(Path(request.output_dir or OUTPUT_ROOT))


def gather_profile(request: PlanRequest, here: Machine) -> Profile | None:
    """The profile of the request; one that stands for several is picked by the GPU. UsageError for an unknown name."""
    from trainwiz.core.profile.store import load_profile

    return None if request.profile is None else load_profile(request.profile, here)


def gather_machine(
    request: PlanRequest, profile: Profile | None, here: Machine | None = None
) -> tuple[Machine, tuple[Finding, ...]]:
    """The machine that the plan is for, and what there is to say about that choice."""
    target = choose_target(request, profile, here if here is not None else probe_here(request))
    return target.machine, target.findings


def gather_model(config: RunConfig) -> tuple[ModelSpec | None, tuple[Finding, ...]]:
    """The model of a config: from the catalogue, local files, or what the hub says of it."""
    from trainwiz.core.catalog.models import resolve_model

    return resolve_model(config.model, online=True)


def gather_data(config: RunConfig) -> tuple[DataSummary | None, tuple[Finding, ...]]:
    """Rows and lengths; data that is missing or broken is None with its findings, never an exception."""
    from trainwiz.core.data.summary import summarize_data

    try:
        return summarize_data(config), ()
    except TrainwizError as error:
        return None, tuple(_with_choice(finding, config) for finding in error.findings)


def _with_choice(finding: Finding, config: RunConfig) -> Finding:
    """Data that a profile names and that is not here: the one choice that is missing."""
    if finding.code != "missing_data" or config.origin("data.sources").origin != "profile":
        return finding
    if any("--dataset" in (remedy.command or remedy.text) for remedy in finding.remedies):
        return finding
    own = Remedy(tr("name your own data: --dataset FILE"))
    return Finding(finding.code, finding.severity, finding.where, finding.message, (own, *finding.remedies))


def _whole_commands(finding: Finding, config: RunConfig, machine: Machine, profile: Profile | None) -> Finding:
    """Model and data know an option that helps; pasted alone it is no command."""
    remedies = tuple(
        replace(remedy, command=plan_command(config, machine, profile, remedy.changes))
        if remedy.changes and (remedy.command is None or remedy.command.startswith("--"))
        else remedy
        for remedy in finding.remedies
        # Adapters cannot begin from scratch: that way leads to the next error.
        if not (config.peft.method == "lora" and remedy.changes == {"model.init": "scratch"})
    )
    return replace(finding, remedies=remedies)


def gather_config(
    request: PlanRequest, profile: Profile | None
) -> tuple[RunConfig, ModelSpec | None, tuple[Finding, ...]]:
    """The config of the request with its mode applied, and the model that it then trains."""
    from trainwiz.core.config.build import build_config
    from trainwiz.core.config.modes import apply_mode
    from trainwiz.core.data.columns import detect_columns
    from trainwiz.core.export.deepspeed import settled_by_file

    config = build_config(profile, request.overrides, request.name)
    model, findings = gather_model(config)
    config = with_run_name(with_init(with_task_of(config, model), model), profile)
    moded = apply_mode(config, request, model)
    if moded.model != config.model:
        model, findings = gather_model(moded)
    findings = (*findings, *other_task_findings(moded, model), *no_data_findings(moded))
    moded = detect_columns(settled_by_file(moded))
    if request.force:
        moded = moded.model_copy(update={"forced": True})
    return moded, model, findings


def gather(request: PlanRequest, machine: Machine | None = None) -> Gathered:
    """Everything that the plan of `request` is made from. `machine` is this machine, where it is known already.

    Raises UsageError for what is asked wrongly: an unknown profile, key, value or GPU.
    """
    here = machine if machine is not None else probe_here(request)
    known = gather_known(request, gather_profile(request, here), here)
    return with_data(known, *(without_data(known, here) or gather_data(known.config)))


def gather_known(request: PlanRequest, profile: Profile | None, here: Machine) -> Gathered:
    """All but the data. Raises UsageError as `gather` does."""
    config, model, model_findings = gather_config(request, profile)
    target, target_findings = gather_machine(request, profile, here)
    if model is not None and target is not here:
        # Weights are needed where the run is, which is not here.
        model_findings = tuple(
            replace(one, severity="note") if one.code in NEEDED_THERE else one
            for one in model_findings
            # What a plan for another machine says of it is unnamed_data.
            if one.code != "no_data_named" or not names_no_data(config)
        )
    about_model = tuple(_whole_commands(one, config, target, profile) for one in model_findings)
    return Gathered(profile, config, target, model, None, (*target_findings, *about_model))


NEEDED_THERE = frozenset({"missing_model", "gated_model", "missing_tokenizer", "model_to_download"})

DataAnswer = tuple[DataSummary | None, tuple[Finding, ...]]
"""A summary of the data, or why there is none."""


def without_data(known: Gathered, here: Machine) -> DataAnswer | None:
    """The answer about data that needs no reading: a plan for another machine need not name any. Else None."""
    return (None, (unnamed_data(),)) if known.machine is not here and names_no_data(known.config) else None


def with_data(known: Gathered, data: DataSummary | None, findings: tuple[Finding, ...]) -> Gathered:
    """`known` with an answer about its data."""
    if not task_is_known(known.config, known.model):
        # How rows are to be read depends on the task; what no task could read is said all the same.
        data, findings = None, tuple(one for one in findings if one.code in NO_TASK_READS)
    about_data = tuple(_whole_commands(one, known.config, known.machine, known.profile) for one in findings)
    return replace(known, data=data, findings=(*known.findings, *about_data))


def plan_gathered(gathered: Gathered, evidence: Evidence = NO_EVIDENCE) -> Plan:
    """The plan of what was gathered; reads nothing but a DeepSpeed file of the user's."""
    from trainwiz.core.export.deepspeed import deepspeed_file_findings

    plan = make_plan(
        gathered.machine,
        gathered.config,
        model=gathered.model,
        data=gathered.data,
        profile=gathered.profile,
        findings=gathered.findings,
        evidence=evidence,
    )
    about_file = deepspeed_file_findings(plan.config)
    return replace(plan, findings=sort_findings([*plan.findings, *about_file])) if about_file else plan


def plan_run(request: PlanRequest, machine: Machine | None = None) -> Plan:
    """The plan of a request. Raises UsageError for what is asked wrongly; what cannot run is in the findings."""
    return plan_gathered(gather(request, machine))
