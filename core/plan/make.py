"""make_plan: machine and config in, the whole preview out. Pure, and quick enough for every keystroke."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from trainwiz.core.catalog.model import ModelSpec
from trainwiz.core.config import RunConfig
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.architecture import Architecture, default_lora_targets
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.time import step_time
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.findings import Finding, sort_findings
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.batch_findings import batch_findings
from trainwiz.core.plan.claims_findings import claim_findings
from trainwiz.core.plan.data_findings import data_findings
from trainwiz.core.plan.devices import SMOKE_PROCESSES, Devices, choose_devices
from trainwiz.core.plan.draft import Draft, choices_of
from trainwiz.core.plan.engine import settle_engine
from trainwiz.core.plan.estimates import Length, plan_memory, plan_time, rate_of
from trainwiz.core.plan.facts import Facts
from trainwiz.core.plan.hardware_findings import hardware_findings
from trainwiz.core.plan.loading import settle_intervals, settle_length, settle_loading
from trainwiz.core.plan.memory_findings import memory_findings
from trainwiz.core.plan.result import Plan, PlannedModel
from trainwiz.core.plan.scope_findings import scope_findings
from trainwiz.core.plan.sizes import batch_plan, settle_sizes, target_samples
from trainwiz.core.plan.time_findings import time_findings
from trainwiz.core.profile.profile import Profile


def make_plan(
    machine: Machine,
    config: RunConfig,
    *,
    model: ModelSpec | None,
    data: DataSummary | None,
    profile: Profile | None = None,
    findings: Iterable[Finding] = (),
) -> Plan:
    """The plan of `config` on `machine`; every open value of the config is settled, with its reason.

    `model` and `data` are None where they cannot be had: `findings` then says why (they are passed
    through), and the plan is made without them. Reads nothing, and never raises for a config that
    RunConfig accepts.
    """
    config = _without_foreign_processes(config)
    any_device = profile is not None and profile.hardware.gpu is None
    devices, more = choose_devices(
        machine, config, any_device=any_device, cpu_processes=_cpu_processes(config, profile)
    )
    collected = [*findings, *(data.findings if data is not None else ()), *more]
    draft = Draft(config)
    if model is not None:
        draft.values["model.architecture"] = dict(model.architecture)
        if config.task != model.task and config.origin("task").origin != "you":
            draft.put("task", model.task, f"what {model.name} is made for")
    collected += settle_engine(draft, machine, devices)
    architecture, unknown = read_architecture(model.architecture) if model is not None else (None, "")
    _reopen_accumulation(draft, devices, profile)
    solution = settle_sizes(draft, _workload(draft, devices, architecture, data), devices)
    settle_loading(draft, machine, devices, data)
    steps = settle_length(draft, solution.chosen.samples, data)
    work = _workload(draft, devices, architecture, data)
    # Threads and precision are settled; the rest of the config does not change the rate.
    rate = rate_of(devices, _engine_view(draft))
    each = step_time(work, rate) if work is not None and rate is not None else None
    settle_intervals(draft, steps, each.step.likely if each else None)
    complete = draft.finish()
    batch = batch_plan(draft, solution, data)
    estimate, memory = plan_memory(machine, devices, complete, work, data)
    length = Length(steps, _epochs(complete, steps, solution.chosen.samples, data))
    rows = complete.data.validation_rows or (data.validation_rows if data is not None else 0)
    time = plan_time(complete, work, rate, each, length, rows, batch.effective_tokens)
    facts = Facts(
        machine=machine,
        config=complete,
        devices=devices,
        work=work,
        unknown_architecture=unknown,
        estimate=estimate,
        memory=memory,
        batch=batch,
        time=time,
        rate=rate,
        data=data,
        profile=profile,
    )
    for judge in (
        scope_findings,
        hardware_findings,
        memory_findings,
        batch_findings,
        data_findings,
        time_findings,
        claim_findings,
    ):
        collected += judge(facts)
    return Plan(
        profile=complete.profile,
        machine=machine,
        config=complete,
        model=_planned_model(complete, model, work),
        task=complete.task,
        batch=batch,
        memory=memory,
        time=time,
        choices=choices_of(complete),
        findings=sort_findings(collected),
        extra={"data": _data_json(data)},
    )


def _without_foreign_processes(config: RunConfig) -> RunConfig:
    """A smoke run does not take the number of processes of the profile's own machine."""
    if config.mode.kind != "smoke" or config.origin("engine.processes").origin != "profile":
        return config
    return config.model_copy(update={"engine": config.engine.model_copy(update={"processes": None})})


