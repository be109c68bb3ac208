"""What a machine trains, and how: the catalogues and the plan decide, for the rows of profiles_to_solve.yaml.

Of a job's models the largest that runs is taken, with the first of the measures below that makes it run: its plan has
no error, fits the card with the whole of its interval and the host RAM, and ends in time. Checkpointing is on where it
is quicker or needed; micro-batch, accumulation, precision, attention and strategy are those of that plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config.build import build_config
from trainwiz.core.config.settings import SETTINGS
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.plan.gather import NOT_ABOUT_FIT
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.size_findings import MANY_STEPS
from trainwiz.core.profile.profile import Profile, ProfileHardware, parse_size

from scripts.profile_words import (
    ALONE,
    FIRST_MODEL,
    MEASURES,
    NOT_NEEDED,
    OWN_ATTENTION,
    QUICKER_WITH,
    SMALLER_MODEL,
    TOO_LARGE,
    TOO_MUCH_RAM,
    TOO_OFTEN_ROUNDED,
    WITH,
    WITHOUT,
    Measure,
    Text,
    gib,
    said,
    sizes,
)

ROWS = Path(__file__).with_name("profiles_to_solve.yaml")
DAY_S = 86400.0

SOLVED_KEYS = (
    "batch.micro_batch_size",
    "batch.gradient_accumulation_steps",
    "engine.precision",
    "engine.tf32",
    "engine.attention",
    "engine.checkpointing",
    "engine.optimizer",
    "engine.strategy",
)
"""What a profile takes from its plan. Workers and pinned memory are left to the machine that the profile comes to."""

CHECKPOINTING = "engine.checkpointing"
LOSES_PRECISION = "half_precision_accumulation"
"""A warning that another measure avoids."""


@dataclass(frozen=True, slots=True)
class MachineRow:
    """A machine that people own or rent. `ram` and `cpu_cores` are assumed: those of the machine that it is `like`."""

    key: str
    gpu: str
    card: Text
    ram: str
    cpu_cores: int
    like: str
    num_gpus: int = 1
    only_for: str = ""
    """The job whose size of card it stands for; other jobs do not go on it."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is trained: its values hold on every machine, its `models` are tried from the first to the last."""

    key: str
    models: tuple[str, ...]
    description: Text
    values: Mapping[str, Any]
    reasons: Mapping[str, Text]
    ends_within_days: float | None = None
    not_on: tuple[str, ...] = ()
    own_machines: bool = False
    """Only on the machines that are there for it."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One model with one measure on a machine."""

    model: str
    measure: Measure
    plan: Plan
    other: Plan
    """The same with checkpointing on instead of off, or off instead of on."""
    runs: bool


@dataclass(frozen=True, slots=True)
class Solved:
    """A profile to be written: what the job gives and what its plan chose, in the language of the moment."""

    name: str
    description: str
    machine: MachineRow
    values: Mapping[str, Any]
    reasons: Mapping[str, str]
    plan: Plan


