"""A frozen world for tests of the wizard: one machine, one plan that answers changes, no clock, no disk."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from textual.content import Content
from textual.events import Paste
from textual.pilot import Pilot
from textual.screen import Screen
from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.config import RunConfig
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.data.reader import Column
from trainwiz.core.data.summary import DataSummary, Glance
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.hardware.machine import Gpu, Libraries, Machine
from trainwiz.core.plan.result import BatchPlan, MemoryPlan, Plan, PlannedModel, TimePlan
from trainwiz.core.telemetry.gpu import GpuLoads
from trainwiz.core.telemetry.snapshot import GpuReading
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_reader import PlanReader
from trainwiz.tui.screens.plan_state import Offer, Reading
from trainwiz.tui.widgets.field_row import FieldRow

GIB = 1024**3
NOW = datetime(2026, 11, 21, 14, 2)
FROZEN = PlanRequest(profile="2080super")

CARD = Gpu(
    index=0, uuid="GPU-1", name="NVIDIA GeForce RTX 2080 SUPER", memory_total_bytes=8 * GIB,
    memory_free_bytes=int(7.8 * GIB), compute_capability="7.5", driver="550.54", catalogue_name="RTX 2080 Super",
)  # fmt: skip
MACHINE = Machine(
    gpus=(CARD,), cpu_cores=12, ram_total_bytes=int(62.7 * GIB), ram_available_bytes=50 * GIB,
    disk_free_bytes=181 * GIB, disk_path="/home/someone", accelerator="cuda",
    libraries=Libraries({"torch": "2.13.0", "deepspeed": None}),
)  # fmt: skip

FEWER_STEPS = Remedy("2,000 steps: 11 to 27 days", changes={"training.max_steps": 2000})
SMALLER = Remedy("ESM-2 8M: 29 to 74 days", changes={"model.name": "esm2-8m"})
YEARS = "The plan takes years."
TAKES_YEARS = Finding("implausible_time", "warning", "training.max_steps", YEARS, (FEWER_STEPS, SMALLER))
MANY_WORKERS = Finding("host_ram", "warning", "data.workers", "12 workers use 9.1 GiB of RAM [bold]here[/bold].")
MISSING = Finding(
    "missing_hardware", "error", "engine.device", "This machine has no RTX 2080 Super.", (Remedy("plan --gpu"),)
)

COLUMNS = ("sequence", "id", "length")
DATA = DataSummary(10_000, True, tuple(range(30, 900)), bytes_on_disk=3 * 1024**2, columns=COLUMNS)
GLANCE = Glance(
    Path("proteins.parquet"),
    1,
    (Column("sequence"), Column("id"), Column("length", False, "int64")),
    (("MKVLA[red]TT", "a\x1b[31mb", "12"), ("MSSQ", "", "4"), ("[/]", None, "3")),
    text=0,
)

MODEL = ModelSpec(
    "esm2-650m",
    {"num_hidden_layers": 33, "hidden_size": 1280, "num_attention_heads": 20},
    "masked-lm",
    hub_id="facebook/esm2_t33_650M_UR50D",
)


OF_THE_PROFILE = {"batch.target_tokens": 2_000_000, "training.max_steps": 500_000, "training.learning_rate": 4e-4}
DETECTED = {"engine.precision": "fp16", "engine.attention": "sdpa"}
SOLVED = {
    "batch.micro_batch_size": 6, "batch.gradient_accumulation_steps": 651, "engine.checkpointing": True,
    "engine.optimizer": "adamw_torch", "engine.strategy": "zero2",
}  # fmt: skip
REASONS = {
    "engine.precision": "the card has compute capability 7.5; bf16 needs 8.0",
    "engine.attention": "flash-attn needs sm 8.0",
}


def make_config(request: PlanRequest) -> RunConfig:
    config = RunConfig(profile=request.profile, name=request.name or "frozen").with_values(OF_THE_PROFILE, "profile")
    config = config.with_values(DETECTED, "detected", REASONS)
    config = config.with_values(SOLVED, "solved", {"batch.micro_batch_size": "the largest that fits"})
    return config.with_values(dict(request.overrides), "you")


def make_frozen_plan(
    request: PlanRequest, findings: tuple[Finding, ...] = (TAKES_YEARS, MANY_WORKERS), machine: Machine = MACHINE
) -> Plan:
    """Every figure follows from the request by simple arithmetic, so that a change can be seen."""
    config = make_config(request)
    micro, accumulation = config.batch.micro_batch_size or 1, config.batch.gradient_accumulation_steps or 1
    samples = micro * accumulation
    length = config.batch.sequence_length
    steps = config.training.max_steps or 1
    batch = BatchPlan(
        micro, accumulation, 1, length, samples, samples * length, 1_130_000, 2_000_000, None, -6.4e-5,
        padded_tokens=1_450_000, padding_waste=0.22, arranged_waste=0.04,
    )  # fmt: skip
    time = TimePlan(
        step_s=700, step_low_s=460, step_high_s=1150, steps=steps, epochs=None,
        total_s=700 * steps, total_low_s=460 * steps, total_high_s=1150 * steps,
        evaluation_s=10, saving_s=10, tokens_per_s=2000, fraction_of_peak=0.2, basis="formula",
        verdict="implausible" if steps > 10_000 else "plausible", basis_text="from published runs on similar GPUs",
        total_tokens=samples * length * steps, real_tokens=1_130_000 * steps,
        energy_low_kwh=0.03 * steps, energy_high_kwh=0.06 * steps,
        energy_cost_low=0.009 * steps, energy_cost_high=0.018 * steps, currency="EUR",
    )  # fmt: skip
    memory = MemoryPlan(
        tier="analytic", allocated_bytes=5 * GIB, reserved_bytes=int(5.2 * GIB),
        device_used_bytes=int(0.95 * GIB * micro), low_bytes=int(0.9 * GIB * micro), high_bytes=int(1.2 * GIB * micro),
        needed_bytes=int(0.9 * GIB * micro), needed_high_bytes=int(0.98 * GIB * micro),
        breakdown={"weights": int(1.2 * GIB), "gradients": int(0.8 * GIB), "activations": int(2.9 * GIB)},
        peak_moment="backward of layer 33", capacity_bytes=int(7.8 * GIB), device="GPU 0 · RTX 2080 Super",
        verdict="fits" if micro < 8 else "tight" if micro == 8 else "does_not_fit",
        host_ram_bytes=int(21.4 * GIB), host_ram_capacity_bytes=int(62.7 * GIB), host_ram_parts={},
        disk_bytes=int(18.9 * GIB), disk_capacity_bytes=181 * GIB, evaluation_bytes=3 * GIB,
        basis="formulas", waiting="tracing layer by layer…",
    )  # fmt: skip
    start = "trains from scratch (random initialization)"
    model = PlannedModel(config.model.name, "EsmForMaskedLM", 651_000_000, 651_000_000, start)
    return Plan(machine=machine, config=config, model=model, batch=batch, memory=memory, time=time, findings=findings)


FROZEN_FILES = {"run.yaml": "name: frozen\nnote: '[red]text[/red]'\n", "launch.sh": "#!/bin/sh\nexec accelerate\n"}


class FrozenReader(PlanReader):
    """The machine first, then everything; nothing is better than frozen. Remembers what it was asked."""

    def __init__(self, findings: tuple[Finding, ...] = (TAKES_YEARS, MANY_WORKERS), machine: Machine = MACHINE) -> None:
        super().__init__(machine)
        self.findings = findings
        self.machine = machine
        self.asked: list[PlanRequest] = []
        self.problem: tuple[Finding, ...] = ()
        """What makes a request impossible, when set."""
        self.may_answer = threading.Event()
        """Cleared: what is asked waits."""
        self.may_answer.set()

    def read(self, request: PlanRequest, is_cancelled: Callable[[], bool]) -> Iterator[Reading]:
        self.asked.append(request)
        assert self.may_answer.wait(300)
        first = Reading(
            machine=self.machine,
            profiles=(Offer("cpu-demo", note="tiny model, sample data"), Offer("2080super", note="RTX 2080 Super")),
            models=(Offer("esm2-8m", note="7.5M"), Offer("esm2-650m", note="651M")),
            samples=(Offer("sample-proteins", note="512 made-up proteins"),),
            waits_for="reading the data",
        )
        yield first
        if self.problem:
            yield replace(first, findings=self.problem, waits_for="")
            return
        yield replace(
            first,
            model=MODEL,
            data=DATA,
            glance=GLANCE,
            plan=make_frozen_plan(request, self.findings, self.machine),
            files=FROZEN_FILES,
            folder=request.output_dir or "runs/2026-11-21_1402-frozen",
            waits_for="",
            read_at=NOW,
        )

    def loads(self) -> GpuLoads:
        """Every card is idle, as the machine was read."""
        return GpuLoads(
            tuple(
                GpuReading(gpu.index, uuid=gpu.uuid, memory_used_bytes=gpu.memory_other_bytes, utilization_percent=0)
                for gpu in self.machine.gpus
            )
        )


def frozen_app(
    reader: Any = None, request: PlanRequest = FROZEN, *, ascii_only: bool = False, **more: Any
) -> TrainwizApp:
    """The wizard over a frozen world; dark."""
    reader = reader or FrozenReader()
    return TrainwizApp(lambda: PlanScreen(request, reader=reader, **more), ascii_only=ascii_only)


class PatientPilot(Pilot[int]):
    """Textual's pause ends when the process used no processor for a moment: so does one that a busy machine lets wait."""

    async def pause(self, delay: float | None = None) -> None:
        await super().pause(delay)
        quiet = 0
        while quiet < 3:
            await asyncio.sleep(0)
            nodes = [
                self.app,
                *(node for screen in self.app.screen_stack for node in screen.walk_children(with_self=True)),
            ]
            quiet = quiet + 1 if all(node.message_queue_size == 0 for node in nodes) else 0
        self.app.screen._on_timer_update()


