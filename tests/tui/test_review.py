"""The last step: buttons with their reasons, what is not the profile's, the files, saving as a profile."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from textual.widgets import Input, Static
from trainwiz.core.config.keys import ConfigDifference
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.config.run import Origin
from trainwiz.core.hardware.read import probe_machine
from trainwiz.core.profile import store
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_fields import REVIEW, TRAINING
from trainwiz.tui.screens.plan_reader import PlanReader
from trainwiz.tui.theme import ASCII_MARKS, UNICODE_MARKS
from trainwiz.tui.widgets.chooser import SaveDialog
from trainwiz.tui.widgets.field_row import ActionButton
from trainwiz.tui.widgets.review import (
    DifferenceList,
    FileList,
    Review,
    change_words,
    difference_lines,
    field_id_of,
    file_content,
)
from trainwiz.tui.widgets.step_form import StepForm

from tests.each import each
from tests.tui.wizard_keys import go, shown, until
from tests.tui.wizard_parts import MISSING, FrozenReader, frozen, frozen_app, settled

WIDE = (120, 40)
CHANGED = {"batch.micro_batch_size": 3}


def real_app(request: PlanRequest) -> TrainwizApp:
    reader = PlanReader(probe_machine(Path.cwd()))
    return TrainwizApp(lambda: PlanScreen(request, at_review=True, reader=reader), ascii_only=False)


async def compared(pilot) -> DifferenceList:
    """Wait until the plan and the comparison with the profile are there."""
    await settled(pilot)
    found = pilot.app.screen.query_one(DifferenceList)
    await until(pilot, lambda: found.display)
    await pilot.pause()
    return found


async def test_differences_are_those_of_the_resolved_run():
    """A value that was typed as the profile has it is none; what follows from a choice is one."""
    overrides = {"batch.micro_batch_size": 16, "training.max_steps": 120, "training.seed": 7}
    app = real_app(PlanRequest(profile="cpu-demo", overrides=overrides))
    async with app.run_test(size=(120, 60)) as pilot:
        found = await compared(pilot)
        keys = [one.key for one in found._differences]
        assert keys[:2] == ["batch.micro_batch_size", "training.seed"] and "training.max_steps" not in keys
        follows = {one.key: one for one in found._differences if one.chosen_by.origin != "you"}
        assert follows["batch.gradient_accumulation_steps"].theirs == 2
        assert follows["batch.gradient_accumulation_steps"].yours == 4
        assert "seed: 7" in app.screen.query_one(FileList).current
        screen = shown(app)
        assert "Changes from cpu-demo" in screen and "32 → 16" in screen and "● you" in screen
        assert "2 → 4" in screen and "derived" in screen


async def test_space_on_a_difference_goes_to_its_field_and_r_gives_it_back():
    app = frozen_app(at_review=True, request=PlanRequest(profile="2080super", overrides={"batch.micro_batch_size": 3}))
    async with app.run_test(size=WIDE) as pilot:
        found = await compared(pilot)
        found.focus()
        await go(pilot, "space")
        assert app.screen.state.step == TRAINING and app.focused.spec.id == "micro_batch"
        await go(pilot, "enter")
        app.screen.query_one(DifferenceList).focus()
        await go(pilot, "r")
        assert app.screen.state.request.overrides == {}
        assert not found.display and "None: no value of the profile was changed" in shown(app)


async def test_one_comparison_at_a_time_and_the_last_one_always():
    """It may read the profile's data, and every letter of a folder is another request."""

    class Slow(FrozenReader):
        def __init__(self):
            super().__init__()
            self.may_end = threading.Event()
            self.folders = []

        def profile_alone(self, request):
            self.folders.append(request.output_dir)
            assert self.may_end.wait(30)
            return super().profile_alone(request)

    reader = Slow()
    async with frozen(reader, at_review=True, request=PlanRequest(profile="2080super", overrides=CHANGED)) as (
        app,
        pilot,
    ):
        for letter in "abcd":
            app.screen._change_request(replace(app.screen.state.request, output_dir=letter))
            await settled(pilot)
        assert len(reader.folders) == 1
        reader.may_end.set()
        assert (await compared(pilot)).display
        assert len(reader.folders) == 2 and reader.folders[-1] == "d"


async def test_a_comparison_that_breaks_off_is_a_sentence_and_the_start_stays_possible():
    class Broken(FrozenReader):
        def profile_alone(self, request):
            raise ZeroDivisionError("[b]nobody[/b] foresaw it")

    async with frozen(Broken(), at_review=True, request=PlanRequest(profile="2080super", overrides=CHANGED)) as (
        app,
        pilot,
    ):
        note = app.screen.query_one("#differences-note", Static)
        await until(pilot, lambda: "ZeroDivisionError" in str(note.render()))
        said = "Can't plan the profile alone: Internal error in trainwiz: ZeroDivisionError: "
        assert str(note.render()).startswith(f"{said}[b]nobody[/b] foresaw it")
        assert "Cannot start" not in shown(app)


async def test_why_a_start_is_not_possible_stands_on_the_button():
    async with frozen(FrozenReader(findings=(MISSING,)), at_review=True, size=(60, 20)) as (app, pilot):
        button = app.screen.query_one("#button-start")
        words = " ".join(strip.text.strip() for strip in button.render_lines(button.size.region))
        assert words == "[ Cannot start ] ✗ This machine has no RTX 2080 Super."
        assert app.focused is button and "This machine has no RTX 2080 Super." in shown(app)
        assert not app.screen.query_one("#button-detached").display
        await go(pilot, "f5")
        assert shown(app).count("This machine has no RTX 2080 Super.") <= 2, "the button and the finding"


