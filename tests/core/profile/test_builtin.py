"""The profiles that ship with trainwiz: valid, complete against their rows, plain ones fit their card, guides do not."""

from __future__ import annotations

from typing import Any

import pytest
from trainwiz.core.catalog.models import resolve_model
from trainwiz.core.config.build import build_config
from trainwiz.core.hardware.hypothetical import catalogue_machine
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.result import Plan
from trainwiz.core.profile import Profile, diff_profiles, list_profiles, load_profile, validate_profiles

PLAIN = ["2080super", "3080-10g", "3080-12g"]
ESM_ROW: dict[str, Any] = {
    "task": "masked-lm",
    "model.name": "esm2-650m",
    "model.init": "scratch",
    "batch.sequence_length": 512,
    "data.workers": 12,
    "data.prefetch": 8,
    "training.adam_beta1": 0.9,
    "training.adam_beta2": 0.98,
    "training.adam_epsilon": 1e-8,
    "training.weight_decay": 0.01,
    "training.learning_rate": 4e-4,
    "training.final_learning_rate": 4e-5,
    "training.schedule": "linear",
    "training.warmup": 2000,
    "training.max_steps": 500_000,
}


def own_machine(profile: Profile) -> Machine:
    hardware = profile.hardware
    return catalogue_machine(
        gpu=hardware.gpu, num_gpus=hardware.num_gpus, ram_bytes=hardware.ram_bytes, cpu_cores=hardware.cpu_cores
    )


def plan_on_own_card(name: str) -> Plan:
    profile = load_profile(name)
    config = build_config(profile, {})
    model, findings = resolve_model(config.model)
    return make_plan(own_machine(profile), config, model=model, data=None, profile=profile, findings=findings)


def test_all_are_valid() -> None:
    assert validate_profiles() == []


def test_names() -> None:
    expected = {"cpu-demo", "3080", *PLAIN, *(f"{name}-guide" for name in PLAIN)}
    assert {profile.name for profile in list_profiles()} == expected
    assert list_profiles()[0].name == "cpu-demo"


@pytest.mark.parametrize("name", [*PLAIN, *(f"{name}-guide" for name in PLAIN)])
def test_the_row_is_in_the_profile(name: str) -> None:
    config = build_config(load_profile(name), {})
    assert {key: config.value(key) for key in ESM_ROW} == ESM_ROW
    assert "/" in config.data.sources[0].name


def test_numbers_of_the_2080_super() -> None:
    values = build_config(load_profile("2080super-guide"), {})
    assert (values.batch.micro_batch_size, values.batch.gradient_accumulation_steps) == (6, 651)
    assert (values.engine.precision, values.engine.strategy, values.engine.offload) == ("fp16", "zero2", "optimizer")
    assert values.engine.tf32 is False and values.engine.optimizer == "adamw_torch"


@pytest.mark.parametrize("name", ["3080-10g-guide", "3080-12g-guide"])
def test_numbers_of_the_3080(name: str) -> None:
    values = build_config(load_profile(name), {})
    assert (values.batch.micro_batch_size, values.batch.gradient_accumulation_steps) == (20, 195)
    assert (values.engine.precision, values.engine.strategy, values.engine.offload) == ("bf16", "single", "none")
    assert values.engine.tf32 is True and values.engine.optimizer == "adamw_torch_fused"
    # FlashAttention-2 where it can be imported, else SDPA: left to the machine.
    assert values.engine.attention is None


@pytest.mark.parametrize(("name", "sequences", "tokens"), [("2080super", 3906, 1_999_872), ("3080-10g", 3900, 1_996_800), ("3080-12g", 3900, 1_996_800)])  # fmt: skip
def test_plain_profiles_fit_their_card_at_the_guides_batch(name: str, sequences: int, tokens: int) -> None:
    plan = plan_on_own_card(name)
    assert plan.memory.verdict == "fits" and plan.errors == ()
    assert (plan.batch.effective_samples, plan.batch.effective_tokens) == (sequences, tokens)
    guide = plan_on_own_card(f"{name}-guide")
    assert guide.batch.effective_samples == sequences


@pytest.mark.parametrize("name", PLAIN)
def test_guides_do_not_fit_and_their_claims_are_checked(name: str) -> None:
    plan = plan_on_own_card(f"{name}-guide")
    assert plan.memory.verdict == "does_not_fit"
    assert "does_not_fit" in {finding.code for finding in plan.errors}
    assert load_profile(f"{name}-guide").claims and not load_profile(name).claims


def test_claims_of_the_2080_super_are_named_in_the_findings() -> None:
    codes = {finding.code for finding in plan_on_own_card("2080super-guide").findings}
    assert {"claim_time", "claim_batch"} <= codes


@pytest.mark.parametrize("name", PLAIN)
def test_every_change_against_the_guide_has_its_reason(name: str) -> None:
    changes = diff_profiles(load_profile(f"{name}-guide"), load_profile(name))
    assert changes and all(change.reason for change in changes)


def test_the_demo_needs_nothing() -> None:
    profile = load_profile("cpu-demo")
    config = build_config(profile, {})
    assert profile.hardware.gpu is None
    assert config.model.name == "esm2-tiny" and config.data.sources[0].name == "sample-proteins"
    assert config.engine.precision == "fp32"
