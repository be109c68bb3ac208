"""What one wants from the first step on, and the fields: each setting has one, shown where it means something."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import NOT_SETTABLE, is_settable
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.config.settings import SETTINGS
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.plan.result import Plan
from trainwiz.core.profile.store import load_profile
from trainwiz.tui.options import OF_COMMANDS, named_by
from trainwiz.tui.plan_words import run_words
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_command import command_line, help_parts
from trainwiz.tui.screens.plan_fields import (
    DATA,
    FIELD_BY_ID,
    FIELDS,
    MODEL,
    REVIEW,
    applies,
    on_screen,
    parse_field,
    shown_value,
    word_for,
)
from trainwiz.tui.screens.plan_state import (
    OF_THE_DEMO,
    PlanState,
    Reading,
    goal_of,
    is_ready,
    lacks_model,
    numbered_remedies,
    start_obstacle,
    with_changes,
    with_goal,
    with_values,
)
from trainwiz.tui.screens.plan_views import current_offer, field_view, findable_fields, model_offers, offers
from trainwiz.tui.widgets.chooser import Chooser, FitChooser
from trainwiz.tui.widgets.field_row import FieldRow, FieldView
from trainwiz.tui.widgets.plan_panel import panel_lines
from trainwiz.tui.widgets.step_form import GoalRow

from tests.each import each
from tests.tui.wizard_parts import MISSING, go, make_frozen_plan, plain, real, settled, shown, until

DEMO = PlanRequest(profile="cpu-demo")
MODEL_FIELD, DATA_FIELD, PROFILE_FIELD = (FIELD_BY_ID[name] for name in ("model", "data", "profile"))


def test_another_model_or_other_data_leave_nothing_of_the_demo() -> None:
    values = load_profile("cpu-demo").values
    own = {"model.name": values["model.name"], "data.sources.0.name": values["data.sources"][0]["name"]}
    assert own == OF_THE_DEMO and len(values["data.sources"]) == 1
    batch = with_values(DEMO, FIELD_BY_ID["micro_batch"], {"batch.micro_batch_size": 4})
    for changed in (
        with_values(batch, MODEL_FIELD, {"model.name": "./mine"}),
        with_values(batch, DATA_FIELD, {"data.sources.0.name": "mine.csv"}),
        with_changes(batch, {"model.name": "esm2-8m"}),
    ):
        assert changed.profile is None and changed.overrides["batch.micro_batch_size"] == 4
    same = with_values(batch, MODEL_FIELD, {"model.name": "esm2-tiny"})
    other = with_values(replace(DEMO, profile="a6000"), MODEL_FIELD, {"model.name": "./mine"})
    assert (batch.profile, same.profile, other.profile) == ("cpu-demo", "cpu-demo", "a6000")


def test_a_goal_is_what_the_command_can_say() -> None:
    tuned = with_goal(DEMO, "fine-tune")
    assert (tuned.profile, tuned.overrides) == (None, {"model.init": "pretrained"})
    assert lacks_model(tuned) and not lacks_model(with_values(tuned, MODEL_FIELD, {"model.name": "./mine"}))
    scratch = with_goal(tuned, "pretrain")
    assert scratch.overrides == {"model.init": "scratch"}
    assert with_goal(scratch, "demo") == DEMO
    assert "--set model.init=pretrained" in command_line(tuned)
    # A profile says itself what it starts from.
    assert with_values(tuned, PROFILE_FIELD, {"profile": "a6000"}).overrides == {}
    assert with_values(DEMO, PROFILE_FIELD, {}).profile is None
    goals = [goal_of(PlanState(request)) for request in (DEMO, tuned, scratch, PlanRequest(profile="a6000"))]
    assert goals == ["demo", "fine-tune", "pretrain", "profile"]
    # The model of the demo is not marked while its plan still stands.
    state = PlanState(DEMO, reading=Reading(plan=make_frozen_plan(DEMO)))
    assert current_offer(state, MODEL_FIELD) == "esm2-tiny"
    assert current_offer(replace(state, request=tuned), MODEL_FIELD) == ""


@each(
    ("training", "origins", "passes", "words"),
    [
        ({"max_steps": 120}, {"training.max_steps": "profile"}, 3.87, ["120 steps", "3.87 epochs"]),
        ({"epochs": 3.0, "max_steps": 412}, {}, 3.0, ["3 epochs", "412 steps"]),
        ({"epochs": 1.0, "max_steps": 120}, {"training.epochs": "you"}, 1.0, ["1 epoch", "120 steps"]),
    ],
)
def test_epochs_stand_beside_steps(training, origins, passes, words) -> None:
    plan = make_frozen_plan(PlanRequest())
    document = {"training": training, "origins": {key: {"origin": origin} for key, origin in origins.items()}}
    time = replace(plan.time, steps=training.get("max_steps"), epochs=passes)
    plan = replace(plan, config=RunConfig.model_validate(document), time=time)
    assert run_words(plan) == words and shown_value(FIELD_BY_ID["steps"], plan.config) == words[0]


def test_a_finding_names_the_field_on_the_screen_and_the_option_in_a_command() -> None:
    text = "training.learning_rate cannot be 5; see config.json, or --dataset FILE. Leave --smoke."
    found = on_screen(Finding("x", "error", "training.learning_rate", text, (Remedy("--set engine.precision=bf16"),)))
    assert found.message == "“Peak learning rate” cannot be 5; see config.json, or “Data”. Leave --smoke."
    assert found.remedies[0].text == "“Precision”=bf16"
    assert named_by(text, OF_COMMANDS).startswith("--learning-rate cannot be 5; see config.json, or --dataset FILE.")


def test_fine_tuning_offers_models_with_weights_and_those_that_are_here_first(tmp_path: Path) -> None:
    for name in ("bare", "whole"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "whole" / "model.safetensors").write_bytes(b"")
    models = model_offers(tmp_path)
    state = PlanState(request=DEMO, reading=Reading(models=models))
    assert [offer.value for offer in offers(state, MODEL_FIELD)] == [offer.value for offer in models]
    tuned = offers(replace(state, request=with_goal(DEMO, "fine-tune")), MODEL_FIELD)
    names = [offer.value for offer in tuned]
    assert names[0] == "./whole" and "esm2-8m" in names and not {"./bare", "esm2-tiny", "gpt2-tiny"} & set(names)
    here = [offer.weights for offer in tuned]
    assert here == sorted(here), "here comes before published"
    scratch = offers(replace(state, request=with_goal(DEMO, "pretrain")), MODEL_FIELD)
    assert "esm2-tiny" in [offer.value for offer in scratch]


async def test_a_model_and_data_of_ones_own_take_a_dozen_keys(here: Path) -> None:
    folder = here / "tiny"
    folder.mkdir()
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2", "vocab_size": 400, **shape}))
    (folder / "model.safetensors").write_bytes(b"\0" * 1000)
    with Path("mine.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text",), *((f"the cat sees house {n}",) for n in range(300))])
    async with real(DEMO) as (app, pilot):
        await go(pilot, "down", "down", "enter")
        assert isinstance(app.screen, Chooser), "pretraining needs a model, and the list of models opens by itself"
        await go(pilot, "escape")
        row = app.screen.query_one("#field-model", FieldRow).view
        assert row.value == "not set" and row.invalid.startswith("Choose a model")
        assert app.screen.state.plan is None and "Choose a model" in shown(app)
        await go(pilot, "escape")
        assert isinstance(app.focused, GoalRow) and app.focused.goal == "pretrain"
        assert offers(app.screen.state, PROFILE_FIELD)[0].label == "none"
        await go(pilot, "up", "enter", "enter")
        await go(pilot, "down", "down", "right")
        assert app.screen.state.step == MODEL
        await go(pilot, "enter", "space", "enter")
        assert app.screen.state.step == DATA
        await go(pilot, "enter", "enter")
        state = app.screen.state
        assert (state.step, is_ready(state)) == (REVIEW, True)
        assert command_line(state.request) == (
            "trainwiz --set model.init=pretrained --model ./tiny --peft lora --dataset mine.csv --yes"
        )
        config = state.plan.config
        assert (config.profile, config.name, config.training.epochs) == (None, "tiny-mine", 3.0)
        assert not any(origin.origin == "profile" for origin in config.origins.values())
        assert config.batch.sequence_length != 64 and config.training.max_steps != 120


@pytest.mark.usefixtures("here")
async def test_what_fits_is_a_goal_and_a_remedy_whose_row_is_the_run() -> None:
    Path("mine.csv").write_text("text,label\n" + "".join(f"the cat sees house {n},{n % 2}\n" for n in range(300)))
    async with real(DEMO) as (app, pilot):
        await pilot.press("down", "down", "down", "enter")
        await until(pilot, lambda: isinstance(app.screen, Chooser))
        assert app.screen._offers[0].value == "mine.csv" and "which dataset" in shown(app)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, FitChooser) and len(app.screen._offers) > 3)
        assert "mine.csv" not in shown(app) and "3 epochs" in shown(app)
        row = app.screen._fits.rows[1]
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, PlanScreen) and is_ready(app.screen.state))
        state = app.screen.state
        assert (state.step, state.request.profile) == (REVIEW, None)
        assert state.plan.memory == row.plan.memory and state.plan.config.model.name == row.model
        app.screen._change_request(
            with_changes(state.request, {"batch.micro_batch_size": 50_000, "batch.sequence_length": 512})
        )
        await settled(pilot)
        findings = app.screen.state.plan.findings
        remedy = next(finding for finding in findings if finding.code == "others_fit").remedies[0]
        assert remedy.command == "trainwiz fit --dataset mine.csv --task sequence-classification"
        number = numbered_remedies(findings).index(remedy) + 1
        await pilot.press(str(number))
        await until(pilot, lambda: "which dataset" in shown(app))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, FitChooser) and app.screen._fits is not None)


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
    assert [key for key in SETTINGS if key not in {*keys, *NO_FIELD, *NOT_SETTABLE}] == []
    assert [key for key in NO_FIELD if key in keys or not is_settable(key)] == [], "a reason that is none any more"
    assert [key for key in keys if ("." in key or key == "task") and not is_settable(key)] == []
    assert sorted({key for key in keys if keys.count(key) > 1}) == []
    assert len(FIELD_BY_ID) == len(FIELDS)
    state = state_of()
    there = {spec.id for spec in FIELDS if applies(spec, state.plan)}
    assert {offer.value for offer in findable_fields(state)} == there, "what / finds"


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
    assert not applying & {"num_gpus", "ram"}, "of other machines"


@each(
    ("name", "text", "values"),
    [
        ("loss_chunk", "1 token", {"training.loss_chunk": 1}),
        ("loss_chunk", "none", {"training.loss_chunk": None}),
        ("system_every", "0.5 s", {"logging.system_every_s": 0.5}),
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
        ("target", "128 lines", r"Type a number.* Allowed units: .*tokens.*sequences"),
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


@pytest.mark.usefixtures("chinese")
@each("typed", ["96 条序列", "96 序列", "96条序列", "96 sequences", "96"])
def test_a_unit_may_be_typed_in_chinese_with_its_measure_word_or_without(typed) -> None:
    config = RunConfig().with_values({"batch.target_samples": 64}, "you")
    assert shown_value(FIELD_BY_ID["target"], config) == "64 条序列"
    assert parse_field(FIELD_BY_ID["target"], typed, config) == {"batch.target_samples": 96}


def test_a_row_says_who_chose_its_value_and_why() -> None:
    for field_id, origin, reason in (
        ("precision", "detected", "the card has compute capability 7.5; bf16 needs 8.0"),
        ("micro_batch", "solved", "the largest that fits"),
        # Nobody chose it: "default" is its origin, and no reason too.
        ("weight_decay", "default", ""),
    ):
        view = row(field_id)
        assert (view.origin, view.reason, view.changed) == (origin, reason, False)
    view = row("precision", engine__precision="fp32")
    assert (view.value, view.origin, view.reason, view.changed) == ("fp32", "you", "", True)
    # The plan that is still on the screen was made before the choice.
    late = PlanState(request_of(engine__precision="fp32"), reading=Reading(plan=plan_for()))
    view = field_view(late, FIELD_BY_ID["precision"])
    assert (view.origin, view.reason, view.changed) == ("you", "", True)


def test_the_help_of_every_field_says_all_four_things() -> None:
    state = state_of()
    for spec in FIELDS:
        title, said = spec.label, dict(help_parts(state, spec, ())[1])
        assert title and all((said["What"], said["Why"], said["Safe choice"])), spec.id
        assert said.get("Cost", "") == spec.cost, spec.id
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
    time = replace(plan.time, total_s=1e3, evaluation_s=120.0, generation_s=300.0, saving_s=1)
    text = panel(replace(plan, time=time))
    assert "up to 512 source and 64 target tokens each" in text
    assert "including evaluation 2 min, generation 5 min" in text and "saving" not in text
    plan, text = plan_for(), panel(plan_for())
    assert "source" not in text and "network" not in text
    sent = {"network_bytes": 40 * 2**30, "network_high_s": 57.0, "network_gbit_s": 10.0, "network_assumed": True}
    text = panel(replace(plan, time=replace(plan.time, **sent, total_low_s=None, total_high_s=None)))
    assert "network: each node sends 40.0 GiB per step" in text and "10 Gbit/s, assumed" in text
