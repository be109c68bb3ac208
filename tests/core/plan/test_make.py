"""What make_plan settles, and why."""

import json
import time

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.export.training_arguments import training_arguments
from trainwiz.core.plan.make import make_plan

from tests.core.plan.machines import GIB, codes, config, machine, plan, real, rows
from tests.each import each

MUST_BE_SETTLED = (
    "model.architecture",
    "batch.micro_batch_size",
    "batch.gradient_accumulation_steps",
    "batch.eval_micro_batch_size",
    "engine.device",
    "engine.precision",
    "engine.tf32",
    "engine.attention",
    "engine.checkpointing",
    "engine.optimizer",
    "engine.strategy",
    "engine.processes",
    "data.workers",
    "data.prefetch",
    "data.pin_memory",
    "data.streaming",
    "training.max_steps",
    "checkpoint.every_steps",
    "evaluation.every_steps",
    "logging.every_steps",
)


@each("gpu", ["RTX 2080 Super", "RTX 3090", "H100 SXM", None])
@each("data", [None, rows()])
def test_nothing_is_left_to_solve(gpu: str | None, data: object) -> None:
    made = plan(machine(gpu), config(), data)  # type: ignore[arg-type]
    assert {key: made.config.value(key) for key in MUST_BE_SETTLED if made.config.value(key) is None} == {}
    assert training_arguments(made.config)["max_steps"] > 0


def test_every_settled_value_has_a_reason() -> None:
    made = plan(machine(), config(), rows())
    for choice in made.choices:
        if choice.origin in ("detected", "solved"):
            assert choice.reason, choice.key


def test_a_plan_survives_being_planned_again() -> None:
    """run.yaml holds the complete config: planning it again changes nothing."""
    made = plan(machine(), config(batch__target_samples=96), rows())
    again = plan(machine(), made.config, rows())
    assert again.config == made.config
    assert again.memory == made.memory


def test_the_input_is_not_changed() -> None:
    request = config()
    before = request.model_dump_json()
    plan(machine(), request, rows())
    assert request.model_dump_json() == before


def test_the_users_value_wins() -> None:
    request = config(engine__attention="eager", data__workers=3, engine__checkpointing=True)
    made = plan(machine(), request, rows())
    assert (made.config.engine.attention, made.config.data.workers) == ("eager", 3)
    origins = {choice.key: choice.origin for choice in made.choices}
    assert origins["engine.attention"] == origins["data.workers"] == "you"


@pytest.mark.parametrize(
    ("gpu", "precision", "tf32"),
    [("RTX 2080 Super", "fp16", False), ("RTX 3090", "bf16", True), (None, "fp32", False)],
)
def test_precision_follows_the_card(gpu: str | None, precision: str, tf32: bool) -> None:
    engine = plan(machine(gpu), config(), rows()).config.engine
    assert (engine.precision, engine.tf32) == (precision, tf32)


def test_the_optimizer_is_fused_on_cuda_alone() -> None:
    assert plan(machine(), config()).config.engine.optimizer == "adamw_torch_fused"
    assert plan(machine(None), config()).config.engine.optimizer == "adamw_torch"


def test_the_batch_is_solved_again_when_a_gpu_goes() -> None:
    two = plan(machine(count=2), config(batch__target_samples=96), rows()).batch
    one = plan(machine(count=1), config(batch__target_samples=96), rows()).batch
    assert two.effective_samples == one.effective_samples == 96
    assert two.world_size == 2 * one.world_size


def test_several_processes_are_planned_as_the_engine_that_they_run() -> None:
    made = plan(machine(None), config(engine__strategy="single", engine__processes=2), rows())
    assert (made.config.engine.strategy, made.batch.world_size) == ("ddp", 2)
    assert made.config.origins["engine.strategy"].reason == "2 processes, each with the whole model"


def test_the_solved_micro_batch_fits() -> None:
    for gpu in ("RTX 2080 Super", "RTX 3080 10GB", "RTX 3090"):
        made = plan(machine(gpu), config(batch__target_samples=256), rows())
        assert made.memory.verdict == "fits", gpu
        assert made.batch.deviation == 0


def test_checkpointing_comes_on_where_the_card_is_small() -> None:
    # ESM-2 650M in full does not leave a 24 GB card room for four plain sequences of 1,024.
    made = plan(machine("RTX 3090"), config("esm2-650m", batch__target_samples=64, batch__sequence_length=1024))
    assert made.config.engine.checkpointing is True
    assert plan(machine("H100 SXM"), config("esm2-650m", batch__target_samples=64)).config.engine.checkpointing is False


def test_epochs_become_steps_with_the_rows() -> None:
    made = plan(machine(), config(training__epochs=3, batch__target_samples=100), rows(10_000))
    assert made.config.training.max_steps == made.time.steps == 300
    assert made.time.epochs == pytest.approx(3)


