"""The plan follows every key: at once, in one thread, without a pile of stale work; remedies say what they bring."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from datetime import timedelta

from textual.widgets import Input
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.plan import gather
from trainwiz.core.plan.gather import plan_run, probe_here
from trainwiz.tui.screens import plan as plan_screen
from trainwiz.tui.screens import plan_maker
from trainwiz.tui.screens.plan_fields import HARDWARE
from trainwiz.tui.screens.plan_maker import Effect, Newest, effect_key, numbered_remedies
from trainwiz.tui.screens.plan_reader import PlanReader
from trainwiz.tui.screens.plan_state import with_changes
from trainwiz.tui.theme import UNICODE_MARKS
from trainwiz.tui.widgets.field_row import RemedyButton
from trainwiz.tui.widgets.lists import TextLines
from trainwiz.tui.widgets.plan_panel import effect_words, part_lines

from tests.tui.wizard_keys import go, shown, to_field, type_into, until
from tests.tui.wizard_parts import GIB, FrozenReader, frozen, settled

KEY_GAP_S = 0.03


class CountingReader(FrozenReader):
    """Counts how many requests it works on at once."""

    _at_once = most_at_once = 0

    def read(self, request, is_cancelled):
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            yield from super().read(request, is_cancelled)
        finally:
            self._at_once -= 1


class HeldReader(FrozenReader):
    """Answers when it may."""

    def __init__(self) -> None:
        super().__init__(findings=())
        self.may_answer = threading.Event()
        self.may_answer.set()

    def read(self, request, is_cancelled):
        assert self.may_answer.wait(300)
        yield from super().read(request, is_cancelled)


async def type_fast(pilot, text: str) -> None:
    """Keys as a fast typist's, 30 ms apart."""
    for letter in text:
        pilot.app.screen.query_one(Input).insert_text_at_cursor(letter)
        await asyncio.sleep(KEY_GAP_S)


async def test_twelve_fast_keys_are_a_few_plans_and_the_last_one_always(monkeypatch):
    # Ten times slower than they are, and so are keys that a busy machine takes ten times as long for.
    monkeypatch.setattr(plan_maker, "BURST_S", 10 * plan_maker.BURST_S)
    monkeypatch.setattr(plan_maker, "TYPING_PAUSE_S", 10 * plan_maker.TYPING_PAUSE_S)
    reader = CountingReader(findings=())
    async with frozen(reader) as (app, pilot):
        await to_field(pilot, "steps")
        await pilot.press("space")
        await pilot.press("backspace")
        await settled(pilot)
        before = len(reader.asked)
        await type_fast(pilot, "123456789012")
        await settled(pilot)
        assert reader.asked[-1].overrides == {"training.max_steps": 123456789012}
        assert app.screen.state.plan.config.training.max_steps == reader.asked[-1].overrides["training.max_steps"]
        assert len(reader.asked) - before <= 4
        assert reader.most_at_once == 1, "nothing piles up"


async def test_the_first_key_does_not_wait_for_a_second_one(monkeypatch):
    monkeypatch.setattr("trainwiz.tui.screens.plan_maker.TYPING_PAUSE_S", 30.0)
    monkeypatch.setattr("trainwiz.tui.screens.plan_maker.BURST_S", 0.05)
    async with frozen() as (app, pilot):
        await to_field(pilot, "micro_batch")
        await asyncio.sleep(0.1)
        await type_into(pilot, "9")
        await settled(pilot)
        assert app.screen.state.plan.batch.micro_batch == 9


def test_only_the_newest_request_is_worked_on():
    first, second, third = (PlanRequest(name=name) for name in "abc")
    newest = Newest()
    assert newest.put(first) and newest.take() is first
    assert not newest.put(second) and not newest.put(third), "the thread is there already"
    assert newest.is_stale(first) and newest.is_stale(second) and not newest.is_stale(third)
    assert newest.take() is third and newest.take() is None
    assert newest.put(first), "a thread that ended is started again"
    newest.stale()
    assert newest.is_stale(first) and newest.take() is None
    newest.close()
    assert not newest.put(second) and newest.take() is None


def test_values_are_planned_while_the_data_is_still_being_read(tmp_path, monkeypatch):
    """A large file takes minutes; nobody waits for it to see what another micro-batch costs."""
    monkeypatch.chdir(tmp_path)
    go_on, reads = threading.Event(), []
    real = gather.gather_data

    def slow(config):
        reads.append(config)
        assert go_on.wait(300)
        return real(config)

    monkeypatch.setattr(gather, "gather_data", slow)
    reader = PlanReader(probe_here(PlanRequest()))
    try:
        for micro in (8, 16):
            request = PlanRequest(profile="cpu-demo", overrides={"batch.micro_batch_size": micro})
            plans, seen = [], []
            for reading in reader.read(request, lambda seen=seen: bool(seen)):
                if reading.plan is not None:
                    plans.append(reading)
                    seen.append(reading)
            assert plans[-1].plan.batch.micro_batch == micro and plans[-1].waits_for
        go_on.set()
        (*_, last) = reader.read(request, lambda: False)
        assert last.plan.batch.real_tokens is not None and not last.waits_for
        assert len(reads) == 1, "what was begun for an older request is not begun again"
    finally:
        go_on.set()
        reader.close()


