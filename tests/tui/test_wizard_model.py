"""The step Model: catalogue with search, hub ids, folders, config.json; what is found is shown, what is wrong is a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config.request import PlanRequest
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_state import start_obstacle
from trainwiz.tui.widgets.chooser import Chooser
from trainwiz.tui.widgets.field_row import FieldRow
from trainwiz.tui.widgets.file_picker import FilePicker

from tests.tui.wizard_keys import shown, to_field, type_into
from tests.tui.wizard_parts import settled

WIDE = (140, 60)
ARCHITECTURE = {**load_models()["gpt2-tiny"].architecture}


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)


def wizard() -> TrainwizApp:
    return TrainwizApp(lambda: PlanScreen(PlanRequest(profile="cpu-demo")), ascii_only=False)


def form(pilot: Pilot, part: str = "#form") -> str:
    """The text of one part of the screen alone, its lines joined."""
    region = pilot.app.screen.query_one(part).region
    lines = shown(pilot.app).splitlines()[region.y : region.bottom]
    return " ".join(" ".join(line[region.x : region.right].strip("│ ") for line in lines).split())


async def until(pilot: Pilot, holds: Callable[[], bool]) -> None:
    for _ in range(500):
        await pilot.pause(0.02)
        if holds():
            return
    raise AssertionError(shown(pilot.app))


async def choose(pilot: Pilot, text: str) -> None:
    """As a user would: open the list, type, enter."""
    await to_field(pilot, "model")
    await type_into(pilot, text)
    assert isinstance(pilot.app.screen, Chooser)
    await pilot.press("enter")
    await settled(pilot)
    await pilot.pause()


SEARCHED = (
    ("esm2 650", "esm2-650m", "masked-lm"),
    ("355 million", "gpt2-medium", "causal-lm"),
    ("nllb 600", "nllb-600m", "seq2seq"),
    ("qwen 1.5", "qwen2.5-1.5b", "causal-lm"),
)


async def test_the_catalogue_is_searched_by_name_family_and_size_and_the_task_follows() -> None:
    app = wizard()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        for typed, model, task in SEARCHED:
            await choose(pilot, typed)
            plan = app.screen.state.plan
            assert (plan.config.model.name, plan.task) == (model, task)
            words, spec = form(pilot), load_models()[model]
            assert f"on the hub as {spec.hub_id}" in words or "asks for its licence" in words
            assert spec.license is not None and f"Licence {spec.license}" in words
            assert "in half precision" in words and " layers" in words
            assert ("not for commercial use" in words) == (model == "nllb-600m")


async def test_a_folder_with_weights_tells_their_size_and_licence(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(ARCHITECTURE))
    (folder / "model.safetensors").write_bytes(b"\0" * 3_000_000)
    (folder / "README.md").write_text("---\nlicense: bigscience-openrail-m\n---\n")
    app = wizard()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await choose(pilot, "mine")
        assert app.screen.state.plan.config.model.name == "mine"
        words = form(pilot)
        assert "Size 3 MiB on disk" in words and "on this machine: mine" in words
        assert "Licence bigscience-openrail-m" in words and app.screen.state.plan.task == "causal-lm"


async def test_browsing_takes_the_folder_of_a_config_file_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "small"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(ARCHITECTURE))
    app = wizard()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await to_field(pilot, "model")
        await pilot.press("down", "space")
        await pilot.pause()
        picker = app.screen
        assert isinstance(picker, FilePicker)
        await until(pilot, lambda: "models" in shown(app))
        await pilot.press(*"models", "enter")
        await until(pilot, lambda: "small" in shown(app))
        await pilot.press(*"small", "enter")
        await until(pilot, lambda: "config.json" in shown(app))
        await pilot.press(*"config", "enter")
        await until(pilot, lambda: isinstance(app.screen, PlanScreen))
        await settled(pilot)
        # Not the bare config.json: weights lie beside it.
        assert app.screen.state.plan.config.model.name == "models/small"
        # Enter would open the window again.
        assert isinstance(app.focused, FieldRow) and app.focused.spec.id != "model"
        assert app.screen.state.plan.model.parameters == app.screen.state.plan.model.trainable_parameters > 100_000


UNUSABLE = (
    ("cut.json", json.dumps(ARCHITECTURE)[:60], "is not valid JSON"),
    ("list.json", "[1, 2]", "holds no JSON object"),
    ("odd.json", '{"hidden_size": 4}', "names no `model_type`"),
    ("vision.json", '{"model_type": "vit", "architectures": ["ViTForImageClassification"]}', "cannot train"),
    ("binary.json", "\udcff\udcfe", "is not UTF-8 text"),
    ("gone.json", None, "does not exist"),
    ("nobody/[red]nothing", None, "There is no model"),
    ("nobody/nothing", None, "not in the local Hugging Face cache"),
    ("no such model", None, "There is no model"),
)


async def test_what_cannot_be_used_is_a_sentence_and_the_wizard_goes_on(tmp_path: Path) -> None:
    app = wizard()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        row = await to_field(pilot, "model")
        for name, text, said in UNUSABLE:
            if text is not None:
                (tmp_path / name).write_text(text, encoding="utf-8", errors="surrogateescape")
            app.screen._set(row.spec, name)
            await until(pilot, lambda said=said: said in row.view.invalid)
            await settled(pilot)
            assert start_obstacle(app.screen.state) and "\x1b" not in shown(app)
        await pilot.press("r")
        await settled(pilot)
        assert row.view.value == "esm2-tiny" and row.view.invalid == "" and not start_obstacle(app.screen.state)


async def test_code_of_the_models_own_is_not_run_and_a_hostile_name_stays_text(tmp_path: Path) -> None:
    config = {**ARCHITECTURE, "auto_map": {"AutoModelForCausalLM": "evil.Model"}}
    (tmp_path / "remote.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text("raise SystemExit('run!')")
    hostile = "[red]m[b]\x1b[31m.json"
    (tmp_path / hostile).write_text(json.dumps(ARCHITECTURE))
    app = wizard()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await choose(pilot, "remote.json")
        finding = next(one for one in app.screen.state.plan.findings if one.code == "remote_code")
        assert "Python code of its own" in finding.message
        assert "comes with Python code of its own" in form(pilot, "#panel")
        row = await to_field(pilot, "model")
        app.screen._set(row.spec, hostile)
        await settled(pilot)
        assert "[red]m[b]" in form(pilot) and "\x1b" not in shown(app)
