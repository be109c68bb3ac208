"""Profiles in the plan: on their own card, on others, in a smoke run; their guides, and their reasons."""

from functools import cache
from typing import Any

import pytest
from trainwiz.core.config.build import build_config
from trainwiz.core.config.keys import is_settable
from trainwiz.core.estimate.time import COMPILED_START
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.workload import host_needs
from trainwiz.core.profile.profile import CARD, CAUSES
from trainwiz.core.profile.store import list_profiles, load_profile

from tests.core.plan.machines import codes, config, finding, machine, plan
from tests.each import each

GPU_PROFILES = [one.name for one in list_profiles() if one.hardware.gpu and one.origin == "builtin"]
GUIDES = [name for name in GPU_PROFILES if name.endswith("-guide")]
PLAIN = [name for name in GPU_PROFILES if not name.endswith("-guide") and f"{name}-guide" in GPU_PROFILES]
"""Those that are the nearest plan to a guide; the others are solved, and tested in tests/core/profile/test_solved.py."""


@cache
def plan_of(name: str) -> Plan:
    profile = load_profile(name)
    here = {name: getattr(profile.hardware, name) for name in ("gpu", "num_gpus", "ram_bytes", "cpu_cores")}
    return plan(catalogue_machine(**here), build_config(profile, {}), profile=profile)


# What the guides get wrong (that DeepSpeed's file must agree is in tests/core/export): profile -> (code, a part
# of its message), for each finding that must be there.
WRONG: dict[str, list[tuple[str, str]]] = {
    "2080super-guide": [
        ("claim_time", "2,222 to 2,500 s"), ("claim_time", "35 to 40 years"), ("claim_memory", "8 GB is too low"),
        ("claim_batch", "16,384 tokens per step, 0.8% of 2,000,000"), ("takes_years", "500,000 steps"),
        ("claim_batch", "11,520 tokens per step, 0.6% of 2,000,000"), ("does_not_fit", "RTX 2080 Super"),
    ],
    "2x2080super-guide": [
        ("claim_batch", "32,768 tokens per step, 1.6% of 2,000,000"), ("does_not_fit", "RTX 2080 Super"),
        ("claim_memory", "8 GB is too low"),
    ],
    "3080-10g-guide": [("does_not_fit", "9.7 GiB"), ("claim_memory", "9.7 GiB, before any activation")],
    "4080s-guide": [
        ("does_not_fit", "logits 17.6"), ("claim_memory", "14-15 GB is too low"), ("claim_time", "impossible"),
        ("claim_time", "764 to 873 sequences per second"),
    ],
    "3x3080-20g-guide": [
        ("claim_batch", "144 sequences per step, 75.0% of 192"), ("claim_memory", "accumulation 8 and"),
        ("claim_batch", "256 sequences per step, 133.3% of 192"), ("claim_host_ram", "not on the micro-batch"),
    ],
    "a6000-guide": [("claim_batch", "120 sequences per step, 93.8% of 128")],
    **{f"lora-r64-{card}-guide": [("does_not_fit", "GiB")] for card in ("3090", "v100", "a100-40g")},
    "lora-r64-4xa100-guide": [("claim_launch", "DataParallel"), ("claim_launch", "has 256 sequences, here 64")],
}  # fmt: skip


@each("name", PLAIN)
def test_a_plain_profile_fits_its_own_card_at_its_guides_batch(name: str) -> None:
    made = plan_of(name)
    assert made.memory.verdict == "fits" and not made.errors
    assert made.memory.needed_high_bytes <= (made.memory.capacity_bytes or 0)
    assert made.memory.host_ram_bytes <= (made.memory.host_ram_capacity_bytes or 0)
    assert abs(made.batch.deviation or 0) < 0.01
    assert made.batch.effective_tokens == plan_of(f"{name}-guide").batch.effective_tokens
    # What it repaired is not repeated.
    heard = {"does_not_fit", "tight", "evaluation_does_not_fit", "claim_memory", "bf16_unsupported", "host_ram"}
    assert not heard & codes(made)
    if name.startswith("lora-"):
        assert made.config.engine.precision == ("fp16" if name == "lora-r64-v100" else "bf16")


@each("name", GUIDES)
def test_a_guide_hears_what_does_not_hold_and_nothing_else(name: str) -> None:
    assert set(WRONG) <= set(GUIDES)
    made, name = plan_of(name), name.replace("3080-12g", "3080-10g")
    for code, words in WRONG.get(name, []):
        messages = [one.message for one in made.findings if one.code == code]
        assert any(words in message for message in messages), (code, words, messages)
    claims = {one.code for one in made.findings if one.code.startswith("claim_")}
    assert claims == {code for code, _ in WRONG.get(name, []) if code.startswith("claim_")}
    if name == "a6000-guide":
        # 24 × 5 is the guide's own: 16 × 8 is the batch that it misses.
        changes = finding(made, "claim_batch").remedies[0].changes
        assert dict(changes) == {"batch.micro_batch_size": 16, "batch.gradient_accumulation_steps": 8}
    for one in made.findings:
        if one.code == "claim_batch" and one.remedies:
            # The advice comes with an accumulation that keeps the batch.
            changes = one.remedies[0].changes
            samples = changes["batch.micro_batch_size"] * changes["batch.gradient_accumulation_steps"]
            length = changes.get("batch.sequence_length", made.batch.sequence_length)
            off = abs(samples * made.batch.world_size * length / made.batch.effective_tokens - 1)
            assert off < 0.01