def _cpu_processes(config: RunConfig, profile: Profile | None) -> int:
    several = profile is not None and profile.hardware.num_gpus > 1
    return SMOKE_PROCESSES if several and config.mode.kind == "smoke" else 1


def _reopen_accumulation(draft: Draft, devices: Devices, profile: Profile | None) -> None:
    """A profile's accumulation belongs to its number of GPUs: with another one the target says what it should be."""
    key = "batch.gradient_accumulation_steps"
    if profile is None or draft.config.origin(key).origin != "profile" or target_samples(draft) is None:
        return
    if devices.world_size != max(1, profile.hardware.num_gpus):
        draft.values[key] = None


def _engine_view(draft: Draft) -> RunConfig:
    """The config with its engine section settled, without validating all of it again."""
    engine = {key.removeprefix("engine."): value for key, value in draft.values.items() if key.startswith("engine.")}
    return draft.config.model_copy(update={"engine": draft.config.engine.model_copy(update=engine)})


def _workload(
    draft: Draft, devices: Devices, architecture: Architecture | None, data: DataSummary | None
) -> Workload | None:
    """What one process computes, from what is settled so far."""
    if architecture is None:
        return None
    get = draft.get
    length = int(get("batch.sequence_length"))
    # When every row was measured, no batch is longer than the longest of them.
    measured = data is not None and data.lengths and data.rows_exact
    if data is not None and measured and data.rows + data.validation_rows <= len(data.lengths):
        length = max(1, min(length, max(data.lengths)))
    rank = int(get("peft.rank")) if get("peft.method") == "lora" else 0
    return Workload(
        architecture=architecture,
        micro_batch=get("batch.micro_batch_size") or 1,
        length=length,
        target_length=get("batch.target_length") or int(get("batch.sequence_length")),
        accumulation=get("batch.gradient_accumulation_steps") or 1,
        world_size=devices.world_size,
        precision=get("engine.precision"),
        attention=get("engine.attention"),
        checkpointing=bool(get("engine.checkpointing")),
        optimizer=get("engine.optimizer"),
        strategy=get("engine.strategy"),
        offload=get("engine.offload"),
        lora_rank=rank,
        lora_targets=(tuple(get("peft.targets")) or default_lora_targets(architecture)) if rank else (),
        loss_chunk=get("training.loss_chunk"),
        device=devices.device,
    )


def _epochs(config: RunConfig, steps: int | None, samples: int, data: DataSummary | None) -> float | None:
    """Passes over the data that the steps are."""
    if data is None or data.rows == 0 or steps is None:
        return config.training.epochs
    return steps / math.ceil(data.rows / samples)


def _planned_model(config: RunConfig, model: ModelSpec | None, work: Workload | None) -> PlannedModel:
    kind = model.architecture.get("model_type") if model is not None else None
    if work is None:
        return PlannedModel(config.model.name, kind, None, None)
    parameters = work.architecture.parameters + work.adapter_parameters
    return PlannedModel(config.model.name, kind, parameters, work.trainable_parameters)


def _data_json(data: DataSummary | None) -> dict[str, Any] | None:
    if data is None:
        return None
    return {
        "rows": data.rows,
        "rows_exact": data.rows_exact,
        "validation_rows": data.validation_rows,
        "mean_length": sum(data.lengths) / len(data.lengths) if data.lengths else None,
        "longest": max(data.lengths, default=None),
        "length_unit": data.length_unit,
        "bytes_on_disk": data.bytes_on_disk,
        "columns": list(data.columns),
    }
