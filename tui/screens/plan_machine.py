"""The machine that the plan is for, and its GPUs. Pure functions of the state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainwiz.core.config.request import PlanRequest
from trainwiz.core.language import tr, trn
from trainwiz.tui.options import MACHINE_FIELDS
from trainwiz.tui.text import number, parse_whole_number

if TYPE_CHECKING:
    from trainwiz.core.hardware import Gpu, Machine
    from trainwiz.tui.screens.plan_fields import Setting
    from trainwiz.tui.screens.plan_state import Offer, PlanState


# The GPUs of this machine that a run is given: which there are, which are taken, in words.

GPUS = "engine.gpus"
MOST_NAMED = 4
"""Where more GPUs are chosen, their number stands for them."""


def gpu_id(gpu: Gpu) -> str:
    """What a run calls a GPU: its UUID, which no other program's numbering can change."""
    return gpu.uuid or str(gpu.index)


def asked_gpus(state: PlanState) -> list[str] | None:
    """UUIDs or indexes of the GPUs that are to train; None: all that are visible."""
    overrides = state.request.overrides
    if GPUS not in overrides:
        config = state.plan.config if state.plan is not None else None
        return config.engine.gpus if config is not None and config.origin(GPUS).origin != "you" else None
    # As a remedy, an option or `--set` gives it.
    value = overrides[GPUS] or ()
    names = [str(part).strip() for part in (value.split(",") if isinstance(value, str) else value)]
    return list(filter(None, names)) or None


def is_asked(gpu: Gpu, names: Sequence[str] | None) -> bool:
    return gpu.visible if names is None else gpu_id(gpu) in names or (gpu.visible and str(gpu.index) in names)


def toggled(machine: Machine, state: PlanState, gpu: Gpu) -> list[str] | None:
    """The names of the GPUs after `gpu` was added or taken out; None: all of them. Empty where it was the last one."""
    names, usable = asked_gpus(state), machine.visible_gpus
    chosen = [one for one in usable if is_asked(one, names) != (one is gpu)]
    if len(chosen) == len(usable):
        return None
    # CUDA reads a list either by index or by UUID.
    by_uuid = all(one.uuid is not None for one in chosen)
    return [gpu_id(one) if by_uuid else str(one.index) for one in chosen]


def with_gpus(request: PlanRequest, names: Sequence[str] | None) -> PlanRequest:
    """The request for these GPUs, as --gpus would ask for them."""
    overrides = {key: value for key, value in request.overrides.items() if key != GPUS}
    return replace(request, overrides=overrides if names is None else {**overrides, GPUS: list(names)})


def gpus_words(state: PlanState) -> str:
    """ "all 8", "GPUs 0, 3", "7 of 8"; a name that is no GPU of this machine stands as it was asked for."""
    machine, names = state.reading.machine, asked_gpus(state)
    if machine is None:
        return ", ".join(names or ())
    if names is None and len(machine.visible_gpus) != 1:
        return tr("all {n}", n=len(machine.visible_gpus)) if machine.visible_gpus else tr("none")
    shown = {gpu_id(gpu): f"{gpu.index} (MIG {gpu.mig})" if gpu.parent_uuid else str(gpu.index) for gpu in machine.gpus}
    found = [shown.get(name, name) for name in ([gpu_id(machine.visible_gpus[0])] if names is None else names)]
    if len(found) > MOST_NAMED:
        return tr("{n} of {all}", n=len(found), all=len(machine.gpus))
    return trn("GPU {names}", "GPUs {names}", len(found), names=", ".join(found))


def gpus_unused(state: PlanState) -> str:
    """That fewer GPUs train than are taken; empty where all of them do."""
    machine, plan = state.reading.machine, state.plan
    if machine is None or plan is None or state.updating:
        return ""
    taken, engine = sum(is_asked(gpu, asked_gpus(state)) for gpu in machine.visible_gpus), plan.config.engine
    used = 0 if engine.device == "cpu" else engine.processes or taken
    return tr("{n} of them used for training.", n=used) if used < taken else ""


# The machine that the plan is for: this one, or another by the catalogue (by its figures: options of the command alone).

