"""The last step: what is not the profile's, the files, saving as a profile."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

from textual.containers import VerticalScroll
from textual.widgets import Collapsible, Input
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.hardware.read import probe_machine
from trainwiz.core.profile.store import user_folder
from trainwiz.tui.screens.plan_fields import DATA, REVIEW
from trainwiz.tui.screens.plan_reader import PlanReader
from trainwiz.tui.screens.plan_state import PlanState
from trainwiz.tui.widgets.field_row import ActionButton
from trainwiz.tui.widgets.frame import EntryDialog
from trainwiz.tui.widgets.review import FilesView, Review, change_lines, change_words, changed_values, file_content
from trainwiz.tui.widgets.step_form import StepForm, StepPart

from tests.tui.wizard_parts import FROZEN_FILES, frozen, go, plain, shown


def test_a_change_has_the_value_of_the_profile_beside_it():
    overrides = {"batch.micro_batch_size": 16, "training.max_steps": 120, "data.sources.0.name": "mine.fasta"}
    request = PlanRequest(profile="cpu-demo", overrides={**overrides, "training.seed": 7})
    *_, reading = PlanReader(probe_machine(Path.cwd())).read(request, lambda: False)
    lines = plain(changed_values(PlanState(request, reading=reading), 100, False))
    assert "max_steps" not in lines, "typed as the profile has it"
    as_it_is = PlanState(replace(request, overrides={}), reading=reading)
    assert "None: no value of the profile was changed" in plain(changed_values(as_it_is, 100, False))
    for words in ("micro_batch_size +32 → 16", "seed +auto → 7", r"sources.0.name +sample-proteins → mine.fasta"):
        assert re.search(words, lines), words


async def test_a_file_opens_to_its_text_and_stays_open_when_it_changes():
    async with frozen(at_review=True) as (app, pilot):
        files = app.screen.query_one(FilesView)
        first, second = files.query(Collapsible)
        first.query_one("CollapsibleTitle").focus()
        await go(pilot, "space")
        assert "note: '[red]text[/red]'" in shown(app) and "exec accelerate" not in shown(app)
        files.show({**FROZEN_FILES, "run.yaml": "name: other\n"})
        await go(pilot, "down")
        assert isinstance(app.focused, VerticalScroll), "the arrow keys scroll the text"
        assert "name: other" in shown(app)
        await go(pilot, "tab", "enter")
        assert not second.collapsed and "exec accelerate" in shown(app)
        files.show({"run.yaml": "a: 1\n"})
        await pilot.pause()
        assert len(files.query(Collapsible)) == 1


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


def test_changes_keep_to_their_width_whatever_stands_in_them():
    rows = (
        ("data.sources.0.name", "蛋白质数据" * 9, "a\x1b[31m[b]" * 20),
        ("engine.environment." + "N" * 80, None, {"a": 1}),
        ("data.sources", [{"name": "a"}], [{"name": "b"}, {"name": "c"}]),
    )
    for width in (30, 50, 90, 200):
        for line in change_lines(rows, width):
            assert line.cell_length <= width and "\x1b" not in line.plain and "\n" not in line.plain
    assert file_content("note: '[red]'\x1b[31m\n").plain == "note: '[red]'"

    # Something of both values is kept.
    assert change_words("agemagician/uniref50", "sample-proteins", 21) == "agemagic… → sample-p…"
    assert change_words("蛋白质序列数据", "ours", 14) == "蛋白质… → ours"
