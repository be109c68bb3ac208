"""The profiles that scripts/solve_profiles.py makes: as it makes them, and each one keeps what it promises."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config.build import build_config
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.result import Plan
from trainwiz.core.profile import Profile, load_as_written

pytest.importorskip("babel", reason="Babel is in the test extra; the command needs it for the catalogue of texts")

from scripts import solve_profiles
from scripts.profile_solver import SOLVED_KEYS, Job, MachineRow, read_rows, solve
from tests.conftest import REPOSITORY
from tests.each import each

NAMES = [name.removesuffix(".yaml") for name in sorted(solve_profiles.made_before())]
OFTEN = ["esm2-8xa100", "full-t4", "full-2x3090", "lora-r64-l4", "lora-r64-h200"]


def plan_of(profile: Profile, **changes: Any) -> Plan:
    hardware = profile.hardware
    own = catalogue_machine(
        gpu=hardware.gpu, num_gpus=hardware.num_gpus, ram_bytes=hardware.ram_bytes, cpu_cores=hardware.cpu_cores
    )
    config = build_config(profile, {key.replace("__", "."): value for key, value in changes.items()})
    return make_plan(own, config, model=load_models()[config.model.name], data=None, profile=profile)


@cache
def rows() -> tuple[dict[str, MachineRow], dict[str, Job]]:
    machines, jobs = read_rows()
    return {row.key: row for row in machines}, {job.key: job for job in jobs}


def test_every_card_has_its_profiles_and_its_line_on_the_page() -> None:
    profiles = [load_as_written(name) for name in NAMES]
    machines, jobs = rows()
    cards = {(row.gpu, row.num_gpus) for row in machines.values()}
    assert {(one.hardware.gpu, one.hardware.num_gpus) for one in profiles} == cards and len(cards) == 14
    assert {one.name.rpartition("-")[0].partition("-")[0] for one in profiles} == {"lora", "full", "esm2", "qlora"}
    assert all(set(job.models) <= set(load_models()) for job in jobs.values())
    text = (REPOSITORY / "docs" / "profiles.md").read_text(encoding="utf-8")
    for row in machines.values():
        several = f"{row.num_gpus} × " if row.num_gpus > 1 else ""
        assert f"| {several}{row.gpu} | {row.ram} | {row.cpu_cores} | {row.like} |" in text


@pytest.mark.parametrize("name", OFTEN)
def test_a_solved_profile_keeps_its_promises(name: str) -> None:
    profile = load_as_written(name)
    made = plan_of(profile)
    assert not made.errors and made.memory.verdict == "fits"
    assert made.memory.needed_high_bytes <= (made.memory.capacity_bytes or 0)
    assert made.memory.host_ram_bytes <= (made.memory.host_ram_capacity_bytes or 0)
    assert abs(made.batch.deviation or 0) < 0.01
    # Nothing that it warns of and could be avoided, and no quicker plan for the memory that is left.
    heard = {finding.code for finding in made.findings}
    assert not heard & {"room", "tight", "host_ram", "half_precision_accumulation", "takes_years"}
    chosen = {*SOLVED_KEYS, "model.name"} | ({"engine.offload"} & set(profile.values))
    assert set(profile.reasons) <= set(profile.values)
    assert [key for key in chosen if not profile.reasons.get(key)] == []
    # The machine decides how many workers feed it.
    assert not [key for key in profile.values if key.startswith("data.") and "worker" in key]
    share = made.batch.effective_samples // made.batch.world_size
    larger = [size for size in range(made.batch.micro_batch + 1, share + 1) if share % size == 0]
    for size in larger[:1] if not name.startswith("esm2") else ():
        changes = {"batch__micro_batch_size": size, "batch__gradient_accumulation_steps": share // size}
        beyond = plan_of(profile, **changes, engine__base_precision="none")
        assert beyond.batch.effective_samples == made.batch.effective_samples and beyond.memory.verdict != "fits"
    # The file is what the command makes of its rows.
    machines, jobs = rows()
    job = next(job for key, job in jobs.items() if name.startswith(key))
    with solve_profiles.spoken("en"):
        solved = solve(machines[name.removeprefix(f"{job.key}-")], job)
    again = "run: python scripts/solve_profiles.py, and look at what it changed"
    assert solved and solve_profiles.text_of(solved) == solve_profiles.read(solve_profiles.FOLDER / f"{name}.yaml"), (
        again
    )


@each(("machine", "changes", "key", "job_changes", "model"), [
    # No card of 8 GB has a 7B; a job names where it is not wanted; a 4090 holds ESM-2, and would train for years.
    ("t4", {"gpu": "RTX 2080 Super"}, "lora-r64", {"models": ("qwen2.5-7b",)}, None),
    ("h100", {}, "lora-r64", {}, None),
    ("4090", {}, "esm2", {}, None),
    ("4090", {}, "esm2", {"ends_within_days": None}, "esm2-650m"),
    # Less RAM is a smaller model.
    ("h100", {"ram": "256G"}, "full", {}, "qwen2.5-7b"),
    ("h100", {"ram": "64G"}, "full", {}, "qwen2.5-1.5b"),
])  # fmt: skip
def test_what_is_solved_for_a_row(
    machine: str, changes: dict[str, Any], key: str, job_changes: dict[str, Any], model: str | None
) -> None:
    machines, jobs = rows()
    solved = solve(replace(machines[machine], **changes), replace(jobs[key], **job_changes))
    assert (solved and solved.values["model.name"]) == model
    if changes.get("ram") == "64G":
        assert solved and "the machine has 64.0 GiB" in solved.reasons["model.name"]
        assert "engine.offload" not in solved.values