@cache
def on(cards: int, name: str, ram_gib: int = 256, gpu: str | None = None, **changes: Any) -> Plan:
    profile = load_profile(name)
    request = build_config(profile, {key.replace("__", "."): value for key, value in changes.items()})
    return plan(machine(gpu or profile.hardware.gpu, cards, ram_gib=ram_gib), request, profile=profile)


def test_a_profile_on_another_number_of_cards() -> None:
    one, four = on(1, "4080s-guide"), on(4, "4080s-guide")
    assert (one.config.engine.strategy, one.batch.world_size) == ("single", 1)
    assert (four.config.engine.strategy, four.batch.world_size) == ("ddp", 4)
    assert four.batch.effective_samples == one.batch.effective_samples
    # What the user asks for stays.
    assert on(4, "4080s", engine__strategy="single").batch.world_size == 1
    # Rows that are not here are held out as of a large set.
    assert (on(1, "2080super").time.evaluation_s or 0) > 3600
    # The target is kept unless the user counted.
    assert on(3, "2080super").batch.accumulation == 217
    assert on(3, "2080super", batch__gradient_accumulation_steps=651).batch.accumulation == 651


def test_what_offloading_and_whole_checkpoints_take() -> None:
    """Offloaded shards are divided, the host's memory is not."""
    request = config("esm2-650m", engine__offload="optimizer", batch__target_samples=128, batch__micro_batch_size=4)
    one, two = (plan(machine("RTX 3080 10GB", count), request) for count in (1, 2))
    assert one.memory.host_ram_parts["offloaded"] == pytest.approx(two.memory.host_ram_parts["offloaded"], rel=0.01)
    assert (two.time.step_low_s or 0) < (one.time.step_low_s or 0)
    # FSDP: eight bytes of moments for each parameter; ZeRO-3 writes them in parts and gathers four of weights.
    for name, size in (("fsdp", 8), ("zero3", 4)):
        made = plan(machine(count=4, ram_gib=512), config("qwen2.5-1.5b", task="causal-lm", engine__strategy=name))
        assert made.work is not None
        assert host_needs(made, made.config, made.work).saved_bytes == size * made.work.trainable_parameters


def test_compiling_costs_a_start_and_ram_and_is_offered_where_the_card_would_idle() -> None:
    plain, compiled = (plan(machine(), config("esm2-8m", engine__compile=on)) for on in (False, True))
    assert compiled.time.start_high_s == pytest.approx((plain.time.start_high_s or 0) + COMPILED_START.high)
    assert compiled.time.start_low_s == pytest.approx((plain.time.start_low_s or 0) + COMPILED_START.low)
    request = config("esm2-8m", batch__micro_batch_size=1, batch__sequence_length=64)
    for compiles in (False, True):
        idle = finding(plan(machine("H100 SXM"), request.with_values({"engine.compile": compiles}, "you")), "idle")
        assert ("torch.compile" in idle.message) is not compiles


def origins(name: str, gpu: str | None = None, **changes: Any) -> dict[str, tuple[str, str]]:
    return {choice.key: (choice.origin, choice.reason) for choice in on(1, name, 64, gpu, **changes).choices}


OTHER = "from the profile, for another model, data, size or GPU"


def test_the_reason_of_a_value_stands_only_as_long_as_its_cause_is_the_profiles() -> None:
    reasons, found = load_profile("2080super").reasons, origins("2080super")
    assert {key: why for key, why in reasons.items() if found[key] == ("profile", why)} == dict(reasons)
    found = origins("2080super", model__name="esm2-8m")
    assert found["engine.offload"] == ("profile", OTHER)
    assert found["engine.precision"] == ("profile", reasons["engine.precision"]), "the card is the same"
    found = origins("2080super", "RTX 3090")
    assert found["engine.precision"] == ("profile", OTHER)
    assert "sm 7.5" not in " ".join(reason for _, reason in found.values())
    found = origins("2080super", engine__checkpointing=False, batch__sequence_length=256)
    assert found["engine.checkpointing"] == ("you", "")
    assert found["engine.offload"] == ("profile", OTHER)
    # A limit of rows is no other data.
    found = origins("cpu-demo", "RTX 3090", **{"data.sources.0.max_rows": 100})
    assert found["batch.sequence_length"] == ("profile", load_profile("cpu-demo").reasons["batch.sequence_length"])


def test_the_table_of_causes_names_keys_that_there_are() -> None:
    assert all(is_settable(key) for key in {*CAUSES, *(one for causes in CAUSES.values() for one in causes)} - {CARD})
