"""What each row shows: a pure function of the state."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

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
    asked_gpus,
    current_machine,
    gpus_unused,
    gpus_words,
    is_of_the_machine,
    machine_offers,
    machine_origin,
    machine_problem,
    machine_value,
)
from trainwiz.tui.screens.plan_maker import numbered_remedies
from trainwiz.tui.screens.plan_offers import column_offers, found_column
from trainwiz.tui.screens.plan_state import (
    INIT,
    SOURCES,
    Offer,
    PlanState,
    field_problem,
    is_changed,
    lacks_model,
    state_findings,
)
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.field_row import FieldView


def field_view(state: PlanState, spec: Setting, *, typing: bool = False) -> FieldView:
    """The row of a field. Without a plan the value is a placeholder, or what the user chose."""
    plan, overrides, changed = state.plan, state.request.overrides, is_changed(state, spec)
    invalid, by_you = field_problem(state, spec), "you" if changed else ""
    view = partial(FieldView, tr(spec.label), invalid=invalid, changed=changed, has_list=spec.opens_a_list)
    if spec.keys == (PROFILE,):
        name = state.request.profile or ""
        note = next((offer.note for offer in state.reading.profiles if offer.value == name), "")
        return view(name or tr("none"), reason=note)
    if spec.keys == (OUTPUT_DIR,):
        return view(state.request.output_dir or state.reading.folder or marks.ellipsis, by_you or "solved")
    if is_of_the_machine(spec):
        problem = machine_problem(state, invalid) if spec.id == "machine" else invalid
        return view(machine_value(state, spec) or marks.ellipsis, *machine_origin(state, spec), invalid=problem)
    chosen = [written_value(spec, key, overrides[key]) for key in spec.keys if key in overrides]
    if plan is None:
        return view(chosen[0] if chosen else tr(spec.empty) if invalid else marks.ellipsis, by_you)
    key = shown_key(spec, plan.config)
    chosen_by = plan.config.origin(key)
    name, reason = chosen_by.origin, chosen_by.reason
    if spec.id in {"data", "column", "target_column"} and key not in plan.config.origins:
        parent = plan.config.origins.get("data.sources")
        if parent is not None and (spec.id == "data" or shown_value(spec, plan.config)):
            name, reason = parent.origin, parent.reason
    if spec.is_mapping and key not in plan.config.origins:
        # The entries of a mapping have origins of their own.
        entry = next((one for path, one in plan.config.origins.items() if path.startswith(f"{key}.")), None)
        name, reason = (entry.origin, "") if entry is not None else (name, reason)
    is_default = name == "solved" and reason == "default"
    shown = gpus_words(state) if spec.id == "gpus" else shown_value(spec, plan.config)
    if spec.id == "steps":
        # The same in the other unit; the row has room for one.
        other = "".join(f"= {words}" for words in run_words(plan)[1:])
        reason = "; ".join(filter(None, (other, "" if changed or is_default else reason)))
    if state.reading.findings:
        # The plan is of an earlier request: what was chosen stands here, also where it cannot stay.
        shown = chosen[0] if chosen else shown
    unused = gpus_unused(state) if spec.id == "gpus" else ""
    return view(
        shown or found_column(state, spec) or tr(spec.empty),
        by_you or ("default" if is_default else name),
        reason=unused or ("" if (changed or is_default) and spec.id != "steps" else reason),
        dimmed=state.slow and not typing,
    )


def offers(state: PlanState, spec: Setting) -> tuple[Offer, ...]:
    reading = state.reading
    if spec.keys == (PROFILE,):
        return reading.profiles
    if spec.id == "machine":
        return machine_offers(state)
    if spec.id == "model":
        if state.request.overrides.get(INIT) != "pretrained":
            return reading.models
        # What can be fine-tuned: models whose weights are here first, then those whose weights are published.
        return tuple(offer for place in ("here", "published") for offer in reading.models if offer.weights == place)
    if spec.id in {"data", "validation_data"}:
        return reading.samples
    if spec.id in {"column", "target_column"}:
        return column_offers(reading.glance)
    if spec.id == "task":
        return tuple(Offer(choice, note=tr(TASK_NOTES[choice])) for choice in spec.choices)
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
        Offer("stay", tr("stay"), tr("nothing changes")),
    ]


def current_offer(state: PlanState, spec: Setting) -> str:
    """The value of the field as the list of offers writes it."""
    if spec.keys == (PROFILE,):
        return state.request.profile or ""
    if spec.id == "machine":
        return current_machine(state.request)
    if spec.id == "model" and lacks_model(state.request):
        # The plan may still be that of the demo, whose model enter would take.
        return ""
    if state.plan is None or (
        spec.id == "data" and state.plan.config.origin(SOURCES).origin == "solved" and not is_changed(state, spec)
    ):
        return ""
    value = value_of(state.plan.config, shown_key(spec, state.plan.config))
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
    return None if not values else values[(values.index(now) + by) % len(values)] if now in values else values[0]


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