def test_an_estimated_number_of_rows_leaves_the_epochs() -> None:
    made = plan(machine(), config(training__epochs=2, batch__target_samples=100), rows(10_000, exact=False))
    assert made.config.training.max_steps is None
    assert made.time.steps == 200


def test_real_tokens_are_counted_from_clipped_lengths() -> None:
    made = plan(machine(), config(batch__target_samples=30, batch__sequence_length=400), rows(length=300))
    assert made.batch.real_tokens == round(30 * (150 + 300 + 400) / 3)


def test_low_memory_mode_under_15_gb() -> None:
    data = plan(machine(ram_gib=12), config(), rows()).config.data
    assert (data.workers, data.pin_memory, data.streaming) == (0, False, True)
    data = plan(machine(ram_gib=64), config(), rows()).config.data
    assert data.workers > 0
    assert (data.pin_memory, data.streaming) == (True, False)


def test_rows_that_take_much_of_the_ram_are_streamed() -> None:
    assert plan(machine(ram_gib=32), config(), rows(memory=20 * GIB)).config.data.streaming is True


def test_capacity_is_what_is_free_now() -> None:
    from dataclasses import replace

    here = real(machine())
    busy = replace(here, gpus=(replace(here.gpus[0], memory_free_bytes=5 * GIB, memory_other_bytes=19 * GIB),))
    made = plan(busy, config(), rows())
    assert made.memory.capacity_bytes == 5 * GIB
    assert "memory_in_use" in codes(made)


def test_on_a_cpu_the_memory_is_host_ram() -> None:
    made = plan(machine(None), config("esm2-tiny"), rows())
    assert made.memory.device == "host RAM"
    assert made.memory.capacity_bytes == made.machine.ram_available_bytes
    assert made.memory.verdict == "fits"


def test_an_unknown_architecture_still_gives_a_plan() -> None:
    from dataclasses import replace

    from trainwiz.core.catalog.models import load_models

    spec = replace(load_models()["esm2-8m"], architecture={"model_type": "mamba"})
    made = make_plan(machine(), config("esm2-8m"), model=spec, data=rows())
    assert made.memory.verdict is None
    assert made.time.step_s is None
    assert made.model.parameters is None
    assert "unknown_architecture" in codes(made)


def test_without_a_model_there_is_a_plan_too() -> None:
    made = make_plan(machine(), RunConfig(), model=None, data=None)
    assert made.memory.verdict is None
    assert made.config.batch.micro_batch_size == 1


def test_a_card_that_the_catalogue_does_not_know_has_memory_and_no_time() -> None:
    from dataclasses import replace

    here = real(machine())
    strange = replace(here, gpus=(replace(here.gpus[0], catalogue_name=None, name="Strange 9000"),))
    made = plan(strange, config(), rows())
    assert made.memory.verdict == "fits"
    assert made.time.total_s is None
    assert made.time.steps is not None
    assert "unknown_gpu_rate" in codes(made)


def test_the_json_document_is_json() -> None:
    document = json.loads(json.dumps(plan(machine(), config(), rows()).to_json()))
    assert document["memory"]["tier"] == "analytic"
    assert set(document["memory"]["breakdown"]) >= {
        "weights",
        "gradients",
        "optimizer",
        "activations",
        "logits",
        "temporary",
        "context",
    }
    assert document["time"]["basis"] == "roofline"
    assert document["data"]["rows"] == 200_000


def test_choices_read_from_what_to_how() -> None:
    keys = [choice.key for choice in plan(machine(), config(batch__target_samples=64), rows()).choices]
    order = ["model.name", "batch.target_samples", "batch.micro_batch_size", "engine.precision", "data.workers"]
    assert [key for key in keys if key in order] == order


def test_quick() -> None:
    here, request, data = machine(), config(batch__target_samples=96), rows()
    plan(here, request, data)
    best = min(_seconds(lambda: plan(here, request, data)) for _ in range(10))
    assert best < 0.005


def _seconds(call) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


def test_one_sequence_that_fits_safely_by_recomputing_alone_is_recomputed():
    given = config("qwen2.5-0.5b", task="causal-lm", batch__target_samples=64)
    settled = plan(machine("RTX 3060 12GB"), given)
    assert settled.batch.micro_batch == 1 and settled.config.engine.checkpointing is True
    assert settled.memory.verdict == "fits"
    assert "safely" in next(one.reason for one in settled.choices if one.key == "engine.checkpointing")
    without = plan(machine("RTX 3060 12GB"), given.with_values({"engine.checkpointing": False}, "you"))
    assert without.batch.micro_batch == 1 and without.memory.verdict == "tight"
