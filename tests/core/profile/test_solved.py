"""The profiles that scripts/solve_profiles.py makes: as it makes them, and each one keeps what it promises."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from trainwiz.core import language
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config.build import build_config
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.result import Plan
from trainwiz.core.profile import Profile, load_as_written

pytest.importorskip("babel", reason="Babel is in the test extra; the command needs it for the catalogue of texts")

from scripts import catalogue, solve_profiles
from scripts.profile_solver import SOLVED_KEYS, Job, MachineRow, read_rows, solve
from tests.conftest import REPOSITORY

# One worker makes each plan once.
pytestmark = pytest.mark.xdist_group("solved")

NAMES = [name.removesuffix(".yaml") for name in sorted(solve_profiles.made_before())]
OWNED = {
    ("T4", 1),
    ("RTX 3060 12GB", 1),
    ("RTX 4060 Ti 16GB", 1),
    ("RTX 4090", 1),
    ("RTX 5090", 1),
    ("L4", 1),
    ("L40S", 1),
    ("A10", 1),
    ("H100 SXM", 1),
    ("H200 SXM", 1),
    ("RTX 3090", 2),
    ("A100 80GB SXM", 8),
}


@cache
def solved_texts() -> dict[str, str]:
    return solve_profiles.texts()


def plan_of(profile: Profile, **changes: Any) -> Plan:
    hardware = profile.hardware
    own = catalogue_machine(
        gpu=hardware.gpu, num_gpus=hardware.num_gpus, ram_bytes=hardware.ram_bytes, cpu_cores=hardware.cpu_cores
    )
    config = build_config(profile, {key.replace("__", "."): value for key, value in changes.items()})
    return make_plan(own, config, model=load_models()[config.model.name], data=None, profile=profile)


@cache
def plan_as_written(name: str) -> Plan:
    return plan_of(load_as_written(name))


@cache
def rows() -> tuple[dict[str, MachineRow], dict[str, Job]]:
    machines, jobs = read_rows()
    return {row.key: row for row in machines}, {job.key: job for job in jobs}


def test_the_files_are_what_the_command_makes() -> None:
    again = "run: python scripts/solve_profiles.py, and look at what it changed"
    wanted = solved_texts()
    assert sorted(wanted) == sorted(solve_profiles.made_before()), again
    wrong = [name for name, text in wanted.items() if (solve_profiles.FOLDER / name).read_text("utf-8") != text]
    assert not wrong, again


def test_every_card_has_its_profiles() -> None:
    profiles = [load_as_written(name) for name in NAMES]
    assert {(one.hardware.gpu, one.hardware.num_gpus) for one in profiles} == OWNED
    machines, jobs = rows()
    assert {(row.gpu, row.num_gpus) for row in machines.values()} == OWNED
    assert {one.name.rpartition("-")[0].partition("-")[0] for one in profiles} == {"lora", "full", "esm2"}
    assert all(row.like and row.ram and row.cpu_cores for row in machines.values())
    assert all(set(job.models) <= set(load_models()) for job in jobs.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_solved_profile_fits_its_own_machine(name: str) -> None:
    made = plan_as_written(name)
    assert not made.errors and made.memory.verdict == "fits"
    assert made.memory.needed_high_bytes <= (made.memory.capacity_bytes or 0)
    assert made.memory.host_ram_bytes <= (made.memory.host_ram_capacity_bytes or 0)
    assert abs(made.batch.deviation or 0) < 0.01


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_knows_no_better_one(name: str) -> None:
    """Nothing that it warns of and could be avoided, and no quicker plan for the memory that is left."""
    heard = {finding.code for finding in plan_as_written(name).findings}
    assert not heard & {"room", "tight", "host_ram", "half_precision_accumulation", "takes_years"}


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("esm2")])
def test_the_micro_batch_is_the_largest_that_keeps_the_batch(name: str) -> None:
    profile, made = load_as_written(name), plan_as_written(name)
    share = made.batch.effective_samples // made.batch.world_size
    larger = [size for size in range(made.batch.micro_batch + 1, share + 1) if share % size == 0]
    for size in larger[:1]:
        beyond = plan_of(profile, batch__micro_batch_size=size, batch__gradient_accumulation_steps=share // size)
        assert beyond.batch.effective_samples == made.batch.effective_samples
        assert beyond.memory.verdict != "fits"


@pytest.mark.parametrize("name", NAMES)
def test_every_choice_has_its_reason(name: str) -> None:
    profile = load_as_written(name)
    assert set(profile.reasons) <= set(profile.values)
    chosen = {*SOLVED_KEYS, "model.name"} | ({"engine.offload"} & set(profile.values))
    assert [key for key in chosen if not profile.reasons.get(key)] == []
    # The machine decides how many workers feed it.
    assert not [key for key in profile.values if key.startswith("data.") and "worker" in key]


def test_a_larger_model_of_the_family_does_not_run() -> None:
    machines, jobs = rows()
    for name in NAMES:
        profile = load_as_written(name)
        job = next(job for key, job in jobs.items() if name.startswith(key))
        models = job.models[: job.models.index(profile.values["model.name"])]
        key = name.removeprefix(f"{job.key}-")
        assert not models or solve(machines[key], replace(job, models=models)) is None, name


def test_what_no_card_can_do_is_no_profile() -> None:
    machines, jobs = rows()
    small = replace(machines["t4"], gpu="RTX 2080 Super")
    assert solve(small, replace(jobs["lora-r64"], models=("qwen2.5-7b",))) is None
    assert solve(machines["h100"], jobs["lora-r64"]) is None
    # A 4090 holds it, and would train for years.
    assert solve(machines["4090"], jobs["esm2"]) is None
    assert solve(machines["4090"], replace(jobs["esm2"], ends_within_days=None)) is not None


def test_less_ram_is_a_smaller_model() -> None:
    machines, jobs = rows()
    rich, poor = (solve(replace(machines["h100"], ram=ram), jobs["full"]) for ram in ("256G", "64G"))
    assert rich is not None and poor is not None
    assert (rich.values["model.name"], rich.values["engine.offload"]) == ("qwen2.5-7b", "optimizer")
    assert poor.values["model.name"] == "qwen2.5-1.5b" and "engine.offload" not in poor.values
    assert "of 64.0 GiB of host RAM" in poor.reasons["model.name"]


def test_the_texts_are_in_the_catalogue_in_every_language() -> None:
    before = language.language()
    pairs = solve_profiles.translations()
    assert language.language() == before
    known = {catalogue.key_of(one.id): catalogue.translation_of(one) for one in catalogue.read_language("zh") if one.id}
    assert {text: known.get(text) for text in pairs} == pairs


def test_the_command_writes_what_is_missing_and_removes_what_no_row_gives(tmp_path, monkeypatch, capsys) -> None:
    solved = solved_texts()
    monkeypatch.setattr(solve_profiles, "FOLDER", tmp_path)
    monkeypatch.setattr(solve_profiles, "texts", lambda: solved)
    monkeypatch.setattr(solve_profiles, "translate", lambda pairs: 0)
    (tmp_path / "gone.yaml").write_text(f"{solve_profiles.MADE}\nname: gone\n")
    (tmp_path / "by-hand.yaml").write_text("name: by-hand\n")
    assert solve_profiles.main(["--check"]) == 1
    assert "gone.yaml" in capsys.readouterr().out and not (tmp_path / "full-t4.yaml").exists()
    assert solve_profiles.main([]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {*solved_texts(), "by-hand.yaml"}
    assert solve_profiles.main(["--check"]) == 0


def test_the_page_says_which_machines_are_assumed() -> None:
    text = (REPOSITORY / "docs" / "profiles.md").read_text(encoding="utf-8")
    for row in read_rows()[0]:
        several = f"{row.num_gpus} × " if row.num_gpus > 1 else ""
        assert f"| {several}{row.gpu} | {row.ram} | {row.cpu_cores} | {row.like} |" in text
