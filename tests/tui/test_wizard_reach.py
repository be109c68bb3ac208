"""Every setting of a run that a user may choose is a field of the wizard, in its order, found by / and with its help."""

from __future__ import annotations

import pytest
from textual.widgets import Input
from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import is_settable, settable_keys
from trainwiz.core.errors import Finding
from trainwiz.core.language import use_language
from trainwiz.tui.screens.plan_fields import (
    FIELD_BY_ID,
    FIELDS,
    TRAINING,
    applies,
    parse_field,
    shown_value,
    word_for,
)
from trainwiz.tui.screens.plan_views import findable_fields

from tests.each import each
from tests.tui.wizard_keys import shown
from tests.tui.wizard_parts import FrozenReader, frozen_app, settled

NO_FIELD = {
    "data.sources": "name, columns and rows of the first source are fields; several are mixed in a profile",
    "mode.overfit_batches": "said by --overfit, which is a mode of the command",
    "mode.benchmark_steps": "said by --benchmark, which is a mode of the command",
}
"""Settings without a field, each with its reason."""

TRAINING_FIELDS = [spec for spec in FIELDS if spec.step == TRAINING]


def test_every_setting_has_a_field_or_a_reason():
    shown = {key for spec in FIELDS for key in spec.keys}
    assert [key for key in settable_keys() if key not in shown and key not in NO_FIELD] == []
    assert [key for key in NO_FIELD if key in shown or not is_settable(key)] == [], "a reason that is none any more"


def test_no_setting_has_two_fields():
    keys = [key for spec in FIELDS for key in spec.keys]
    assert sorted({key for key in keys if keys.count(key) > 1}) == []
    assert len(FIELD_BY_ID) == len(FIELDS)


def test_the_goal_comes_first_then_the_engine_and_what_is_rarely_changed_last():
    goal = ["target", "steps", "learning_rate", "warmup", "schedule", "final_learning_rate"]
    engine = ["precision", "attention", "checkpointing", "optimizer", "strategy"]
    names = [spec.id for spec in TRAINING_FIELDS]
    assert names[: len(goal)] == goal and not any(FIELD_BY_ID[name].rare for name in goal)
    assert names[len(goal) : len(goal) + len(engine)] == engine and not any(FIELD_BY_ID[name].rare for name in engine)
    shown = [index for index, spec in enumerate(TRAINING_FIELDS) if not spec.rare]
    groups = [
        index
        for index, spec in enumerate(TRAINING_FIELDS)
        if spec.rare and spec.group != TRAINING_FIELDS[index - 1].group
    ]
    assert max(shown) < min(groups), "the groups of rarely changed values come after all others"


@each(
    ("name", "text", "values"),
    [
        (
            "environment",
            "NCCL_DEBUG=1 NCCL_ALGO='two words'",
            {"engine.environment": {"NCCL_DEBUG": "1", "NCCL_ALGO": "two words"}},
        ),
        ("loss_chunk", "1,024 tokens", {"training.loss_chunk": 1024}),
        ("loss_chunk", "1 token", {"training.loss_chunk": 1}),
        ("loss_chunk", "off", {"training.loss_chunk": None}),
        ("loss_chunk", "none", {"training.loss_chunk": None}),
        ("deepspeed_file", "none", {"engine.deepspeed_file": None}),
        ("pin_memory", "on", {"data.pin_memory": True}),
        ("system_every", "0.5 s", {"logging.system_every_s": 0.5}),
        ("context_size", "500M", {"planning.context_bytes": "500M"}),
        ("adam_epsilon", "1e-6", {"training.adam_epsilon": 1e-6}),
        (
            "architecture",
            "num_hidden_layers=6 tie=true",
            {"model.architecture_overrides": {"num_hidden_layers": 6, "tie": True}},
        ),
        ("report_to", "none", {"logging.report_to": ["none"]}),
    ],
)
def test_what_is_typed_becomes_the_value_of_the_setting(name, text, values):
    assert parse_field(FIELD_BY_ID[name], text, RunConfig()) == values
    RunConfig().with_values(values, "you")


