"""Draws the pictures of every screen into screenshots/, as SVG and PNG: make screenshots

`scripts/screenshots.py monitor` draws those of the monitor only, `scripts/screenshots.py plan` those of the wizard.

The wizard is the product's own over a described machine, its memory traced in full; the monitor reads run folders
that are written here in the real format. Nothing is trained and the clock stands, so the pictures are the same each time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from textual.events import Paste  # noqa: E402
from trainwiz.core.config.request import PlanRequest  # noqa: E402
from trainwiz.core.hardware.read import catalogue_machine  # noqa: E402
from trainwiz.core.language import use_language  # noqa: E402
from trainwiz.core.telemetry import target as targets  # noqa: E402
from trainwiz.core.telemetry.gpu import GpuLoads  # noqa: E402
from trainwiz.core.telemetry.snapshot import GpuReading  # noqa: E402
from trainwiz.core.telemetry.target import Source, Target  # noqa: E402
from trainwiz.tui.app import TrainwizApp  # noqa: E402
from trainwiz.tui.screens import plan_reader  # noqa: E402
from trainwiz.tui.screens.monitor import MonitorScreen  # noqa: E402
from trainwiz.tui.screens.plan import PlanScreen  # noqa: E402
from trainwiz.tui.screens.plan_reader import PlanReader  # noqa: E402

from tests.core.telemetry.written_run import NOW_S  # noqa: E402
from tests.tui.monitor_states import STATES, RecordedProcess, target_of  # noqa: E402
from tests.tui.test_monitor_snapshots import drawn  # noqa: E402
from tests.tui.wizard_parts import settled  # noqa: E402

TARGET = REPOSITORY / "screenshots"
SIZES = {"120x40": (120, 40), "80x24": (80, 24), "60x20": (60, 20)}
STEPS = ("hardware", "model", "data", "training", "review")
GIB = 1024**3
MOST_WAITS = 1200
BAR = "Map:  {percent}%|{bar:<10}| {done:,}/10,000 [00:0{second}<00:0{left}, 2,180 examples/s]\n"
LOG = (
    "loading uniref.parquet: 10,000 rows\n"
    + "".join(
        BAR.format(percent=share * 10, bar="#" * share, done=share * 1000, second=share // 2, left=(10 - share) // 2)
        for share in range(11)
    )
    + "model esm2-650m, 651,043,254 parameters; ZeRO-2, optimizer in host RAM\n"
    "/opt/conda/lib/python3.11/site-packages/torch/utils/checkpoint.py:85: UserWarning: None of the inputs have "
    "requires_grad=True. Gradients will be None\n"
    + "".join(
        f"step {step}/500000  loss {2.61 + (step * 7 % 40) / 1000:.4f}  learning rate 0.00024  1,52{step % 9} non-padding tokens/s\n"
        for step in range(1500, 1600, 4)
    )
    + """\
step 1600/500000  loss 2.6141  learning rate 0.00024  1,523 non-padding tokens/s
step 1600/500000  evaluation: loss 2.7043, perplexity 14.9440, accuracy 0.2310
checkpoint-1600 saved in 13 s
"""
)

SCRIPT = """\
from transformers import TrainingArguments

