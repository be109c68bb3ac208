"""The profiles that ship with trainwiz: valid, complete against their rows, plain ones fit their card, guides do not.

Those that scripts/solve_profiles.py makes are in test_solved.py.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.catalog.models import resolve_model
from trainwiz.core.config.build import build_config
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.plan.gather import NOT_ABOUT_FIT
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.result import Plan
from trainwiz.core.profile import Profile, diff_profiles, list_profiles, load_profile, validate_profiles

from tests.each import each

ESM = ["2080super", "3080-10g", "3080-12g"]
LORA = [
    *(f"lora-r64-{card}" for card in ("3090", "v100", "a100-40g", "a100-80g", "4xa100", "h100", "mps")),
    "lora-r320-a100-80g",
]
PLAIN = [*ESM, "2x2080super", "4080s", "v100-opus", "a100-opus", "3x3080-20g", "a6000", *LORA]
GUIDES = [f"{name}-guide" for name in PLAIN]
ESM_ROW: dict[str, Any] = {
    "task": "masked-lm", "model.name": "esm2-650m", "model.init": "scratch", "batch.sequence_length": 512,
    "data.workers": 12, "data.prefetch": 8, "training.adam_beta1": 0.9, "training.adam_beta2": 0.98,
    "training.adam_epsilon": 1e-8, "training.weight_decay": 0.01, "training.learning_rate": 4e-4,
    "training.final_learning_rate": 4e-5, "training.schedule": "linear", "training.warmup": 2000,
    "training.max_steps": 500_000,
}  # fmt: skip


def is_solved(profile: Profile) -> bool:
    """Whether the file says that a command made it."""
    return Path(profile.file).read_text(encoding="utf-8").startswith("# Made by scripts/solve_profiles.py")


def own_machine(profile: Profile) -> Machine:
    hardware = profile.hardware
    return catalogue_machine(
        gpu=hardware.gpu, num_gpus=hardware.num_gpus, ram_bytes=hardware.ram_bytes, cpu_cores=hardware.cpu_cores
    )


@cache
def plan_on_own_card(name: str) -> Plan:
    profile = load_profile(name)
    config = build_config(profile, {})
    model, findings = resolve_model(config.model)
    return make_plan(own_machine(profile), config, model=model, data=None, profile=profile, findings=findings)


def test_all_are_valid() -> None:
    assert validate_profiles() == []


def test_names() -> None:
    expected = {"cpu-demo", "3080", *PLAIN, *GUIDES}
    by_hand = {profile.name for profile in list_profiles() if not is_solved(profile)}
    assert by_hand == expected
    assert list_profiles()[0].name == "cpu-demo"


@each("name", [*ESM, *(f"{name}-guide" for name in ESM)])
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


@each("name", PLAIN)
def test_plain_profiles_fit_their_card_at_the_guides_batch(name: str) -> None:
    plan, guide = plan_on_own_card(name), plan_on_own_card(f"{name}-guide")
    assert plan.memory.verdict == "fits"
    # Weights and rows are a download away.
    assert {finding.code for finding in plan.errors} <= NOT_ABOUT_FIT
    assert plan.batch.effective_samples == guide.batch.effective_samples
    assert plan.batch.effective_tokens == guide.batch.effective_tokens


@each(("name", "samples", "tokens"), [
    ("2080super", 3906, 1_999_872), ("2x2080super", 3912, 2_002_944), ("3080-10g", 3900, 1_996_800), ("3080-12g", 3900, 1_996_800),
    ("4080s", 96, 96 * 256), ("v100-opus", 192, 192 * 128), ("a100-opus", 192, 192 * 128), ("3x3080-20g", 192, 192 * 192),
    ("a6000", 128, 128 * 512), *((name, 64, 64 * 512) for name in LORA),
])  # fmt: skip
def test_effective_batches_of_the_guides(name: str, samples: int, tokens: int) -> None:
    batch = plan_on_own_card(f"{name}-guide").batch
    assert (batch.effective_samples, batch.effective_tokens) == (samples, tokens)


@each("name", [*ESM, "2x2080super", "4080s", "lora-r64-3090", "lora-r64-v100", "lora-r64-a100-40g"])
def test_guides_that_do_not_fit(name: str) -> None:
    plan = plan_on_own_card(f"{name}-guide")
    assert plan.memory.verdict == "does_not_fit"
    assert "does_not_fit" in {finding.code for finding in plan.errors}


def test_claims_belong_to_guides() -> None:
    with_claims = {profile.name for profile in list_profiles() if profile.claims}
    assert with_claims == {
        f"{name}-guide" for name in (*ESM, "2x2080super", "4080s", "3x3080-20g", "a6000", "lora-r64-4xa100")
    }


def test_claims_of_the_2080_super_are_named_in_the_findings() -> None:
    codes = {finding.code for finding in plan_on_own_card("2080super-guide").findings}
    assert {"claim_time", "claim_batch"} <= codes


@each("name", PLAIN)
def test_every_change_against_the_guide_has_its_reason(name: str) -> None:
    changes = diff_profiles(load_profile(f"{name}-guide"), load_profile(name))
    reasons = load_profile(name).reasons
    assert changes and [change.key for change in changes if not reasons.get(change.key)] == []


@each("name", [*PLAIN, *GUIDES, "cpu-demo"])
def test_a_reason_belongs_to_a_value_that_is_there(name: str) -> None:
    profile = load_profile(name)
    assert set(profile.reasons) <= set(profile.values)


def test_the_demo_needs_nothing() -> None:
    profile = load_profile("cpu-demo")
    config = build_config(profile, {})
    assert profile.hardware.gpu is None
    assert config.model.name == "esm2-tiny" and config.data.sources[0].name == "sample-proteins"
    assert config.engine.precision == "fp32"


ROWS: dict[str, dict[str, Any]] = {
    "4080s": {
        "task": "seq2seq", "model.name": "nllb-600m", "model.init": "pretrained", "data.workers": 8,
        "data.pin_memory": True, "batch.micro_batch_size": 24, "batch.gradient_accumulation_steps": 4,
        "batch.eval_micro_batch_size": 48, "batch.sequence_length": 256, "training.epochs": 2,
        "training.learning_rate": 8e-5, "training.schedule": "cosine", "training.warmup": 0.06,
        "training.label_smoothing": 0.1, "engine.precision": "bf16", "engine.checkpointing": True,
        "engine.optimizer": "adamw_torch_fused", "evaluation.every_steps": 2000, "evaluation.metric": "eval_bleu",
        "evaluation.generate": True, "evaluation.beams": 4, "evaluation.generation_length": 256,
        "checkpoint.every_steps": 3000, "checkpoint.keep": 1,
    },
    "v100-opus": {
        "task": "seq2seq", "model.name": "opus-mt-zh-en", "model.init": "pretrained", "data.workers": 4,
        "data.validation_rows": 2000, "batch.micro_batch_size": 48, "batch.gradient_accumulation_steps": 4,
        "batch.sequence_length": 128, "training.epochs": 1, "training.learning_rate": 2e-5,
        "evaluation.every_steps": 500, "checkpoint.every_steps": 1000, "checkpoint.keep": 3,
    },
    "3x3080-20g": {
        "task": "seq2seq", "model.name": "t5-chat-0.2b", "model.init": "scratch", "data.streaming": True,
        "data.workers": 0, "data.pin_memory": False, "batch.micro_batch_size": 32,
        "batch.gradient_accumulation_steps": 2, "batch.sequence_length": 192, "training.epochs": 3,
        "training.learning_rate": 1e-4, "training.warmup": 1024, "training.empty_cache_steps": 50,
        "engine.precision": "bf16", "engine.strategy": "ddp", "engine.process_timeout_s": 1800,
        "evaluation.every_epoch": True, "evaluation.generate": True, "checkpoint.every_steps": 5000,
        "checkpoint.keep": 5, "checkpoint.keep_best": True, "logging.every_steps": 100,
        "logging.memory_every_steps": 200,
    },
    "a6000": {
        "task": "causal-lm", "model.name": "gpt2-medium", "model.init": "scratch", "data.workers": 8,
        "data.prefetch": 4, "data.pin_memory": True, "data.persistent_workers": True, "batch.micro_batch_size": 32,
        "batch.gradient_accumulation_steps": 4, "engine.precision": "fp16", "engine.compile": False,
    },
    "lora-r64-3090": {
        "task": "causal-lm", "model.name": "qwen2.5-7b", "model.init": "pretrained", "batch.micro_batch_size": 8,
        "batch.gradient_accumulation_steps": 8, "training.epochs": 3, "engine.precision": None,
        "engine.strategy": None, "peft.method": "lora", "peft.rank": 64, "checkpoint.every_steps": 40,
        "checkpoint.keep": 3,
    },
}  # fmt: skip
"""Guide -> its row in the table of setups."""


@each("name", list(ROWS))
def test_the_guides_row_is_in_its_profile(name: str) -> None:
    config = build_config(load_profile(f"{name}-guide"), {})
    assert {key: config.value(key) for key in ROWS[name]} == ROWS[name]


def test_machines_of_the_profiles() -> None:
    machines = {name: load_profile(name).hardware for name in PLAIN}
    assert (machines["3x3080-20g"].num_gpus, machines["3x3080-20g"].ram_bytes) == (3, 12 * 2**30)
    assert (machines["a6000"].cpu_cores, machines["a6000"].ram_bytes) == (16, 60 * 2**30)
    assert {name for name in PLAIN if machines[name].num_gpus > 1} == {"2x2080super", "3x3080-20g", "lora-r64-4xa100"}
    assert all(machines[name] == load_profile(f"{name}-guide").hardware for name in PLAIN)


def test_only_opus_100_has_a_length_filter() -> None:
    wmt, opus = build_config(load_profile("4080s"), {}).data.sources
    assert (wmt.max_rows, wmt.min_characters, wmt.max_characters) == (5_000_000, None, None)
    assert (opus.max_rows, opus.min_characters, opus.max_characters) == (500_000, 10, 400)
    (alone,) = build_config(load_profile("v100-opus"), {}).data.sources
    assert (alone.max_rows, alone.min_characters, alone.max_characters) == (1_300_000, None, None)


def test_the_opus_guide_is_what_its_code_does_and_the_plain_ones_what_it_says() -> None:
    def of(name: str) -> tuple[str | None, str]:
        config = build_config(load_profile(name), {})
        return config.engine.precision, config.training.schedule

    assert of("v100-opus-guide") == of("a100-opus-guide") == ("fp32", "linear")
    assert of("v100-opus") == ("fp16", "constant") and of("a100-opus") == ("bf16", "constant")


def test_three_epochs_of_2500_rows_are_saved_at_40_80_and_120() -> None:
    for name in LORA:
        guide, plain = (build_config(load_profile(each), {}) for each in (f"{name}-guide", name))
        assert guide.data.sources[0].max_rows == 2500 and guide.data.validation_rows == 0
        assert (plain.data.sources[0].max_rows or 0) - (plain.data.validation_rows or 0) == 2500
        assert guide.checkpoint.every_steps * 3 == 3 * -(-2500 // 64)


@pytest.mark.parametrize(("name", "least", "most"), [("3090", 4, 8), ("v100", 4, 8), ("a100-40g", 8, 16), ("a100-80g", 16, 32)])  # fmt: skip
def test_micro_batches_within_the_guides_advice(name: str, least: int, most: int) -> None:
    micro = build_config(load_profile(f"lora-r64-{name}"), {}).batch.micro_batch_size
    assert micro is not None and least <= micro <= most


def test_precision_of_adapters_is_the_cards() -> None:
    chosen = {name: plan_on_own_card(name).config.engine.precision for name in LORA}
    assert chosen.pop("lora-r64-v100") == "fp16" and set(chosen.values()) == {"bf16"}


def test_a_rate_that_one_source_alone_says_is_told_in_the_plan() -> None:
    def told(name: str) -> bool:
        return "uncertain_rate" in {finding.code for finding in plan_on_own_card(name).findings}

    assert told("2080super") and told("3x3080-20g") and told("a6000")
    assert not told("lora-r64-3090") and not told("lora-r64-h100")
