"""States of ZeRO and FSDP: by hand, and against the buffers that DeepSpeed really makes."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from trainwiz.core.estimate.architecture import Architecture
from trainwiz.core.estimate.peak import peak_of
from trainwiz.core.estimate.states import States, pinned, states_of
from trainwiz.core.export.deepspeed import BUCKET_ELEMENTS

from tests.core.estimate.test_peak import GIB, esm650
from tests.each import each

P = esm650().architecture.parameters
BUCKETS = 2 * BUCKET_ELEMENTS


def of(strategy: str, world: int = 1, **changes: object) -> States:
    return states_of(esm650(strategy=strategy, world_size=world, **changes))


def held(states: States) -> int:
    return states.weights + states.gathered + states.gradients + states.optimizer


def test_zero2_keeps_an_fp32_sum_of_its_share_of_the_gradients() -> None:
    """2 bytes of weights, 4 of gradients, 12 of master weights and moments (not the paper's 2 + 2 + 12)."""
    alone, four = of("zero2"), of("zero2", 4)
    assert held(alone) == 18 * P
    assert held(four) == pytest.approx(2 * P + 16 * P / 4, rel=1e-6)
    assert alone.backward_buffers == (BUCKETS + BUCKET_ELEMENTS) * 2


def test_offloaded_optimizer_states_leave_the_sum_of_gradients_on_the_gpu() -> None:
    states = of("zero2", offload="optimizer")
    assert (states.weights, states.gradients, states.optimizer) == (2 * P, 4 * P, 0)
    assert 18 * P <= states.host <= 36 * P
    assert of("zero2", 4, offload="optimizer").host < 0.5 * states.host
    assert [pinned(size) for size in (0, 1, 3, 1024, 1025)] == [0, 1, 4, 1024, 2048]


def test_stage_1_in_bf16_keeps_all_gradients_in_fp32() -> None:
    states = of("zero1", 8, precision="bf16")
    assert (states.gradients, states.half_gradients) == (4 * P, 2 * P)
    assert states.standing_gradients


def test_zero3_gathers_no_more_than_it_may() -> None:
    assert of("zero3", 8).gathered <= 2 * P
    assert of("zero3", 8, offload="all").weights == 0


def test_fsdp_shares_everything_but_what_computes() -> None:
    eight = of("fsdp", 8)
    assert eight.weights + eight.gradients + eight.optimizer == pytest.approx(16 * P / 8, rel=1e-6)
    block = esm650().architecture.blocks[0].parameters
    assert 4 * block <= eight.gathered <= 5 * block
    assert peak_of(esm650(strategy="fsdp", world_size=8)).allocated_bytes < peak_of(esm650()).allocated_bytes - 8 * P


def test_fsdp_with_everything_in_host_ram() -> None:
    on_gpu, off = of("fsdp", 8), of("fsdp", 8, offload="all")
    assert (off.weights, off.gradients, off.optimizer, off.step_temporary) == (0, 0, 0, 0)
    assert off.gathered == on_gpu.gathered
    held = on_gpu.weights + on_gpu.gradients + on_gpu.optimizer
    # Page-locked memory comes in powers of two, for each matrix.
    assert held < off.host < 2 * held


def with_table(elements: int, tied: bool = True) -> Architecture:
    architecture = esm650().architecture
    return replace(architecture, vocabulary=elements // architecture.hidden, tied=tied)


@each(("strategy", "weights"), [("zero1", 4), ("zero2", 4), ("zero3", 2)])
def test_deepspeed_clones_its_share_of_weights_in_fp32_too(strategy: str, weights: int) -> None:
    """Counted in two processes of DeepSpeed 0.19 on a CPU: 2 bytes a parameter of masters, 4 of moments after the step."""
    states = of(strategy, 2, precision="fp32")
    assert states.optimizer == (2 + 4) * P == of(strategy, 2).optimizer
    assert states.weights == weights * P


def test_in_fp32_the_share_is_put_together_again_for_the_step() -> None:
    copied = {name: of("zero2", 4, precision=name).step_temporary for name in ("fp16", "fp32")}
    assert copied["fp32"] - copied["fp16"] == 4 * P // 4


def test_micro_batches_in_fp32_are_summed_in_host_ram() -> None:
    one, two = (of("zero2", offload="optimizer", precision="fp32", accumulation=n).host for n in (1, 2))
    assert two - one == pinned(4 * P)
    half = [of("zero2", offload="optimizer", accumulation=n).host for n in (1, 2)]
    assert half[0] == half[1]


def test_offloaded_weights_are_pinned() -> None:
    optimizer, everything = (of("zero3", 8, offload=offload).host for offload in ("optimizer", "all"))
    assert everything - optimizer == pinned(2 * P // 8)


def test_a_gradient_larger_than_a_bucket_goes_by_itself() -> None:
    usual = of("zero2").backward_buffers
    large = with_table(3 * BUCKET_ELEMENTS)
    more = of("zero2", architecture=large).backward_buffers - usual
    assert more == (large.vocabulary_parameters - BUCKET_ELEMENTS) * 2 > 0


def test_fsdp_gathers_a_table_that_is_larger_than_a_block() -> None:
    block = max(block.parameters for block in esm650().architecture.blocks)
    table = with_table(10 * block).vocabulary_parameters
    untied, tied = (of("fsdp", 8, architecture=with_table(10 * block, tied)) for tied in (False, True))
    assert (untied.gathered, tied.gathered) == (3 * table * 2, (2 * block + table) * 2)
    assert untied.backward_buffers == 2 * table * 2


@each("strategy", ["ddp", "zero1", "zero2", "zero3", "fsdp"])
def test_more_processes_never_need_more(strategy: str) -> None:
    peaks = [peak_of(replace(esm650(), strategy=strategy, world_size=n)).allocated_bytes for n in (2, 4, 8, 64)]
    assert peaks == sorted(peaks, reverse=True)
    assert all(peak > 0.1 * GIB for peak in peaks)


PROBE = """
import json, os, sys, torch, deepspeed
from torch import nn
stage, offload, steps, precision = json.loads(sys.argv[1])
half = precision == "bf16"
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(torch.bfloat16 if half else torch.float32)
count = sum(one.numel() for one in model.parameters())
zero = {"stage": stage, "overlap_comm": True, "contiguous_gradients": True, "reduce_bucket_size": 50000}
adam = {"lr": 1e-3}
if offload:
    zero["offload_optimizer"] = {"device": "cpu", "pin_memory": False}
else:
    adam["torch_adam"] = True
formats = {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}} if half else {}
engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config={
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": steps, "zero_optimization": zero,
    **formats, "optimizer": {"type": "AdamW", "params": adam},
})
if not half:
    inner = engine.optimizer
    masters = inner.fp32_partitioned_groups_flat if stage == 3 else inner.single_partition_of_fp32_groups
    weights = inner.fp16_partitioned_groups_flat if stage == 3 else inner.bit16_groups_flat
    apart = masters[0].untyped_storage().data_ptr() != weights[0].untyped_storage().data_ptr()
    print("FOUND " + json.dumps({"masters": sum(one.nbytes for one in masters) / count * apart}))
    sys.exit()
for _ in range(steps):
    engine.backward(engine(torch.randn(2, 64, dtype=torch.bfloat16)).float().pow(2).mean())
inner = engine.optimizer
size = lambda tensors: sum(one.numel() * one.element_size() for one in tensors) / count
found = {"kind": type(inner).__name__, "weights": size(getattr(inner, "bit16_groups_flat", None) or inner.bf16_groups_flat) if stage < 3 else None}
if stage == 3:
    found["gradients"] = size([inner.grad_partitions_flat_buffer])
    found["buckets"] = [bucket.buffer.numel() for bucket in inner.ipg_buckets.values()]
elif stage == 2:
    found["gradients"] = size([inner.averaged_gradients[0].flat_partition])
else:
    found["gradients"] = size(inner.fp32_groups_gradients_flat)
print("FOUND " + json.dumps(found))
"""


@pytest.mark.real
@pytest.mark.all
@pytest.mark.parametrize(
    ("stage", "offload", "steps", "kind", "gradients"),
    [
        (1, False, 2, "BF16_Optimizer", 4),
        (2, False, 1, "DeepSpeedZeroOptimizer", 4),
        (2, True, 2, "DeepSpeedZeroOptimizer", 4),
        (3, False, 1, "DeepSpeedZeroOptimizer_Stage3", 4),
    ],
)
def test_deepspeed_really_makes_these_buffers(stage: int, offload: bool, steps: int, kind: str, gradients: int) -> None:
    found = _probed(stage, offload, steps, "bf16")
    assert found["kind"] == kind
    assert found["gradients"] == pytest.approx(gradients, rel=0.01)
    states = of(f"zero{stage}", precision="bf16", offload="optimizer" if offload else "none", accumulation=steps)
    assert states.gradients == gradients * P
    if stage == 3:
        assert found["buckets"] == [50000]
    else:
        assert found["weights"] == pytest.approx(states.weights / P, rel=0.01)


@pytest.mark.real
@pytest.mark.all
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_deepspeed_really_clones_weights_in_fp32(stage: int) -> None:
    assert _probed(stage, False, 1, "fp32")["masters"] == pytest.approx(4, rel=0.01)


def _probed(stage: int, offload: bool, steps: int, precision: str) -> dict[str, Any]:
    pytest.importorskip("deepspeed")
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    ran = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps([stage, offload, steps, precision])],
        env={**os.environ, **alone, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, ran.stderr[-2000:]
    return dict(json.loads(lines[0].removeprefix("FOUND ")))


def test_stages_shard_more_and_more() -> None:
    """At a size that the buffers of fixed size do not hide."""
    one, two, three = (held(of(strategy, 8, accumulation=2)) for strategy in ("zero1", "zero2", "zero3"))
    assert one > two
    assert of("zero3", 8).weights == 2 * P // 8
    assert three - of("zero3", 8).gathered < two
