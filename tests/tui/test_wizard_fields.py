"""The wizard's fields: every setting has one, shown where it means something, found by /, with its help and its reason."""

from __future__ import annotations

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
    FIELD_BY_ID,
    FIELDS,
    applies,
    parse_field,
    shown_value,
    word_for,
)
from trainwiz.tui.screens.plan_state import PlanState, Reading, start_obstacle, with_values
from trainwiz.tui.screens.plan_views import field_view, findable_fields
from trainwiz.tui.widgets.field_row import FieldView
from trainwiz.tui.widgets.plan_panel import panel_lines

from tests.each import each
from tests.tui.wizard_keys import go, until
from tests.tui.wizard_parts import MISSING, frozen, make_frozen_plan, plain

NO_FIELD = {
    "data.sources": "name, columns and rows of the first source are fields; several are mixed in a profile",
    "mode.overfit_batches": "said by --overfit, which is a mode of the command",
    "mode.benchmark_steps": "said by --benchmark, which is a mode of the command",
}
"""Settings without a field, each with its reason."""


def request_of(**overrides: object) -> PlanRequest:
    values = {key.replace("__", "."): value for key, value in overrides.items()}
    return PlanRequest(profile="2080super", overrides=values)


def plan_for(**overrides: object) -> Plan:
    return make_frozen_plan(request_of(**overrides))


def state_of(**overrides: object) -> PlanState:
    return PlanState(request_of(**overrides), reading=Reading(plan=plan_for(**overrides)), updating=False)


def row(field_id: str, **overrides: object) -> FieldView:
    return field_view(state_of(**overrides), FIELD_BY_ID[field_id])


def test_every_setting_has_one_field_or_a_reason() -> None:
    keys = [key for spec in FIELDS for key in spec.keys]
    assert [key for key in settable_keys() if key not in keys and key not in NO_FIELD] == []
    assert [key for key in NO_FIELD if key in keys or not is_settable(key)] == [], "a reason that is none any more"
    assert [key for key in keys if ("." in key or key == "task") and not is_settable(key)] == []
    assert sorted({key for key in keys if keys.count(key) > 1}) == []
    assert len(FIELD_BY_ID) == len(FIELDS)


LORA = {"peft.method": "lora"}
BERT = {"model.name": "bert-tiny", "model.architecture": {"model_type": "bert"}}


@each(
    ("values", "shown", "hidden"),
    [
        ({}, "mask_probability", "tf32 peft tokenizer concatenate target_length beams lora_rank network dev_steps"),
        ({"engine.device": "cuda"}, "tf32 empty_cache liger", "gpus peft"),
        ({"task": "causal-lm"}, "peft tokenizer concatenate layout chat_template train_on", "mask_probability beams"),
        ({"task": "seq2seq"}, "target_column target_length source_language", "beams layout train_on"),
        ({"task": "seq2seq", "evaluation.generate": True}, "beams generation_length bleu_tokenizer", "lora_rank"),
        ({"task": "causal-lm", **LORA}, "adapter lora_rank lora_targets base_precision rslora dora merge", "beams"),
        ({"engine.nodes": 2}, "nodes_timeout network", "dev_steps process_timeout"),
        ({"mode.kind": "dev-run"}, "dev_steps", "network"),
        ({"task": "masked-lm", **BERT}, "whole_words", "new_head class_weights lora_rank"),
        ({"task": "sequence-classification", **BERT}, "new_head class_weights", "whole_words mask_probability"),
    ],
)
def test_fields_follow_the_task_the_engine_and_the_adapters(values, shown, hidden) -> None:
    plan = make_frozen_plan(PlanRequest(profile="2080super", overrides=values))
    applying = {spec.id for spec in FIELDS if applies(spec, plan)}
    assert set(shown.split()) <= applying and not set(hidden.split()) & applying
    assert not applying & {"gpu", "num_gpus", "ram", "gpu_memory", "tflops", "capability"}, "of other machines"


def test_a_field_without_a_condition_waits_for_no_plan_and_slash_lists_what_applies() -> None:
    assert {spec.id for spec in FIELDS if applies(spec, None)} == {spec.id for spec in FIELDS if spec.when is None}
    labels = {offer.label for offer in findable_fields(state_of())}
    assert "Seed" in labels and not any("LoRA" in label for label in labels)