@asynccontextmanager
async def running(app: TrainwizApp, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Pilot[int]]:
    """Nobody looks at this terminal, and painting it takes half of the time: `shown` draws what is asked for."""
    with patch.object(Screen, "_compositor_refresh", lambda screen: None), patch("textual.pilot.Pilot", PatientPilot):
        async with app.run_test(size=size) as pilot:
            yield pilot


@asynccontextmanager
async def on_screen(
    app: TrainwizApp, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[TrainwizApp, Pilot[int]]]:
    """The wizard on the screen, with its first plan."""
    async with running(app, size) as pilot:
        await settled(pilot)
        yield app, pilot


def frozen(reader: Any = None, size: tuple[int, int] = (120, 40), **more: Any) -> AbstractAsyncContextManager[Any]:
    """The wizard over a frozen world."""
    return on_screen(frozen_app(reader, **more), size)


def real(request: PlanRequest, size: tuple[int, int] = (120, 40), **more: Any) -> AbstractAsyncContextManager[Any]:
    """The wizard over this machine and this folder."""
    more.setdefault("reader", PlanReader())
    return on_screen(TrainwizApp(lambda: PlanScreen(request, **more), ascii_only=False), size)


def plain(lines: Iterable[Content]) -> str:
    """Drawn lines as text."""
    return "\n".join(line.plain for line in lines)


