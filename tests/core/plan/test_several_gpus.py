"""Several GPUs: the strategy, the batch that is solved again, host RAM of little machines."""

import pytest
from trainwiz.core.config.build import build_config
from trainwiz.core.estimate.time import COMPILED_START
from trainwiz.core.plan.workload import host_needs
from trainwiz.core.profile.profile import Profile, ProfileHardware
from trainwiz.core.profile.store import load_profile

from tests.core.plan.machines import config, finding, machine, plan


@pytest.mark.parametrize(("count", "accumulation"), [(1, 6), (2, 3), (3, 2), (6, 1)])
def test_a_profile_without_a_target_keeps_its_batch_on_other_numbers_of_cards(count: int, accumulation: int) -> None:
    values = {
        "model.name": "esm2-8m",
        "batch.micro_batch_size": 32,
        "batch.gradient_accumulation_steps": 2,
        "engine.strategy": None,
    }
    profile = Profile("mine", hardware=ProfileHardware("RTX 3080 20GB", 3), values=values)
    made = plan(machine("RTX 3080 20GB", count), build_config(profile, {}), profile=profile)
    assert made.batch.effective_samples == 192
    assert made.batch.accumulation == accumulation


def test_a_profile_on_more_cards_than_its_own_keeps_its_target_unless_the_user_counted() -> None:
    profile = load_profile("2080super")
    for values, accumulation in (({}, 217), ({"batch.gradient_accumulation_steps": 651}, 651)):
        made = plan(machine("RTX 2080 Super", 3), build_config(profile, values), profile=profile)
        assert made.batch.accumulation == accumulation


def test_offloaded_shards_are_divided_and_the_hosts_memory_is_not() -> None:
    request = config("esm2-650m", engine__offload="optimizer", batch__target_samples=128, batch__micro_batch_size=4)
    one, two = (plan(machine("RTX 3080 10GB", count), request) for count in (1, 2))
    assert one.memory.host_ram_parts["offloaded"] == pytest.approx(two.memory.host_ram_parts["offloaded"], rel=0.01)
    assert (two.time.step_low_s or 0) < (one.time.step_low_s or 0)


def test_offloading_pays_for_the_way_over_pcie_at_every_micro_batch() -> None:
    values = {"engine__checkpointing": True, "batch__target_samples": 256, "batch__micro_batch_size": 4}
    kept = plan(machine("RTX 3090"), config("esm2-650m", **values)).time
    away = plan(machine("RTX 3090"), config("esm2-650m", engine__offload="optimizer", **values)).time
    trips = 2 * 64 - 1
    assert (away.step_high_s or 0) - (kept.step_high_s or 0) > trips * 2 * 650e6 / 6e9


def test_compiling_costs_a_start_and_ram_that_the_plan_says() -> None:
    plain, compiled = (plan(machine(), config("esm2-8m", engine__compile=on)) for on in (False, True))
    assert plain.time.start_high_s is not None and plain.time.start_low_s is not None
    assert compiled.time.start_high_s == pytest.approx(plain.time.start_high_s + COMPILED_START.high)
    assert compiled.time.start_low_s == pytest.approx(plain.time.start_low_s + COMPILED_START.low)
    said = finding(compiled, "compile_takes_time").message
    assert "2 to 120 s more at the start" in said and "0.6 GiB more host RAM" in said and "assumed" in said


def test_compiling_is_offered_where_the_card_would_idle() -> None:
    request = config("esm2-8m", batch__micro_batch_size=1, batch__sequence_length=64)
    assert "torch.compile" in finding(plan(machine("H100 SXM"), request), "idle").message
    compiled = request.with_values({"engine.compile": True}, "you")
    assert "torch.compile" not in finding(plan(machine("H100 SXM"), compiled), "idle").message


def test_without_held_out_rows_nothing_is_evaluated() -> None:
    made = plan(machine(), config("esm2-8m", data__validation_rows=0))
    assert made.memory.evaluation_bytes is None
    assert made.time.evaluation_s in (None, 0.0)


def test_a_loss_in_slices_is_offered_where_logits_are_most() -> None:
    request = config("qwen2.5-0.5b", task="causal-lm", batch__micro_batch_size=32, batch__target_samples=512)
    made = plan(machine("RTX 3090"), request.with_values({"engine.checkpointing": True}, "you"))
    remedies = finding(made, "does_not_fit").remedies
    assert any("training.loss_chunk" in one.changes for one in remedies)


def test_a_whole_checkpoint_of_fsdp_passes_through_the_host_ram_of_one_process() -> None:
    """Eight bytes of moments for each parameter, where ZeRO-3 writes them in parts and gathers four of weights."""
    here, saved = machine("RTX 3090", 4, ram_gib=512), []
    for name in ("fsdp", "zero3"):
        made = plan(here, config("qwen2.5-1.5b", task="causal-lm", engine__strategy=name))
        saved.append(host_needs(made, made.config, made.work).saved_bytes)
    assert made.work is not None
    assert saved == [8 * made.work.trainable_parameters, 4 * made.work.trainable_parameters]
