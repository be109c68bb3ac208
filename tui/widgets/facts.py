"""What was found, beneath the fields of a step: the machine, the model, the first rows of the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual.app import RenderResult
from textual.content import Content
from textual.geometry import Size
from trainwiz.core.plain import plain_text
from trainwiz.tui.figures import gib, short_count
from trainwiz.tui.plan_words import trained_words
from trainwiz.tui.screens.plan_fields import HARDWARE, MODEL
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.step_parts import StepPart

if TYPE_CHECKING:
    from trainwiz.core.hardware import Gpu, Machine
    from trainwiz.tui.screens.plan_state import PlanState

LABEL = 14


class FactsView(StepPart):
    """The facts of one step."""

    DEFAULT_CSS = """
    FactsView { height: auto; }
    """

    def __init__(self, step: int, marks: Marks) -> None:
        super().__init__(step, marks)
        self._state: PlanState | None = None

    def show(self, state: PlanState) -> None:
        self._state = state
        self.refresh(layout=True)

    def _content(self, width: int) -> Content:
        return Content() if self._state is None else facts_content(self._state, self.step, width, self.marks)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return str(self._content(width)).count("\n") + 1

    def render(self) -> RenderResult:
        return self._content(self.content_size.width)


def facts_content(state: PlanState, step: int, width: int, marks: Marks) -> Content:
    """The facts of a step in `width` cells; says what is being read while it is."""
    reading = state.reading
    if step == HARDWARE:
        if reading.machine is None:
            return _waiting(reading.waits_for or "reading this machine", marks)
        return Content("\n").join(_machine(reading.machine, width, marks))
    if step == MODEL:
        if state.plan is None:
            return _waiting(reading.waits_for or "reading the model", marks) if not reading.findings else Content()
        return Content("\n").join(_model(state, width))
    return Content()


def _waiting(what: str, marks: Marks) -> Content:
    return Content.styled(f"  {plain_text(what)} {marks.ellipsis}", "$muted")


def _line(label: str, value: str, note: str = "", width: int = 200) -> Content:
    value = plain_text(value, max(8, width - LABEL - 3))
    room = width - LABEL - 3 - len(value) - 2
    note = f"  {plain_text(note, room)}" if note and room > 6 else ""
    return Content.assemble("  ", (f"{label:<{LABEL}}", "$muted"), value, (note, "$muted"))


def _wrapped(label: str, text: str, width: int) -> Iterator[Content]:
    """A label with a text that hangs beneath it over several lines."""
    lines = Content(plain_text(text)).wrap(max(10, width - LABEL - 3))
    for index, line in enumerate(lines):
        yield Content.assemble("  ", (f"{label if index == 0 else '':<{LABEL}}", "$muted"), line.plain.rstrip())


def _machine(machine: Machine, width: int, marks: Marks) -> Iterator[Content]:
    yield Content()
    yield Content.styled(
        "This machine" if not machine.hypothetical else "The machine that is planned for", "bold $muted"
    )
    for gpu in machine.gpus:
        yield from _gpu(gpu, width, marks)
    if not machine.gpus:
        yield _line("GPU", "none", "", width)
        for reason in list(dict.fromkeys(machine.unavailable.values()))[:2]:
            yield from _wrapped("", reason, width)
    yield _line("CPU", f"{machine.cpu_cores} cores", machine.cpu_model or "", width)
    yield _line("RAM", f"{gib(machine.ram_available_bytes)} of {gib(machine.ram_total_bytes)} GiB free", "", width)
    if machine.disk_free_bytes is not None:
        yield _line("Disk", f"{gib(machine.disk_free_bytes)} GiB free", machine.disk_path or "", width)
    found = [f"{name} {version}" for name, version in machine.libraries.versions.items() if version]
    if found:
        yield from _wrapped("Libraries", ", ".join(found[:8]), width)


def _gpu(gpu: Gpu, width: int, marks: Marks) -> Iterator[Content]:
    name = (gpu.name or "unknown").removeprefix("NVIDIA ")
    yield _line(f"GPU {gpu.index}", name, "" if gpu.visible else "not visible to this process", width)
    parts = [
        f"{gib(gpu.memory_free_bytes)} of {gib(gpu.memory_total_bytes)} GiB free",
        f"sm {gpu.compute_capability}" if gpu.compute_capability else "",
        f"driver {gpu.driver}" if gpu.driver else "",
    ]
    yield from _wrapped("", f" {marks.dot} ".join(part for part in parts if part), width)
    for what, reason in list(gpu.unavailable.items())[:2]:
        yield from _wrapped("", f"{what}: {reason}", width)


def _model(state: PlanState, width: int) -> Iterator[Content]:
    plan, model = state.plan, state.reading.model
    assert plan is not None
    yield Content()
    yield Content.styled("What it is", "bold $muted")
    parameters = short_count(plan.model.parameters)
    note = trained_words(plan.model.parameters, plan.model.trainable_parameters)
    yield _line("Parameters", parameters, note, width)
    yield _line("Architecture", plan.model.architecture or "unknown", "", width)
    if model is None:
        return
    config = model.architecture
    shape = [
        f"{config[key]} {word}"
        for key, word in (("num_hidden_layers", "layers"), ("hidden_size", "wide"), ("num_attention_heads", "heads"))
        if key in config
    ]
    if shape:
        yield from _wrapped("Shape", ", ".join(shape), width)
    weights = "on this machine" if model.has_weights else "not on this machine"
    hub = f" ({model.hub_id})" if model.hub_id else ""
    yield from _wrapped("Weights", weights + hub, width)
