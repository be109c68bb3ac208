"""What each row shows and offers: pure functions of the state; and the lists to choose from, as a thread reads them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from trainwiz.core.defaults import DEFAULT_PROFILE, GUIDE_SUFFIX
from trainwiz.core.language import mark, tr, trn
from trainwiz.tui.keys import KeyBinding, keys_of
from trainwiz.tui.plan_words import run_words
from trainwiz.tui.screens.plan_fields import (
    FIELDS,
    HARDWARE,
    OUTPUT_DIR,
    PROFILE,
    STEPS,
    Setting,
    applies,
    shown_key,
    shown_value,
    value_of,
    word_for,
    written_value,
)
from trainwiz.tui.screens.plan_machine import (
    HERE,
    asked_gpus,
    gpus_unused,
    gpus_words,
    is_of_the_machine,
    machine_offers,
    machine_origin,
    machine_value,
)
from trainwiz.tui.screens.plan_state import (
    INIT,
    SOURCES,
    Offer,
    PlanState,
    field_problem,
    is_changed,
    lacks_model,
    numbered_remedies,
    state_findings,
)
from trainwiz.tui.text import number, pad, short_count, size
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.field_row import FieldView

if TYPE_CHECKING:
    from trainwiz.core.catalog.model_config import ModelSpec
    from trainwiz.core.config import RunConfig
    from trainwiz.core.data.summary import Glance
    from trainwiz.core.hardware.machine import Machine
    from trainwiz.core.profile.profile import Profile
    from trainwiz.tui.widgets.file_picker import FilePicker


def field_view(state: PlanState, spec: Setting) -> FieldView:
    """The row of a field. Without a plan the value is a placeholder, or what the user chose."""
    plan, overrides, changed = state.plan, state.request.overrides, is_changed(state, spec)
    invalid, by_you = field_problem(state, spec), "you" if changed else ""
    view = partial(FieldView, tr(spec.label), invalid=invalid, changed=changed, has_list=spec.opens_a_list)
    if spec.id == PROFILE:
        name = state.request.profile or ""
        note = next((offer.note for offer in state.reading.profiles if offer.value == name), "")
        return view(name or tr("none"), reason=note)
    if spec.keys == (OUTPUT_DIR,):
        return view(state.request.output_dir or state.reading.folder or marks.ellipsis, by_you or "solved")
    if is_of_the_machine(spec):
        return view(machine_value(state, spec) or marks.ellipsis, *machine_origin(state, spec))
    chosen = next((written_value(spec, key, overrides[key]) for key in spec.keys if key in overrides), "")
    if plan is None:
        return view(chosen or (tr(spec.empty) if invalid else marks.ellipsis), by_you)
    shown = gpus_words(state) if spec.id == "gpus" else shown_value(spec, plan.config)
    origin, reason = chosen_by(spec, plan.config)
    if changed or origin == "default":
        reason = ""
    if spec.id == "gpus":
        reason = gpus_unused(state) or reason
    elif spec.id == "steps":
        # The same in the other unit; the row has room for one.
        reason = "; ".join(filter(None, (*(f"= {words}" for words in run_words(plan)[1:]), reason)))
    if state.reading.findings and chosen:
        # The plan is of an earlier request: what was chosen stands here, also where it cannot stay.
        shown = chosen
    shown = shown or found_column(state, spec) or tr(spec.empty)
    return view(shown, by_you or origin, reason=reason)


def chosen_by(spec: Setting, config: RunConfig) -> tuple[str, str]:
    """(origin, reason) of the value that a row shows. A list of sources and the entries of a mapping have origins of
    their own."""
    key, origins = shown_key(spec, config), config.origins
    found = config.origin(key)
    if key not in origins and spec.kind == "mapping":
        found = next((one for path, one in origins.items() if path.startswith(f"{key}.")), found)
    elif key not in origins and key.startswith(SOURCES) and shown_value(spec, config):
        found = origins.get(SOURCES, found)
    return ("default" if (found.origin, found.reason) == ("solved", "default") else found.origin), found.reason


def offers(state: PlanState, spec: Setting) -> tuple[Offer, ...]:
    reading = state.reading
    if spec.id == "model":
        if state.request.overrides.get(INIT) != "pretrained":
            return reading.models
        # What can be fine-tuned: models whose weights are here first, then those whose weights are published.
        return tuple(offer for place in ("here", "published") for offer in reading.models if offer.weights == place)
    if spec.id == "machine":
        return machine_offers(state)
    if spec.id in {"column", "target_column"}:
        return column_offers(reading.glance)
    if spec.id == "task":
        return tuple(Offer(choice, note=tr(TASK_NOTES[choice])) for choice in spec.choices)
    lists = {PROFILE: reading.profiles, "data": reading.samples, "validation_data": reading.samples}
    if spec.id in lists:
        return lists[spec.id]
    typed = {"on": True, "off": False}
    return tuple(Offer(choice, word_for(spec.keys[0], typed.get(choice, choice))) for choice in spec.choices)


TASK_NOTES = {
    "masked-lm": mark("fill in masked words, or letters of a protein"),
    "causal-lm": mark("continue a text, or answer a prompt"),
    "seq2seq": mark("convert one text into another"),
    "sequence-classification": mark("classify a text"),
    "token-classification": mark("classify each word, for example as a name"),
}


def findable_fields(state: PlanState) -> list[Offer]:
    """All fields that mean something now, for the list of /."""
    return [
        Offer(spec.id, tr(spec.label), tr(spec.what), before=tr("{step}: {what}", step=tr(STEPS[spec.step]), what=""))
        for spec in FIELDS
        if applies(spec, state.plan)
    ]


def ways_to_leave(state: PlanState) -> tuple[str, list[Offer]]:
    """What is asked where something would be lost, and the answers."""
    title = trn(
        "Quit? {n} chosen value is not saved.",
        "Quit? {n} chosen values are not saved.",
        state.changed,
    )
    return title, [
        Offer("quit", tr("quit"), tr("prints the equivalent command")),
        Offer("save", tr("save"), tr("as your profile, without quitting")),
    ]


def current_offer(state: PlanState, spec: Setting) -> str:
    """The value of the field as the list of offers writes it; empty where enter should take none."""
    plan = state.plan
    if spec.id == PROFILE:
        return state.request.profile or ""
    if spec.id == "machine":
        return state.request.gpu or HERE
    # The plan may still be that of the demo, whose model enter would take; and its data were chosen by nobody.
    if plan is None or (spec.id == "model" and lacks_model(state.request)):
        return ""
    if spec.id == "data" and plan.config.origin(SOURCES).origin == "solved" and not is_changed(state, spec):
        return ""
    value = value_of(plan.config, shown_key(spec, plan.config))
    if isinstance(value, bool):
        return "on" if value else "off"
    return ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


FREE_TEXT_HINTS = {
    "machine": mark("search, or type the name of a card"),
    "model": mark("search, or type a Hub ID, a folder or a config.json"),
    "data": mark("search, or type the path of a file or folder"),
    "column": mark("type a column name or its position"),
    "target_column": mark("type a column name or its position"),
    "tokenizer": mark("type a Hub ID or a folder"),
    "metric": mark("type a metric name, for example eval_loss"),
    "report_to": mark("type names, separated by commas"),
}
"""What may be typed into the list of a field."""


def edit_text(state: PlanState, spec: Setting) -> str:
    """What stands in the editor of a field when it opens."""
    if spec.keys == (OUTPUT_DIR,):
        return state.request.output_dir or state.reading.folder
    if is_of_the_machine(spec):
        return machine_value(state, spec)
    if spec.id == "gpus":
        return ",".join(asked_gpus(state) or ())
    return shown_value(spec, state.plan.config) if state.plan is not None else ""


def value_beside(state: PlanState, spec: Setting, by: int) -> str | None:
    """The value `by` places after the present one in the list of a field; the first where that is none of them."""
    values = [offer.value for offer in offers(state, spec)]
    now = current_offer(state, spec)
    if now in values:
        return values[(values.index(now) + by) % len(values)]
    return next(iter(values), None)


def shown_keys(state: PlanState, spec: Setting | None, *, on_button: bool) -> tuple[KeyBinding, ...]:
    """The keys that do something now, where `spec` has the focus, or a button; with how many remedies there are."""
    remedies = len(numbered_remedies(state_findings(state)))
    rows = {row.id: row for row in keys_of("plan", "app")}
    if remedies:
        rows["plan.remedy_1"] = replace(rows["plan.remedy_1"], label=f"1-{remedies}" if remedies > 1 else "1")
    if on_button:
        rows["plan.next"] = replace(rows["plan.next"], description=mark("press"))
    useless = {"plan.remedy_1": not remedies, "plan.import": state.step != HARDWARE}
    useless["plan.reset"] = spec is None or not is_changed(state, spec)
    return tuple(row for row in rows.values() if not useless.get(row.id))


# The columns of the file that was chosen.


def column_offers(glance: Glance | None) -> tuple[Offer, ...]:
    """The columns that hold text; the table has their first cells."""
    if glance is None:
        return ()
    return tuple(
        Offer(glance.setting_of(place), column.name)
        for place, column in enumerate(glance.columns)
        if glance.can_take(place) or glance.can_take(place, target=True)
    )


def found_column(state: PlanState, spec: Setting) -> str:
    """The column that is taken where none was named; what the row says without one is the field's own."""
    glance = state.reading.glance
    if glance is None or spec.id not in {"column", "target_column"}:
        return ""
    place = glance.text if spec.id == "column" else glance.target
    if place is not None:
        return glance.columns[place].name
    return tr("not found") if spec.id == "column" or glance.has_target else ""


