"""FactsView: what was found of data, machine and model, beneath the fields of a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual.app import RenderResult
from textual.content import Content
from textual.geometry import Size
from trainwiz.core.language import tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.plan_words import learnt_text, trained_words
from trainwiz.tui.text import cells, count, cut, gib, pad, short_count, size
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.step_part import StepPart

if TYPE_CHECKING:
    from trainwiz.core.catalog.model_config import ModelSpec
    from trainwiz.core.catalog.models import ModelFacts
    from trainwiz.core.data.summary import DataSummary
    from trainwiz.core.errors import Finding
    from trainwiz.core.hardware import Machine
    from trainwiz.core.plan.result import PlannedModel
    from trainwiz.tui.screens.plan_state import PlanState


# FactsView: what was found, beneath the fields of a step, as lines of a label and a value.

LABEL = 14


class FactsView(StepPart):
    """The facts of one step; subclasses say which."""

    DEFAULT_CSS = """
    FactsView { height: auto; }
    """

    def __init__(self, step: int, marks: Marks) -> None:
        super().__init__(step, marks)
        self._state: PlanState | None = None

    def facts(self, state: PlanState, width: int) -> Content:
        """The facts in `width` cells; what is being read while it is."""
        raise NotImplementedError

    def show(self, state: PlanState) -> None:
        self._state = state
        self.redraw()

    def _content(self, width: int) -> Content:
        return Content() if self._state is None else self.facts(self._state, width)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self._content(width).plain.count("\n") + 1

    def render(self) -> RenderResult:
        return self._content(self.content_size.width)


def title(text: str) -> Content:
    return Content.styled(text, "bold $muted")


def waiting(what: str, marks: Marks) -> Content:
    return Content.styled(f"  {plain_text(what)} {marks.ellipsis}", "$muted")


def line(label: str, value: str, note: str, width: int, marks: Marks) -> Content:
    """A value with a note after it, as far as there is room."""
    value = cut(plain_text(value), max(8, width - LABEL - 3), marks.ellipsis)
    room = width - LABEL - 3 - cells(value) - 2
    note = f"  {cut(plain_text(note), room, marks.ellipsis)}" if note and room > 6 else ""
    return Content.assemble("  ", (pad(label, LABEL), "$muted"), value, (note, "$muted"))


def hanging(label: str, text: str, width: int) -> Iterator[Content]:
    """A label with a text that hangs beneath it over several lines."""
    lines = Content(plain_text(text)).wrap(max(10, width - LABEL - 3))
    for index, one in enumerate(lines):
        yield Content.assemble("  ", (pad(label if index == 0 else "", LABEL), "$muted"), one.plain.rstrip())


# DataFacts: how many rows there are, where that number comes from, and what is wrong with some of them.

INDENT = 4
MOST_FINDINGS = 4
LONGEST_FINDING = 600


class DataFacts(StepPart):
    """Beneath the name of the data."""

    DEFAULT_CSS = """
    DataFacts { height: auto; }
    """

    def __init__(self, step: int, marks: Marks) -> None:
        super().__init__(step, marks)
        self._state: PlanState | None = None

    def show(self, state: PlanState) -> None:
        self._state = state
        self.redraw()

    def _lines(self, width: int) -> list[Content]:
        return [] if self._state is None else list(fact_lines(self._state, width, self.marks))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> RenderResult:
        return Content("\n").join(self._lines(self.content_size.width))


def fact_lines(state: PlanState, width: int, marks: Marks) -> Iterator[Content]:
    """Rows, their files and the findings; what is being read while it is."""
    from trainwiz.core.data.lengths import joins_texts

    reading = state.reading
    data = reading.data
    if data is not None:
        files = reading.glance.files if reading.glance is not None else 1
        joined = state.plan is not None and joins_texts(state.plan.config)
        for sentence in (rows_words(data, joined=joined), place_words(data, files)):
            yield from _wrapped(sentence, width, "$muted")
    elif reading.waits_for or state.updating:
        yield from _wrapped(f"{tr('The rows are being read')} {marks.ellipsis}", width, "$muted")
    elif reading.glance is not None and reading.glance.rows:
        yield from _wrapped(tr("The rows cannot be used yet."), width, "$muted")
    else:
        yield from _wrapped(tr("No rows could be read."), width, "$muted")
    yield from _finding_lines(findings_of(state), width, marks)


def rows_words(data: DataSummary, *, joined: bool) -> str:
    """How many rows there are to learn from, and whether that was counted; sequences, of their mean length, where texts
    are joined."""
    if joined:
        return tr(
            "About {rows} training sequences packed from {texts} texts; {held} held out.",
            rows=count(data.rows), texts=count(data.texts), held=count(data.validation_rows),
        )  # fmt: skip
    rows, held = count(data.rows), count(data.validation_rows)
    if data.rows_exact:
        return tr("{rows} rows to learn from, counted; {held} held out.", rows=rows, held=held)
    return tr("About {rows} rows to learn from, estimated from a sample; {held} held out.", rows=rows, held=held)


def place_words(data: DataSummary, files: int) -> str:
    """The bytes on disk, and in how many files."""
    return trn("{size} in {n} file.", "{size} in {n} files.", files, size=size(data.bytes_on_disk))


def findings_of(state: PlanState) -> tuple[Finding, ...]:
    """What is to be said about the rows, errors first, each once; an error that the field says itself is left out."""
    from trainwiz.tui.screens.plan_fields import FIELD_BY_ID, on_screen
    from trainwiz.tui.screens.plan_state import field_problem

    reading = state.reading
    said = {field_problem(state, FIELD_BY_ID[name]) for name in ("data", "column", "target_column")}
    about = map(on_screen, (*reading.data_findings, *(reading.data.findings if reading.data is not None else ())))
    return tuple({one.message: one for one in about if one.message not in said}.values())


def _finding_lines(findings: tuple[Finding, ...], width: int, marks: Marks) -> Iterator[Content]:
    for finding in findings[:MOST_FINDINGS]:
        is_error = finding.severity == "error"
        mark = marks.bad if is_error else marks.tight
        text = f"{mark} {plain_text(finding.message, LONGEST_FINDING)}"
        yield from _wrapped(text, width, "$error" if is_error else "$warning")
    more = len(findings) - MOST_FINDINGS
    if more > 0:
        yield from _wrapped(trn("and {n} more finding", "and {n} more findings", more), width, "$muted")


def _wrapped(text: str, width: int, style: str) -> Iterator[Content]:
    for line in Content(text).wrap(max(10, width - INDENT - 1)):
        yield Content.styled(" " * INDENT + line.plain.rstrip(), style)


# MachineFacts: what was detected of this machine, or what is planned for another one.

MOST_LIBRARIES = 8
MOST_REASONS = 2


class MachineFacts(FactsView):
    """Its GPUs have rows of their own above."""

    def facts(self, state: PlanState, width: int) -> Content:
        machine, plan = state.reading.machine, state.plan
        if machine is None:
            return waiting(tr(state.reading.waits_for) or tr("reading this machine"), self.marks)
        is_elsewhere = plan is not None and plan.machine.hypothetical
        return Content("\n").join(machine_lines(machine, width, self.marks, with_gpus=is_elsewhere))


def machine_lines(machine: Machine, width: int, marks: Marks, *, with_gpus: bool) -> Iterator[Content]:
    """`with_gpus` names the cards, which have no rows of their own while another machine is planned for."""
    yield Content()
    yield title(tr("This machine"))
    if not machine.gpus:
        yield line("GPU", tr("none"), "", width, marks)
        for reason in list(dict.fromkeys(machine.unavailable.values()))[:MOST_REASONS]:
            yield from hanging("", reason, width)
    if with_gpus:
        for gpu in machine.gpus:
            free = tr("{free} of {total} GiB free", free=gib(gpu.memory_free_bytes), total=gib(gpu.memory_total_bytes))
            yield line(f"GPU {gpu.index}", (gpu.name or tr("unknown")).removeprefix("NVIDIA "), free, width, marks)
    cores = trn("{n} core", "{n} cores", machine.cpu_cores)
    yield line("CPU", cores, machine.cpu_model or "", width, marks)
    available, total = gib(machine.ram_available_bytes), gib(machine.ram_total_bytes)
    yield line(tr("RAM"), tr("{free} of {total} GiB free", free=available, total=total), "", width, marks)
    if machine.disk_free_bytes is not None:
        free = tr("{free} GiB free", free=gib(machine.disk_free_bytes))
        yield line(tr("Disk"), free, machine.disk_path or "", width, marks)
    found = [f"{name} {version}" for name, version in machine.libraries.versions.items() if version]
    if found:
        yield from hanging(tr("Libraries"), ", ".join(found[:MOST_LIBRARIES]), width)


# ModelFactsView: what the model is, how large its weights are, whether they are here, and under which licence.

LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers")
WIDTHS = ("hidden_size", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads")
"""What families call the same thing in their config.json."""
FP32_BYTES, HALF_BYTES = 4, 2
NON_COMMERCIAL = ("-nc", "research", "noncommercial")


class ModelFactsView(FactsView):
    """The facts of the model that is planned."""

    def facts(self, state: PlanState, width: int) -> Content:
        reading = state.reading
        if state.plan is None:
            what = tr(reading.waits_for) or tr("reading the model")
            return Content() if reading.findings else waiting(what, self.marks)
        facts = reading.model_facts
        return Content("\n").join(model_lines(state.plan.model, reading.model, facts, width, self.marks))


def model_lines(
    planned: PlannedModel, model: ModelSpec | None, facts: ModelFacts | None, width: int, marks: Marks
) -> Iterator[Content]:
    yield Content()
    yield title(tr("What it is"))
    note = trained_words(planned.parameters, planned.trainable_parameters)
    yield line(tr("Parameters"), short_count(planned.parameters), note, width, marks)
    yield from hanging(tr("Method"), learnt_text(planned), width)
    yield line(tr("Architecture"), planned.architecture or tr("unknown"), "", width, marks)
    if model is None:
        return
    shape = shape_words(model, marks)
    if shape:
        yield from hanging(tr("Shape"), shape, width)
    yield from hanging(tr("Size"), size_words(planned.parameters, facts), width)
    yield from hanging(tr("Weights"), weights_words(model, facts), width)
    yield from hanging(tr("Licence"), licence_words(model, facts), width)


def shape_words(model: ModelSpec, marks: Marks) -> str:
    """ "33 layers · 1280 wide · 20 heads", as far as its config says it."""
    config = model.architecture
    layers, wide, heads = (
        next((config[key] for key in keys if isinstance(config.get(key), int)), None)
        for keys in (LAYERS, WIDTHS, HEADS)
    )
    parts = [
        trn("{n} layer", "{n} layers", layers) if layers is not None else "",
        tr("{n} wide", n=wide) if wide is not None else "",
        trn("{n} head", "{n} heads", heads) if heads is not None else "",
    ]
    return f" {marks.dot} ".join(part for part in parts if part)


def size_words(parameters: float | None, facts: ModelFacts | None) -> str:
    """Bytes of its weights: of the files that are here or on the hub, else by its parameters."""
    if facts is not None and facts.weights_bytes is not None:
        return tr("{size} on disk", size=size(facts.weights_bytes))
    if facts is not None and facts.download_bytes is not None:
        return tr("{size} to download", size=size(facts.download_bytes))
    if not parameters:
        return tr("unknown")
    return tr(
        "{half} in half precision, {full} in fp32",
        half=size(parameters * HALF_BYTES),
        full=size(parameters * FP32_BYTES),
    )


def weights_words(model: ModelSpec, facts: ModelFacts | None) -> str:
    """Whether they are here, and where."""
    if facts is not None and facts.weights_folder is not None:
        return tr("on this machine: {folder}", folder=plain_text(str(facts.weights_folder)))
    if model.hub_id is None:
        return tr("none: this model is an architecture, and is trained from random weights")
    if model.gated:
        return tr(
            "not on this machine; {hub_id} asks for its licence to be accepted first", hub_id=plain_text(model.hub_id)
        )
    return tr("not on this machine; on the hub as {hub_id}", hub_id=plain_text(model.hub_id))


def licence_words(model: ModelSpec, facts: ModelFacts | None) -> str:
    """Of the published weights; a model from random weights has none."""
    name = (facts.license if facts is not None else None) or model.license
    if name is None and model.hub_id is None and not model.has_weights:
        return tr("none is needed for random weights")
    if name is None and model.hub_id is None:
        return tr("not stated")
    if name is None:
        return tr("not known here; its page on the hub names it")
    if any(word in name.lower() for word in NON_COMMERCIAL):
        return tr("{name}: not for commercial use", name=plain_text(name, 60))
    return plain_text(name, 60)
