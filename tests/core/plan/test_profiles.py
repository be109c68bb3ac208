"""Every plain profile fits its own card at its guide's batch; every guide hears what does not hold."""

import pytest
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config.build import build_config
from trainwiz.core.hardware.hypothetical import catalogue_machine
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.result import Plan
from trainwiz.core.profile import list_profiles, load_as_written

from tests.core.plan.machines import codes, finding

GPU_PROFILES = [
    one.name for one in list_profiles() if one.hardware.gpu and one.origin == "builtin" and not one.variants
]
PLAIN = [name for name in GPU_PROFILES if not name.endswith("-guide")]


def plan_of(name: str) -> Plan:
    profile = load_as_written(name)
    wanted = profile.hardware
    own = catalogue_machine(
        gpu=wanted.gpu, num_gpus=wanted.num_gpus, ram_bytes=wanted.ram_bytes, cpu_cores=wanted.cpu_cores
    )
    config = build_config(profile, {})
    return make_plan(own, config, model=load_models()[config.model.name], data=None, profile=profile)


def test_the_profiles_of_this_issue_are_there() -> None:
    assert {"2080super", "3080-10g", "3080-12g"} <= set(PLAIN)
    assert {f"{name}-guide" for name in ("2080super", "3080-10g", "3080-12g")} <= set(GPU_PROFILES)


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_profile_fits_its_own_card(name: str) -> None:
    made = plan_of(name)
    assert made.memory.verdict == "fits"
    assert not made.errors
    assert abs(made.batch.deviation or 0) < 0.01


@pytest.mark.parametrize("name", PLAIN)
def test_at_its_guides_effective_batch(name: str) -> None:
    if f"{name}-guide" in GPU_PROFILES:
        assert plan_of(name).batch.effective_tokens == plan_of(f"{name}-guide").batch.effective_tokens


def test_the_tokens_of_a_step() -> None:
    assert plan_of("2080super").batch.effective_tokens == 1_999_872
    assert plan_of("3080-10g").batch.effective_tokens == plan_of("3080-12g").batch.effective_tokens == 1_996_800


def test_the_2080super_guide() -> None:
    made = plan_of("2080super-guide")
    assert {"does_not_fit", "claim_time", "claim_memory", "claim_batch", "takes_years"} <= codes(made)
    pace = finding(made, "claim_time").message
    assert "2,222 to 2,500 s" in pace
    assert "35 to 40 years" in pace
    advice = [one.message for one in made.findings if one.code == "claim_batch"]
    assert len(advice) == 2
    assert "16,384 tokens" in advice[0]
    assert "11,520 tokens" in advice[1]
    assert made.memory.breakdown["activations"] / 2**30 == pytest.approx(6.0, abs=0.2)


def test_the_advice_is_given_with_an_accumulation_that_keeps_the_batch() -> None:
    for one in plan_of("2080super-guide").findings:
        if one.code == "claim_batch":
            changes = one.remedies[0].changes
            length = changes.get("batch.sequence_length", 512)
            tokens = changes["batch.micro_batch_size"] * changes["batch.gradient_accumulation_steps"] * length
            assert tokens == pytest.approx(2_000_000, rel=0.001)


@pytest.mark.parametrize("name", ["3080-10g-guide", "3080-12g-guide"])
def test_the_3080_guides(name: str) -> None:
    made = plan_of(name)
    assert {"does_not_fit", "claim_memory"} <= codes(made)
    assert "9.7 GiB" in finding(made, "does_not_fit").message
    assert any(one.changes.get("engine.offload") == "optimizer" for one in finding(made, "does_not_fit").remedies)


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_profile_does_not_repeat_what_it_repaired(name: str) -> None:
    assert not {"does_not_fit", "tight", "claim_memory", "bf16_unsupported"} & codes(plan_of(name))
