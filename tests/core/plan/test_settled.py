"""What a plan settles where nobody chose, and that what somebody chose stays: one table."""

from dataclasses import replace
from typing import Any

import pytest
from trainwiz.core.catalog.models import load_models
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.loading import MOST_WORKERS, SMALL_ROWS
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.result import Plan

from tests.core.plan.machines import GIB, config, machine, real, rows
from tests.each import each

CAUSAL: dict[str, Any] = {"model": "qwen2.5-0.5b", "task": "causal-lm"}
PAIRS: dict[str, Any] = {
    "model": "nllb-600m", "task": "seq2seq", "batch__sequence_length": 128,
    "data__sources": [{"name": "pairs.tsv", "text_column": "source", "target_column": "target"}],
}  # fmt: skip
CHAT = [{"name": "chat.jsonl", "text_column": "prompt", "target_column": "response"}]
TEXT = [{"name": "text.txt"}]
SMOKE, ZERO2, OFFLOAD = {"mode__kind": "smoke"}, {"engine__strategy": "zero2"}, {"engine__offload": "optimizer"}
HALF = {"engine__precision": "bf16", "engine__device": "cpu"}
ONE, TWO, THREE, FOUR, CPU = (machine(count=1), machine(count=2), machine(count=3), machine(count=4), machine(None))
TURING, SMALL = machine("RTX 2080 Super"), machine(ram_gib=12)
SHORT, LARGE = machine("RTX 3090", 4, ram_gib=16, cores=64), machine("RTX 3090", 1, ram_gib=256, cores=64)
TENS = machine("RTX 3080 10GB", 4)
OLD = replace(ONE, gpus=tuple(replace(gpu, compute_capability="6.1") for gpu in ONE.gpus))
BUSY = replace(real(TWO), gpus=(replace(real(TWO).gpus[0], memory_free_bytes=2 * GIB), real(TWO).gpus[1]))
STRANGE = replace(real(ONE), gpus=(replace(ONE.gpus[0], catalogue_name=None, name="Strange 9000"),))
Row = tuple[Machine, dict[str, Any], dict[str, Any], str, DataSummary | None]


def settles(
    here: Machine, expected: dict[str, Any], why: str = "", data: DataSummary | None = None, **values: Any
) -> Row:
    """`expected`: key of the config, or of batch, memory and time of the plan -> value; `why` is of the first one."""
    return here, expected, values, why, data


