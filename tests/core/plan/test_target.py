"""Which machine a plan is made for."""

from dataclasses import replace

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import UsageError
from trainwiz.core.plan.gather import choose_target
from trainwiz.core.profile import load_as_written

from tests.core.plan.machines import GIB, machine, real

CPU = real(machine(None))
PROFILE = load_as_written("2080super")


def test_a_profile_without_its_card_is_planned_for_that_card() -> None:
    target = choose_target(PlanRequest(profile="2080super"), PROFILE, CPU)
    assert target[0].gpus[0].catalogue_name == "RTX 2080 Super"
    assert target[0].ram_total_bytes == 64 * GIB
    (found,) = target[1]
    assert (found.code, found.severity) == ("missing_hardware", "error")
    assert any("--smoke" in (one.command or "") for one in found.remedies)


def test_the_right_card_needs_no_word() -> None:
    here = real(machine("RTX 2080 Super"))
    assert choose_target(PlanRequest(), PROFILE, here) == (here, ())


def test_another_card_is_used_with_a_warning() -> None:
    here = real(machine("RTX 3090"))
    target = choose_target(PlanRequest(), PROFILE, here)
    assert target[0] == here
    assert [(one.code, one.severity) for one in target[1]] == [("other_hardware", "warning")]


def test_a_mixed_machine_offers_the_right_card_alone() -> None:
    first, second = machine("RTX 3090").gpus[0], machine("RTX 2080 Super").gpus[0]
    here = replace(real(machine("RTX 3090")), gpus=(first, replace(second, index=1, cuda_index=1)))
    (found,) = choose_target(PlanRequest(), PROFILE, here)[1]
    assert found.remedies[0].changes == {"engine.gpus": ["1"]}


@pytest.mark.parametrize("request_", [PlanRequest(mode="smoke"), PlanRequest(overrides={"engine.device": "cpu"})])
def test_smoke_and_a_chosen_cpu_stay_here(request_: PlanRequest) -> None:
    target = choose_target(request_, PROFILE, CPU)
    assert target[0] == CPU
    assert target[1] == ()


def test_another_machine_by_name_and_by_hand() -> None:
    named = choose_target(PlanRequest(gpu="RTX 3080 10GB", num_gpus=3, ram_bytes=12 * GIB), None, CPU)[0]
    assert (len(named.gpus), named.ram_total_bytes, named.hypothetical) == (3, 12 * GIB, True)
    by_hand = choose_target(PlanRequest(gpu_memory_bytes=20 * GIB, tflops=80, capability="8.9"), PROFILE, CPU)[0]
    assert by_hand.gpus[0].catalogue_name is None
    assert by_hand.gpus[0].compute_capability == "8.9"


def test_an_unknown_card_names_near_ones() -> None:
    with pytest.raises(UsageError) as caught:
        choose_target(PlanRequest(gpu="RTX 3081"), None, CPU)
    assert "RTX 3080" in str(caught.value)


def test_an_apple_gpu_is_no_nvidia_card() -> None:
    mac = replace(CPU, accelerator="mps")
    (found,) = choose_target(PlanRequest(), PROFILE, mac)[1]
    assert found.code == "missing_hardware"
    assert "Apple" in found.message


def test_any_apple_chip_runs_what_is_made_for_one() -> None:
    apple = load_as_written("lora-r64-mps")
    mac = real(machine("Apple M1 Max"))
    assert choose_target(PlanRequest(), apple, mac) == (mac, ())
    (found,) = choose_target(PlanRequest(), apple, CPU)[1]
    assert "made for 1 × Apple M2 Max, and this machine has no Apple GPU." in found.message
    (found,) = choose_target(PlanRequest(), PROFILE, mac)[1]
    assert "no NVIDIA GPU (it has an Apple GPU, which runs other profiles)" in found.message
