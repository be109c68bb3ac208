"""Host RAM by purpose, the size of checkpoints, and energy by hand."""

from dataclasses import replace

import pytest
from trainwiz.core.estimate.host import GIB, HostNeeds, disk_needs, energy_kwh, host_ram, loading_ratio, workers_for
from trainwiz.core.estimate.time import Range

from tests.core.estimate.test_peak import esm650

NEEDS = HostNeeds(
    processes=1, on_gpu=True, workers=4, prefetch=2, pin_memory=True, micro_batch=24, length=256, target_length=256,
    data_bytes=GIB, weights_bytes=GIB, offloaded_bytes=0, saved_bytes=GIB,
)  # fmt: skip


def test_host_memory_follows_workers_and_data_not_the_batch() -> None:
    before = host_ram(NEEDS).total_bytes
    smaller_batch, no_workers, streamed = (
        before - host_ram(replace(NEEDS, **change)).total_bytes
        for change in ({"micro_batch": 6}, {"workers": 0}, {"data_bytes": 0})
    )
    assert smaller_batch < 0.01 * before and no_workers > GIB / 8 and streamed == GIB


def test_one_more_than_is_kept_exists_while_it_is_written() -> None:
    work = esm650()
    two, three = disk_needs(work, 2), disk_needs(work, 3)
    assert three.total_bytes - two.total_bytes == two.checkpoint_bytes
    assert disk_needs(work, 2, rows_bytes=3 * GIB).total_bytes == two.total_bytes + 3 * GIB, "streamed rows beside it"
    assert two.total_bytes > 3 * two.checkpoint_bytes
    assert 12 < two.checkpoint_bytes / work.architecture.parameters < 12.2, "weights and two moments"


def test_fsdp_writes_the_weights_of_a_checkpoint_twice_and_the_final_ones_once() -> None:
    """Counted in a run: model.safetensors, pytorch_model_fsdp.bin and optimizer.bin."""
    alone, shared = (disk_needs(esm650(strategy=name, world_size=2), 2) for name in ("ddp", "fsdp"))
    weights = esm650().architecture.parameters * esm650().formats.weights
    assert shared.checkpoint_bytes - alone.checkpoint_bytes == weights
    assert shared.final_bytes == alone.final_bytes


def test_pinned_batches_are_rounded_up_to_powers_of_two() -> None:
    batch = NEEDS.micro_batch * (NEEDS.length + NEEDS.target_length) * 24
    one = host_ram(NEEDS).parts["pinned"] // (NEEDS.workers * NEEDS.prefetch + 1)
    assert batch < one < 2 * batch and one.bit_count() == 1


def test_large_models_are_fullest_while_they_are_loaded_small_ones_while_they_train() -> None:
    large = host_ram(replace(NEEDS, weights_bytes=14 * GIB, saved_bytes=0)).parts
    assert large["loading"] == 14 * GIB and "workers" not in large and "pinned" not in large
    small = host_ram(NEEDS).parts
    assert "loading" not in small and small["workers"] > 0
    # Each goes to its card before anything computes, and one process alone writes the weights.
    three = host_ram(replace(NEEDS, processes=3, workers=0, pin_memory=False)).parts
    assert set(three) == {"training", "saving", "data", "supervisor"}
    assert (three["saving"], three["data"]) == (GIB, 3 * GIB)


def test_the_range_holds_the_figure_and_is_wide_where_cuda_is_only_predicted() -> None:
    with_cuda, without = (host_ram(replace(NEEDS, workers=0, cuda=cuda)) for cuda in (True, False))
    for ram in (with_cuda, without, host_ram(NEEDS), host_ram(replace(NEEDS, processes=8, workers=0))):
        assert ram.low_bytes < ram.total_bytes < ram.high_bytes
    assert with_cuda.high_bytes - with_cuda.low_bytes > without.high_bytes - without.low_bytes + 0.7 * GIB


def test_on_a_cpu_the_device_memory_is_the_process() -> None:
    needs = replace(NEEDS, on_gpu=False, device_bytes=(GIB, 2 * GIB, 4 * GIB), workers=0, pin_memory=False)
    found = host_ram(needs)
    assert found.parts["training"] == 2 * GIB and "saving" not in found.parts and "loading" not in found.parts
    assert (found.total_bytes - found.low_bytes, found.high_bytes - found.total_bytes) == (GIB, 2 * GIB)


def test_as_many_workers_as_load_a_step_while_the_one_before_is_computed() -> None:
    # 2 workers take 10 s each for what is computed in 4: 20 s of loading in 4 s are 5 workers, and a tenth more.
    for workers, wait_s, needed in ((2, 6.0, 6), (0, 6.0, 2), (0, 3.0, 1), (4, 5.0, 9)):
        assert workers_for(loading_ratio(10.0, wait_s, workers)) == needed
    # Of 40 micro-batches 2 x 2 are ready: the other 36 took 2 workers 6 s, so that all 40 take 13.3.
    assert loading_ratio(10.0, 6.0, 2, 40, 2) == pytest.approx(2 * 6.0 * 40 / 36 / 4.0)


def test_energy_by_hand() -> None:
    hours = Range(3600.0, 7200.0)
    busy, idle = (energy_kwh([320.0, 320.0], 1, hours, idle=idle) for idle in (False, True))
    assert busy is not None and idle is not None
    assert busy == pytest.approx(((320 + 50) / 0.95 / 1000, 2 * (640 + 200) / 0.85 / 1000))
    assert idle[0] < busy[0] and idle[1] < busy[1], "waiting cards draw less"
    assert energy_kwh([320.0, 320.0], 3, hours, idle=False) == pytest.approx((3 * busy[0], 3 * busy[1]))
    assert [energy_kwh(limits, 1, hours, idle=False) for limits in ([], [None], [300.0, None])] == [None] * 3
