"""The wizard's fields: every setting has one, shown where it means something, found by /, with its help and its reason."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from textual.widgets import Input
from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import is_settable, settable_keys
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.language import use_language
from trainwiz.core.plan.result import Plan
from trainwiz.tui.screens.plan_command import help_parts
from trainwiz.tui.screens.plan_fields import (
    DATA,
    FIELD_BY_ID,
    FIELDS,
    TRAINING,
    applies,
    parse_field,
    shown_value,
    word_for,
)
from trainwiz.tui.screens.plan_state import PlanState, Reading, start_obstacle, with_values
from trainwiz.tui.screens.plan_views import field_view, findable_fields
from trainwiz.tui.theme import UNICODE_MARKS
from trainwiz.tui.widgets.field_row import FieldView
from trainwiz.tui.widgets.plan_panel import panel_lines
from trainwiz.tui.widgets.step_form import StepForm
from trainwiz.tui.widgets.step_part import StepPart

from tests.each import each
from tests.tui.wizard_keys import WIDE, go
from tests.tui.wizard_parts import MISSING, frozen, frozen_app, make_frozen_plan, plain, settled

NO_FIELD = {
    "data.sources": "name, columns and rows of the first source are fields; several are mixed in a profile",
    "mode.overfit_batches": "said by --overfit, which is a mode of the command",
    "mode.benchmark_steps": "said by --benchmark, which is a mode of the command",
}
"""Settings without a field, each with its reason."""
TRAINING_FIELDS = [spec for spec in FIELDS if spec.step == TRAINING]
OF_TEXT = {"peft", "tokenizer", "target_column", "generate", "label_smoothing"}
OF_ADAPTERS = {
    "base_precision",
    "rslora",
    "dora",
    "modules_to_save",
    "adapter",
    "lora_rank",
    "lora_targets",
    "lora_alpha",
    "lora_dropout",
    "merge",
}
OF_TARGETS = {"target_length", "source_language", "target_language"}
OF_GENERATION = {"beams", "generation_length", "generation_rows", "generate_at", "bleu_tokenizer"}
OF_PROTEINS = {"mask_probability"}
OF_CAUSAL = {"concatenate", "layout", "chat_template", "too_long", "train_on"}
OF_CUDA = {"tf32", "empty_cache", "liger"}
OF_OTHERS = {
    "concatenate", "gpus", "split", "subset", "process_timeout", "dev_steps", "nodes_timeout", "network",
    "whole_words", "new_head", "class_weights",
}  # fmt: skip
OF_OTHER_MACHINES = {"gpu", "num_gpus", "ram", "gpu_memory", "tflops", "fp32_tflops", "bandwidth", "capability"}
"""Shown by what the request says of a machine, and tested with the hardware step."""


def request_of(**overrides: object) -> PlanRequest:
    values = {key.replace("__", "."): value for key, value in overrides.items()}
    return PlanRequest(profile="2080super", overrides=values)


def plan_for(**overrides: object) -> Plan:
    return make_frozen_plan(request_of(**overrides))


def state_of(**overrides: object) -> PlanState:
    return PlanState(request_of(**overrides), reading=Reading(plan=plan_for(**overrides)), updating=False)


def row(field_id: str, **overrides: object) -> FieldView:
    return field_view(state_of(**overrides), FIELD_BY_ID[field_id], UNICODE_MARKS)


def test_every_setting_has_one_field_or_a_reason() -> None:
    keys = [key for spec in FIELDS for key in spec.keys]
    assert [key for key in settable_keys() if key not in keys and key not in NO_FIELD] == []
    assert [key for key in NO_FIELD if key in keys or not is_settable(key)] == [], "a reason that is none any more"
    assert [key for key in keys if ("." in key or key == "task") and not is_settable(key)] == []
    assert sorted({key for key in keys if keys.count(key) > 1}) == []
    assert len(FIELD_BY_ID) == len(FIELDS)


def test_fields_follow_the_task_and_the_adapters() -> None:
    def applying(plan: Plan | None) -> set[str]:
        return {spec.id for spec in FIELDS if applies(spec, plan)} - OF_OTHER_MACHINES

    special = OF_CAUSAL | OF_TEXT | OF_ADAPTERS | OF_TARGETS | OF_GENERATION | OF_PROTEINS | OF_CUDA | OF_OTHERS
    always = {spec.id for spec in FIELDS if spec.when is None} - OF_OTHER_MACHINES
    assert always | special == {spec.id for spec in FIELDS} - OF_OTHER_MACHINES
    seq2seq = plan_for(task="seq2seq", evaluation__generate=True)
    assert applying(None) == always
    assert applying(plan_for()) == always | OF_PROTEINS
    assert applying(plan_for(engine__device="cuda")) == always | OF_PROTEINS | OF_CUDA
    assert applying(plan_for(task="causal-lm")) == always | OF_TEXT | OF_CAUSAL
    assert applying(seq2seq) == always | OF_TEXT | OF_TARGETS | OF_GENERATION
    assert applying(plan_for(task="causal-lm", peft__method="lora")) >= OF_ADAPTERS
    # No field is without a plan that it means something to: one of text, of two machines, on GPUs, of a dev run.
    values = {
        "engine__device": "cuda",
        "engine__nodes": 2,
        "evaluation__generate": True,
        "mode__kind": "dev-run",
        "peft__method": "lora",
    }
    several = plan_for(task="seq2seq", **values)
    several = replace(several, batch=replace(several.batch, world_size=2))
    causal = applying(plan_for(task="causal-lm"))
    bert = {"model__name": "bert-tiny", "model__architecture": {"model_type": "bert"}}
    others = (plan_for(task=task, **bert) for task in ("sequence-classification", "masked-lm"))
    every = causal.union(applying(plan_for()), applying(several), *map(applying, others))
    assert {spec.id for spec in TRAINING_FIELDS} <= every
    labels = {offer.label for offer in findable_fields(state_of())}
    assert "Seed" in labels and not any("LoRA" in label for label in labels)


@each(
    ("name", "text", "values"),
    [
        ("environment", "CUDA_A=1 NCCL_B='2 3'", {"engine.environment": {"CUDA_A": "1", "NCCL_B": "2 3"}}),
        ("loss_chunk", "1,024 tokens", {"training.loss_chunk": 1024}),
        ("loss_chunk", "1 token", {"training.loss_chunk": 1}),
        ("loss_chunk", "none", {"training.loss_chunk": None}),
        ("pin_memory", "on", {"data.pin_memory": True}),
        ("system_every", "0.5 s", {"logging.system_every_s": 0.5}),
        ("context_size", "500M", {"planning.context_bytes": "500M"}),
        ("architecture", "layers=6 tie=true", {"model.architecture_overrides": {"layers": 6, "tie": True}}),
        ("report_to", "none", {"logging.report_to": ["none"]}),
        # Units choose the key.
        ("steps", "2.5 epochs", {"training.epochs": 2.5}),
        ("steps", "2k steps", {"training.max_steps": 2000}),
        ("target", "200k non-padding tokens", {"batch.target_real_tokens": 200_000}),
        ("target", "200k tokens", {"batch.target_tokens": 200_000}),
        ("target", "200k sequences", {"batch.target_samples": 200_000}),
    ],
)
def test_what_is_typed_becomes_the_value_of_the_setting(name, text, values) -> None:
    spec = FIELD_BY_ID[name]
    assert parse_field(spec, text, RunConfig()) == values
    RunConfig().with_values(values, "you")
    request = with_values(PlanRequest(overrides={spec.keys[0]: 1}), spec, values)
    assert request.overrides == values, "one key of a field at a time"


@each(
    ("name", "text", "words"),
    [
        ("environment", "A", "Type NAME=VALUE"),
        ("environment", "A='1", "quotation mark"),
        ("nodes", "1.5", "whole number"),
        ("warmup", "none", "Type a number"),
        ("seed", "x", "Type a number"),
        ("target", "128 seq", r"Type a number.* Allowed units: .*tokens.*sequences"),
        ("learning_rate", "fast", r"4e-4\.$"),
    ],
)
def test_what_cannot_be_a_value_is_said(name, text, words) -> None:
    with pytest.raises(ValueError, match=words):
        parse_field(FIELD_BY_ID[name], text, RunConfig())


@each(
    ("key", "typed", "value", "text"),
    [
        ("engine.environment", "", {"CUDA_A": "1", "NCCL_B": "2 3"}, "CUDA_A=1 'NCCL_B=2 3'"),
        ("planning.context_bytes", "", 500 << 20, "500M"),
        ("planning.context_bytes", "", 500_000_001, "500000001"),
        ("logging.report_to", "tensorboard,wandb", ["tensorboard", "wandb"], "tensorboard, wandb"),
        ("peft.alpha", "64", 64.0, "64"),
        ("batch.target_length", "128 tokens", 128, "128 tokens"),
        ("peft.merge", "on", True, "on"),
        ("data.concatenate", "off", False, "off"),
        ("peft.method", "LoRA", "lora", "LoRA"),
        ("model.tokenizer", "train", "train", "trained on the data"),
    ],
)
def test_a_value_reads_back_as_it_is_shown(key, typed, value, text) -> None:
    spec = next(spec for spec in FIELDS if key in spec.keys)
    config = plan_for(task="causal-lm").config.with_values({key: value}, "you")
    assert config.value(key) == value and shown_value(spec, config) == text
    if not typed:
        assert word_for(key, value) == text
    read = parse_field(spec, typed or text, config)
    assert config.with_values(read, "you").value(key) == value


@each("typed", ["96 条序列", "96 序列", "96条序列", "96 sequences", "96"])
def test_a_unit_may_be_typed_in_chinese_with_its_measure_word_or_without(typed) -> None:
    try:
        use_language("zh")
        config = RunConfig().with_values({"batch.target_samples": 64}, "you")
        assert shown_value(FIELD_BY_ID["target"], config) == "64 条序列"
        assert parse_field(FIELD_BY_ID["target"], typed, config) == {"batch.target_samples": 96}
    finally:
        use_language("en")


@each(
    ("field_id", "origin", "reason"),
    [
        ("precision", "detected", "the card has compute capability 7.5; bf16 needs 8.0"),
        ("micro_batch", "solved", "the largest that fits"),
        ("steps", "profile", ""),
        # Nobody chose it: "default" is its origin, and no reason too.
        ("weight_decay", "default", ""),
    ],
)
def test_a_row_says_who_chose_its_value_and_why(field_id: str, origin: str, reason: str) -> None:
    view = row(field_id)
    assert (view.origin, view.reason, view.changed) == (origin, reason, False)
    view = row("precision", engine__precision="fp32")
    assert (view.value, view.origin, view.reason, view.changed) == ("fp32", "you", "", True)
    # The plan that is still on the screen was made before the choice.
    late = PlanState(request_of(engine__precision="fp32"), reading=Reading(plan=plan_for()))
    view = field_view(late, FIELD_BY_ID["precision"], UNICODE_MARKS)
    assert (view.origin, view.reason, view.changed) == ("you", "", True)


def test_the_help_of_every_field_says_all_four_things_and_who_chose_the_value() -> None:
    for spec in FIELDS:
        title, parts = help_parts(state_of(), spec, ())
        said = dict(parts)
        assert title == spec.label
        wanted = (said["What"], said["Why"], said["Safe choice"])
        assert wanted == (spec.what, spec.why, spec.safe) and all(wanted), spec.id
        assert said.get("Cost", "") == spec.cost, spec.id
    parts = dict(help_parts(state_of(), FIELD_BY_ID["precision"], ())[1])
    assert parts["Now"] == "fp16 (detected: the card has compute capability 7.5; bf16 needs 8.0)"
    assert parts["Command-line equivalent"] == "--set engine.precision=..."
    parts = dict(help_parts(state_of(engine__precision="fp32"), FIELD_BY_ID["precision"], ())[1])
    assert parts["Now"] == "fp32 (you)"
    finding = Finding("x", "error", "hardware", "It is not here.", (Remedy("try this", "a --b"), Remedy("or that")))
    _, lines = help_parts(PlanState(PlanRequest()), None, (finding,))
    assert lines[-1] == ("Finding", "It is not here.\n  try this: a --b\n  or that")


@each(
    ("kind", "force", "hinders"),
    [("start", False, True), ("detached", False, True), ("write", False, False), ("start", True, False)],
)
def test_an_error_hinders_a_start_that_is_not_forced_and_no_writing(kind: str, force: bool, hinders: bool) -> None:
    request = PlanRequest(profile="2080super", force=force)
    reading = Reading(plan=make_frozen_plan(request, (replace(MISSING, severity="error"),)))
    state = PlanState(request, reading=reading, updating=False)
    assert start_obstacle(state, kind) == (MISSING.message if hinders else "")


def test_the_plan_names_targets_what_takes_time_and_what_several_machines_send() -> None:
    def panel(plan: Plan) -> str:
        return " ".join(plain(panel_lines(plan, 44, UNICODE_MARKS)).split())

    plan = plan_for(task="seq2seq", batch__target_length=64)
    text = panel(
        replace(plan, time=replace(plan.time, total_s=1e3, evaluation_s=120.0, generation_s=300.0, saving_s=1))
    )
    assert "up to 512 source and 64 target tokens each" in text
    assert "including evaluation 2 min, generation 5 min" in text and "saving" not in text
    plan = plan_for()
    assert "source" not in panel(plan) and "network" not in panel(plan)
    sent = {"network_bytes": 40 * 2**30, "network_high_s": 57.0, "network_gbit_s": 10.0, "network_assumed": True}
    text = panel(replace(plan, time=replace(plan.time, **sent, total_low_s=None, total_high_s=None)))
    assert "network: each node sends 40.0 GiB per step" in text and "10 Gbit/s, assumed" in text


async def test_slash_reaches_every_field_that_means_something_and_brings_it_into_view() -> None:
    async with frozen(size=(100, 30)) as (app, pilot):
        there = [spec for spec in FIELDS if applies(spec, app.screen.state.plan)]
        listed = {offer.value for offer in findable_fields(app.screen.state)}
        assert listed == {spec.id for spec in there}
        # In the order of the screen; some of them, also those behind "more".
        for spec in there[:: len(there) // 7]:
            await pilot.press("slash")
            await pilot.pause()
            app.screen.query_one(Input).value = spec.label.lower()
            await pilot.pause()
            await go(pilot, "enter")
            assert app.screen._spec is spec, spec.id
            # A form that was just made has its place after the next layout.
            await pilot.pause()
            place, form = app.focused.region, app.screen.query_one("#form").region
            assert form.y <= place.y and place.bottom <= form.bottom, f"{spec.id} is in view"
        # A heading goes with the last of its rows.
        shown = {title.content for title in app.screen.query(".group") if title.display}
        assert shown == {spec.group for spec in there if spec.group and app.screen.query(f"#step-{spec.step}")}


async def test_somebody_who_types_faster_than_the_first_step_is_completed() -> None:
    """What completes the first step finds the second one half made: its parts come once."""
    async with frozen_app().run_test(size=WIDE) as pilot:
        await settled(pilot)
        form = StepForm(DATA, pilot.app.screen._wizard.marks, more=False)
        await pilot.app.screen.query_one("FormScroll").mount(form)
        await asyncio.gather(form.add_parts(), form.add_parts())
        parts = [getattr(part, "draw", type(part)) for part in form.query(StepPart)]
        assert parts and len(parts) == len(set(parts))


def test_a_variable_that_a_run_does_not_set_is_said_beside_its_field() -> None:
    where, message = "engine.environment.PATH", "engine.environment.PATH: a run does not set PATH."
    reading = Reading(findings=(Finding("bad_value", "error", where, message),))
    view = field_view(PlanState(request_of(), reading=reading), FIELD_BY_ID["environment"], UNICODE_MARKS)
    assert view.invalid == "“Environment” (PATH): a run does not set PATH."
