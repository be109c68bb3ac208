"""The last step: what is not the profile's, the files, saving as a profile."""

from __future__ import annotations

import asyncio
import re
import threading
from dataclasses import replace
from pathlib import Path

from textual.widgets import Input, Static
from trainwiz.core.config.keys import ConfigDifference
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.config.run import Origin
from trainwiz.core.errors import Finding
from trainwiz.core.hardware.read import probe_machine
from trainwiz.core.profile.store import user_folder
from trainwiz.tui.screens.plan_fields import DATA, REVIEW, TRAINING
from trainwiz.tui.screens.plan_reader import PlanReader
from trainwiz.tui.widgets.field_row import ActionButton
from trainwiz.tui.widgets.frame import EntryDialog
from trainwiz.tui.widgets.review import (
    DifferenceList,
    Review,
    change_words,
    difference_lines,
    field_id_of,
    file_content,
)
from trainwiz.tui.widgets.step_form import StepForm, StepPart

from tests.tui.wizard_parts import FrozenReader, frozen, go, plain, settled, shown, until

CHANGED = PlanRequest(profile="2080super", overrides={"batch.micro_batch_size": 3})


def test_differences_are_those_of_the_resolved_run():
    """A value that was typed as the profile has it is none; what follows from a choice is one."""
    overrides = {"batch.micro_batch_size": 16, "training.max_steps": 120, "training.seed": 7}
    request, reader = PlanRequest(profile="cpu-demo", overrides=overrides), PlanReader(probe_machine(Path.cwd()))
    *_, reading = reader.read(request, lambda: False)
    found = reader.profile_alone(request).differences(reading.plan)
    assert [one.key for one in found][:2] == ["batch.micro_batch_size", "training.seed"]
    assert "training.max_steps" not in [one.key for one in found]
    follows = {one.key: one for one in found if one.chosen_by.origin != "you"}
    steps = follows["batch.gradient_accumulation_steps"]
    assert (steps.theirs, steps.yours) == (2, 4)
    lines = plain(difference_lines(found, 100, 0))
    assert re.search("32 → 16 +● you", lines) and re.search("2 → 4 +derived", lines)


class Comparing(FrozenReader):
    """Compares when it may, and fails when told to."""

    def __init__(self) -> None:
        super().__init__(findings=())
        self.may_end, self.breaks = threading.Event(), False
        self.folders: list[str | None] = []

    def profile_alone(self, request):
        self.folders.append(request.output_dir)
        assert self.may_end.wait(30)
        if self.breaks:
            raise ZeroDivisionError("[b]nobody[/b] foresaw it")
        return super().profile_alone(request)


async def test_the_comparison_with_the_profile_and_its_list():
    """It may read the profile's data, and every letter of a folder is another request: one at a time, and the last."""
    reader = Comparing()
    reader.problem = (Finding("unknown_profile", "error", "profile", "Unknown profile."),)
    async with frozen(reader, at_review=True, request=CHANGED) as (app, pilot):
        text = shown(app)
        assert "Cannot start" in text and "Unknown profile." in text
        assert "updating the plan" not in text and "no value of the profile was changed" not in text
        reader.problem = ()

        async def folder(name: str) -> None:
            app.screen._change_request(replace(app.screen.state.request, output_dir=name))
            await settled(pilot)

        for letter in "abcd":
            await folder(letter)
        assert len(reader.folders) == 1
        reader.may_end.set()
        found = app.screen.query_one(DifferenceList)
        await until(pilot, lambda: found.display)
        assert reader.folders[1:] == ["d"]
        reader.breaks = True
        await folder("e")
        note = app.screen.query_one("#differences-note", Static)
        await until(pilot, lambda: "ZeroDivisionError" in str(note.render()))
        said = "Can't plan the profile alone: Internal error in trainwiz: ZeroDivisionError: "
        assert str(note.render()).startswith(f"{said}[b]nobody[/b] foresaw it")
        assert "Cannot start" not in shown(app), "the start stays possible"
        reader.breaks = False
        await folder("f")
        await until(pilot, lambda: found.display)
        found.focus()
        await go(pilot, "space")
        assert app.screen.state.step == TRAINING and app.focused.spec.id == "micro_batch"
        await go(pilot, "enter")
        app.screen.query_one(DifferenceList).focus()
        await go(pilot, "r")
        assert app.screen.state.request.overrides == {}
        assert not found.display and "None: no value of the profile was changed" in shown(app)