args = TrainingArguments(
    output_dir="out", evaluation_strategy="epoch", per_gpu_train_batch_size=4, gradient_accumulation_steps=8,
    learning_rate=5e-5, bf16=True, warmup_ratio=0.1, num_train_epochs=3, push_to_hub=True, run_name=NAME,
)
"""

CARDS = {
    "range": ("tab", "plus", "left"),
    "metrics": ("m",),
    "log": ("l",),
    "palette": ("colon",),
    "help": ("tab", "f1"),
}
"""Name of a picture -> the keys that lead to it."""

Drawn = Callable[[object], Awaitable[None]]


def described_machine() -> object:
    """A lab computer with one RTX 2080 Super, as if it were this one."""
    machine = catalogue_machine(gpu="RTX 2080 Super", num_gpus=1, ram_bytes=64 * GIB, cpu_cores=12)
    return replace(
        machine,
        hypothetical=False,
        ram_available_bytes=58 * GIB,
        disk_free_bytes=181 * GIB,
        disk_path=".",
        torch_cuda="13.0",
        libraries=replace(machine.libraries, versions={"torch": "2.13.0", "deepspeed": "0.19.8"}),
    )


class StandingClock(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> StandingClock:
        return cls(2026, 11, 21, 14, 2)


class DescribedReader(PlanReader):
    """Reads the world but for the GPUs: they are the described ones, idle."""

    def loads(self) -> GpuLoads:
        gpus = described_machine().gpus  # type: ignore[attr-defined]
        return GpuLoads(
            tuple(
                GpuReading(gpu.index, uuid=gpu.uuid, memory_used_bytes=gpu.memory_other_bytes, utilization_percent=0)
                for gpu in gpus
            )
        )

    def forget_machine(self) -> None:
        """It stays."""


async def picture(app: TrainwizApp, name: str, size: tuple[int, int], ready: Drawn) -> None:
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        svg = app.export_screenshot(title="trainwiz")
    save(name, svg)


def save(name: str, svg: str) -> None:
    """SVG as Textual draws it; PNG with a font that has all glyphs in one width."""
    (TARGET / f"{name}.svg").write_text(svg, encoding="utf-8")
    if not has_glyphs(svg):
        print(f"screenshots/{name}.svg")
        return
    import resvg_py

    styled = svg.replace("Fira Code", "DejaVu Sans Mono").replace("font-family: arial", "font-family: DejaVu Sans Mono")
    (TARGET / f"{name}.png").write_bytes(bytes(resvg_py.svg_to_bytes(svg_string=styled, zoom=2)))
    print(f"screenshots/{name}.svg, .png")


def has_glyphs(svg: str) -> bool:
    """Chinese letters are not in the font of the PNGs; an SVG is drawn with the reader's own."""
    return not any("\u4e00" <= letter <= "\u9fff" for letter in svg)


async def traced(pilot: object) -> None:
    """Until the plan on the screen has the best figures."""
    await settled(pilot)
    screen = pilot.app.screen  # type: ignore[attr-defined]
    for _ in range(MOST_WAITS):
        memory = screen.state.plan.memory
        if memory.tier == "traced" and not memory.waiting:
            return
        await pilot.pause(0.1)  # type: ignore[attr-defined]
    raise SystemExit(f"no full trace came: {memory.tier}, {memory.basis}, {memory.waiting}")


async def wizard_pictures() -> None:
    machine = described_machine()
    # The one thing the reader asks of the real computer for each request.
    plan_reader.free_disk = lambda path: 181 * GIB  # type: ignore[attr-defined]
    plan_reader.datetime = StandingClock  # type: ignore[attr-defined]

    def screen(profile: str, at_review: bool) -> TrainwizApp:
        reader = DescribedReader(machine, "full")  # type: ignore[arg-type]
        request = PlanRequest(
            profile=profile, overrides={"data.sources.0.name": "sample-proteins"}, output_dir="runs/demo"
        )
        app = TrainwizApp(lambda: PlanScreen(request, at_review=at_review, reader=reader), ascii_only=False)
        app.theme = "dark"
        return app

    for index, step in enumerate(STEPS):

        async def ready(pilot: object, presses: int = index) -> None:
            await traced(pilot)
            for _ in range(presses):
                await pilot.press("enter")  # type: ignore[attr-defined]
            await settled(pilot)
            await pilot.pause(0.3)  # type: ignore[attr-defined]

        await picture(screen("2080super", at_review=False), f"plan-{step}-120x40-dark", SIZES["120x40"], ready)

    async def shown(pilot: object) -> None:
        await traced(pilot)
        await pilot.pause(0.3)  # type: ignore[attr-defined]

    async def imported(pilot: object) -> None:
        await traced(pilot)
        await pilot.press("i")  # type: ignore[attr-defined]
        pilot.app.post_message(Paste(SCRIPT))  # type: ignore[attr-defined]
        await pilot.pause(1.0)  # type: ignore[attr-defined]

    await picture(screen("2080super", at_review=False), "plan-import-120x40-dark", SIZES["120x40"], imported)
    for size in ("80x24", "60x20"):
        await picture(screen("2080super", at_review=False), f"plan-hardware-{size}-dark", SIZES[size], shown)
    use_language("zh")
    await picture(screen("2080super", at_review=True), "plan-review-120x40-dark-zh", SIZES["120x40"], shown)
    use_language("en")
    light = screen("2080super", at_review=True)
    light.theme = "light"
    await picture(light, "plan-review-120x40-light", SIZES["120x40"], shown)


