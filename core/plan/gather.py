"""The edge that reads the world: profile, machine, model and data of a request, and the plan from them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from trainwiz.core.catalog.gpus import load_gpus
from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.config import RunConfig
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.data.lengths import packs_rows, trains_on_chats
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.errors import Finding, Remedy, TrainwizError, sort_findings
from trainwiz.core.estimate.evidence import NO_EVIDENCE, Evidence
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.history.measurement import data_digest, device_key, text_digest
from trainwiz.core.language import tr
from trainwiz.core.plan.engine import no_gpu_reason
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.tasks import (
    NO_TASK_READS,
    has_template,
    names_no_data,
    subject_findings,
    task_is_known,
    unnamed_data,
    with_adapter,
    with_architecture,
    with_init,
    with_run_name,
    with_task_of,
    with_template,
)
from trainwiz.core.plan.words import aside, mode_words, plan_command, set_words
from trainwiz.core.profile.profile import Profile, ProfileHardware

# What a plan says of a measurement before it is made: the settings that it will belong to.

OF_THE_WORKLOAD = (
    "task", "micro_batch", "accumulation", "world_size", "length", "precision", "attention", "checkpointing", "optimizer",
    "strategy", "offload", "lora_rank", "base_precision", "loss_chunk", "padded", "lora_dropout", "label_smoothing", "clipping",
)  # fmt: skip


LONGEST_CONFIG = 6000
"""Characters of a model's config that a line of the history may have."""


