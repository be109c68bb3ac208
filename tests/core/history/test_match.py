from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from trainwiz.core.hardware.machine import Gpu
from trainwiz.core.history.measurement import of_devices, same_model, same_step, same_work

from tests.core.history.measurements import HERE, measurement, measurement_of
from tests.core.plan.machines import config, machine, plan, real
from tests.each import each

GIB = 1024**3


def work_here(**values: Any) -> Any:
    made = plan(real(machine(gpu=None)), config("esm2-8m", training__max_steps=10, **values))
    assert made.work is not None
    return made.work


@each(
    ("changes", "model", "work", "step"),
    [
        ({"model": "ffff"}, False, False, False),
        ({"precision": "bf16"}, False, False, False),
        ({"attention": "eager"}, False, False, False),
        ({"world_size": 2}, False, False, False),
        ({"strategy": "zero2"}, False, False, False),
        ({"offload": "optimizer"}, False, False, False),
        ({"task": "causal-lm"}, False, False, False),
        ({"lora_rank": 8, "lora_targets": ("q",)}, False, False, False),
        ({"machine": "cuda:RTX 3090:24 GiB"}, False, False, False),
        ({"micro_batch": 999}, True, False, False),
        ({"length": 17}, True, False, False),
        ({"target_length": 17}, True, False, False),
        ({"checkpointing": True}, True, False, False),
        ({"optimizer": "sgd"}, True, False, False),
        ({"loss_chunk": 512}, True, False, False),
        ({"padded": False}, True, False, False),
        ({"lora_dropout": True}, True, False, False),
        ({"label_smoothing": True}, True, False, False),
        ({"clipping": False}, True, False, False),
        ({"padded": None, "clipping": None}, True, True, True),
    ],
)
def test_what_differs_decides(changes: dict[str, Any], model: bool, work: bool, step: bool) -> None:
    wanted = work_here(batch__gradient_accumulation_steps=4, batch__micro_batch_size=2)
    one = measurement_of(wanted) if not changes else replace(measurement_of(wanted), **changes)
    assert (same_model(one, wanted), same_work(one, wanted), same_step(one, wanted)) == (model, work, step)


@pytest.mark.parametrize(
    ("changes", "model", "work"),
    [({}, True, True), ({"lora_rank": 4}, True, False), ({"lora_targets": ("query",)}, False, False)],
)
def test_adapters_of_the_same_layers_are_the_same_model(changes: dict[str, Any], model: bool, work: bool) -> None:
    adapted: Any = {"lora_rank": 8, "lora_targets": ("query", "value")}
    wanted = replace(work_here(), **adapted)
    one = replace(measurement_of(wanted), **{**adapted, **changes})
    assert (same_model(one, wanted), same_work(one, wanted)) == (model, work)


def test_more_micro_batches_need_no_more_memory_but_more_time() -> None:
    work = work_here(batch__gradient_accumulation_steps=4, batch__micro_batch_size=2)
    longer = replace(measurement_of(work), accumulation=16)
    assert same_work(longer, work) and not same_step(longer, work)
    assert not same_work(replace(longer, accumulation=1), work)


def test_a_model_whose_config_is_not_known_matches_nothing() -> None:
    work = replace(work_here(), model_config="")
    assert not same_model(measurement_of(work), work)


def test_only_measurements_of_the_chosen_devices_count() -> None:
    cards = (
        Gpu(0, name="RTX 3090", memory_total_bytes=24 * GIB),
        Gpu(1, name="RTX 3090", memory_total_bytes=24 * GIB),
        Gpu(2, name="RTX 3080", memory_total_bytes=10 * GIB),
    )
    here = replace(HERE, accelerator="cuda", gpus=cards)
    known = (
        measurement(),
        measurement(machine="cuda:RTX 3090:24 GiB", threads=None),
        measurement(machine="cuda:RTX 3080:10 GiB", threads=None),
    )
    assert of_devices(known, here, "cuda", cards[:2], 4) == (known[1],)
    assert of_devices(known, here, "cuda", cards[2:], 4) == (known[2],)
    assert of_devices(known, here, "cuda", cards, 4) == ()
    assert of_devices(known, here, "cpu", (), 8) == (known[0],)
    assert of_devices(known, here, "cpu", (), 4) == ()


def test_tf32_is_another_pace_on_a_gpu() -> None:
    card = Gpu(0, name="RTX 3090", memory_total_bytes=24 * GIB)
    here = replace(HERE, accelerator="cuda", gpus=(card,))
    key = "cuda:RTX 3090:24 GiB"
    without, with_it, silent = (measurement(machine=key, threads=None, tf32=value) for value in (False, True, None))
    known = (without, with_it, silent)
    assert of_devices(known, here, "cuda", (card,), tf32=True) == (with_it, silent)
    assert of_devices(known, here, "cuda", (card,), tf32=False) == (without, silent)
    assert of_devices(known, here, "cuda", (card,)) == known