# Files and folders of the disk, found by walking through folders.


def browse_model(state: PlanState) -> FilePicker:
    """The file picker, opened where the present model lies."""
    from trainwiz.tui.widgets.file_picker import FilePicker

    model = state.reading.model
    start = model.name if model is not None and model.source in ("folder", "config") else ""
    title = tr("Model: a folder with a config.json, or a config.json file")
    # A bare config.json is a model without its weights, and those lie beside it.
    return FilePicker(title, start, (".json",), stands_for_folder="config.json")


def browse_data(state: PlanState) -> FilePicker:
    """The file picker, opened where the present data lies."""
    from trainwiz.core.data.formats import file_endings
    from trainwiz.tui.widgets.file_picker import FilePicker

    source = state.plan.config.data.sources[0].name if state.plan is not None else ""
    return FilePicker(tr("Data: a file, or a folder with files of one format"), source, file_endings())


# The lists to choose from: profiles, models and GPUs of the catalogues, samples and the data files of this folder.

MOST_FILES = 100
SIZE_WIDTH = 6


def profile_offers(here: Machine) -> tuple[Offer, ...]:
    """All profiles: one's own and those for a card that is here first, guides last."""
    from trainwiz.core.plan.gather import made_for
    from trainwiz.core.profile.store import list_profiles

    def rank(profile: Profile) -> int:
        if profile.name == DEFAULT_PROFILE or profile.origin == "user":
            return 0
        return 3 if profile.name.endswith(GUIDE_SUFFIX) else 1 if made_for(profile, here) else 2

    none = Offer("", tr("none"), tr("all values are derived from the model, the data and the machine"))
    profiles = sorted(list_profiles(), key=rank)
    return (none, *(Offer(one.name, note=tr(one.description) or one.hardware.gpu or "") for one in profiles))