@each(
    ("name", "text", "values"),
    [
        ("environment", "CUDA_A=1 NCCL_B='2 3'", {"engine.environment": {"CUDA_A": "1", "NCCL_B": "2 3"}}),
        ("loss_chunk", "1 token", {"training.loss_chunk": 1}),
        ("loss_chunk", "none", {"training.loss_chunk": None}),
        ("system_every", "0.5 s", {"logging.system_every_s": 0.5}),
        ("context_size", "500M", {"planning.context_bytes": "500M"}),
        ("architecture", "layers=6 tie=true", {"model.architecture_overrides": {"layers": 6, "tie": True}}),
        ("report_to", "none", {"logging.report_to": ["none"]}),
        # Units choose the key.
        ("steps", "2.5 epochs", {"training.epochs": 2.5}),
        ("steps", "2k steps", {"training.max_steps": 2000}),
        ("target", "200k non-padding tokens", {"batch.target_real_tokens": 200_000}),
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
        ("logging.report_to", "tensorboard,wandb", ["tensorboard", "wandb"], "tensorboard, wandb"),
        ("batch.target_length", "128 tokens", 128, "128 tokens"),
        ("peft.merge", "on", True, "on"),
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
    view = field_view(late, FIELD_BY_ID["precision"])
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
    finding = Finding("x", "error", "hardware", "It is not here.", (Remedy("try this", "a --b"), Remedy("or that")))
    _, lines = help_parts(PlanState(PlanRequest()), None, (finding,))
    assert lines[-1] == ("Finding", "It is not here.\n  try this: a --b\n  or that")


def test_an_error_hinders_a_start_that_is_not_forced_and_no_writing() -> None:
    state = PlanState(request_of(), reading=Reading(plan=make_frozen_plan(request_of(), (MISSING,))), updating=False)
    forced = replace(state, request=replace(state.request, force=True))
    assert start_obstacle(state, "start") == start_obstacle(state, "detached") == MISSING.message
    assert start_obstacle(state, "write") == start_obstacle(forced, "start") == ""


def test_the_panel_says_the_plan_its_targets_and_what_several_machines_send() -> None:
    def panel(plan: Plan) -> str:
        return " ".join(plain(panel_lines(plan, 44)).split())

    plan = plan_for(task="seq2seq", batch__target_length=64)
    text = panel(
        replace(plan, time=replace(plan.time, total_s=1e3, evaluation_s=120.0, generation_s=300.0, saving_s=1))
    )
    assert "up to 512 source and 64 target tokens each" in text
    assert "including evaluation 2 min, generation 5 min" in text and "saving" not in text
    plan, text = plan_for(), panel(plan_for())
    for words in (
        "6 × 651 × 1 process = 3,906 sequences 1,999,872 tokens per step −0.01% from target",
        "✓ fits needs 5.4 GiB, at most 5.9 GiB",
        "peak: backward of layer 33",
        "RAM 21.4 of 62.7 GiB ✓ fits Disk 18.9 of 181.0 GiB ✓ fits",
        "! 7.3 to 18 years, implausible 500,000 steps × 7.7 to 19 min",
    ):
        assert words in text, words
    assert "source" not in text and "network" not in text
    sent = {"network_bytes": 40 * 2**30, "network_high_s": 57.0, "network_gbit_s": 10.0, "network_assumed": True}
    text = panel(replace(plan, time=replace(plan.time, **sent, total_low_s=None, total_high_s=None)))
    assert "network: each node sends 40.0 GiB per step" in text and "10 Gbit/s, assumed" in text


async def test_slash_reaches_every_field_that_means_something_and_brings_it_into_view() -> None:
    async with frozen(size=(100, 30)) as (app, pilot):
        there = [spec for spec in FIELDS if applies(spec, app.screen.state.plan)]
        assert {offer.value for offer in findable_fields(app.screen.state)} == {spec.id for spec in there}
        # In the order of the screen; some of them, also those behind "more".
        for spec in there[:: len(there) // 7]:
            await pilot.press("slash")
            await pilot.pause()
            app.screen.query_one(Input).value = spec.label.lower()
            await pilot.pause()
            await go(pilot, "enter")
            assert app.screen._spec is spec, spec.id
            box = app.screen.query_one("#form").region
            await until(
                pilot, lambda box=box: box.y <= app.focused.region.y and app.focused.region.bottom <= box.bottom
            )
        # A heading goes with the last of its rows.
        shown = {title.content for title in app.screen.query(".group") if title.display}
        assert shown == {spec.group for spec in there if spec.group and app.screen.query(f"#step-{spec.step}")}
