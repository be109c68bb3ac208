"""The curve of the learning rate: drawn of the resolved config, in braille, blocks and ASCII, folded where it is low."""

from __future__ import annotations

from trainwiz.core.config import RunConfig
from trainwiz.core.export.training_arguments import RateSchedule, rate_schedule
from trainwiz.tui.widgets.canvas import ASCII, BLOCK, BRAILLE
from trainwiz.tui.widgets.plan_charts import rate_lines, rate_picture

from tests.each import each
from tests.tui.wizard_keys import go, shown, to_field, type_into
from tests.tui.wizard_parts import frozen, settled


def schedule(steps: int = 1000, **values: object) -> RateSchedule:
    keys = {f"training.{key}": value for key, value in values.items()}
    config = RunConfig().with_values({"training.max_steps": steps, "training.learning_rate": 4e-4, **keys}, "you")
    return rate_schedule(config, steps)


def text(rows: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(part for part, _ in row) for row in rows]


def test_warm_up_peak_and_end_stand_at_their_places():
    lines = text(rate_picture(schedule(warmup=0.5, schedule="linear"), 46, 7, ASCII))
    assert all(len(line) == 46 for line in lines)
    assert lines[0].startswith("4.0e-4 ") and lines[5].startswith("     0 ")
    top = lines[0][7:]
    assert abs(top.index("*") + top.rindex("*") - 38) <= 4, "the peak is in the middle"
    assert lines[5][7] == "*" and lines[5][-1] == "*", "it begins and ends at the bottom"
    assert lines[6].split() == ["0", "500", "1,000"]


@each(("steps", "warmup"), [(1, 0), (2, 5), (3, 0.02), (10**12, 10**13), (10**12, 0.02)])
@each("kind", ["cosine", "constant"])
@each("glyphs", [BRAILLE, BLOCK, ASCII])
def test_no_schedule_is_too_short_or_too_long(steps, warmup, kind, glyphs):
    values = schedule(steps, warmup=warmup, schedule=kind, final_learning_rate=1e-5)
    for width in (24, 40, 120):
        assert [len(line) for line in text(rate_picture(values, width, 6, glyphs))] == [width] * 6
    for folded in (True, False):
        for width in (1, 10, 28, 29, 40, 90):
            lines = rate_lines(values, "Some words about the rate.", width, glyphs, folded=folded, style="")
            assert lines and all(line.cell_length <= max(width, 13) for line in lines)


async def test_the_curve_follows_what_is_typed():
    async with frozen(size=(120, 40)) as (app, pilot):
        await to_field(pilot, "schedule")
        assert "Linear decay from 4e-4 to 0 at step" in shown(app)
        await go(pilot, "right")
        assert "Cosine decay from 4e-4 to 0 at step 500,000" in shown(app)
        await to_field(pilot, "warmup")
        await type_into(pilot, "2000")
        await settled(pilot)
        screen = shown(app)
        assert "Warmup to 4e-4 over 2,000 steps, then cosine" in screen and "500,000" in screen
        assert any("⠉" in line for line in screen.splitlines()), "braille"
        await go(pilot, "enter")
        await to_field(pilot, "final_learning_rate")
        await pilot.resize_terminal(80, 24)
        await settled(pilot)
        lines = shown(app).splitlines()
        place = next(index for index, line in enumerate(lines) if "Warmup to 4e-4" in line)
        assert any("\u2801" <= letter <= "\u28ff" for letter in lines[place]), "one line where the screen is low"
        assert not any("\u2801" <= letter <= "\u28ff" for letter in lines[place + 1])
