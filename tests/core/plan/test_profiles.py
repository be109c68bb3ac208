"""Every plain profile fits its own card at its guide's batch; every guide hears what does not hold."""

import pytest
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config.build import build_config
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.result import Plan
from trainwiz.core.profile import list_profiles, load_as_written

from tests.core.plan.machines import codes
from tests.each import each

GPU_PROFILES = [
    one.name for one in list_profiles() if one.hardware.gpu and one.origin == "builtin" and not one.variants
]
GUIDES = [name for name in GPU_PROFILES if name.endswith("-guide")]
PLAIN = [name for name in GPU_PROFILES if not name.endswith("-guide") and f"{name}-guide" in GPU_PROFILES]
"""Those that are the nearest plan to a guide; the others are solved, and tested in tests/core/profile/test_solved.py."""


def plan_of(name: str) -> Plan:
    profile = load_as_written(name)
    wanted = profile.hardware
    own = catalogue_machine(
        gpu=wanted.gpu, num_gpus=wanted.num_gpus, ram_bytes=wanted.ram_bytes, cpu_cores=wanted.cpu_cores
    )
    config = build_config(profile, {})
    return make_plan(own, config, model=load_models()[config.model.name], data=None, profile=profile)


# What the guides get wrong (that DeepSpeed's file must agree is in tests/core/export): profile -> (code, a part
# of its message), for each finding that must be there.
WRONG: dict[str, list[tuple[str, str]]] = {
    "2080super-guide": [
        ("claim_time", "2,222 to 2,500 s"),
        ("claim_time", "35 to 40 years"),
        ("claim_batch", "16,384 tokens a step, 0.8 %"),
        ("claim_batch", "11,520 tokens a step, 0.6 %"),
        ("does_not_fit", "RTX 2080 Super"),
        ("claim_memory", "8 GB do not hold"),
        ("half_precision_accumulation", "651 micro-batches"),
        ("takes_years", "500,000 steps"),
    ],
    "2x2080super-guide": [
        ("claim_batch", "32,768 tokens a step, 1.6 %"),
        ("claim_batch", "23,040 tokens a step, 1.2 %"),
        ("does_not_fit", "RTX 2080 Super"),
        ("claim_memory", "8 GB do not hold"),
    ],
    "3080-10g-guide": [("does_not_fit", "9.7 GiB"), ("claim_memory", "9.7 GiB, before any activation")],
    "3080-12g-guide": [("does_not_fit", "9.7 GiB"), ("claim_memory", "9.7 GiB, before any activation")],
    "4080s-guide": [
        ("does_not_fit", "logits 17.6"),
        ("claim_memory", "14-15 GB do not hold"),
        ("claim_memory", "logits of 256-token targets"),
        ("claim_time", "764 to 873 sequences a second"),
        ("claim_time", "impossible"),
    ],
    "3x3080-20g-guide": [
        ("claim_batch", "144 sequences a step, 75.0 % of 192"),
        ("claim_memory", "accumulation 8 and"),
        ("claim_host_ram", "not the micro-batch"),
        ("claim_batch", "256 sequences a step are +33 % against 192"),
    ],
    "a6000-guide": [("claim_batch", "120 sequences a step, 93.8 % of 128")],
    "lora-r64-4xa100-guide": [("claim_launch", "DataParallel"), ("claim_launch", "has 256 sequences, not 64")],
}
# The guides' own batch: micro x accumulation x cards (rows, or tokens where the guide counts tokens).
BATCHES: dict[str, int] = {
    "2080super": 3906,
    "3080-10g": 3900,
    "3080-12g": 3900,
    "4080s": 96,
    "v100-opus": 192,
    "a100-opus": 192,
    "3x3080-20g": 192,
    "a6000": 128,
    **dict.fromkeys((name for name in PLAIN if name.startswith("lora-")), 64),
}


def test_the_profiles_are_there() -> None:
    assert len(PLAIN) >= 16 and set(BATCHES) <= set(PLAIN)
    assert set(WRONG) <= set(GPU_PROFILES)
    assert {name.removesuffix("-guide") for name in GUIDES} == set(PLAIN)


@each("name", PLAIN)
def test_a_plain_profile_fits_its_own_card(name: str) -> None:
    made = plan_of(name)
    assert made.memory.verdict == "fits"
    assert not made.errors
    assert made.memory.needed_high_bytes <= (made.memory.capacity_bytes or 0)
    assert made.memory.host_ram_bytes <= (made.memory.host_ram_capacity_bytes or 0)
    assert abs(made.batch.deviation or 0) < 0.01


@each("name", PLAIN)
def test_at_its_guides_effective_batch(name: str) -> None:
    batch = plan_of(name).batch
    assert batch.effective_tokens == plan_of(f"{name}-guide").batch.effective_tokens
    assert batch.effective_samples == BATCHES.get(name, batch.effective_samples)


@each("name", WRONG)
def test_a_guide_hears_what_does_not_hold(name: str) -> None:
    made = plan_of(name)
    for code, words in WRONG[name]:
        messages = [one.message for one in made.findings if one.code == code]
        assert any(words in message for message in messages), (code, words, messages)


@each("name", GUIDES)
def test_a_guide_hears_nothing_about_claims_that_it_does_not_make(name: str) -> None:
    claims = {one.code for one in plan_of(name).findings if one.code.startswith("claim_")}
    assert claims == {code for code, _ in WRONG.get(name, []) if code.startswith("claim_")}


def test_the_advice_is_given_with_an_accumulation_that_keeps_the_batch() -> None:
    for name in WRONG:
        made = plan_of(name)
        for one in made.findings:
            if one.code != "claim_batch" or not one.remedies:
                continue
            changes = one.remedies[0].changes
            length = changes.get("batch.sequence_length", made.batch.sequence_length)
            samples = changes["batch.micro_batch_size"] * changes["batch.gradient_accumulation_steps"]
            tokens = samples * made.batch.world_size * length
            off = abs(tokens / made.batch.effective_tokens - 1)
            assert off < 0.01 or "comes nearest" in one.remedies[0].text


@each("name", PLAIN)
def test_a_plain_profile_does_not_repeat_what_it_repaired(name: str) -> None:
    heard = {"does_not_fit", "tight", "evaluation_does_not_fit", "claim_memory", "bf16_unsupported", "host_ram"}
    assert not heard & codes(plan_of(name))


def test_the_3080s_with_little_ram() -> None:
    made = plan_of("3x3080-20g")
    data = made.config.data
    assert (data.workers, data.pin_memory, data.streaming) == (0, False, True)
    assert made.memory.host_ram_bytes < 10e9 and (made.memory.host_ram_high_bytes or 0) < made.machine.ram_total_bytes
    assert made.config.engine.strategy == "ddp" and made.batch.world_size == 3
    assert made.time.steps == pytest.approx(3 * 52_083, abs=3)
    assert set(made.config.engine.environment) == {"NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "CUDA_MODULE_LOADING"}
    assert made.config.engine.process_timeout_s == 1800
    assert (made.time.generation_s or 0) > 0


def test_lora_keeps_bf16_for_cards_that_have_it() -> None:
    precision = {name: plan_of(name).config.engine.precision for name in PLAIN if name.startswith("lora-")}
    assert precision.pop("lora-r64-v100") == "fp16"
    assert set(precision.values()) == {"bf16"}