GIB = 1024**3
HERE = "here"
"""The entry of the list that asks for no other machine."""
KEPT = ("num_gpus", "ram")
"""What stays where another card is chosen."""


def is_of_the_machine(spec: Setting) -> bool:
    """The field says which machine is planned for, and nothing of the run itself."""
    return spec.keys[0] in MACHINE_FIELDS


def names_another(request: PlanRequest, keys: Iterable[str] = tuple(MACHINE_FIELDS)) -> bool:
    """The user asks for the plan of a machine that is not this one, by one of these fields."""
    return any(getattr(request, MACHINE_FIELDS[key]) is not None for key in keys)


def is_machine_changed(request: PlanRequest, spec: Setting) -> bool:
    return names_another(request) if spec.id == "machine" else names_another(request, spec.keys)


def with_machine(request: PlanRequest, spec: Setting, values: Mapping[str, Any]) -> PlanRequest:
    """The request with the values of one of these fields. Another card keeps count and RAM; this machine keeps nothing."""
    if spec.id != "machine":
        attributes: dict[str, Any] = {MACHINE_FIELDS[spec.keys[0]]: values.get(spec.keys[0])}
        return replace(request, **attributes)
    kept = KEPT if values else ()
    attributes = {name: values.get(key) for key, name in MACHINE_FIELDS.items() if key not in kept}
    # The GPUs that were chosen are of this machine.
    return with_gpus(replace(request, **attributes), None) if values else replace(request, **attributes)


def parse_machine(spec: Setting, text: str) -> dict[str, Any]:
    """Key -> value of what was typed or taken from the list. Raises ValueError with a sentence."""
    key = spec.keys[0]
    if spec.id == "machine":
        return {} if text == HERE else {key: text}
    if key == "num_gpus":
        return {key: parse_whole_number(text)}
    from trainwiz.core.profile.profile import parse_size  # its package reads YAML: not before the first frame

    size = parse_size(text)
    if size is None:
        raise ValueError(tr("This is not a size. Example: 64G or 512M."))
    return {key: size}


def machine_value(state: PlanState, spec: Setting) -> str:
    """The value of one of these fields as the form shows it; empty while nothing is read."""
    request, planned = state.request, state.plan.machine if state.plan is not None else None
    if spec.id == "machine":
        if request.gpu is not None or planned is None:
            return request.gpu or ""
        if not planned.hypothetical:
            return tr("this machine")
        return (planned.gpus[0].name if planned.gpus else None) or tr("a machine without a GPU")
    if planned is None or not planned.hypothetical:
        return ""
    if spec.keys[0] == "num_gpus":
        return number(len(planned.gpus) if request.num_gpus is None else request.num_gpus)
    ram = planned.ram_total_bytes if request.ram_bytes is None else request.ram_bytes
    return "" if ram is None else f"{ram / GIB:.12g} GiB"


def machine_origin(state: PlanState, spec: Setting) -> tuple[str, str]:
    """(origin, reason) of one of these fields."""
    planned = state.plan.machine if state.plan is not None else None
    if is_machine_changed(state.request, spec):
        reason = tr("The plan and its files are for that machine; the run can't start on this machine.")
        return "you", reason if spec.id == "machine" else ""
    if planned is None:
        return "", ""
    if spec.id == "machine":
        elsewhere = tr("The profile is for it, and this machine has no such GPU.")
        return ("profile", elsewhere) if planned.hypothetical else ("detected", "")
    if spec.id == "ram" and planned.notes:
        return "default", tr("assumed, since it is not specified")
    return ("profile" if state.request.profile else "default"), ""


def machine_offers(state: PlanState) -> tuple[Offer, ...]:
    """This machine and the cards of the catalogue."""
    from trainwiz.tui.screens.plan_state import Offer

    reading = state.reading
    at_home = state.plan is None or not state.plan.machine.hypothetical or names_another(state.request)
    here = tr("this machine") if at_home else tr("the profile's machine")
    note = reading.machine.description if reading.machine is not None and at_home else ""
    return (Offer(HERE, here, note), *reading.cards)
