"""GpuChoice: the GPUs of this machine with what each does now; where there are several, space takes one or leaves it out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, cast

from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static
from trainwiz.core.language import tr
from trainwiz.tui.screens.plan_gpus import asked_gpus, is_asked, toggled, usable_gpus, with_gpus
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.step_parts import StepPart

if TYPE_CHECKING:
    from trainwiz.core.hardware import Gpu, Machine
    from trainwiz.core.plan.request import PlanRequest
    from trainwiz.core.telemetry.gpu_load import GpuLoads
    from trainwiz.tui.screens.plan_state import PlanState
    from trainwiz.tui.widgets.gpu_choice_lines import RowView
    from trainwiz.tui.widgets.gpu_row import GpuRow

LOOK_S = 2.0


class GpuSource(Protocol):
    """Where the loads come from; `PlanReader` in the program."""

    def loads(self) -> GpuLoads: ...

    def rest(self) -> None: ...

    def forget_machine(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Shown:
    """What the rows are drawn from."""

    read: Machine
    """As it was probed."""
    machine: Machine
    """The same, with the names of cards that do not answer any more."""
    gone: tuple[Gpu, ...] = ()
    """Cards that were here when the step was first shown and are not any more."""
    loads: GpuLoads | None = None


class GpuChoice(StepPart):
    """Asks for the loads every two seconds while its step is on the screen, in a thread, one question at a time."""

    DEFAULT_CSS = """
    GpuChoice { height: auto; layout: vertical; }
    GpuChoice > .notes { height: auto; color: $muted; }
    """

    class Looked(Message):
        """The loads of the GPUs; `is_outdated`: the machine is to be read again."""

        def __init__(self, loads: GpuLoads, is_outdated: bool) -> None:
            super().__init__()
            self.loads = loads
            self.is_outdated = is_outdated

    def __init__(self, step: int, marks: Marks) -> None:
        super().__init__(step, marks)
        self._state: PlanState | None = None
        self._shown: Shown | None = None
        self._timer: Timer | None = None
        self._is_looking = False
        self._is_visited = False
        self._refused = ""
        self._notes = Static("", classes="notes", markup=False)

    def compose(self) -> ComposeResult:
        yield self._notes

    def show(self, state: PlanState) -> None:
        self._state = state
        machine = state.reading.machine
        planned = state.plan.machine if state.plan is not None else None
        self.display = machine is not None and bool(machine.gpus) and not (planned is not None and planned.hypothetical)
        if machine is None or not self.display:
            return
        self._take_machine(machine)
        self._draw_rows()
        if self._is_visited:
            self._begin()

    def visit(self, shown: bool) -> None:
        self._is_visited = shown
        if shown:
            self._begin()
        elif self._timer is not None:
            self._timer.stop()
            self._timer = None
            source = self._source
            if source is not None:
                self.run_worker(source.rest, thread=True, group="gpus", exit_on_error=False)

    # What the rows are of.

    def _take_machine(self, machine: Machine) -> None:
        before = self._shown
        if before is None:
            self._shown = Shown(machine, machine)
        elif before.read is not machine:
            known = (*before.machine.gpus, *before.gone)
            named = replace(machine, gpus=tuple(_named(gpu, known) for gpu in machine.gpus))
            here = {_key(gpu) for gpu in named.gpus}
            self._shown = replace(
                before, read=machine, machine=named, gone=tuple(gpu for gpu in known if _key(gpu) not in here)
            )

    def _views(self) -> list[RowView]:
        from trainwiz.tui.widgets.gpu_choice_lines import RowView  # not before the first frame

        shown, state = self._shown, self._state
        assert shown is not None and state is not None
        names = asked_gpus(state)
        loads = shown.loads
        usable = usable_gpus(shown.machine)
        several = len(usable) > 1 or (names is not None and len(shown.machine.gpus) > 1)
        views = [
            RowView(
                gpu,
                loads.of(gpu) if loads is not None else None,
                is_chosen=is_asked(gpu, names),
                can_be_chosen=several and (gpu in usable or (names is not None and is_asked(gpu, names))),
                of_several=several,
                hidden_by=shown.machine.cuda_visible_devices or "",
            )
            for gpu in shown.machine.gpus
        ]
        return [*views, *(RowView(gpu, None, is_gone=True, of_several=several) for gpu in shown.gone)]

    def _draw_rows(self) -> None:
        from trainwiz.tui.widgets.gpu_choice_lines import notes_below
        from trainwiz.tui.widgets.gpu_row import GpuRow

        views = self._views()
        rows = list(self.query(GpuRow))
        for row, view in zip(rows, views, strict=False):
            row.show(view)
        for row in rows[len(views) :]:
            row.remove()
        fresh = [GpuRow(view, self.marks) for view in views[len(rows) :]]
        for row in fresh:
            row.can_focus = row.view.can_be_chosen
        if fresh:
            self.mount_all(fresh, before=self._notes)
        assert self._shown is not None
        notes = notes_below(self._shown.machine, self._shown.loads, self._refused)
        self._notes.update(Content("\n").join(Content(f"    {line}") for line in notes))
        self._notes.display = bool(notes)

    # What they do now.

    @property
    def _source(self) -> GpuSource | None:
        return cast("GpuSource | None", getattr(self.screen, "reader", None))

    def _begin(self) -> None:
        if self._timer is None and self.display and self._shown is not None:
            self._timer = self.set_interval(LOOK_S, self._look)
            self._look()

    def _look(self) -> None:
        """One look, unless the one before is not done or something else covers the step."""
        if self._is_looking or not self.display or not self.screen.is_current or self._source is None:
            return
        self._is_looking = True
        self.run_worker(self._work, thread=True, group="gpus", exit_on_error=False)

    def _work(self) -> None:
        """In a thread: a driver that sleeps takes a second or two to answer."""
        from trainwiz.core.telemetry.gpu_load import is_outdated

        source, shown = self._source, self._shown
        try:
            if source is None or shown is None or self._timer is None:
                return
            loads = source.loads()
            outdated = is_outdated(shown.machine.gpus, loads)
            if outdated:
                source.forget_machine()
            elif shown.gone:
                # Only another session of the driver sees a card that is back.
                source.rest()
            self.post_message(self.Looked(loads, outdated))
        finally:
            self._is_looking = False

    def on_gpu_choice_looked(self, event: Looked) -> None:
        event.stop()
        if self._shown is None:
            return
        self._shown = replace(self._shown, loads=event.loads)
        self._draw_rows()
        if event.is_outdated:
            # The same request once more: what it is planned on has changed.
            self.post_message(self.Changed(replace))

    # Choosing.

    def on_gpu_row_toggled(self, event: GpuRow.Toggled) -> None:
        event.stop()
        state, shown = self._state, self._shown
        if state is None or shown is None:
            return
        machine, plan_state = shown.machine, state

        def change(request: PlanRequest) -> PlanRequest:
            # From the request as it is by then: fast keys come before what is drawn.
            names = toggled(machine, replace(plan_state, request=request), event.gpu)
            self._refused = tr("One GPU at least trains; take another one first.") if names == [] else ""
            return request if names == [] else with_gpus(request, names)

        self.post_message(self.Changed(change))


def _named(gpu: Gpu, known: tuple[Gpu, ...]) -> Gpu:
    """A lost card tells neither name nor UUID; what stood in its place before does."""
    if "gpu" not in gpu.unavailable or gpu.uuid is not None:
        return gpu
    before = next((one for one in known if one.index == gpu.index and one.parent_uuid is None), gpu)
    return replace(gpu, uuid=before.uuid, name=before.name)


def _key(gpu: Gpu) -> str:
    return gpu.uuid or str(gpu.index)
