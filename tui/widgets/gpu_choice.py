"""GpuChoice: the GPUs of this machine with what each does now; space takes one or leaves it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text
from trainwiz.tui.screens.plan_machine import asked_gpus, is_asked, toggled, with_gpus
from trainwiz.tui.text import cells, cut, gib, pad, size
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.lists import FocusLines, Pressed, indented
from trainwiz.tui.widgets.step_form import PartRow, StepPart, is_small

if TYPE_CHECKING:
    from trainwiz.core.config.request import PlanRequest
    from trainwiz.core.hardware import Gpu, Machine
    from trainwiz.core.telemetry.gpu import GpuLoads
    from trainwiz.core.telemetry.snapshot import GpuProcess, GpuReading
    from trainwiz.tui.screens.plan import PlanScreen
    from trainwiz.tui.screens.plan_reader import PlanReader
    from trainwiz.tui.screens.plan_state import PlanState


# The lines of one GPU to choose: taken or not, name, busy, free memory, who holds it. Pure functions.

MOST_HOLDERS = 3
ROOMY_CELLS = 50


@dataclass(frozen=True, slots=True)
class RowView:
    """What a row shows of one card or slice."""

    gpu: Gpu
    load: GpuReading | None
    is_chosen: bool = False
    can_be_chosen: bool = False
    of_several: bool = False
    """There is something to choose: the row has a box."""


def row_views(machine: Machine, loads: GpuLoads | None, names: list[str] | None) -> list[RowView]:
    """The rows of all cards where those of these names are to train; None: all that are visible."""
    several = len(machine.visible_gpus) > 1 or (names is not None and len(machine.gpus) > 1)
    return [
        RowView(
            gpu,
            loads.of(gpu) if loads is not None else None,
            is_chosen=is_asked(gpu, names),
            can_be_chosen=several and (gpu.visible or (names is not None and is_asked(gpu, names))),
            of_several=several,
        )
        for gpu in machine.gpus
    ]


def row_lines(view: RowView, width: int, *, focused: bool, roomy: bool) -> list[Content]:
    """The lines of a row in `width` cells; `roomy` or the focus shows who holds the card."""
    gpu, problem = view.gpu, _problem(view)
    box = ("[x] " if view.is_chosen else "[ ] " if view.can_be_chosen else "    ") if view.of_several else ""
    number = f"{'  ' if gpu.parent_uuid else ''}{tr('GPU {index}', index=gpu.index)}"
    tail = "" if problem else _load_words(view, width >= ROOMY_CELLS)
    room = width - cells(tail) - 3
    left = pad(cut(f"{box}{number}  {plain_text(_name(gpu), 80)}", room, marks.ellipsis), room)
    style = "$foreground" if view.is_chosen or not view.of_several else "$muted"
    line = Content.assemble((f"{marks.here if focused else ' '} ", "$accent"), (f"{left} {tail}", style))
    if problem:
        return [line, *indented(f"{marks.tight} {problem}", width, "$warning")]
    return [line, *(indented(_holders_words(view.load), width) if focused or roomy or not view.of_several else ())]


def notes_below(machine: Machine, loads: GpuLoads | None, refused: str) -> list[str]:
    """What there is to say of all of them."""
    notes = [refused] if refused else []
    if loads is not None and loads.problem:
        notes.append(tr("Can't read the current state of the GPUs: {reason}.", reason=plain_text(loads.problem)))
    if machine.cuda_visible_devices is None:
        # What CUDA would take by itself: a run names its GPUs by UUID.
        return notes
    return notes + [plain_text(note) for note in machine.notes if "CUDA_VISIBLE_DEVICES" in note]


def _name(gpu: Gpu) -> str:
    if gpu.parent_uuid is not None and gpu.mig:
        return f"MIG {gpu.mig}"
    return (gpu.name or tr("unknown")).removeprefix("NVIDIA ").removeprefix("GeForce ")


def _problem(view: RowView) -> str:
    """Why the card cannot be used; empty where it can."""
    gpu, load = view.gpu, view.load
    reason = gpu.unavailable.get("gpu") or (load.problem if load is not None else None)
    if reason:
        return tr("This GPU can't be used: {reason}.", reason=plain_text(reason))
    if gpu.visible or view.can_be_chosen:
        return ""
    if gpu.mig == "enabled" or gpu.parent_uuid is not None:
        return tr("A run uses one MIG slice: the visible one, or the one that --gpus names.")
    return tr("Not visible to this process (CUDA_VISIBLE_DEVICES).")


def _load_words(view: RowView, is_roomy: bool) -> str:
    """ " 93%   5.0 of 8.0 GiB free", each part at the same place in every row."""
    from trainwiz.core.telemetry.gpu import free_bytes

    percent = view.load.utilization_percent if view.load is not None else None
    busy = "" if percent is None else f"{percent:.0f}%"
    words = mark("{free} of {total} GiB free") if is_roomy else mark("{free} GiB free")
    free, total = gib(free_bytes(view.gpu, view.load)), gib(view.gpu.memory_total_bytes)
    return f"{busy:>5}  {tr(words, free=f'{free:>5}', total=total)}"


def _holders_words(load: GpuReading | None) -> str:
    """Who holds the memory, the largest first; empty where nobody does or nobody is known."""
    if load is None or not load.processes:
        return ""
    holders = sorted(load.processes, key=lambda process: -(process.memory_used_bytes or 0))
    names = [_holder_words(holder) for holder in holders[:MOST_HOLDERS]]
    rest, listed = len(holders) - len(names), ", ".join(names)
    words = mark("used by {processes} and {n} more") if rest else mark("used by {processes}")
    return tr(words, processes=listed, n=rest)


def _holder_words(holder: GpuProcess) -> str:
    name = plain_text(holder.name, 30) if holder.name else tr("a process not visible from here")
    held = "" if holder.memory_used_bytes is None else f" {size(holder.memory_used_bytes)}"
    return f"{name} ({holder.pid}){held}"


class GpuRow(PartRow, FocusLines):
    """One card or MIG slice that can be taken for a run or left out. It holds no choice of its own."""

    field_id = "gpus"

    DEFAULT_CSS = """
    GpuRow { height: auto; }
    GpuRow:focus { background: $panel; }
    """

    def __init__(self, view: RowView) -> None:
        super().__init__()
        self.view = view
        self.can_focus = view.can_be_chosen

    def show(self, view: RowView) -> None:
        self.can_focus = view.can_be_chosen
        if view != self.view:
            self.view = view
            self.refresh(layout=True)

    def lines_in(self, width: int) -> list[Content]:
        return row_lines(self.view, width, focused=self.has_focus, roomy=not is_small(self))


LOOK_S = 2.0


class GpuChoice(StepPart):
    """Asks for the loads every two seconds while its step is on the screen, in a thread, one question at a time."""

    DEFAULT_CSS = """
    GpuChoice { height: auto; layout: vertical; }
    GpuChoice > .notes { height: auto; color: $muted; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._machine: Machine | None = None
        self._loads: GpuLoads | None = None
        self._is_looking = self._is_seen = False
        self._refused = ""
        self._notes = Static("", classes="notes", markup=False)

    def compose(self) -> ComposeResult:
        yield self._notes

    def on_mount(self) -> None:
        self.set_interval(LOOK_S, self._look)

    def show(self, state: PlanState) -> None:
        self._state = state
        machine = state.reading.machine
        planned = state.plan.machine if state.plan is not None else None
        self.display = machine is not None and bool(machine.gpus) and not (planned is not None and planned.hypothetical)
        if machine is not None and self.display:
            self._machine = machine
            self._draw_rows()
            if self._loads is None:
                self.call_after_refresh(self._look)

    def _draw_rows(self) -> None:
        machine, state = self._machine, self._state
        assert machine is not None and state is not None
        views = row_views(machine, self._loads, asked_gpus(state))
        rows = list(self.query(GpuRow))
        for row, view in zip(rows, views, strict=False):
            row.show(view)
        for row in rows[len(views) :]:
            row.remove()
        if len(views) > len(rows):
            self.mount_all([GpuRow(view) for view in views[len(rows) :]], before=self._notes)
        notes = notes_below(machine, self._loads, self._refused)
        self._notes.update(Content("\n").join(Content(f"    {line}") for line in notes))
        self._notes.display = bool(notes)

    # What they do now.

    @property
    def _source(self) -> PlanReader | None:
        return cast("PlanScreen", self.screen).reader

    def _look(self) -> None:
        """One look, unless the one before is not done; the driver rests where the rows cannot be seen."""
        source, machine, was_seen = self._source, self._machine, self._is_seen
        self._is_seen = self.is_on_screen and self.screen.is_current
        if source is None or machine is None or self._is_looking or not (was_seen or self._is_seen):
            return
        self._is_looking = True
        work = partial(self._work, source, machine, self._is_seen)
        self.run_worker(work, thread=True, group="gpus", exit_on_error=False)

    def _work(self, source: PlanReader, machine: Machine, is_seen: bool) -> None:
        """In a thread: a driver that sleeps takes a second or two to answer."""
        from trainwiz.core.telemetry.gpu import is_outdated

        try:
            if not is_seen:
                source.rest()
                return
            loads = source.loads()
            outdated = is_outdated(machine.gpus, loads)
            if outdated:
                source.forget_machine()
            self.call_later(self._take, loads, outdated)
        finally:
            self._is_looking = False

    def _take(self, loads: GpuLoads, is_outdated: bool) -> None:
        self._loads = loads
        self._draw_rows()
        if is_outdated:
            # The same request once more: what it is planned on has changed.
            self.post_message(self.Changed(replace))

    # Choosing.

    @on(Pressed)
    def _toggled(self, event: Pressed) -> None:
        event.stop()
        state, machine, row = self._state, self._machine, event.widget
        assert state is not None and machine is not None and isinstance(row, GpuRow)
        gpu = row.view.gpu

        def change(request: PlanRequest) -> PlanRequest:
            # From the request as it is by then: fast keys come before what is drawn.
            names = toggled(machine, replace(state, request=request), gpu)
            self._refused = tr("Training needs at least one GPU. Select another one first.") if names == [] else ""
            return request if names == [] else with_gpus(request, names)

        self.post_message(self.Changed(change))
