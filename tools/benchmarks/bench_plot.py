"""How fast the plot of the monitor is redrawn: 10,000 and a million points on 120x40."""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time

from textual.app import ComposeResult
from textual.screen import Screen
from trainwiz.core.telemetry.metrics import Curve, Series
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.widgets.drawing import PlotData
from trainwiz.tui.widgets.metric_panel import Plot

from tools.benchmarks.measure import Result

LIMIT_MS = 8.0
LIMIT_RATIO = 4.0
"""A hundred times the points may cost a few times as much: the series is kept in bounded memory."""


class PlotScreen(Screen[None]):
    def compose(self) -> ComposeResult:
        yield Plot()


def curve_of(points: int) -> Curve:
    noise = random.Random(1)
    series = Series()
    for step in range(points):
        series.add(step, 2.6 + noise.gauss(0, 0.05) + 0.5 * (1 - step / points))
    return series.curve()


async def redraw_ms(points: int, repeats: int = 40) -> float:
    """Median milliseconds to draw the points and to render every line of the widget."""
    curve = curve_of(points)
    app = TrainwizApp(PlotScreen, ascii_only=False)
    async with app.run_test(size=(120, 40)) as pilot:
        plot = app.screen.query_one(Plot)
        times = []
        for logarithmic in (False, True) * (repeats // 2):
            started = time.perf_counter()
            plot.show(PlotData(curve, logarithmic=logarithmic))
            for line in range(plot.size.height):
                plot.render_line(line)
            times.append((time.perf_counter() - started) * 1000)
            await pilot.pause()
        return statistics.median(times)


def run() -> list[Result]:
    few = asyncio.run(redraw_ms(10_000))
    many = asyncio.run(redraw_ms(1_000_000))
    return [
        Result("plot: redraw of 10,000 points at 120x40, ms", few, LIMIT_MS, f"{few:.1f} ms"),
        Result("plot: a million points / 10,000 points", many / few, LIMIT_RATIO, f"{many:.1f} ms / {few:.1f} ms"),
    ]


if __name__ == "__main__":
    found = run()
    for result in found:
        print(f"{'holds' if result.holds else 'FAILS'}  {result.claim}: {result.detail}, limit {result.limit:g}")
    sys.exit(0 if all(result.holds for result in found) else 1)