@each(
    ("name", "text", "words"),
    [
        ("environment", "A", "Type NAME=VALUE"),
        ("environment", "A='1", "quotation mark"),
        ("nodes", "1.5", "whole number"),
        ("warmup", "none", "Type a number"),
        ("seed", "x", "Type a number"),
    ],
)
def test_what_cannot_be_a_value_is_said(name, text, words):
    with pytest.raises(ValueError, match=words):
        parse_field(FIELD_BY_ID[name], text, RunConfig())


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("engine.environment", {"NCCL_DEBUG": "1", "NCCL_ALGO": "two words"}, "NCCL_DEBUG=1 'NCCL_ALGO=two words'"),
        ("planning.context_bytes", 500 << 20, "500M"),
        ("planning.context_bytes", 500_000_001, "500000001"),
        ("training.adam_epsilon", 1e-8, "1e-8"),
    ],
)
def test_a_value_reads_back_as_it_is_shown(key, value, text):
    assert word_for(key, value) == text
    spec = next(spec for spec in FIELDS if key in spec.keys)
    config = RunConfig().with_values({key: value}, "you")
    again = parse_field(spec, shown_value(spec, config), config)
    assert RunConfig().with_values(again, "you").value(key) == value


@each("typed", ["96 条序列", "96 序列", "96条序列", "96 sequences", "96"])
def test_a_unit_may_be_typed_in_chinese_with_its_measure_word_or_without(typed):
    try:
        use_language("zh")
        spec = next(spec for spec in FIELDS if "batch.target_samples" in spec.keys)
        config = RunConfig().with_values({"batch.target_samples": 64}, "you")
        assert shown_value(spec, config) == "64 条序列"
        assert parse_field(spec, typed, config) == {"batch.target_samples": 96}
    finally:
        use_language("en")


async def test_slash_reaches_every_field_that_means_something():
    app = frozen_app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        there = [spec for spec in FIELDS if applies(spec, app.screen.state.plan)]
        listed = {offer.value for offer in findable_fields(app.screen.state)}
        assert listed == {spec.id for spec in there}
        # In the order of the screen; some of them, also those behind "more".
        for spec in there[::5]:
            await pilot.press("slash")
            await pilot.pause()
            app.screen.query_one(Input).value = spec.label.lower()
            await pilot.pause()
            await pilot.press("enter")
            await settled(pilot)
            assert app.screen._spec is spec, spec.id
            # A form that was just made has its place after the next layout.
            await pilot.pause()
            await pilot.pause()
            row, form = app.focused.region, app.screen.query_one("#form").region
            assert form.y <= row.y and row.bottom <= form.bottom, f"{spec.id} is in view"


async def test_a_variable_that_a_run_does_not_set_is_said_beside_its_field():
    reader = FrozenReader()
    app = frozen_app(reader)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await app.screen._found("environment")
        await settled(pilot)
        where, message = "engine.environment.PATH", "engine.environment.PATH: a run does not set PATH."
        reader.problem = (Finding("bad_value", "error", where, message),)
        await pilot.press("space", *"PATH", "equals_sign", "1")
        await settled(pilot)
        row = app.screen.query_one("#field-environment")
        assert row.view.invalid == "“Environment” (PATH): a run does not set PATH."
        assert "a run does not set PATH." in shown(app).split("Batch")[0]


def test_no_field_is_without_a_plan_that_it_means_something_to():
    """Of those that the search above left out: a plan of text, of two machines, on GPUs, of a dev run."""
    from dataclasses import replace

    from trainwiz.core.config.request import PlanRequest

    from tests.tui.wizard_parts import make_frozen_plan

    plan = make_frozen_plan(PlanRequest())
    values = {"engine.device": "cuda", "engine.nodes": 2, "evaluation.generate": True, "mode.kind": "dev-run"}
    config = plan.config.with_values({**values, "task": "seq2seq"}, "you")
    text = replace(plan, config=config, batch=replace(plan.batch, world_size=2))
    assert [spec.id for spec in TRAINING_FIELDS if not applies(spec, plan) and not applies(spec, text)] == []
