"""What make_plan settles, and why."""

import json
import time

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


def test_the_solved_micro_batch_fits() -> None:
    for gpu in ("RTX 2080 Super", "RTX 3080 10GB", "RTX 3090"):
        made = plan(machine(gpu), config(batch__target_samples=256), rows())
        assert made.memory.verdict == "fits", gpu
        assert made.batch.deviation == 0


def test_capacity_is_what_is_free_now() -> None:
    from dataclasses import replace

    here = real(machine())
    busy = replace(here, gpus=(replace(here.gpus[0], memory_free_bytes=5 * GIB, memory_other_bytes=19 * GIB),))
    made = plan(busy, config(), rows())
    assert made.memory.capacity_bytes == 5 * GIB
    assert "memory_in_use" in codes(made)


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
    # Its pace is in tools/benchmarks; this is a bound against one that blows up.
    assert best < 0.1


def _seconds(call) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start
