"""The wizard's fields for text tasks, adapters and several GPUs: shown where they mean something, read as they are typed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from trainwiz.core.config.keys import is_settable
from trainwiz.core.config.request import PlanRequest
from trainwiz.tui.screens.plan_fields import DATA, FIELDS, MODEL, TRAINING, applies, parse_field, shown_value
from trainwiz.tui.screens.plan_state import PlanState, Reading
from trainwiz.tui.screens.plan_views import findable_fields
from trainwiz.tui.widgets.field_row import FieldRow
from trainwiz.tui.widgets.plan_panel import panel_lines
from trainwiz.tui.widgets.step_form import StepForm
from trainwiz.tui.widgets.step_part import StepPart

from tests.each import each
from tests.tui.wizard_keys import go, shown, to_field, type_into
from tests.tui.wizard_parts import frozen_app, make_frozen_plan, plain, settled

WIDE = (120, 40)
OF_TEXT = {"peft", "tokenizer", "target_column", "generate", "label_smoothing"}
OF_ADAPTERS = {"lora_rank", "lora_targets", "lora_alpha", "lora_dropout", "merge"}
OF_TARGETS = {"target_length", "source_language", "target_language"}
OF_GENERATION = {"beams", "generation_length", "generation_rows", "generate_at", "bleu_tokenizer"}
OF_PROTEINS = {"mask_probability"}
OF_CUDA = {"tf32", "empty_cache"}
OF_NODES = {"nodes_timeout", "network"}
OF_OTHERS = {"concatenate", "gpus", "split", "subset", "process_timeout", "dev_steps", *OF_NODES}
OF_OTHER_MACHINES = {"gpu", "num_gpus", "ram", "gpu_memory", "tflops", "capability"}
"""Shown by what the request says of a machine, and tested with the hardware step."""


def rows_on(app) -> set[str]:
    """Ids of the fields that can be reached on the present step."""
    return {row.spec.id for row in app.screen.query(FieldRow) if row.display and row.parent.display}


def plan_for(**overrides):
    return make_frozen_plan(
        PlanRequest(profile="p", overrides={key.replace("__", "."): value for key, value in overrides.items()})
    )


def applying(plan) -> set[str]:
    return {spec.id for spec in FIELDS if applies(spec, plan)}


@each("spec", [spec for spec in FIELDS if "." in spec.keys[0] or spec.keys[0] == "task"])
def test_every_field_sets_a_key_that_exists(spec):
    assert all(is_settable(key) for key in spec.keys)


def test_fields_follow_the_task_and_the_adapters():
    special = OF_TEXT | OF_ADAPTERS | OF_TARGETS | OF_GENERATION | OF_PROTEINS | OF_CUDA | OF_OTHERS
    always = {spec.id for spec in FIELDS if spec.when is None}
    assert (always | special) - OF_OTHER_MACHINES == {spec.id for spec in FIELDS} - OF_OTHER_MACHINES
    always -= OF_OTHER_MACHINES
    assert applying(None) - OF_OTHER_MACHINES == always
    assert applying(plan_for()) - OF_OTHER_MACHINES == always | OF_PROTEINS
    assert applying(plan_for(engine__device="cuda")) - OF_OTHER_MACHINES == always | OF_PROTEINS | OF_CUDA
    assert applying(plan_for(task="causal-lm")) - OF_OTHER_MACHINES == always | OF_TEXT | {"concatenate"}
    seq2seq = plan_for(task="seq2seq", evaluation__generate=True)
    assert applying(seq2seq) - OF_OTHER_MACHINES == always | OF_TEXT | OF_TARGETS | OF_GENERATION
    assert applying(plan_for(task="causal-lm", peft__method="lora")) >= OF_ADAPTERS


@each(
    ("name", "text", "value", "again"),
    [
        ("lora_targets", "q_proj, v_proj", ["q_proj", "v_proj"], "q_proj, v_proj"),
        ("report_to", "tensorboard,wandb", ["tensorboard", "wandb"], "tensorboard, wandb"),
        ("gpus", "0,1", ["0", "1"], "0, 1"),
        ("label_smoothing", "0.1", 0.1, "0.1"),
        ("lora_alpha", "64", 64.0, "64"),
        ("lora_dropout", "0.05", 0.05, "0.05"),
        ("target_length", "128 tokens", 128, "128 tokens"),
        ("merge", "on", True, "on"),
        ("concatenate", "off", False, "off"),
        ("peft", "lora", "lora", "LoRA adapters"),
        ("peft", "LoRA adapters", "lora", "LoRA adapters"),
        ("tokenizer", "train", "train", "trained on the data"),
        ("tokenizer", "some/folder", "some/folder", "some/folder"),
    ],
)
def test_texts_become_values_and_values_become_texts(name, text, value, again):
    spec = next(spec for spec in FIELDS if spec.id == name)
    assert parse_field(spec, text, None) == {spec.keys[0]: value}
    config = plan_for(**{spec.keys[0]: value}).config
    assert config.value(spec.keys[0]) == value
    assert shown_value(spec, config) == again


async def test_lora_opens_its_fields_and_closing_it_moves_the_focus():
    app = frozen_app(request=PlanRequest(profile="p", overrides={"task": "causal-lm"}))
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await go(pilot, "enter")
        assert rows_on(app) >= {"model", "task", "peft"} and not rows_on(app) & OF_ADAPTERS
        await to_field(pilot, "peft")
        await go(pilot, "right")
        assert app.screen.state.request.overrides["peft.method"] == "lora"
        assert rows_on(app) >= {"lora_rank", "lora_targets", "merge"}
        await to_field(pilot, "lora_targets")
        assert app.focused.view.value == "all-linear"
        await type_into(pilot, "q_proj,v_proj")
        await go(pilot, "enter")
        assert app.screen.state.plan.config.peft.targets == ["q_proj", "v_proj"]
        await to_field(pilot, "peft")
        await go(pilot, "left")
        assert not rows_on(app) & OF_ADAPTERS
        assert app.focused.spec.id == "peft"


async def test_somebody_who_types_faster_than_the_first_step_is_completed():
    """What completes the first step finds the second one half made: its parts come once."""
    async with frozen_app().run_test(size=WIDE) as pilot:
        await settled(pilot)
        form = StepForm(DATA, pilot.app.screen._wizard.marks, more=False)
        await pilot.app.screen.query_one("FormScroll").mount(form)
        await asyncio.gather(form.add_parts(), form.add_parts())
        parts = [type(part) for part in form.query(StepPart)]
        assert parts and len(parts) == len(set(parts))


async def test_a_heading_without_fields_is_not_shown():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await to_field(pilot, "target")
        assert "How it is done" in shown(app) and "How it is measured" not in shown(app)
        await pilot.app.screen._toggle_more()
        await pilot.pause()
        titles = [title.content for title in app.screen.query("GroupTitle") if title.display]
        assert titles == [
            "What do you want to do?",
            "Where it begins",
            "What you want",
            "How it is done",
            "How it is measured",
            "Optimizer and loss",
            "Devices and processes",
            "Loading",
            "When it fails",
            "What is kept and reported",
            "For the plan alone",
        ]


async def test_the_task_changes_what_the_later_steps_ask():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await to_field(pilot, "task")
        assert app.screen.state.step == MODEL
        await go(pilot, "left")
        assert app.screen.state.plan.task == "seq2seq"
        await go(pilot, "enter")
        assert app.screen.state.step == DATA and rows_on(app) >= {"target_column", "target_length"}
        await go(pilot, "enter")
        assert app.screen.state.step == TRAINING
        assert "generate" in rows_on(app) and not rows_on(app) & OF_GENERATION
        await to_field(pilot, "generate")
        await go(pilot, "right")
        assert "beams" in rows_on(app)


def test_slash_lists_only_fields_that_mean_something():
    labels = {offer.label for offer in findable_fields(PlanState(PlanRequest(), reading=Reading(plan=plan_for())))}
    assert "Seed" in labels and not any("LoRA" in label for label in labels)


def test_the_plan_names_targets_and_what_takes_time():
    from trainwiz.tui.theme import UNICODE_MARKS

    plan = plan_for(task="seq2seq", batch__target_length=64)
    plan = replace(plan, time=replace(plan.time, total_s=1000.0, evaluation_s=120.0, generation_s=300.0, saving_s=1.0))
    text = plain(panel_lines(plan, 44, UNICODE_MARKS))
    assert "up to 512 source and 64 target tokens each" in text
    assert "of it evaluation 2 min, generation 5 min" in text and "saving" not in text
    assert "source" not in plain(panel_lines(plan_for(), 44, UNICODE_MARKS))


def test_the_plan_says_what_several_machines_send():
    from trainwiz.tui.theme import UNICODE_MARKS

    plan = plan_for()
    assert "network" not in plain(panel_lines(plan, 44, UNICODE_MARKS))
    sent = {"network_bytes": 40 * 2**30, "network_high_s": 57.0, "network_gbit_s": 10.0, "network_assumed": True}
    for known in ({}, {"total_low_s": None, "total_high_s": None}):
        several = replace(plan, time=replace(plan.time, **sent, **known))
        text = " ".join(plain(panel_lines(several, 44, UNICODE_MARKS)).split())
        assert "network: 40.0 GiB a step" in text and "10 Gbit/s, assumed" in text