def model_offers(folder: Path) -> tuple[Offer, ...]:
    """Model folders of `folder`, then the catalogue, with size, task, and whether the weights are here."""
    from trainwiz.core.catalog.models import load_models

    here = islice((path for path in _entries(folder) if (path / "config.json").is_file()), MOST_FILES)
    folders = (Offer(f"./{path.name}", note=tr("a model in this folder"), weights=_weights_in(path)) for path in here)
    return (*folders, *(_model_offer(name, model) for name, model in load_models().items()))


def _weights_in(folder: Path) -> str:
    names = [path.name for path in _entries(folder)]
    return "here" if any(name.endswith(".safetensors") or name.startswith("pytorch_model") for name in names) else ""


def _entries(folder: Path) -> list[Path]:
    """What lies in a folder, but for hidden names; nothing where it cannot be read."""
    try:
        return [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    except OSError:
        return []


def _model_offer(name: str, model: ModelSpec) -> Offer:
    """A model of the catalogue. The description makes families findable."""
    from trainwiz.core.catalog.models import read_model_facts
    from trainwiz.core.estimate.families import read_architecture

    architecture, _ = read_architecture(model.architecture)
    parameters = short_count(architecture.parameters if architecture is not None else None)
    is_here = model.hub_id is not None and read_model_facts(model).weights_bytes is not None
    words = (pad(parameters, SIZE_WIDTH, right=True), model.task, tr("weights on disk") if is_here else "")
    note = "  ".join(filter(None, (*words, tr(model.description))))
    return Offer(name, note=note, weights="here" if is_here else "published" if model.hub_id is not None else "")


def card_offers() -> tuple[Offer, ...]:
    """The GPU catalogue, with memory, capability and rate."""
    from trainwiz.core.catalog.gpus import load_gpus

    offers = []
    for name, spec in load_gpus().items():
        capability = "" if spec.compute_capability is None else f"sm {spec.compute_capability}"
        rate = "" if spec.fp16_flops is None else f"{number(spec.fp16_flops / 1e12)} TFLOP/s"
        offers.append(Offer(name, note=", ".join(filter(None, (size(spec.memory_bytes), capability, rate)))))
    return tuple(offers)


def data_offers(folder: Path) -> tuple[Offer, ...]:
    """The files of `folder` that can be read as rows, then the samples."""
    from trainwiz.core.data.formats import SAMPLES, format_of

    files = [(path, format_of(path)) for path in _entries(folder) if path.is_file()]
    found = [Offer(path.name, note=f"{kind}, {size(path.stat().st_size)}") for path, kind in files if kind is not None]
    return (*found[:MOST_FILES], *(Offer(name, note=tr("ships with trainwiz")) for name in SAMPLES))
