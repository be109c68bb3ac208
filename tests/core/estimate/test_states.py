"""Bytes a parameter by strategy: the published tables, DeepSpeed's own buffers, adapters, and states of a trace."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from trainwiz.core.catalog.models import load_models
from trainwiz.core.estimate.activations import adapter_bytes
from trainwiz.core.estimate.architecture import Architecture
from trainwiz.core.estimate.evidence import traced_peak
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.peak import peak_of
from trainwiz.core.estimate.states import States, pinned, states_of
from trainwiz.core.estimate.workload import Moment, Workload
from trainwiz.core.export.deepspeed import BUCKET_ELEMENTS
from trainwiz.core.tracing.request import TraceResult

from tests.core.estimate.test_peak import DOCUMENT, esm650
from tests.each import each

P = esm650().architecture.parameters


@each(("settings", "name", "bytes_a_parameter"), [
    ({"optimizer": "sgd"}, "optimizer", 0),
    ({"optimizer": "adamw_bnb_8bit"}, "optimizer", 2.05),
    ({"optimizer": "adamw_torch"}, "step_temporary", 4),
    ({"optimizer": "adamw_torch_fused"}, "step_temporary", 0),
    ({"precision": "bf16-true"}, "weights", 2),
    ({}, "weights", 4),
    ({}, "gradients", 4),
    ({}, "optimizer", 8),
    ({"strategy": "zero1", "world_size": 8, "precision": "bf16"}, "gradients", 4),
    ({"strategy": "zero1", "world_size": 8, "precision": "bf16"}, "half_gradients", 2),
    # DeepSpeed clones its share of weights in fp32 too: 2 bytes of masters, 4 of moments; counted in two processes.
    *(
        ({"strategy": name, "world_size": 2, "precision": precision}, "optimizer", 6)
        for name in ("zero1", "zero2", "zero3")
        for precision in ("fp16", "fp32")
    ),
    ({"strategy": "zero1", "world_size": 2, "precision": "fp32"}, "weights", 4),
    ({"strategy": "zero3", "world_size": 2, "precision": "fp32"}, "weights", 2),
    ({"strategy": "zero3", "world_size": 8, "offload": "all"}, "weights", 0),
    ({"strategy": "ddp", "world_size": 2}, "buckets", 4),
])  # fmt: skip
def test_bytes_of_a_parameter(settings: dict[str, Any], name: str, bytes_a_parameter: float) -> None:
    assert getattr(states_of(esm650(**settings)), name) == pytest.approx(bytes_a_parameter * P, rel=0.01)


def test_8_bit_adam_keeps_whole_states_of_embedding_tables() -> None:
    """As the Trainer asks bitsandbytes; the traced tier counts the same."""
    architecture, _ = read_architecture(load_models()["qwen2.5-1.5b"].architecture)
    assert architecture is not None
    qwen = replace(esm650(optimizer="adamw_bnb_8bit"), architecture=architecture)
    table = 151_936 * 1536
    expected = 8 * table + 2.05 * (qwen.architecture.parameters - table)
    assert states_of(qwen).optimizer == pytest.approx(expected, rel=0.001)
    adapters = replace(qwen, lora_rank=8, lora_targets=("q_proj",))
    assert states_of(adapters).optimizer == pytest.approx(2.05 * adapters.adapter_parameters, rel=0.001)


def test_the_buckets_of_zero_are_there_when_the_backward_pass_begins() -> None:
    """DeepSpeed makes them in its prologue, while the logits are still there."""

    def gradients(strategy: str) -> int:
        work = esm650(strategy=strategy, world_size=2, accumulation=1)
        moments = {moment.name: moment for moment in peak_of(work).moments}
        return moments["the start of the backward pass, in the loss"].parts["gradients"]

    sharded = states_of(esm650(strategy="zero2", world_size=2, accumulation=1))
    assert gradients("zero2") == sharded.backward_buffers + sharded.buckets > 0
    assert gradients("single") == 0


BUCKETS = 2 * BUCKET_ELEMENTS


def of(strategy: str, world: int = 1, **changes: object) -> States:
    return states_of(esm650(strategy=strategy, world_size=world, **changes))


def held(states: States) -> int:
    return states.weights + states.gathered + states.gradients + states.optimizer


def test_zero() -> None:
    """ZeRO-2: 2 bytes of weights, 4 of gradients, 12 of master weights and moments (not the paper's 2 + 2 + 12)."""
    alone, four = of("zero2"), of("zero2", 4)
    assert held(alone) == 18 * P
    assert held(four) == pytest.approx(2 * P + 16 * P / 4, rel=1e-6)
    assert alone.backward_buffers == (BUCKETS + BUCKET_ELEMENTS) * 2
    assert of("zero1", 8, precision="bf16").standing_gradients
    # At a size that the buffers of fixed size do not hide, stages shard more and more.
    one, two, three = (of(strategy, 8, accumulation=2) for strategy in ("zero1", "zero2", "zero3"))
    assert held(one) > held(two) > held(three) - three.gathered
    assert three.weights == 2 * P // 8 and three.gathered <= 2 * P
    # In fp32 the share is put together again for the step.
    copied = {name: of("zero2", 4, precision=name).step_temporary for name in ("fp16", "fp32")}
    assert copied["fp32"] - copied["fp16"] == 4 * P // 4
    # A gradient larger than a bucket goes by itself.
    large = with_table(3 * BUCKET_ELEMENTS)
    more = of("zero2", architecture=large).backward_buffers - alone.backward_buffers
    assert more == (large.vocabulary_parameters - BUCKET_ELEMENTS) * 2 > 0


def test_what_is_offloaded() -> None:
    """The sum of gradients stays on the GPU; page-locked memory comes in powers of two."""
    assert [pinned(size) for size in (0, 1, 3, 1024, 1025)] == [0, 1, 4, 1024, 2048]
    states = of("zero2", offload="optimizer")
    assert (states.weights, states.gradients, states.optimizer) == (2 * P, 4 * P, 0)
    assert 18 * P <= states.host <= 36 * P
    assert of("zero2", 4, offload="optimizer").host < 0.5 * states.host
    # Micro-batches in fp32 are summed in host RAM, those in half precision on the card.
    once, twice = (of("zero2", offload="optimizer", precision="fp32", accumulation=n).host for n in (1, 2))
    assert twice - once == pinned(4 * P)
    assert of("zero2", offload="optimizer", accumulation=2).host == states.host
    optimizer, everything = (of("zero3", 8, offload=offload).host for offload in ("optimizer", "all"))
    assert everything - optimizer == pinned(2 * P // 8)


def test_fsdp_shares_everything_but_what_computes() -> None:
    eight, off = of("fsdp", 8), of("fsdp", 8, offload="all")
    shared = eight.weights + eight.gradients + eight.optimizer
    assert shared == pytest.approx(16 * P / 8, rel=1e-6)
    block = max(block.parameters for block in esm650().architecture.blocks)
    assert 4 * block <= eight.gathered <= 5 * block
    assert peak_of(esm650(strategy="fsdp", world_size=8)).allocated_bytes < peak_of(esm650()).allocated_bytes - 8 * P
    # Everything in host RAM, pinned for each matrix.
    assert (off.weights, off.gradients, off.optimizer, off.step_temporary) == (0, 0, 0, 0)
    assert off.gathered == eight.gathered and shared < off.host < 2 * shared
    # A table that is larger than a block.
    table = with_table(10 * block).vocabulary_parameters
    untied, tied = (of("fsdp", 8, architecture=with_table(10 * block, tied)) for tied in (False, True))
    assert (untied.gathered, tied.gathered) == (3 * table * 2, (2 * block + table) * 2)
    assert untied.backward_buffers == 2 * table * 2


def with_table(elements: int, tied: bool = True) -> Architecture:
    architecture = esm650().architecture
    return replace(architecture, vocabulary=elements // architecture.hidden, tied=tied)


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
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("stage", "offload", "steps", "kind"),
    [
        (1, False, 2, "BF16_Optimizer"),
        (2, False, 1, "DeepSpeedZeroOptimizer"),
        (2, True, 2, "DeepSpeedZeroOptimizer"),
        (3, False, 1, "DeepSpeedZeroOptimizer_Stage3"),
    ],
)
def test_deepspeed_really_makes_these_buffers(stage: int, offload: bool, steps: int, kind: str) -> None:
    if not offload:
        assert _probed(stage, False, 1, "fp32")["masters"] == pytest.approx(4, rel=0.01)
    found = _probed(stage, offload, steps, "bf16")
    assert found["kind"] == kind
    assert found["gradients"] == pytest.approx(4, rel=0.01)
    states = of(f"zero{stage}", precision="bf16", offload="optimizer" if offload else "none", accumulation=steps)
    assert states.gradients == 4 * P
    if stage == 3:
        assert found["buckets"] == [50000]
    else:
        assert found["weights"] == pytest.approx(states.weights / P, rel=0.01)


def _probed(stage: int, offload: bool, steps: int, precision: str) -> dict[str, Any]:
    pytest.importorskip("deepspeed")
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    ran = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps([stage, offload, steps, precision])],
        env={**os.environ, **alone, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, ran.stderr[-2000:]
    return dict(json.loads(lines[0].removeprefix("FOUND ")))


LLAMA, _ = read_architecture(DOCUMENT["models"]["llama2_7b"]["config"])
assert LLAMA is not None
WORK = Workload(LLAMA, 2, 128, 128, precision="bf16", lora_rank=64, lora_targets=("q_proj", "v_proj"))
TOKENS = 2 * 128


def test_what_adapters_keep_of_one_block_by_hand() -> None:
    def kept(**changes: Any) -> int:
        return adapter_bytes(replace(WORK, **changes), LLAMA.blocks[0], 128)

    inputs, middle, weights = 2 * TOKENS * 4096, 2 * TOKENS * 64, 2 * (64 * 8192)
    # Under autocast each adapter has a half copy of its own and half weights; half weights bring fp32 copies.
    assert kept() == (inputs + middle + weights) * 2
    assert kept(precision="bf16-true") == (inputs + middle) * 4
    # In one format the products of one input share it.
    assert kept(precision="fp32") == (inputs // 2 + middle) * 4
    assert kept(strategy="zero2") == (inputs // 2 + middle) * 2
    assert kept(lora_dropout=True) - kept() == inputs, "a mask for each"
    assert kept(lora_rank=0, lora_targets=()) == 0


def test_the_frozen_base_is_in_half_precision_and_the_adapters_in_fp32() -> None:
    adapters = 32 * 2 * 64 * 8192
    states = states_of(WORK)
    assert states.weights == 2 * LLAMA.parameters + 4 * adapters
    assert (states.gradients, states.optimizer) == (4 * adapters, 8 * adapters)
    assert states_of(replace(WORK, precision="fp32")).weights == 4 * LLAMA.parameters + 4 * adapters
    assert states_of(replace(WORK, strategy="zero2")).weights == 2 * (LLAMA.parameters + adapters)


def shared(name: str, gradients: int = 0, **settings: object) -> dict[str, int]:
    """Parts of the moment of this name on one of eight processes, traced with so many bytes of gradients."""
    moment = Moment(name, {"weights": 4 * esm650().architecture.parameters, "gradients": gradients})
    trace = TraceResult((moment,), (), 1, 1)
    return traced_peak(esm650(world_size=8, **settings), trace).moment.parts


def test_what_a_trace_is_shared_out_to() -> None:
    """Gathered weights are gone in the step; half gradients come with the layers; DDP holds a copy from the start."""
    states = states_of(esm650(strategy="zero3", world_size=8))
    before, step = (shared(name, strategy="zero3") for name in ("the end of the backward pass", "the optimizer step"))
    assert before["weights"] - step["weights"] == states.gathered > 0
    assert step["temporary"] == states.step_temporary > 0
    settings = {"strategy": "zero1", "precision": "bf16"}
    half = states_of(esm650(world_size=8, **settings)).half_gradients
    early = ("the start of the backward pass", "the backward pass of the last layer")
    end, *first = (shared(name, **settings)["gradients"] for name in ("the end of the backward pass", *early))
    assert half > 0 and [end - one for one in first] == [half, half]
    assert shared("the forward pass", strategy="ddp")["gradients"] == 4 * P
