"""What one wants from the first step on: goals, what the demo takes with it, names, epochs."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

from trainwiz.core.config import RunConfig
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.profile.store import load_profile
from trainwiz.tui.options import OF_COMMANDS, named_by
from trainwiz.tui.plan_words import run_words, steps_words
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_command import command_line
from trainwiz.tui.screens.plan_fields import DATA, FIELD_BY_ID, MODEL, REVIEW, on_screen, shown_value
from trainwiz.tui.screens.plan_maker import numbered_remedies
from trainwiz.tui.screens.plan_offers import model_offers
from trainwiz.tui.screens.plan_state import (
    OF_THE_DEMO,
    PlanState,
    Reading,
    goal_of,
    is_ready,
    lacks_model,
    with_changes,
    with_goal,
    with_values,
)
from trainwiz.tui.screens.plan_views import current_offer, offers
from trainwiz.tui.widgets.chooser import Chooser, FitChooser
from trainwiz.tui.widgets.field_row import FieldRow
from trainwiz.tui.widgets.step_form import GoalRow

from tests.each import each
from tests.tui.wizard_keys import go, shown, until
from tests.tui.wizard_parts import make_frozen_plan, real, settled

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
    ("training", "origins", "passes", "words", "both"),
    [
        ({"max_steps": 120}, {"training.max_steps": "profile"}, 3.87, ["120 steps", "3.87 epochs"], "120 steps (3.87 epochs)"),
        ({"epochs": 3.0, "max_steps": 412}, {}, 3.0, ["3 epochs", "412 steps"], "412 steps (3 epochs)"),
        ({"epochs": 1.0, "max_steps": 120}, {"training.epochs": "you"}, 1.0, ["1 epoch", "120 steps"], "120 steps (1 epoch)"),
    ],
)  # fmt: skip
def test_epochs_stand_beside_steps(training, origins, passes, words, both) -> None:
    plan = make_frozen_plan(PlanRequest())
    document = {"training": training, "origins": {key: {"origin": origin} for key, origin in origins.items()}}
    time = replace(plan.time, steps=training.get("max_steps"), epochs=passes)
    plan = replace(plan, config=RunConfig.model_validate(document), time=time)
    assert (run_words(plan), steps_words(plan)) == (words, both)
    assert shown_value(FIELD_BY_ID["steps"], plan.config) == words[0]


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


async def test_a_model_and_data_of_ones_own_take_a_dozen_keys(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "tiny"
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


async def test_what_fits_is_a_goal_and_a_remedy_whose_row_is_the_run(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text("text,label\n" + "".join(f"the cat sees house {n},{n % 2}\n" for n in range(300)))
    async with real(DEMO) as (app, pilot):
        await pilot.press("down", "down", "down", "enter")
        await until(pilot, lambda: isinstance(app.screen, FitChooser))
        assert app.screen._offers[0].value == "mine.csv" and "which dataset" in shown(app)
        await pilot.press("enter")
        await until(pilot, lambda: app.screen._fits is not None and len(app.screen._offers) > 3)
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
        found = [finding for finding in app.screen.state.plan.findings if finding.code == "others_fit"]
        assert (
            found and found[0].remedies[0].command == "trainwiz fit --dataset mine.csv --task sequence-classification"
        )
        number = numbered_remedies(app.screen.state.plan.findings).index(found[0].remedies[0]) + 1
        await pilot.press(str(number))
        await until(pilot, lambda: isinstance(app.screen, FitChooser) and app.screen._fits is not None)
