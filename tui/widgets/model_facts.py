"""ModelFactsView: what the model is, how large its weights are, whether they are here, and under which licence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.core.language import tr, trn
from trainwiz.core.plain import plain_text
from trainwiz.tui.figures import short_count, size
from trainwiz.tui.plan_words import trained_words
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.facts import FactsView, hanging, line, title, waiting

if TYPE_CHECKING:
    from trainwiz.core.catalog.model import ModelSpec
    from trainwiz.core.catalog.model_facts import ModelFacts
    from trainwiz.core.plan.result import PlannedModel
    from trainwiz.tui.screens.plan_state import PlanState

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
    yield from hanging(tr("Method"), plain_text(planned.learnt, 200), width)
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