async def test_a_start_that_waits_for_its_plan_says_so_and_can_be_called_off(monkeypatch):
    class Waiting(FrozenReader):
        may_go_on = threading.Event()

        def read(self, request, is_cancelled):
            first, *others = super().read(request, is_cancelled)
            yield first
            assert self.may_go_on.wait(30)
            yield from others

    started = []
    monkeypatch.setattr("trainwiz.tui.screens.plan_command.start_plan", lambda *given: started.append(given))
    app = frozen_app(Waiting(), at_review=True)
    async with app.run_test(size=WIDE) as pilot:
        await until(pilot, lambda: app.screen.query("#review"))
        await pilot.press("f5")
        await pilot.pause()
        assert app.screen.state.wanted_start == "start"
        verdict = app.screen.query_one("#verdict", Static)
        assert str(verdict.render()) == "starts when the plan is ready; esc cancels"
        await pilot.press("escape")
        assert app.screen.state.wanted_start == "" and app.screen.state.step == REVIEW
        Waiting.may_go_on.set()
        await settled(pilot)
        assert str(verdict.render()).startswith("Writes to runs/") and not started


async def test_saving_asks_until_the_name_can_be_taken(monkeypatch, tmp_path):
    monkeypatch.setattr(store, "user_folder", lambda: tmp_path)
    monkeypatch.setattr("trainwiz.core.profile.save.user_folder", lambda: tmp_path)
    (tmp_path / "taken.yaml").write_text("name: taken\nextends: cpu-demo\n")
    overrides = {"training.max_steps": 7, "mode.trace_steps": 2}
    request = PlanRequest(profile="cpu-demo", overrides=overrides, name="one-run")
    async with frozen(at_review=True, request=request) as (app, pilot):
        app.screen.query_one("#button-save").focus()
        await go(pilot, "enter")
        dialog = app.screen
        assert isinstance(dialog, SaveDialog)
        refused = {
            "": "Type a name.",
            "cpu-demo": "built-in profile",
            "taken": "You already have a profile",
            "[b]": "is not a valid profile name",
        }
        for name, words in refused.items():
            dialog.query_one(Input).value = name
            await pilot.press("enter")
            await pilot.pause()
            assert app.screen is dialog and words in " ".join(shown(app).split()), name
        dialog.query_one(Input).value = "mine"
        await go(pilot, "enter")
        assert not isinstance(app.screen, SaveDialog)
    saved = (tmp_path / "mine.yaml").read_text()
    assert "max_steps: 7" in saved and "trace" not in saved
    assert (tmp_path / "taken.yaml").read_text() == "name: taken\nextends: cpu-demo\n"


@each(
    ("key", "field"),
    [
        ("data.sources.0.name", "data"),
        ("engine.environment.NCCL_DEBUG", "environment"),
        ("training.epochs", "steps"),
        ("nothing.like.it", ""),
    ],
)
def test_a_difference_knows_its_field(key, field):
    assert field_id_of(key) == field


def test_differences_keep_to_their_width_whatever_stands_in_them():
    mine, other = Origin(origin="you"), Origin(origin="solved", reason="x")
    rows = (
        ConfigDifference("data.sources.0.name", "蛋白质数据" * 9, "a\x1b[31m[b]" * 20, mine),
        ConfigDifference("engine.environment." + "N" * 80, None, {"a": 1}, other),
        ConfigDifference("data.sources", [{"name": "a"}], [{"name": "b"}, {"name": "c"}], mine),
    )
    for width in (30, 50, 90, 200):
        for marks in (UNICODE_MARKS, ASCII_MARKS):
            for line in difference_lines(rows, width, marks, 1):
                assert line.cell_length <= width and "\x1b" not in line.plain and "\n" not in line.plain
    assert file_content("note: '[red]'\x1b[31m\n").plain == "note: '[red]'"


async def test_a_profile_that_is_not_there_leaves_nothing_that_is_not_true():
    app = real_app(PlanRequest(profile="nosuch"))
    async with app.run_test(size=(120, 60)) as pilot:
        await until(pilot, lambda: "Unknown profile 'nosuch'" in shown(app) and "Cannot start" in shown(app))
        text = shown(app)
        assert "updating the plan" not in text and "no value of the profile was changed" not in text


async def test_a_plan_that_comes_while_the_review_is_made_waits_for_it():
    """On a busy machine a reading arrives between the mount of a part and that of its buttons."""
    async with frozen() as (app, pilot):
        await go(pilot, "enter", "enter", "enter", "enter")
        form = app.screen.query_one(f"#step-{REVIEW}", StepForm)
        await form.query_one(Review).remove()
        making = form.mount(Review(app.marks))
        form.show(app.screen.state)
        await making
        form.show(app.screen.state)
        assert form.query_one("#button-start", ActionButton).is_mounted


@each(
    ("theirs", "yours", "room", "words"),
    [
        ("5", "23", 20, "5 → 23"),
        ("agemagician/uniref50", "sample-proteins", 21, "agemagic… → sample-p…"),
        ("蛋白质序列数据", "ours", 14, "蛋白质… → ours"),
    ],
)
def test_a_change_keeps_something_of_both_values(theirs: str, yours: str, room: int, words: str) -> None:
    assert change_words(theirs, yours, "→", room, UNICODE_MARKS) == words
