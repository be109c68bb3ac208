"""What a plan settles where nobody chose, that what somebody chose stays, and that a plan is whole."""

from dataclasses import replace
from typing import Any

import pytest
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.export.training_arguments import training_arguments
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.loading import MOST_WORKERS, RESERVE_SHARE, SMALL_ROWS
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.result import Plan

from tests.core.plan.machines import CAUSAL, CHAT, GIB, TEXT, codes, config, machine, plan, real, rows
from tests.core.plan.machines import PAIRS as PAIRS_AT_512
from tests.each import each

PAIRS = {**PAIRS_AT_512, "batch__sequence_length": 128}
PAIR = {**PAIRS["data__sources"][0], "max_rows": 5_000_000}
PAGED, SMALL_CARD = "paged_adamw_8bit", "RTX 3060 12GB"
SMOKE, ZERO2, OFFLOAD = {"mode__kind": "smoke"}, {"engine__strategy": "zero2"}, {"engine__offload": "optimizer"}
HALF = {"engine__precision": "bf16", "engine__device": "cpu"}
ONE, TWO, THREE, FOUR, CPU = (machine(count=1), machine(count=2), machine(count=3), machine(count=4), machine(None))
TURING, SMALL = machine("RTX 2080 Super"), machine(ram_gib=12)
SHORT, LARGE = machine("RTX 3090", 8, ram_gib=24, cores=64), machine("RTX 3090", 1, ram_gib=256, cores=64)
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
    settles(TURING, {"engine.precision": "fp16", "engine.tf32": False}, "compute capability 7.5"),
    settles(ONE, {"engine.precision": "bf16", "engine.tf32": True}, "compute capability 8.6"),
    settles(CPU, {"engine.precision": "fp32", "engine.tf32": False, "memory.device": "host RAM"}),
    settles(ONE, {"engine.optimizer": "adamw_torch_fused"}, "one kernel"),
    settles(CPU, {"engine.optimizer": "adamw_torch", "time.energy_low_kwh": None}, "every device"),
    settles(machine("Apple M2 Max"), {"time.energy_low_kwh": None}),
    settles(ONE, {"engine.attention": "eager", "data.workers": 3}, engine__attention="eager", data__workers=3),
    settles(STRANGE, {"memory.verdict": "fits", "time.total_s": None, "time.energy_low_kwh": None}, training__max_steps=9),
    settles(BUSY, {"memory.capacity_bytes": TWO.gpus[1].memory_free_bytes}, engine__gpus=["1"]),
    # Several processes, and what a smoke run does without.
    settles(THREE, {"engine.strategy": "ddp", "batch.world_size": 3, "batch.effective_samples": 192},
            "3 processes, each with the full model", batch__target_samples=192),
    settles(FOUR, {"batch.world_size": 2}, engine__gpus=["1", "3"]),
    settles(CPU, {"engine.strategy": "ddp", "batch.world_size": 2}, "2 processes, each with the full model",
            engine__strategy="single", engine__processes=2),
    settles(TENS, {"engine.strategy": "zero2", "memory.verdict": "fits"}, "sharded it needs", model="esm2-650m"),
    settles(real(TENS), {"engine.strategy": "ddp"}, model="esm2-650m"),
    settles(TENS, {"engine.strategy": "ddp"}, model="esm2-650m", engine__strategy="ddp"),
    settles(real(CPU), {"engine.strategy": "single", "engine.offload": "none"}, "smoke run", model="esm2-tiny",
            **OFFLOAD, **ZERO2, **SMOKE),
    settles(CPU, {"engine.strategy": "ddp"}, "FSDP needs GPUs", engine__strategy="fsdp", engine__processes=2, **SMOKE),
    settles(TWO, {"engine.strategy": "ddp"}, engine__strategy="ddp", **SMOKE),
    settles(ONE, {"engine.strategy": "single"}, "one process", engine__strategy="ddp", **SMOKE),
    settles(real(CPU), {"engine.optimizer": "adamw_torch"}, "smoke run", engine__optimizer=PAGED, **SMOKE),
    settles(real(ONE, bitsandbytes="0.49"), {"engine.optimizer": PAGED}, engine__optimizer=PAGED, **SMOKE),
    settles(TWO, {"engine.process_timeout_s": 1800}, "half an hour"),
    settles(machine("RTX 2080 Super", 2), {"engine.process_timeout_s": 11_400}, "longest expected step", model="esm2-650m",
            batch__target_tokens=20_000_000, batch__sequence_length=512),
    settles(TWO, {"engine.process_timeout_s": 77}, engine__process_timeout_s=77),
    # Rounding for tensor cores.
    *(settles(ONE, {"data.pad_to_multiple_of": n}, "16 bytes", engine__precision=precision)
      for precision, n in (("bf16", 8), ("fp16", 8), ("tf32", 4), ("fp32", 4))),
    settles(machine("RTX 2080 Ti"), {"data.pad_to_multiple_of": 1}, "fp32", engine__precision="fp32"),
    settles(OLD, {"data.pad_to_multiple_of": 1}, "fp16 uses none here", engine__precision="fp16"),
    settles(CPU, {"data.pad_to_multiple_of": 1}, "only tensor cores"),
    *(settles(CPU, {"data.pad_to_multiple_of": n}, f"at most {lengths} lengths", data=data, batch__sequence_length=limit, **HALF)
      for limit, data, n, lengths in (
          (512, DataSummary(9, True, (9, 4000)), 16, 32), (512, DataSummary(9, True, (9, 40)), 2, 20), (500, None, 16, 32),
      )),
    # The batch, and how long the run is.
    settles(machine("RTX 3060 12GB"), {"engine.checkpointing": True, "batch.micro_batch": 1, "memory.verdict": "fits"},
            "does not fit safely without it", **CAUSAL, batch__target_samples=64),
    settles(ONE, {"engine.checkpointing": True}, "without it", model="esm2-650m", batch__target_samples=64,
            batch__sequence_length=1024),
    settles(machine("H100 SXM"), {"engine.checkpointing": False}, "off", model="esm2-650m", batch__target_samples=64),
    settles(ONE, {"training.max_steps": 300, "time.steps": 300, "time.epochs": 3.0}, "epochs: 3 over 10,000 rows",
            rows(10_000), training__epochs=3, batch__target_samples=100),
    settles(ONE, {"training.max_steps": None, "time.steps": 200}, data=rows(10_000, exact=False), training__epochs=2,
            batch__target_samples=100),
    settles(ONE, {"batch.real_tokens": round(30 * (150 + 300 + 400) / 3)}, data=rows(length=300),
            batch__target_samples=30, batch__sequence_length=400),
    settles(ONE, {"training.loss_mean": "tokens"}, "same weight"),
    # Rows that are not here are those of the limits of all sources.
    *(settles(ONE, {"training.max_steps": None, "time.steps": steps}, "", None, **{**PAIRS, "data__sources": sources},
              training__epochs=2, batch__target_samples=96)
      for sources, steps in (([PAIR, PAIR], 2 * -(-(10_000_000 - 2000) // 96)), ([PAIR, {**PAIR, "max_rows": None}], None))),
    settles(ONE, {"memory.evaluation_bytes": None}, model="esm2-8m", data__validation_rows=0),
    # How rows are loaded.
    settles(SMALL, {"data.workers": 0, "data.pin_memory": False, "data.streaming": True}, "low-memory", rows()),
    settles(machine(ram_gib=32), {"data.streaming": True}, "a quarter", rows(memory=20 * GIB)),
    settles(machine(cores=6), {"data.workers": 5, "data.prefetch": 2}, "6 cores", rows()),
    settles(machine("RTX 3090", 4, ram_gib=256, cores=12), {"data.workers": 2}, "12 cores for 4", rows()),
    settles(LARGE, {"data.workers": MOST_WORKERS, "data.pin_memory": True}, "", rows()),
    settles(ONE, {"data.workers": 2}, "enough for", rows(SMALL_ROWS - 1)),
    # Pinned batches of a whole step are ready when it begins.
    *(settles(ONE, {"data.prefetch": n, "data.workers": 2}, why, rows(SMALL_ROWS - 1), batch__micro_batch_size=8,
              batch__gradient_accumulation_steps=count) for count, n, why in ((64, 32, "64 batches are ready"), (4, 2, "4 batches"))),
    settles(ONE, {"data.prefetch": 3}, "", rows(length=100_000), batch__micro_batch_size=8, data__workers=2,
            batch__gradient_accumulation_steps=64, batch__sequence_length=200_000),
    settles(SHORT, {"data.prefetch": 1, "data.workers": 6}, "6 batches", rows(), data__workers=6),
    # What belongs to a task.
    settles(ONE, {"data.concatenate": True}, "plain texts", **CAUSAL, data__sources=TEXT),
    settles(ONE, {"data.concatenate": False}, "a separate sequence", **CAUSAL, data__sources=CHAT),
    settles(ONE, {"data.concatenate": False}, "", **CAUSAL, data__sources=TEXT, peft__method="lora"),
    settles(ONE, {"batch.target_length": 128, "evaluation.generation_length": 128}, "as long as the input", **PAIRS,
            evaluation__generate=True),
    settles(ONE, {"evaluation.generation_length": 32}, "longest target", **PAIRS, batch__target_length=32,
            evaluation__generate=True),
    settles(ONE, {"evaluation.metric": "eval_loss"}, "every evaluation", **CAUSAL, checkpoint__keep_best=True),
    settles(ONE, {"evaluation.generation_length": 128}, "half of the sequence", **CAUSAL, data__sources=CHAT,
            batch__sequence_length=256, evaluation__generate=True),
    *(settles(ONE, {"training.learning_rate": rate}, model=model, **values) for model, rate, values in (
        ("qwen2.5-1.5b", 2e-5, {}), ("qwen2.5-0.5b", 2e-4, {"peft__method": "lora"}), ("nllb-600m", 5e-5, {}),
        ("gpt2-medium", 2.5e-4, {"model__init": "scratch"}), ("esm2-8m", 4e-4, {"model__init": "scratch"}),
    )),
    # Adapters and 4 bits: not against what was asked, nor where all weights fit in 16 bits, nor of random weights.
    *(settles(machine(gpu), {"peft.method": method, "engine.base_precision": base}, "", rows(), model="llama-3.1-8b", **asked)
      for gpu, asked, method, base in (
          ("H100 SXM", {"peft__method": "lora"}, "lora", "none"), (SMALL_CARD, {"peft__method": "none"}, "none", None),
          (SMALL_CARD, {"engine__base_precision": "none"}, "lora", "none"), (SMALL_CARD, {"model__init": "scratch"}, "none", None),
          (SMALL_CARD, {"model__init": "scratch", "peft__method": "lora"}, "lora", "none"),
          (SMALL_CARD, {"engine__strategy": "zero3", "engine__offload": "all"}, "none", None),
      )),
    settles(ONE, {"peft.alpha": 128.0}, "twice the rank", **CAUSAL, peft__method="lora", peft__rank=64),
]  # fmt: skip


@each(("here", "expected", "values", "why", "data"), ROWS)
def test_what_is_settled(
    here: Machine, expected: dict[str, Any], values: dict[str, Any], why: str, data: DataSummary | None
) -> None:
    made = plan(here, config(**values), data)
    for key, value in expected.items():
        section, _, name = key.partition(".")
        part = getattr(made, section, None) if section in ("memory", "time") else None
        if section == "batch" and hasattr(made.batch, name):
            part = made.batch
        found = getattr(part, name) if part is not None else made.config.value(key)
        assert found == (pytest.approx(value) if isinstance(value, float) else value), (key, found)
        if key.replace(".", "__") in values and made.config.origin(key).origin == "you":
            assert value == values[key.replace(".", "__")]
    assert why in made.config.origin(next(iter(expected))).reason


MUST_BE_SETTLED = [
    "model.architecture", "batch.micro_batch_size", "batch.gradient_accumulation_steps",
    "batch.eval_micro_batch_size", "engine.device", "engine.precision", "engine.tf32", "engine.attention",
    "engine.checkpointing", "engine.optimizer", "engine.strategy", "engine.processes", "data.workers",
    "data.prefetch", "data.pin_memory", "data.streaming", "training.max_steps", "checkpoint.every_steps",
    "evaluation.every_steps", "logging.every_steps",
]  # fmt: skip


@each("gpu", ["RTX 2080 Super", "H100 SXM", None])
def test_nothing_is_left_to_solve_and_each_choice_has_a_reason(gpu: str | None) -> None:
    for data in (None, rows()):
        made = plan(machine(gpu), config(name="mine"), data)
        assert {key for key in MUST_BE_SETTLED if made.config.value(key) is None} == set()
        assert training_arguments(made.config)["max_steps"] > 0
        assert all(choice.reason for choice in made.choices if choice.origin in ("detected", "solved"))
        assert "name" not in {choice.key for choice in made.choices}, "a run is named beside its choices"
    if gpu is not None:
        solved = plan(machine(gpu), config(batch__target_samples=256), rows())
        assert solved.memory.verdict == "fits" and solved.batch.deviation == 0


def test_a_plan_survives_being_planned_again_and_its_request_is_not_changed() -> None:
    """run.yaml holds the complete config: planning it again changes nothing."""
    for here in (machine(), machine("RTX 3080 20GB", 3)):
        request = config(batch__target_samples=96)
        before = request.model_dump_json()
        made = plan(here, request, rows())
        again = plan(here, made.config, rows())
        assert (again.config, again.memory) == (made.config, made.memory)
        assert request.model_dump_json() == before


def test_without_a_model_or_of_an_unknown_one_there_is_a_plan_too() -> None:
    spec = replace(load_models()["esm2-8m"], architecture={"model_type": "mamba"})
    made = make_plan(machine(), config("esm2-8m"), model=spec, data=rows())
    assert made.memory.verdict is made.time.step_s is made.model.parameters is None
    assert "unknown_architecture" in codes(made)
    made = make_plan(machine(), RunConfig(), model=None, data=None)
    assert made.memory.verdict is None and made.config.batch.micro_batch_size == 1


def of_memory(gpu: str | None = "RTX 3090", **values: Any) -> Plan:
    data = replace(rows(memory=3 * GIB), validation_rows=100_000)
    return plan(machine(gpu), config(**{"training__max_steps": 100, "batch__micro_batch_size": 4, **values}), data)


def test_memory_of_evaluation_of_several_processes_and_of_checkpoints() -> None:
    usual, large = (of_memory(batch__eval_micro_batch_size=size).memory for size in (4, 65536))
    assert (usual.verdict, large.verdict) == ("fits", "does_not_fit")
    assert large.allocated_bytes == usual.allocated_bytes
    one, two = (of_memory(None, engine__processes=n, engine__strategy=None) for n in (1, 2))
    assert two.config.engine.processes == 2 and two.memory.allocated_bytes > 1.9 * one.memory.allocated_bytes
    assert sum(two.memory.breakdown.values()) > 1.9 * sum(one.memory.breakdown.values())
    kept, more, best = (
        of_memory(checkpoint__keep=keep, checkpoint__keep_best=best).memory.disk_bytes
        for keep, best in ((2, False), (3, False), (2, True))
    )
    assert best == more > kept


@each(("count", "ram_gib"), [(2, 20), (4, 16), (8, 24), (8, 48)])
def test_the_workers_that_are_solved_fit_with_a_reserve(count: int, ram_gib: int) -> None:
    """RAM and not the cores decides where it is short, and what others hold is not planned with."""
    here, allowed = machine("RTX 3090", count, ram_gib=ram_gib, cores=64), (1 - RESERVE_SHARE) * ram_gib * GIB
    made = plan(here, config(), rows())
    if made.config.data.workers:
        assert (made.memory.host_ram_high_bytes or 0) <= allowed and "host_ram" not in codes(made)
    else:
        one_each = plan(here, config(data__workers=1, data__prefetch=1), rows())
        assert (one_each.memory.host_ram_high_bytes or 0) > allowed


def seq2seq(**values: Any) -> Any:
    return config(**{**PAIRS_AT_512, **values})


def test_measured_rows_bound_the_estimate_and_guessed_ones_by_their_bytes() -> None:
    """A guessed token may turn out to be up to four."""

    def logits(unit: str, longest: int) -> int:
        lengths = (longest // 2, longest)
        data = DataSummary(rows=2, rows_exact=True, lengths=lengths, target_lengths=lengths, length_unit=unit)
        request = seq2seq(batch__micro_batch_size=32, batch__sequence_length=1024)
        return plan(machine("H100 SXM"), request, data).memory.breakdown["logits"]

    assert 0 < logits("tokens", 400) == logits("tokens (estimated)", 100) < logits("tokens (estimated)", 200)
    assert logits("tokens (estimated)", 400) == logits("tokens", 1024)


def test_evaluation_and_generation_take_their_time() -> None:
    lengths = {"lengths": (100,) * 10, "target_lengths": (60,) * 10}
    data = DataSummary(rows=100_000, rows_exact=True, validation_rows=2000, **lengths)
    values = {"batch__target_samples": 96, "training__max_steps": 1000, "evaluation__prompts": "none"}

    def time(generate: bool = True, **more: Any) -> Any:
        asked = seq2seq(**values, evaluation__every_steps=100, evaluation__generate=generate, **more)
        return plan(machine(), asked, data).time

    without, with_it = time(False), time(evaluation__beams=4)
    once, few = time(evaluation__generate_at="end"), time(evaluation__generation_rows=200)
    assert without.generation_s == 0.0 and (without.evaluation_s or 0) > 0
    assert (with_it.generation_s or 0) > (with_it.evaluation_s or 0)
    assert 0 < (once.generation_s or 0) < 0.2 * (with_it.generation_s or 0)
    assert 0 < (few.generation_s or 0) < 0.3 * (with_it.generation_s or 0)