async def monitor_pictures() -> None:
    wanted = [("running", size, theme) for size in SIZES for theme in ("dark", "light")]
    wanted += [(state, "120x40", "dark") for state in STATES if state != "running"]
    wanted += [("nan", "120x40", "high-contrast"), ("trainer", "60x20", "dark"), ("process", "80x24", "light")]
    for state, size, theme in wanted:
        name = f"monitor-{size}-{theme}" if state == "running" else f"monitor-{state}-{size}-{theme}"
        await picture(watching(state, theme), name, SIZES[size], drawn)  # type: ignore[arg-type]
    for name, keys in CARDS.items():

        async def pressed(pilot: object, keys: tuple[str, ...] = keys) -> None:
            await drawn(pilot)  # type: ignore[arg-type]
            await pilot.press(*keys)  # type: ignore[attr-defined]
            await pilot.pause(0.5)  # type: ignore[attr-defined]

        await picture(watching("nan", "dark"), f"monitor-{name}-120x40-dark", SIZES["120x40"], pressed)
    app = watching("nan", "dark", ascii_only=True)
    await picture(app, "monitor-ascii-80x24-dark", SIZES["80x24"], drawn)  # type: ignore[arg-type]


def watching(state: str, theme: str, ascii_only: bool = False) -> TrainwizApp:
    """The monitor on what the state needs, which is written anew."""
    shutil.rmtree("runs", ignore_errors=True)
    target = target_of(state, Path("runs"), LOG)
    if ascii_only:
        os.environ["TRAINWIZ_PLOT"] = "ascii"
    else:
        os.environ.pop("TRAINWIZ_PLOT", None)
    app = TrainwizApp(
        lambda: MonitorScreen(target, interval_s=3600.0, clock=lambda: NOW_S),
        ascii_only=ascii_only,
    )
    app.theme = theme
    return app


def recorded(open_source: Callable[..., Source]) -> Callable[..., Source]:
    """`open_source`, but of a process as it once was: there is none to watch while pictures are made."""

    def opened(target: Target, **more: Any) -> Source:
        return RecordedProcess(target) if target.kind == "process" else open_source(target, **more)

    return opened


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    for name in ("NO_COLOR", "TRAINWIZ_THEME", "TRAINWIZ_ASCII", "TRAINWIZ_PLOT", "COLORFGBG"):
        os.environ.pop(name, None)
    os.environ.update(TZ="UTC", TERM="xterm-256color", COLORTERM="truecolor")
    time.tzset()
    with tempfile.TemporaryDirectory() as home:
        for kind in ("CONFIG", "CACHE", "DATA"):
            os.environ[f"XDG_{kind}_HOME"] = home
        os.chdir(home)
        if "monitor" not in sys.argv[1:]:
            asyncio.run(wizard_pictures())
        targets.open_source = recorded(targets.open_source)
        if "plan" not in sys.argv[1:]:
            asyncio.run(monitor_pictures())


if __name__ == "__main__":
    main()