def planned_fields(plan: Plan) -> dict[str, Any] | None:
    """Fields of a Measurement as JSON values; None where a measurement would not say what it was made on or of."""
    work, engine, devices = plan.work, plan.config.engine, plan.devices
    if work is None or not work.model_config or plan.machine.hypothetical or engine.nodes > 1:
        return None
    machine = device_key(plan.machine, devices.device, devices.gpus)
    if machine is None:
        return None
    usual = plan.usual or work
    pairs = work.architecture.kind == "encoder-decoder"
    versions = plan.machine.libraries.versions
    return {
        "machine": machine,
        "model": text_digest(work.model_config),
        "model_name": plan.config.model.name,
        "config": work.model_config if len(work.model_config) <= LONGEST_CONFIG else "",
        **{name: getattr(work, name) for name in OF_THE_WORKLOAD},
        "target_length": work.target_length if pairs else 0,
        "lora_targets": list(work.lora_targets),
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


# Which machine a plan is made for: this one, or the one that the profile or the user names.

Target = tuple[Machine, tuple[Finding, ...]]
"""The machine of a plan, and what there is to say about the choice."""


def choose_target(request: PlanRequest, profile: Profile | None, here: Machine) -> Target:
    """This machine where it will do; else the named one.

    A profile that names a GPU is planned for this machine's CUDA GPUs when there are any, else for the profile's own machine with the error
    `missing_hardware`. A smoke run is always for this machine. Raises UsageError for a GPU name
    that the catalogue does not know.
    """
    wanted = profile.hardware if profile is not None else ProfileHardware()
    named = _named(request, wanted)
    if named is not None:
        return named, ()
    if wanted.gpu is None or request.mode == "smoke" or request.overrides.get("engine.device") == "cpu":
        return here, ()
    # All Apple chips run what is made for one: their memory is the machine's RAM, which the plan measures.
    spec = load_gpus().get(wanted.gpu)
    on_apple = spec is not None and spec.compute_capability is None and here.accelerator == "mps"
    if on_apple or (here.accelerator == "cuda" and here.visible_gpus):
        return here, ()
    own = catalogue_machine(
        gpu=wanted.gpu, num_gpus=wanted.num_gpus, ram_bytes=wanted.ram_bytes, cpu_cores=wanted.cpu_cores
    )
    return own, (_missing(request, wanted, here),)


def _named(request: PlanRequest, wanted: ProfileHardware) -> Machine | None:
    by_hand: dict[str, Any] = {
        "gpu_memory_bytes": request.gpu_memory_bytes,
        "tflops": request.tflops,
        "fp32_tflops": request.fp32_tflops,
        "bandwidth": request.bandwidth,
        "capability": request.capability,
    }
    described = request.gpu is not None or any(figure is not None for figure in by_hand.values())
    if not described and request.num_gpus is None and request.ram_bytes is None:
        return None
    usual = wanted.num_gpus if described or wanted.gpu is not None else 0
    return catalogue_machine(
        gpu=request.gpu if described else wanted.gpu,
        num_gpus=usual if request.num_gpus is None else request.num_gpus,
        ram_bytes=request.ram_bytes if request.ram_bytes is not None else wanted.ram_bytes,
        cpu_cores=wanted.cpu_cores,
        **by_hand,
    )


def _missing(request: PlanRequest, wanted: ProfileHardware, here: Machine) -> Finding:
    name = str(request.profile)
    reason = tr("it has an Apple GPU") if here.accelerator == "mps" else no_gpu_reason(here)
    message = tr(
        "{name} is for {machine}, but this machine has no such GPU{why}. The plan above assumes the hardware of the "
        "profile.",
        name=name,
        machine=f"{wanted.num_gpus} × {wanted.gpu}",
        why=aside(reason),
    )
    words = ["trainwiz", "--profile", name, *mode_words(request), *set_words(request.overrides), "--dry-run"]
    there = Remedy(tr("write the run folder for the machine that has it"), shlex.join(words))
    command = shlex.join(["trainwiz", "--profile", name, "--smoke", "--yes"])
    smoke = Remedy(tr("try the same engine on this machine with a tiny model"), command)
    return Finding("missing_hardware", "error", "hardware", message, (smoke, there))


# What a plan is made from.

OUTPUT_ROOT = "runs"


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
    """The profile of the request; a name for several sizes of a card is that of the card here. Raises UsageError for an unknown name."""
    from trainwiz.core.profile.store import load_profile

    return None if request.profile is None else load_profile(request.profile, machine=here)


def gather_data(config: RunConfig, show: int = 0) -> tuple[DataSummary | None, tuple[Finding, ...]]:
    """Rows and lengths; data that is missing or broken is None with its findings, never an exception. `show`: number of
    the chat that is looked at token by token."""
    from trainwiz.core.data.summary import summarize_data
    from trainwiz.core.tracing.chats import look_at_chats

    try:
        return summarize_data(config, look=partial(look_at_chats, show=show)), ()
    except TrainwizError as error:
        own = Remedy(tr("specify your own data: --dataset FILE"))
        return None, tuple(
            replace(one, remedies=one.remedies or (own,)) if one.code == "missing_data" else one
            for one in error.findings
        )


def _whole_commands(finding: Finding, config: RunConfig, machine: Machine) -> Finding:
    """Model and data know an option that helps; pasted alone it is no command."""
    remedies = tuple(
        replace(remedy, command=plan_command(config, machine, remedy.changes))
        if remedy.changes and (remedy.command is None or remedy.command.startswith("--"))
        else remedy
        for remedy in finding.remedies
        # Adapters cannot begin from scratch: that way leads to the next error. Nor does a chat teach a language.
        if not (
            (config.peft.method == "lora" or trains_on_chats(config)) and remedy.changes == {"model.init": "scratch"}
        )
    )
    return replace(finding, remedies=remedies)


def gather_config(
    request: PlanRequest, profile: Profile | None, *, online: bool = True
) -> tuple[RunConfig, ModelSpec | None, tuple[Finding, ...]]:
    """The config of the request with its mode applied, and the model that it then trains; `online`: the hub may be asked."""
    from trainwiz.core.catalog.models import resolve_model
    from trainwiz.core.config.build import build_config
    from trainwiz.core.config.modes import apply_mode
    from trainwiz.core.data.detect import detect_columns
    from trainwiz.core.export.deepspeed import settled_by_file

    config, of_adapter = with_adapter(build_config(profile, request.overrides, request.name))
    model, findings = resolve_model(config.model, online=online)
    config = with_run_name(with_init(with_task_of(with_architecture(config, model), model), model), profile)
    moded = apply_mode(config, request, model)
    if moded.model != config.model:
        model, findings = resolve_model(moded.model, online=online)
        moded = with_architecture(moded, model)
    findings = (*findings, *of_adapter, *subject_findings(moded, model))
    from trainwiz.core.data.prompts import prompt_findings

    moded = settled_by_file(moded)
    moded = with_template(detect_columns(moded, has_template=partial(has_template, moded, model)), model)
    findings += prompt_findings(moded)
    if request.force:
        moded = moded.model_copy(update={"forced": True})
    return moded, model, findings


def gather(request: PlanRequest, machine: Machine | None = None, show: int = 0) -> Gathered:
    """Everything that the plan of `request` is made from. `machine` is this machine, where it is known already; `show` as
    in `gather_data`.

    Raises UsageError for what is asked wrongly: an unknown profile, key, value or GPU.
    """
    here = machine if machine is not None else probe_here(request)
    known = gather_known(request, gather_profile(request, here), here)
    return with_data(known, *(without_data(known, here) or gather_data(known.config, show)))


def gather_known(request: PlanRequest, profile: Profile | None, here: Machine, *, online: bool = True) -> Gathered:
    """All but the data. Raises UsageError as `gather` does."""
    config, model, model_findings = gather_config(request, profile, online=online)
    target, target_findings = choose_target(request, profile, here)
    if model is not None and target is not here:
        # Weights are needed where the run is, which is not here.
        model_findings = tuple(
            replace(one, severity="note") if one.code in NEEDED_THERE else one
            for one in model_findings
            # What a plan for another machine says of it is unnamed_data.
            if one.code != "no_data_named" or not names_no_data(config)
        )
    about_model = tuple(_whole_commands(one, config, target) for one in model_findings)
    return Gathered(profile, config, target, model, None, (*target_findings, *about_model))


NEEDED_THERE = frozenset({"missing_model", "gated_model", "missing_tokenizer", "model_to_download"})

DataAnswer = tuple[DataSummary | None, tuple[Finding, ...]]
"""A summary of the data, or why there is none."""


def without_data(known: Gathered, here: Machine) -> DataAnswer | None:
    """The answer about data that needs no reading: a plan for another machine need not name any, and a fine-tuning
    that must is not counted by the rows of a sample. Else None."""
    if known.machine is not here and names_no_data(known.config):
        return None, (unnamed_data(),)
    refused = any(one.code == "no_data_named" for one in known.findings) and not known.config.forced
    return (None, ()) if refused else None


def with_data(known: Gathered, data: DataSummary | None, findings: tuple[Finding, ...]) -> Gathered:
    """`known` with an answer about its data."""
    if not task_is_known(known.config, known.model):
        # How rows are to be read depends on the task; what no task could read is said all the same.
        data, findings = None, tuple(one for one in findings if one.code in NO_TASK_READS)
    about_data = tuple(_whole_commands(one, known.config, known.machine) for one in findings)
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


# All profiles as rows of a list.

NOT_ABOUT_FIT: frozenset[str] = frozenset(
    {"missing_data", "missing_model", "missing_tokenizer", "pickled_weights", "gated_model"}
)
"""Errors that a download or a word of the user cures; they say nothing about the machine."""


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One row of `trainwiz profiles list`; its JSON keys are stable."""

    name: str
    gpu: str | None
    num_gpus: int
    model: str
    task: str
    effective_samples: int | None
    effective_tokens: int | None
    fits_here: bool
    origin: str
    description: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def profile_rows(machine: Machine, words: Sequence[str] = (), without: Collection[str] = ()) -> list[ProfileRow]:
    """A row for each profile that loads and has all `words` in its name, card, model, task or description.

    Those whose names are in `without` are left out. Reads profiles and catalogues only: no data, no weights, no network.
    """
    from trainwiz.core.profile.store import list_profiles

    wanted = [word.casefold() for word in words]
    named = (profile for profile in list_profiles() if profile.name not in without)
    return [_row(profile, machine) for profile in named if all(word in _searched(profile) for word in wanted)]


def made_for(profile: Profile, machine: Machine) -> bool:
    """Whether a card of the profile's kind is here."""
    gpu = profile.hardware.gpu
    return gpu is not None and any(card.catalogue_name == gpu for card in machine.visible_gpus)


def _searched(profile: Profile) -> str:
    hardware, description = profile.hardware, profile.description
    values = [str(profile.values.get(key, "")) for key in ("model.name", "task", "peft.method")]
    card = f"{hardware.num_gpus} × {hardware.gpu}"
    return " ".join((profile.name, card, *values, description, tr(description))).casefold()


def _row(profile: Profile, machine: Machine) -> ProfileRow:
    """With the plan on this machine or, where the profile's GPU is missing, on its own."""
    from trainwiz.core.catalog.models import resolve_model
    from trainwiz.core.config.build import build_config

    config, plan = build_config(profile, {}), None
    with suppress(TrainwizError):
        target, found = choose_target(PlanRequest(profile=profile.name), profile, machine)
        model, findings = resolve_model(config.model)
        plan = make_plan(target, config, model=model, data=None, profile=profile, findings=(*found, *findings))
    fits = plan is not None and plan.memory.verdict != "does_not_fit"
    return ProfileRow(
        name=profile.name,
        gpu=profile.hardware.gpu,
        num_gpus=profile.hardware.num_gpus,
        model=config.model.name,
        task=config.task,
        effective_samples=plan.batch.effective_samples if plan else None,
        effective_tokens=plan.batch.effective_tokens if plan else None,
        fits_here=fits and plan is not None and all(error.code in NOT_ABOUT_FIT for error in plan.errors),
        origin=profile.origin,
        description=profile.description,
    )