def read_rows(path: Path = ROWS) -> tuple[tuple[MachineRow, ...], tuple[Job, ...]]:
    """The machines and the jobs of the file."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    machines = tuple(MachineRow(**row) for row in document["machines"])
    jobs = ({**row, "models": tuple(row["models"]), "not_on": tuple(row.get("not_on", ()))} for row in document["jobs"])
    return machines, tuple(Job(**row) for row in jobs)


def solve_all() -> Iterator[Solved]:
    """A profile for each machine and job that go together."""
    machines, jobs = read_rows()
    for job in jobs:
        for machine in machines:
            solved = solve(machine, job)
            if solved is not None:
                yield solved


def solve(machine: MachineRow, job: Job) -> Solved | None:
    """The largest model of the job that runs on this machine; None where none does."""
    if machine.key in job.not_on or machine.only_for != (job.key if job.own_machines else ""):
        return None
    failed: list[Attempt] = []
    for model in job.models:
        for measure in MEASURES if job.values.get("peft.method") != "lora" else MEASURES[:1]:
            attempt = try_it(machine, job, model, measure)
            if attempt.runs:
                return written(machine, job, attempt, failed)
            failed.append(attempt)
    return None


def try_it(machine: MachineRow, job: Job, model: str, measure: Measure) -> Attempt:
    """Without checkpointing and with it: the quicker one of those that run, else the one that needs less."""
    without, within = (
        plan_of(machine, job, model, {**measure.changes, CHECKPOINTING: checkpointing})
        for checkpointing in (False, True)
    )
    running = [plan for plan in (without, within) if runs(plan, job)]
    plan = min(running, key=lambda one: one.time.step_s or 0.0) if running else within
    return Attempt(model, measure, plan, within if plan is without else without, bool(running))


def plan_of(machine: MachineRow, job: Job, model: str, changes: Mapping[str, Any]) -> Plan:
    """The plan on the machine as it is assumed, by formulas: no data, no trace."""
    hardware = ProfileHardware(machine.gpu, machine.num_gpus, parse_size(machine.ram), machine.cpu_cores)
    values = {**job.values, "model.name": model, **changes}
    profile = Profile(f"{job.key}-{machine.key}", hardware=hardware, values=values)
    own = catalogue_machine(
        gpu=hardware.gpu, num_gpus=hardware.num_gpus, ram_bytes=hardware.ram_bytes, cpu_cores=hardware.cpu_cores
    )
    # Left open, the base of adapters would be taken in 4 bits where it does not fit: that is another job.
    whole = {} if "engine.base_precision" in values else {"engine.base_precision": "none"}
    config = build_config(profile, whole)
    return make_plan(own, config, model=load_models()[model], data=None, profile=profile)


def runs(plan: Plan, job: Job) -> bool:
    """Whether it may be promised: no error, the whole interval of its memory is there, and it ends in time."""
    memory, total_s = plan.memory, plan.time.total_s
    if memory.verdict != "fits" or {error.code for error in plan.errors} - NOT_ABOUT_FIT:
        return False
    if memory.host_ram_bytes > (memory.host_ram_capacity_bytes or 0):
        return False
    if any(finding.code == LOSES_PRECISION for finding in plan.findings) or _may_lose_precision(plan):
        return False
    return job.ends_within_days is None or (total_s is not None and total_s <= job.ends_within_days * DAY_S)


def _may_lose_precision(plan: Plan) -> bool:
    """DeepSpeed before 0.19 may sum many micro-batches in half precision where the optimizer is in RAM."""
    work, offload = plan.work, plan.config.engine.offload
    return (
        work is not None and work.formats.weights == 2 and offload != "none" and plan.batch.accumulation >= MANY_STEPS
    )


def written(machine: MachineRow, job: Job, attempt: Attempt, failed: list[Attempt]) -> Solved:
    """The values and reasons of the profile."""
    values = {**job.values, "model.name": attempt.model, **attempt.measure.changes}
    reasons = {key: said(text) for key, text in job.reasons.items()}
    reasons["model.name"] = why_this_model(job, attempt, failed)
    choices = {choice.key: choice for choice in attempt.plan.choices}
    for key in SOLVED_KEYS:
        values[key] = choices[key].value
        reasons[key] = choices[key].reason
    if values["engine.attention"] == "sdpa" and values["engine.tf32"]:
        reasons["engine.attention"] = said(OWN_ATTENTION)
    on_the_card = [one for one in failed if one.model == attempt.model and "engine.offload" not in one.measure.changes]
    needed = sizes(on_the_card[-1].plan) if on_the_card else {}
    reasons |= {key: said(text, **needed) for key, text in attempt.measure.why.items()}
    reasons[CHECKPOINTING] = why_recompute(attempt, job)
    description = said(job.description, model=attempt.model, card=said(machine.card))
    ordered = {key: values[key] for key in SETTINGS if key in values}
    return Solved(f"{job.key}-{machine.key}", description, machine, ordered, reasons, attempt.plan)


def why_this_model(job: Job, attempt: Attempt, failed: list[Attempt]) -> str:
    """Why it is no larger one, of the family or of all."""
    larger = [one for one in failed if one.model != attempt.model]
    if not larger:
        return said(FIRST_MODEL[job.values["task"]])
    last = larger[-1]
    measure = said(last.measure.name)
    by_means = said(WITH, measure=measure) if measure else said(ALONE)
    return said(SMALLER_MODEL, **{"model": last.model, "with": by_means, "why": why_not(last.plan)})


def why_recompute(attempt: Attempt, job: Job) -> str:
    """Why checkpointing is on or off."""
    plan, other = attempt.plan, attempt.other
    step_s, other_s = plan.time.step_s, other.time.step_s
    if not runs(other, job) or not step_s or not other_s:
        return said(WITHOUT, why=why_not(other))
    sizes_now = {"micro": str(plan.batch.micro_batch), "other": str(other.batch.micro_batch)}
    if plan.config.engine.checkpointing:
        return said(QUICKER_WITH, **sizes_now, percent=f"{100 * (1 - step_s / other_s):.0f}")
    return said(NOT_NEEDED, **sizes_now, percent=f"{100 * (other_s / step_s - 1):.0f}")


def why_not(plan: Plan) -> str:
    memory = plan.memory
    if memory.verdict != "fits":
        return said(TOO_LARGE, **sizes(plan))
    if memory.host_ram_bytes > (memory.host_ram_capacity_bytes or 0):
        return said(TOO_MUCH_RAM, needed=gib(memory.host_ram_bytes), free=gib(memory.host_ram_capacity_bytes or 0))
    return said(TOO_OFTEN_ROUNDED, accumulation=str(plan.batch.accumulation))