async def settled(pilot: Pilot[Any]) -> None:
    """Wait until the plan on the screen belongs to the request, without a fixed sleep."""
    await pilot.pause()
    for _ in range(3000):
        # A pause of the pilot asks every widget: too much to wait with.
        screen = next((one for one in pilot.app.screen_stack if isinstance(one, PlanScreen)), None)
        if screen is None or not screen.state.updating:
            # For the new heights.
            await pilot.pause()
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the plan never came")


WIDE = (120, 40)


def shown(app: TrainwizApp) -> str:
    """All text that is on the screen."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def shown_in(pilot: Any, part: str = "#form") -> str:
    """The text of one part of the screen alone, its lines joined."""
    region = pilot.app.screen.query_one(part).region
    lines = shown(pilot.app).splitlines()[region.y : region.bottom]
    return " ".join(" ".join(line[region.x : region.right].strip("│ ") for line in lines).split())


async def until(pilot: Any, holds: Callable[[], object]) -> None:
    """Wait for an event; the limit is only there against hanging."""
    end = time.monotonic() + 60
    await pilot.pause()
    while not holds():
        assert time.monotonic() < end, shown(pilot.app)
        await asyncio.sleep(0.03)
    await pilot.pause()


async def go(pilot, *keys: str) -> None:
    await pilot.press(*keys)
    await settled(pilot)


async def to_field(pilot, name: str) -> FieldRow:
    """Go to a field, on whichever step it is."""
    await pilot.app.screen._found(name)
    await pilot.pause()
    row = pilot.app.focused
    assert isinstance(row, FieldRow) and row.spec.id == name
    return row


async def type_into(pilot, text: str) -> None:
    await pilot.press("space")
    await pilot.pause()
    await pilot.press(*text)


async def change(pilot: Any, label: str, text: str) -> None:
    """One field, by its name and what a person would type: pasted, since the screen is then drawn once for all letters."""
    for key, words in (("slash", label), ("space", text)):
        await pilot.press(key)
        pilot.app.post_message(Paste(words))
        await pilot.pause()
        await go(pilot, "enter")
        row = pilot.app.focused
        assert isinstance(row, FieldRow) and row.spec.label == label, f"{label}: the focus is on {row}"
