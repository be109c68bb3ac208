"""The wizard over the real world: real machine, real profiles, real sample data, real plan and export, as the command's."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from trainwiz.core.config.build import build_config
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.plan import gather
from trainwiz.core.plan.gather import plan_run, probe_here
from trainwiz.core.profile.store import list_profiles, load_profile, use_profile
from trainwiz.tui import choices, cli
from trainwiz.tui.choices import parse_choices
from trainwiz.tui.commands.wizard import wizard_request
from trainwiz.tui.screens import plan_command as plan_starter
from trainwiz.tui.screens import plan_reader
from trainwiz.tui.screens.plan_command import Started, command_line, start_plan
from trainwiz.tui.screens.plan_fields import FIELD_BY_ID, HARDWARE, REVIEW, STEPS
from trainwiz.tui.screens.plan_reader import PlanReader
from trainwiz.tui.screens.plan_state import PlanState, field_problem, with_values
from trainwiz.tui.widgets.field_row import ActionButton
from trainwiz.tui.widgets.plan_panel import panel_lines, strip_lines

from tests.tui.wizard_parts import change, go, plain, real, settled

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture(scope="module")
def reader() -> PlanReader:
    return PlanReader(probe_here(PlanRequest()))


def last(reader: PlanReader, request: PlanRequest):
    return [*reader.read(request, lambda: False)][-1]


def test_what_the_wizard_opens_on(tmp_path):
    assert wizard_request(PlanRequest(), tmp_path) == PlanRequest(profile="cpu-demo")
    request = wizard_request(PlanRequest(overrides={"data.sources": [{"name": "x.csv"}]}), tmp_path)
    assert request.profile is None
    use_profile("3080-10g", tmp_path)
    assert wizard_request(PlanRequest(), tmp_path).profile == "3080-10g"


def _own_tokenizer(folder: Path, vocabulary: int) -> str:
    from tokenizers import Tokenizer, models, trainers

    made = Tokenizer(models.BPE())
    made.train_from_iterator(["a rolling stone gathers no moss " * 9], trainers.BpeTrainer(vocab_size=vocabulary))
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    return str(folder)


def test_lengths_follow_what_cuts_and_joins_texts(reader, tmp_path):
    """The same source again, after another tokenizer, another model, adapters, and all the way back."""
    text = {"data.sources.0.name": "sample-text", "model.init": "scratch"}
    fine, coarse = (_own_tokenizer(tmp_path / str(size), size) for size in (20, 200))
    walk = [
        {},
        {"model.tokenizer": fine},
        {"model.tokenizer": coarse},
        {"peft.method": "lora"},
        {"model.name": "qwen2.5-7b", "peft.method": "lora"},
        {"model.architecture_overrides.vocab_size": 600, "peft.method": "lora"},
        {},
    ]
    seen = []
    for changes in walk:
        request = PlanRequest(profile="a6000", overrides={**text, **changes})
        ours, fresh = last(reader, request).plan, plan_run(request, reader._machine)
        assert ours.to_json()["data"] == fresh.to_json()["data"], changes
        assert ours.batch == fresh.batch and ours.time == fresh.time, changes
        seen.append(json.dumps(ours.to_json()["data"]))
    assert len(set(seen[:4])) == 4 and seen[0] == seen[-1]


def test_what_is_asked_wrongly_is_findings_and_no_plan(reader):
    for request, words in ((PlanRequest("cpu-dmo"), "cpu-demo"), (PlanRequest("cpu-demo", name="../x"), "name")):
        assert [*reader.read(request, lambda: True)] == [], "what is cancelled reads nothing"
        reading = last(reader, request)
        assert reading.plan is None and reading.waits_for == ""
        assert any(words in finding.message for finding in reading.findings)


def test_a_run_is_written_where_the_review_said_and_a_taken_folder_is_a_sentence(reader, tmp_path):
    request = PlanRequest(profile="cpu-demo", output_dir=str(tmp_path / "run"))
    plan = last(reader, request).plan
    started = start_plan("write", plan, request)
    assert started.problem == "" and (tmp_path / "run" / "run.yaml").is_file()
    assert json.loads((tmp_path / "run" / "state.json").read_text())["status"] == "prepared"
    assert str(tmp_path / "run") in started.words
    again = start_plan("write", plan, request)
    assert again.folder is None and "already contains a run" in again.problem
    # The name has the minute in it; what was said stays true when that minute is over, but for one that is taken.
    free, said = PlanRequest(profile="cpu-demo"), "runs/2026-01-02_0304-cpu-demo"
    first, second = (start_plan("write", plan, free, said) for _ in range(2))
    assert first.folder.path == Path(said) and second.problem == "" and second.folder.path != Path(said)


def test_a_folder_below_home_is_the_same_on_the_screen_in_the_command_and_on_the_disk(reader, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "own.fasta").write_text(">a\nMKVLAAG\n" * 40)
    request = PlanRequest(profile="cpu-demo", overrides={"data.sources.0.name": "own.fasta"})
    request = with_values(request, FIELD_BY_ID["folder"], {"output_dir": "~/deep/er/run"})
    reading = last(reader, request)
    folder = start_plan("write", reading.plan, request, reading.folder).folder
    assert str(folder.path) == reading.folder == str(tmp_path / "home/deep/er/run")
    assert f"--output-dir {folder.path}" in command_line(request)
    assert folder.file("run.yaml").read_text() == reading.files["run.yaml"]


def test_the_disk_is_that_of_the_folder_and_of_runs_again_when_it_is_taken_back(tmp_path, monkeypatch):
    probed = []
    machine = replace(probe_here(PlanRequest()), disk_free_bytes=7 * 2**30)
    monkeypatch.setattr(gather, "probe_here", lambda request: probed.append(request) or machine)
    monkeypatch.setattr(plan_reader, "free_disk", lambda path: 5 * 2**30)
    own = PlanReader()
    there = last(own, PlanRequest(profile="cpu-demo", output_dir=str(tmp_path / "run"))).plan
    here = last(own, PlanRequest(profile="cpu-demo")).plan
    assert [plan.memory.disk_capacity_bytes for plan in (there, here)] == [5 * 2**30, 7 * 2**30]
    assert [request.output_dir for request in probed] == [None]


def test_the_command_of_the_review_asks_for_the_same(monkeypatch):
    """Parsed by a shell and by the real command, it gives the same request."""
    request = PlanRequest(
        profile="2080super",
        overrides={
            "training.max_steps": 100,
            "training.learning_rate": 2e-5,
            "engine.checkpointing": False,
            "data.sources.0.name": "my data.csv",
            "data.sources.0.text_column": "7",
            "engine.environment": {"NCCL_B": "2 3"},
            "training.loss_chunk": None,
        },
        name="try",
        output_dir="out/it's here",
    )
    words = shlex.split(command_line(request))
    assert words[0] == "trainwiz" and words[-1] == "--yes"
    seen = []
    monkeypatch.setattr(choices, "start", lambda values: seen.append(parse_choices(values)) or 0)
    assert cli.main(words[1:]) == 0
    parsed = seen[0].request
    assert (parsed.profile, parsed.name, parsed.output_dir) == (request.profile, request.name, request.output_dir)
    ours, theirs = (build_config(load_profile("2080super"), one.overrides, one.name) for one in (request, parsed))
    assert ours.model_dump_json() == theirs.model_dump_json()


async def test_five_enters_on_a_first_start_reach_a_start_of_the_demo(monkeypatch, tmp_path):
    """Everything is real but the launch itself."""
    started = []
    monkeypatch.setattr(
        plan_starter,
        "start_plan",
        lambda kind, plan, request, said: started.append((kind, plan, request)) or Started(kind),
    )
    async with real(wizard_request(PlanRequest(), tmp_path), reader=None) as (app, pilot):
        assert app.screen.state.step == HARDWARE
        await pilot.press(*["enter"] * 5)
        await settled(pilot)
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert app.screen.state.step == REVIEW
    ((kind, plan, _),) = started
    assert kind == "start" and plan.profile == "cpu-demo" and not plan.errors
    assert plan.time.steps <= 500 and plan.model.parameters < 5e6
    assert list(tmp_path.iterdir()) == [], "nothing is written before the launch"


def test_a_model_that_is_not_there_has_no_figures_and_no_verdict(reader):
    state = PlanState(
        PlanRequest(profile="cpu-demo"), reading=last(reader, PlanRequest("cpu-demo", {"model.name": "/no/such/model"}))
    )
    assert state.plan is not None and field_problem(state, FIELD_BY_ID["model"])
    for lines in (panel_lines(state.plan, 60), strip_lines(state, 80, 4)):
        text = plain(lines)
        assert text.count("the model size is unknown") == 2
        assert "fits" not in text and "0.00" not in text


FOLDER = "out"
"""The run folder, in the working folder of each of the two."""
OF_A_FOLDER = {"accelerate.yaml", "launch.sh", "plan.json", "run.yaml", "state.json"}
CHANGES: dict[str, tuple[tuple[str, str, str], ...]] = {
    # Profile -> (the field's name, what a person types or chooses there, the same for --set).
    "cpu-demo": (
        ("Micro-batch", "16", "batch.micro_batch_size=16"),
        ("Max input length", "48 tokens", "batch.sequence_length=48"),
        ("Seed", "7", "training.seed=7"),
    ),
    "lora-r64-3090": (("LoRA rank", "32", "peft.rank=32"), ("Optimizer", "adafactor", "engine.optimizer=adafactor")),
}
OFTEN = (*CHANGES, "esm2-8xa100")
"""A pretraining, adapters and several GPUs; `make test-all` takes all profiles."""
PROFILES = [
    pytest.param(profile.name, marks=[] if profile.name in OFTEN else [pytest.mark.all]) for profile in list_profiles()
]


@pytest.mark.parametrize("profile", PROFILES)
async def test_keys_alone_give_the_files_of_the_command(profile, tmp_path, monkeypatch):
    # Free memory and disk change while a test runs: both plan for the machine as it was once.
    here = probe_here(PlanRequest())
    monkeypatch.setattr(gather, "probe_here", lambda request: here)
    monkeypatch.setattr(plan_reader, "free_disk", lambda path: here.disk_free_bytes)
    theirs, ours = tmp_path / "headless", tmp_path / "wizard"
    changes = CHANGES.get(profile, ())
    words = ["--profile", profile, *(word for _, _, value in changes for word in ("--set", value))]
    for side in (theirs, ours):
        side.mkdir()
    monkeypatch.chdir(theirs)
    assert cli.main([*words, "--output-dir", FOLDER, "--dry-run"]) == 0
    monkeypatch.chdir(ours)
    request = wizard_request(PlanRequest(), ours)
    async with real(request, (80, 24), reader=PlanReader(here)) as (app, pilot):
        await change(pilot, "Profile", profile)
        # Through all steps where something is changed on them; / goes to the last one by itself.
        for step in range(1, len(STEPS) if changes else 1):
            await go(pilot, "enter")
            assert app.screen.state.step == step
        for field, typed in (*((field, typed) for field, typed, _ in changes), ("Folder", FOLDER)):
            await change(pilot, field, typed)
        while not (on_button := isinstance(app.focused, ActionButton)) or app.focused.action != "write":
            assert app.focused.id != "files", "beyond the buttons"
            await pilot.press("right" if on_button else "down")
        await go(pilot, "enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
    names = {file.name for file in (theirs / FOLDER).iterdir()}
    assert names >= OF_A_FOLDER and names == {file.name for file in (ours / FOLDER).iterdir()}
    for name in names - {"state.json"}:
        assert (ours / FOLDER / name).read_bytes() == (theirs / FOLDER / name).read_bytes(), name
