"""The profiles that scripts/solve_profiles.py makes: as it makes them, and each one keeps what it promises."""

from dataclasses import asdict, replace
from functools import cache
from typing import Any

import pytest
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config.build import build_config
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.result import Plan
from trainwiz.core.profile.profile import Profile
from trainwiz.core.profile.read import validate_profiles
from trainwiz.core.profile.store import diff_profiles, list_profiles, load_profile

pytest.importorskip("babel", reason="Babel is in the test extra; the command needs it for the catalogue of texts")

from scripts import solve_profiles
from scripts.profile_solver import SOLVED_KEYS, Job, MachineRow, read_rows, solve
from tests.each import each

OFTEN = ["esm2-8xa100", "full-t4", "full-2x3090", "lora-r64-l4", "lora-r64-h200"]


def plan_of(profile: Profile, **changes: Any) -> Plan:
    own = catalogue_machine(**asdict(profile.hardware))
    config = build_config(profile, {key.replace("__", "."): value for key, value in changes.items()})
    return make_plan(own, config, model=load_models()[config.model.name], data=None, profile=profile)


@cache
def rows() -> tuple[dict[str, MachineRow], dict[str, Job]]:
    machines, jobs = read_rows()
    return {row.key: row for row in machines}, {job.key: job for job in jobs}


@pytest.mark.parametrize("name", OFTEN)
def test_a_solved_profile_keeps_its_promises(name: str) -> None:
    profile = load_profile(name)
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
    text = solve_profiles.read(solve_profiles.FOLDER / f"{name}.yaml")
    assert solved and solve_profiles.text_of(solved) == text, (
        "run scripts/solve_profiles.py, and look at what it changed"
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


NAMES = [one.name for one in list_profiles()]
PLAIN = [name for name in NAMES if f"{name}-guide" in NAMES]


def test_all_are_valid_and_there() -> None:
    assert validate_profiles() == []
    profiles = list_profiles()
    assert profiles[0].name == "cpu-demo" and profiles[0].hardware.gpu is None
    loaded = {one.name: load_profile(one.name) for one in profiles}
    assert all(set(one.reasons) <= set(one.values) for one in loaded.values())
    assert all(loaded[name].hardware == loaded[f"{name}-guide"].hardware for name in PLAIN)


@each("name", PLAIN)
def test_every_change_against_the_guide_has_its_reason(name: str) -> None:
    changes = diff_profiles(load_profile(f"{name}-guide"), load_profile(name))
    reasons = load_profile(name).reasons
    assert changes and [change.key for change in changes if not reasons.get(change.key)] == []