async def test_saving_asks_until_the_name_can_be_taken_and_what_is_half_made_is_made_once():
    user_folder().mkdir(parents=True)
    taken, mine = user_folder() / "taken.yaml", user_folder() / "mine.yaml"
    taken.write_text("name: taken\nextends: cpu-demo\n")
    request = PlanRequest(profile="cpu-demo", overrides={"training.max_steps": 7, "mode.trace_steps": 2}, name="one")
    async with frozen(at_review=True, request=request) as (app, pilot):
        app.screen.query_one("#button-save").focus()
        await go(pilot, "enter")
        dialog = app.screen
        assert isinstance(dialog, EntryDialog)
        for name, words in {"": "Type a name.", "taken": "There already is a profile"}.items():
            dialog.query_one(Input).value = name
            await pilot.press("enter")
            await pilot.pause()
            assert app.screen is dialog and words in " ".join(shown(app).split()), name
        dialog.query_one(Input).value = "mine"
        await go(pilot, "enter")
        assert not isinstance(app.screen, EntryDialog)
        assert [one.message for one in app._notifications] == ["Saved mine: trainwiz --profile mine"]
        assert "max_steps: 7" in mine.read_text() and "trace" not in mine.read_text()
        assert taken.read_text() == "name: taken\nextends: cpu-demo\n"
        # On a busy machine a reading arrives between the mount of a part and that of its buttons.
        form = app.screen.query_one(f"#step-{REVIEW}", StepForm)
        await form.query_one(Review).remove()
        making = form.mount(Review())
        form.show(app.screen.state)
        await making
        form.show(app.screen.state)
        assert form.query_one("#button-start", ActionButton).is_mounted
        # Somebody who types faster than the first step is completed finds the second one half made: its parts come once.
        form = StepForm(DATA, more=False)
        await app.screen.query_one("FormScroll").mount(form)
        await asyncio.gather(form.add_parts(), form.add_parts())
        parts = [getattr(part, "draw", type(part)) for part in form.query(StepPart)]
        assert parts and len(parts) == len(set(parts))


def test_a_difference_knows_its_field():
    keys = {"data.sources.0.name": "data", "engine.environment.NCCL_DEBUG": "environment", "nothing.like.it": ""}
    assert {key: field_id_of(key) for key in keys} == keys


def test_differences_keep_to_their_width_whatever_stands_in_them():
    mine, other = Origin(origin="you"), Origin(origin="solved", reason="x")
    rows = (
        ConfigDifference("data.sources.0.name", "蛋白质数据" * 9, "a\x1b[31m[b]" * 20, mine),
        ConfigDifference("engine.environment." + "N" * 80, None, {"a": 1}, other),
        ConfigDifference("data.sources", [{"name": "a"}], [{"name": "b"}, {"name": "c"}], mine),
    )
    for width in (30, 50, 90, 200):
        for line in difference_lines(rows, width, 1):
            assert line.cell_length <= width and "\x1b" not in line.plain and "\n" not in line.plain
    assert file_content("note: '[red]'\x1b[31m\n").plain == "note: '[red]'"


def test_a_change_keeps_something_of_both_values() -> None:
    assert change_words("agemagician/uniref50", "sample-proteins", 21) == "agemagic… → sample-p…"
    assert change_words("蛋白质序列数据", "ours", 14) == "蛋白质… → ours"
