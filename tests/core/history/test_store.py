import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.hardware.machine import Gpu
from trainwiz.core.history import measurement as lines
from trainwiz.core.history.measurement import (
    append,
    gpu_key,
    history_path,
    load,
    of_devices,
    same_model,
    same_step,
    same_work,
)
from trainwiz.core.history.measurement import measurement_of as measurement_from
from trainwiz.core.plan.gather import planned_fields

from tests.core.history.measurements import HERE, measurement, measurement_of
from tests.core.plan.machines import config, machine, plan, real
from tests.each import each

GIB = 1024**3


def test_what_was_appended_last_is_loaded_first_whatever_the_clock_said() -> None:
    assert load(HERE) == ()
    ahead, newer = measurement(measured_at="2031-01-01T10:00:00+00:00"), measurement(lora_targets=("q", "v"))
    append(ahead)
    append(newer)
    assert load(HERE) == (newer, ahead)


def test_other_machines_are_left_out() -> None:
    append(measurement(machine="cpu:Another CPU:8 cores"))
    append(measurement(machine=gpu_key("cuda", CARD)))
    assert load(HERE) == ()
    card = Gpu(0, name="RTX 3090", memory_total_bytes=24 * GIB - 5_000_000)
    with_gpu = replace(HERE, accelerator="cuda", gpus=(card,))
    assert [one.machine for one in load(with_gpu)] == ["cuda:RTX 3090:24 GiB"]
    assert load(replace(with_gpu, hypothetical=True)) == ()


BROKEN: list[dict[str, Any]] = [
    {"step_s": "fast"}, {"step_s": -1}, {"step_low_s": 5}, {"step_s": 1e999}, {"micro_batch": 0}, {"target_length": -5},
    # Whole numbers of JSON have no end; a float of them overflows.
    {"step_high_s": 10**400}, {"host_rss_bytes": 10**400}, {"peak_allocated_bytes": "much"}, {"usual_length": 0.5},
    {"checkpointing": "no"}, {"lora_targets": None}, {"lora_targets": [1]},
    {"measured_at": "yesterday"}, {"measured_at": "20261121\x1b10"},
]  # fmt: skip


def test_a_broken_line_is_left_out() -> None:
    texts = ["", "{", "[]", "null", '{"micro_batch": 8}', "\x00\xff", "[" * 100_000]
    texts += [json.dumps({**measurement().to_json(), **change}) for change in BROKEN]
    # Half a line of a killed writer does not take the next one along.
    for text in [*(text + "\n" for text in texts), '{"measured_at": "2026']:
        history_path().unlink(missing_ok=True)
        append(measurement())
        with history_path().open("a", encoding="utf-8", errors="replace") as file:
            file.write(text)
        append(measurement(micro_batch=9))
        assert sorted(one.micro_batch for one in load(HERE)) == [8, 9], text[:200]
    # Keys of a newer version are no hindrance.
    history_path().write_text(json.dumps({**measurement().to_json(), "colour": "blue"}) + "\n")
    assert load(HERE) == (measurement(),)


def test_the_history_stays_small_and_keeps_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_BYTES", 10_000)
    for number in range(1, 26):
        append(measurement(steps=number))
    kept = [one.steps for one in load(HERE)]
    assert 5 <= len(kept) <= 12 and kept == list(range(25, 25 - len(kept), -1))


def test_a_folder_that_cannot_be_read_is_no_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trainwiz").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert load(HERE) == ()
    with pytest.raises(OSError):
        append(measurement())


CARD = Gpu(0, name="RTX 3090", memory_total_bytes=24 * GIB)


@functools.cache
def work_here(**values: Any) -> Any:
    made = plan(real(machine(gpu=None)), config("esm2-8m", training__max_steps=10, **values))
    assert made.work is not None
    return made.work


CPU_PLAN = {"batch__gradient_accumulation_steps": 4, "batch__micro_batch_size": 2}


@each(("changes", "model", "work", "step"), [
    ({"model": "ffff"}, False, False, False),
    ({"precision": "bf16"}, False, False, False),
    ({"world_size": 2}, False, False, False),
    ({"lora_rank": 8, "lora_targets": ("q",)}, False, False, False),
    ({"machine": "cuda:RTX 3090:24 GiB"}, False, False, False),
    ({"micro_batch": 999}, True, False, False),
    ({"target_length": 17}, True, False, False),
    ({"loss_chunk": 512}, True, False, False),
    ({"padded": False}, True, False, False),
    ({"lora_dropout": True}, True, False, False),
    ({"label_smoothing": True}, True, False, False),
    ({"clipping": False}, True, False, False),
    ({"padded": None, "clipping": None}, True, True, True),
    # More micro-batches need no more memory, but more time.
    ({"accumulation": 16}, True, True, False),
    ({"accumulation": 1}, True, False, False),
])  # fmt: skip
def test_what_differs_decides(changes: dict[str, Any], model: bool, work: bool, step: bool) -> None:
    wanted = work_here(**CPU_PLAN)
    one = replace(measurement_of(wanted), **changes)
    assert (same_model(one, wanted), same_work(one, wanted), same_step(one, wanted)) == (model, work, step)


def test_adapters_of_the_same_layers_are_the_same_model() -> None:
    adapted: Any = {"lora_rank": 8, "lora_targets": ("query", "value")}
    wanted = replace(work_here(), **adapted)
    others: list[Any] = [{}, {"lora_rank": 4}, {"lora_targets": ("q",)}]
    known = [replace(measurement_of(wanted), **{**adapted, **changes}) for changes in others]
    assert [same_model(one, wanted) for one in known] == [True, True, False]
    assert [same_work(one, wanted) for one in known] == [True, False, False]
    # A model whose config is not known matches nothing.
    unknown = replace(wanted, model_config="")
    assert not same_model(measurement_of(unknown), unknown)


def test_only_measurements_of_the_chosen_devices_count() -> None:
    cards = (CARD, replace(CARD, index=1), Gpu(2, name="RTX 3080", memory_total_bytes=10 * GIB))
    here = replace(HERE, accelerator="cuda", gpus=cards)
    keys = ("cuda:RTX 3090:24 GiB", "cuda:RTX 3080:10 GiB")
    cpu, first, second = measurement(), *(measurement(machine=key, threads=None) for key in keys)
    # TF32 is another pace.
    without, with_it, silent = (measurement(machine=keys[0], threads=None, tf32=value) for value in (False, True, None))
    for gpus, asked, known, counted in (
        (cards[:2], {"threads": 4}, (cpu, first, second), (first,)),
        (cards[2:], {"threads": 4}, (cpu, first, second), (second,)),
        (cards, {"threads": 4}, (cpu, first, second), ()),
        (cards[:1], {"tf32": True}, (without, with_it, silent), (with_it, silent)),
        (cards[:1], {"tf32": False}, (without, with_it, silent), (without, silent)),
    ):
        assert of_devices(known, here, "cuda", gpus, **asked) == counted
    assert [of_devices((cpu, first), here, "cpu", (), threads) for threads in (8, 4)] == [(cpu,), ()]


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
