from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from trainwiz.core.hardware.machine import Gpu
from trainwiz.core.history.measurement import measurement_of as measurement_from
from trainwiz.core.history.measurement import of_devices, same_model, same_step, same_work
from trainwiz.core.plan.gather import planned_fields

from tests.core.history.measurements import HERE, measurement, measurement_of
from tests.core.plan.machines import config, machine, plan, real
from tests.each import each

GIB = 1024**3
CARD = Gpu(0, name="RTX 3090", memory_total_bytes=24 * GIB)


@functools.cache
def work_here(**values: Any) -> Any:
    made = plan(real(machine(gpu=None)), config("esm2-8m", training__max_steps=10, **values))
    assert made.work is not None
    return made.work


CPU_PLAN = {"batch__gradient_accumulation_steps": 4, "batch__micro_batch_size": 2}


@each(
    ("changes", "model", "step"),
    [
        ({"model": "ffff"}, False, False),
        ({"precision": "bf16"}, False, False),
        ({"world_size": 2}, False, False),
        ({"lora_rank": 8, "lora_targets": ("q",)}, False, False),
        ({"machine": "cuda:RTX 3090:24 GiB"}, False, False),
        ({"micro_batch": 999}, True, False),
        ({"target_length": 17}, True, False),
        ({"loss_chunk": 512}, True, False),
        ({"padded": False}, True, False),
        ({"lora_dropout": True}, True, False),
        ({"label_smoothing": True}, True, False),
        ({"clipping": False}, True, False),
        ({"padded": None, "clipping": None}, True, True),
    ],
)
def test_what_differs_decides(changes: dict[str, Any], model: bool, step: bool) -> None:
    wanted = work_here(**CPU_PLAN)
    one = replace(measurement_of(wanted), **changes)
    assert (same_model(one, wanted), same_work(one, wanted), same_step(one, wanted)) == (model, step, step)


@each(
    ("changes", "model", "work"),
    [({}, True, True), ({"lora_rank": 4}, True, False), ({"lora_targets": ("query",)}, False, False)],
)
def test_adapters_of_the_same_layers_are_the_same_model(changes: dict[str, Any], model: bool, work: bool) -> None:
    adapted: Any = {"lora_rank": 8, "lora_targets": ("query", "value")}
    wanted = replace(work_here(), **adapted)
    one = replace(measurement_of(wanted), **{**adapted, **changes})
    assert (same_model(one, wanted), same_work(one, wanted)) == (model, work)
    # A model whose config is not known matches nothing.
    unknown = replace(wanted, model_config="")
    assert not same_model(measurement_of(unknown), unknown)


def test_more_micro_batches_need_no_more_memory_but_more_time() -> None:
    work = work_here(**CPU_PLAN)
    longer = replace(measurement_of(work), accumulation=16)
    assert same_work(longer, work) and not same_step(longer, work)
    assert not same_work(replace(longer, accumulation=1), work)


def test_only_measurements_of_the_chosen_devices_count() -> None:
    cards = (CARD, replace(CARD, index=1), Gpu(2, name="RTX 3080", memory_total_bytes=10 * GIB))
    here = replace(HERE, accelerator="cuda", gpus=cards)
    keys = ("cuda:RTX 3090:24 GiB", "cuda:RTX 3080:10 GiB")
    cpu, first, second = measurement(), *(measurement(machine=key, threads=None) for key in keys)
    known = (cpu, first, second)
    assert of_devices(known, here, "cuda", cards[:2], 4) == (first,)
    assert of_devices(known, here, "cuda", cards[2:], 4) == (second,)
    assert of_devices(known, here, "cuda", cards, 4) == ()
    assert of_devices(known, here, "cpu", (), 8) == (cpu,)
    assert of_devices(known, here, "cpu", (), 4) == ()


def test_tf32_is_another_pace_on_a_gpu() -> None:
    here, key = replace(HERE, accelerator="cuda", gpus=(CARD,)), "cuda:RTX 3090:24 GiB"
    without, with_it, silent = (measurement(machine=key, threads=None, tf32=value) for value in (False, True, None))
    known = (without, with_it, silent)
    assert of_devices(known, here, "cuda", (CARD,), tf32=True) == (with_it, silent)
    assert of_devices(known, here, "cuda", (CARD,), tf32=False) == (without, silent)
    assert of_devices(known, here, "cuda", (CARD,)) == known


def test_a_plan_for_here_knows_all_but_what_is_measured() -> None:
    wanted = config("esm2-8m", training__max_steps=10)
    made = plan(real(machine(gpu=None)), wanted)
    fields, told = planned_fields(made), {"measured_at": "2026-11-21T10:00:00+00:00", "source": "run", "steps": 5}
    assert fields is not None
    assert measurement_from(fields, {**told, "step_s": 1.0, "step_low_s": 1.0, "step_high_s": 1.0}) is not None
    assert measurement_from(fields, told) is None
    # What is planned for elsewhere is not measured here, and one machine does not speak for several.
    assert planned_fields(plan(machine(gpu=None), wanted)) is None
    engine = made.config.engine.model_copy(update={"nodes": 2})
    assert planned_fields(replace(made, config=made.config.model_copy(update={"engine": engine}))) is None