ROWS = [
    # The card and what computes on it.
    settles(TURING, {"engine.precision": "fp16", "engine.tf32": False}, "sm 7.5"),
    settles(ONE, {"engine.precision": "bf16", "engine.tf32": True}, "sm 8.6"),
    settles(CPU, {"engine.precision": "fp32", "engine.tf32": False, "memory.device": "host RAM"}),
    settles(ONE, {"engine.optimizer": "adamw_torch_fused"}, "one kernel"),
    settles(CPU, {"engine.optimizer": "adamw_torch"}, "every device"),
    settles(ONE, {"engine.attention": "eager", "data.workers": 3}, engine__attention="eager", data__workers=3),
    settles(STRANGE, {"memory.verdict": "fits", "time.total_s": None}, training__max_steps=9),
    settles(BUSY, {"memory.capacity_bytes": TWO.gpus[1].memory_free_bytes}, engine__gpus=["1"]),
    # Several processes, and what a smoke run does without.
    settles(THREE, {"engine.strategy": "ddp", "batch.world_size": 3, "batch.effective_samples": 192},
            "3 processes, each with the whole model", batch__target_samples=192),
    settles(FOUR, {"batch.world_size": 1}, engine__strategy="single"),
    settles(FOUR, {"batch.world_size": 2}, engine__gpus=["1", "3"]),
    settles(CPU, {"engine.strategy": "ddp", "batch.world_size": 2}, "2 processes, each with the whole model",
            engine__strategy="single", engine__processes=2),
    settles(TENS, {"engine.strategy": "zero2", "memory.verdict": "fits"}, "sharded it is", model="esm2-650m"),
    settles(real(TENS), {"engine.strategy": "ddp"}, model="esm2-650m"),
    settles(real(TENS, deepspeed="0.19"), {"engine.strategy": "zero2"}, model="esm2-650m"),
    settles(TENS, {"engine.strategy": "ddp"}, model="esm2-650m", engine__strategy="ddp"),
    settles(real(CPU), {"engine.strategy": "single", "engine.offload": "none"}, "smoke run", model="esm2-tiny",
            **OFFLOAD, **ZERO2, **SMOKE),
    settles(real(CPU, deepspeed="0.18"), {"engine.strategy": "zero2"}, model="esm2-tiny", **OFFLOAD, **ZERO2, **SMOKE),
    settles(CPU, {"engine.strategy": "ddp"}, "FSDP needs GPUs", engine__strategy="fsdp", engine__processes=2, **SMOKE),
    settles(ONE, {"engine.process_timeout_s": None}),
    settles(TWO, {"engine.process_timeout_s": 1800}, "half an hour"),
    settles(TWO, {"engine.process_timeout_s": 77}, engine__process_timeout_s=77),
    # Rounding for tensor cores.
    *(settles(ONE, {"data.pad_to_multiple_of": n}, "16 bytes", engine__precision=precision)
      for precision, n in (("bf16", 8), ("fp16", 8), ("tf32", 4), ("fp32", 4))),
    settles(machine("RTX 2080 Ti"), {"data.pad_to_multiple_of": 1}, "fp32", engine__precision="fp32"),
    settles(OLD, {"data.pad_to_multiple_of": 1}, "no tensor cores", engine__precision="fp16"),
    settles(CPU, {"data.pad_to_multiple_of": 1}, "only tensor cores"),
    settles(ONE, {"data.pad_to_multiple_of": 64}, data__pad_to_multiple_of=64),
    *(settles(CPU, {"data.pad_to_multiple_of": n}, f"{lengths} of them", data=data, batch__sequence_length=limit, **HALF)
      for limit, data, n, lengths in (
          (512, DataSummary(9, True, (9, 4000)), 16, 32), (1024, DataSummary(9, True, (9, 4000)), 32, 32),
          (512, DataSummary(9, True, (9, 40)), 2, 20), (512, DataSummary(9, True, (9, 32)), 1, 32), (500, None, 16, 32),
      )),
    # The batch, and how long the run is.
    settles(machine("RTX 3060 12GB"), {"engine.checkpointing": True, "batch.micro_batch": 1, "memory.verdict": "fits"},
            "fits safely", **CAUSAL, batch__target_samples=64),
    settles(ONE, {"engine.checkpointing": True}, "with it", model="esm2-650m", batch__target_samples=64,
            batch__sequence_length=1024),
    settles(machine("H100 SXM"), {"engine.checkpointing": False}, "off", model="esm2-650m", batch__target_samples=64),
    settles(ONE, {"training.max_steps": 300, "time.steps": 300, "time.epochs": 3.0}, "3 passes over 10,000 rows",
            rows(10_000), training__epochs=3, batch__target_samples=100),
    settles(ONE, {"training.max_steps": None, "time.steps": 200}, data=rows(10_000, exact=False), training__epochs=2,
            batch__target_samples=100),
    settles(ONE, {"batch.real_tokens": round(30 * (150 + 300 + 400) / 3)}, data=rows(length=300),
            batch__target_samples=30, batch__sequence_length=400),
    # How rows are loaded.
    settles(SMALL, {"data.workers": 0, "data.pin_memory": False, "data.streaming": True}, "low-memory", rows()),
    settles(machine(ram_gib=32), {"data.streaming": True}, "a quarter", rows(memory=20 * GIB)),
    settles(machine(cores=6), {"data.workers": 5, "data.prefetch": 2}, "6 cores", rows()),
    settles(machine("RTX 3090", 4, ram_gib=256, cores=12), {"data.workers": 2}, "12 cores for 4", rows()),
    settles(LARGE, {"data.workers": MOST_WORKERS, "data.pin_memory": True}, "", rows()),
    settles(ONE, {"data.workers": 2}, "need no more", rows(SMALL_ROWS - 1)),
    settles(CPU, {"data.workers": 0}, "busy", rows()),
    settles(SHORT, {"data.prefetch": 4}, "few workers", rows()),
    settles(SHORT, {"data.prefetch": 1, "data.workers": 6}, "would not fit", rows(), data__workers=6),
    settles(ONE, {"data.prefetch": 7}, "", rows(), data__prefetch=7),
    # What belongs to a task.
    settles(ONE, {"data.concatenate": True}, "plain texts", **CAUSAL, data__sources=TEXT),
    settles(ONE, {"data.concatenate": False}, "a sample of its own", **CAUSAL, data__sources=CHAT),
    settles(ONE, {"data.concatenate": False}, "", **CAUSAL, data__sources=TEXT, peft__method="lora"),
    settles(ONE, {"data.concatenate": False}, "", **CAUSAL, data__sources=TEXT, data__concatenate=False),
    settles(ONE, {"batch.target_length": 128, "evaluation.generation_length": 128}, "as long as the input", **PAIRS,
            evaluation__generate=True),
    settles(ONE, {"evaluation.generation_length": 32}, "longest target", **PAIRS, batch__target_length=32,
            evaluation__generate=True),
    settles(ONE, {"evaluation.metric": "eval_loss"}, "every evaluation", **CAUSAL, checkpoint__keep_best=True),
    settles(ONE, {"peft.alpha": 128.0}, "twice the rank", **CAUSAL, peft__method="lora", peft__rank=64),
    settles(ONE, {"peft.alpha": 7.0}, "", **CAUSAL, peft__method="lora", peft__alpha=7.0),
]  # fmt: skip


def made(here: Machine, values: dict[str, Any], data: DataSummary | None) -> Plan:
    request = config(**{"model": "esm2-150m", **values})
    return make_plan(here, request, model=load_models()[request.model.name], data=data)


@each(("here", "expected", "values", "why", "data"), ROWS)
def test_what_is_settled(
    here: Machine, expected: dict[str, Any], values: dict[str, Any], why: str, data: DataSummary | None
) -> None:
    plan = made(here, values, data)
    for key, value in expected.items():
        section, _, name = key.partition(".")
        part = getattr(plan, section, None) if section in ("memory", "time") else None
        if section == "batch" and hasattr(plan.batch, name):
            part = plan.batch
        found = getattr(part, name) if part is not None else plan.config.value(key)
        assert found == (pytest.approx(value) if isinstance(value, float) else value), (key, found)
        if key.replace(".", "__") in values and plan.config.origin(key).origin == "you":
            assert value == values[key.replace(".", "__")]
    assert why in plan.config.origin(next(iter(expected))).reason