def test_a_remedy_says_what_planning_it_gives(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = probe_here(PlanRequest())
    reader, request, readings = PlanReader(here), PlanRequest(profile="2080super"), []
    (*_, last) = reader.read(request, lambda: False)
    reader.improve(request, lambda: False, readings.append)
    remedies = numbered_remedies(last.plan.findings)
    assert remedies
    for remedy in remedies:
        expected = Effect.of(plan_run(with_changes(request, remedy.changes), here))
        assert readings[-1].effects[effect_key(remedy.changes)] == expected


def test_what_a_remedy_brings_is_before_and_after():
    before = Effect(6 * GIB, "does_not_fit", "analytic", 3600.0, 7200.0)
    after = replace(before, memory_bytes=4 * GIB, verdict="fits", total_low_s=7200.0, total_high_s=14400.0)
    assert effect_words(before, after, UNICODE_MARKS).plain == "6.0 → 4.0 GiB ✓ fits · 1 to 2 h → 2 to 4 h"
    traced = replace(after, tier="traced", total_low_s=3600.0, total_high_s=7200.0)
    assert effect_words(before, traced, UNICODE_MARKS).plain == "6.0 → 4.0 GiB ✓ fits (traced)"
    assert effect_words(before, before, UNICODE_MARKS).plain == "memory and time unchanged"


async def test_better_figures_of_an_old_request_end_before_the_new_one_is_planned():
    """They wait for another process, which the new request needs too."""

    class Improving(HeldReader):
        improves, ended = threading.Event(), threading.Event()

        def improve(self, request, is_cancelled, on_reading):
            self.improves.set()
            while not is_cancelled():
                time.sleep(0.005)
            self.ended.set()

    reader = Improving()
    async with frozen(reader) as (app, _pilot):
        assert await asyncio.to_thread(reader.improves.wait, 100) and not reader.ended.is_set()
        reader.may_answer.clear()
        app.screen._change_request(PlanRequest(profile="2080super", overrides={"training.max_steps": 7}))
        try:
            assert await asyncio.to_thread(reader.ended.wait, 100)
        finally:
            reader.may_answer.set()


async def test_a_remedy_is_a_button_for_mouse_and_keyboard():
    async with frozen() as (app, pilot):
        assert "1  apply: 2,000 steps" in shown(app)
        app.screen.query_one("#remedy-2", RemedyButton).focus()
        await go(pilot, "enter")
        assert app.screen.state.request.overrides == {"model.name": "esm2-8m"}
        assert app.screen.state.step == HARDWARE and app.focused.id == "remedy-2", "the button keeps the focus"
        await pilot.click("#remedy-1")
        await settled(pilot)
        assert app.screen.state.request.overrides == {"model.name": "esm2-8m", "training.max_steps": 2000}
        app.screen._change_request(PlanRequest(profile="2080super"))
        await go(pilot, "2")
        assert app.screen.state.request.overrides == {"model.name": "esm2-8m"}
        await go(pilot, "9")
        assert app.screen.state.request.overrides == {"model.name": "esm2-8m"}, "there is no ninth one"


def is_dimmed(app) -> bool:
    """Every line of the plan is in the quiet colour."""
    lines = app.screen.query_one("#panel-plan", TextLines).content_lines()
    return all(any(span.style == "$muted" and span.end == len(line) for span in line.spans) for line in lines if line)


async def test_an_old_plan_is_dimmed_and_never_blank():
    reader = HeldReader()
    async with frozen(reader) as (app, pilot):
        await to_field(pilot, "micro_batch")
        reader.may_answer.clear()
        await type_into(pilot, "7")
        while not app.screen.state.slow:
            await pilot.pause(0.01)
            text = shown(app)
            assert "sequences" in text and "GiB" in text
        await pilot.pause()
        assert "updating" in shown(app) and is_dimmed(app)
        reader.may_answer.set()
        await settled(pilot)
        assert "updating" not in shown(app) and not is_dimmed(app)
        assert "4,557 sequences" in shown(app)


def test_the_parts_of_the_peak_are_a_bar_with_a_legend():
    parts = {"gradients": 2 * GIB, "weights": 4 * GIB, "activations": 2 * GIB, "context": 1}
    bar, *legend = (line.plain for line in part_lines(parts, 40, UNICODE_MARKS))
    assert bar == "█" * 20 + "▓" * 10 + "▒" * 10
    assert "  ".join(legend).split("  ") == ["█ weights 4.0", "▓ gradients 2.0", "▒ activations 2.0"]
    assert part_lines({}, 40, UNICODE_MARKS) == []


class LaterReader(FrozenReader):
    """A minute passes whenever it is asked."""

    def dated(self, request, reading):
        return replace(reading, folder="runs/of-this-minute", read_at=reading.read_at + timedelta(minutes=1))


async def test_a_screen_that_is_left_alone_says_when_a_start_now_would_be_done(monkeypatch):
    monkeypatch.setattr(plan_screen, "DATED_EVERY_S", 0.2)
    async with frozen(LaterReader(findings=()), at_review=True, size=(160, 60)) as (_app, pilot):
        first = pilot.app.screen.state.reading.read_at
        await until(pilot, lambda: pilot.app.screen.state.reading.read_at > first)
        await pilot.pause()
        state = pilot.app.screen.state
        assert not state.updating
        assert "runs/of-this-minute" in shown(pilot.app)
