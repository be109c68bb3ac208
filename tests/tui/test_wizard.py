"""The wizard by keyboard, over a frozen world: steps, what stands on the screen, sizes, help."""

from __future__ import annotations

from trainwiz.tui.screens.plan_fields import DATA, HARDWARE, MODEL, REVIEW, TRAINING
from trainwiz.tui.widgets.field_row import ActionButton
from trainwiz.tui.widgets.frame import HelpCard

from tests.tui.wizard_keys import WIDE, go, shown, to_field
from tests.tui.wizard_parts import frozen_app, settled


async def test_four_enters_go_through_the_steps_and_escape_goes_back():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        assert app.screen.state.step == HARDWARE
        for step in (MODEL, DATA, TRAINING, REVIEW):
            await go(pilot, "enter")
            assert app.screen.state.step == step
        assert isinstance(app.focused, ActionButton) and app.focused.action == "start"
        for step in (TRAINING, DATA, MODEL, HARDWARE, HARDWARE):
            await go(pilot, "escape")
            assert app.screen.state.step == step
        assert app.screen.state.reached == REVIEW


async def test_numbers_of_the_plan_stand_on_the_screen():
    app = frozen_app()
    async with app.run_test(size=(120, 60)) as pilot:
        await settled(pilot)
        text = shown(app)
        assert "6 × 651 × 1 process  =  3,906 sequences" in text
        assert "1,999,872 tokens a step" in text and "−0.01 % of target" in text
        assert "✓ fits" in text and "5.4 GiB" in text and "between 5.1 and 5.9" in text
        assert "21.4 of    62.7 GiB" in text
        assert "! 7.3 to 18 years" in text
        assert "2 findings" in text and "The plan takes years." in text
        # Text from outside is never markup.
        assert "[bold]here[/bold]" in text


async def test_f1_explains_the_focused_field():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await to_field(pilot, "precision")
        await pilot.press("f1")
        await pilot.pause()
        assert isinstance(app.screen, HelpCard)
        # One line for the digits: nine would push the other keys out of sight.
        assert [row.shown_key for row in app.screen._rows if row.id.startswith("plan.remedy")] == ["1-9"]
        text = shown(app)
        assert "number format" in text and "the card has sm 7.5" in text and "Safe choice" in text
        await go(pilot, "escape")
        assert not isinstance(app.screen, HelpCard)


SIZES = ((60, 20), (120, 40), (40, 10), (100, 30), (20, 5), (80, 24), (200, 60))


async def test_the_plan_is_on_the_screen_at_every_size():
    app = frozen_app()
    async with app.run_test(size=WIDE) as pilot:
        await settled(pilot)
        await go(pilot, "enter", "enter", "enter")
        for width, height in SIZES:
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            await pilot.pause()
            text = shown(app)
            assert "651" in text, f"the batch at {width}x{height}"
            assert "fits" in text or width < 40, (width, height)
            assert any(word in text for word in ("Training", "Target", "Length")), (width, height)
        assert "2 findings" in shown(app)
