"""The machine that the plan is for, and its GPUs. Pure functions of the state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainwiz.core.config.request import PlanRequest
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.text import number, parse_number, parse_whole_number

if TYPE_CHECKING:
    from trainwiz.core.hardware import Gpu, Machine
    from trainwiz.tui.screens.plan_fields import Setting
    from trainwiz.tui.screens.plan_state import Offer, PlanState


# The GPUs of this machine that a run is given: which there are, which are taken, in words. Pure functions of the state.

GPUS = "engine.gpus"
MOST_NAMED = 4
"""Where more GPUs are chosen, their number stands for them."""


def gpu_id(gpu: Gpu) -> str:
    """What a run calls a GPU: its UUID, which no other program's numbering can change."""
    return gpu.uuid or str(gpu.index)


def asked_gpus(state: PlanState) -> list[str] | None:
    """UUIDs or indexes of the GPUs that are to train; None: all that are visible."""
    overrides = state.request.overrides
    if GPUS in overrides:
        return _names(overrides[GPUS])
    if state.plan is None or state.plan.config.origin(GPUS).origin == "you":
        return None
    return state.plan.config.engine.gpus


def _names(value: Any) -> list[str] | None:
    """As a remedy, an option or `--set` gives it."""
    if value is None:
        return None
    parts = value.split(",") if isinstance(value, str) else value
    return [str(part).strip() for part in parts if str(part).strip()] or None


def usable_gpus(machine: Machine) -> tuple[Gpu, ...]:
    """What a run here can be given, in the machine's order: what is visible, and the MIG slices beside the visible one."""
    by_name = machine.cuda_visible_devices is None
    slices = (gpu for gpu in machine.gpus if gpu.parent_uuid and gpu.uuid and "gpu" not in gpu.unavailable)
    free = {gpu.uuid for gpu in slices} if by_name else set()
    return tuple(gpu for gpu in machine.gpus if gpu.visible or gpu.uuid in free)


def is_asked(gpu: Gpu, names: Sequence[str] | None) -> bool:
    return gpu.visible if names is None else gpu_id(gpu) in names or (gpu.visible and str(gpu.index) in names)


def toggled(machine: Machine, state: PlanState, gpu: Gpu) -> list[str] | None:
    """The names of the GPUs after `gpu` was added or taken out; None: all of them. Empty where it was the last one."""
    names = asked_gpus(state)
    usable = usable_gpus(machine)
    if gpu.parent_uuid is not None:
        # A program sees one slice: another one takes its place.
        return [gpu_id(gpu)]
    chosen = [one for one in usable if is_asked(one, names) != (one is gpu)]
    everything = state.plan is None or state.plan.config.origin(GPUS).origin in ("you", "solved")
    if len(chosen) == len(usable) and everything:
        return None
    # CUDA reads a list either by index or by UUID.
    by_uuid = all(one.uuid is not None for one in chosen)
    return [gpu_id(one) if by_uuid else str(one.index) for one in chosen]


def with_gpus(request: PlanRequest, names: Sequence[str] | None) -> PlanRequest:
    """The request for these GPUs, as --gpus would ask for them."""
    overrides = {key: value for key, value in request.overrides.items() if key != GPUS}
    if names is not None:
        overrides[GPUS] = list(names)
    return replace(request, overrides=overrides)


def gpus_words(state: PlanState) -> str:
    """ "all 8", "GPUs 0, 3", "7 of 8"; a name that is no GPU of this machine stands as it was asked for."""
    machine = state.reading.machine
    names = asked_gpus(state)
    if names is None:
        visible = machine.visible_gpus if machine is not None else ()
        if len(visible) == 1:
            return trn("GPU {names}", "GPUs {names}", 1, names=_short(visible[0]))
        return "" if machine is None else tr("all {n}", n=len(visible)) if visible else tr("none")
    by_name = {gpu_id(gpu): _short(gpu) for gpu in machine.gpus} if machine is not None else {}
    found = [by_name.get(name, name) for name in names]
    if machine is not None and len(found) > MOST_NAMED:
        return tr("{n} of {all}", n=len(found), all=len(machine.gpus))
    return trn("GPU {names}", "GPUs {names}", len(found), names=", ".join(found))


def gpus_unused(state: PlanState) -> str:
    """Why fewer GPUs train than are taken; empty where all of them do."""
    machine, plan = state.reading.machine, state.plan
    if machine is None or plan is None or state.updating:
        return ""
    taken = sum(is_asked(gpu, asked_gpus(state)) for gpu in usable_gpus(machine))
    engine = plan.config.engine
    if engine.device == "cpu":
        return tr("None of them is used for training: the plan is for the CPU.") if taken else ""
    processes = engine.processes or taken
    return (
        trn("One of them is used for training.", "{n} of them are used for training.", processes)
        if processes < taken
        else ""
    )


def _short(gpu: Gpu) -> str:
    return f"{gpu.index} (MIG {gpu.mig})" if gpu.parent_uuid is not None else str(gpu.index)


# The machine that the plan is for: this one, or another by catalogue or by figures. Pure functions of the state.

GIB = 1024**3
HERE = "here"
"""The entry of the list that asks for no other machine."""
BY_HAND = "by-hand"
FIGURES: Mapping[str, Any] = {"gpu_memory": 24 * GIB, "tflops": 71.0, "capability": "8.6"}
"""What a card that is given by its figures begins with: an RTX 3090's, to be changed."""

ATTRIBUTES: Mapping[str, str] = {
    "gpu": "gpu",
    "num_gpus": "num_gpus",
    "ram": "ram_bytes",
    "gpu_memory": "gpu_memory_bytes",
    "tflops": "tflops",
    "fp32_tflops": "fp32_tflops",
    "bandwidth": "bandwidth",
    "capability": "capability",
}
"""Key of a field, as findings name it -> attribute of PlanRequest."""
MOST_NEAR = 4
"""Names that are offered in place of one that nobody knows."""
RATES: Mapping[str, tuple[str, float]] = {
    "tflops": ("fp16_flops", 1e12),
    "fp32_tflops": ("fp32_flops", 1e12),
    "bandwidth": ("bandwidth_bytes_per_s", 1e9),
}
"""Key of a field -> what the catalogue calls it, and the unit."""
OF_ONE_CARD = ("gpu", *FIGURES, "fp32_tflops", "bandwidth")


def is_of_the_machine(spec: Setting) -> bool:
    """The field says which machine is planned for, and nothing of the run itself."""
    return spec.keys[0] in ATTRIBUTES


def names_another(request: PlanRequest, keys: Iterable[str] = tuple(ATTRIBUTES)) -> bool:
    """The user asks for the plan of a machine that is not this one, by one of these fields."""
    return any(getattr(request, ATTRIBUTES[key]) is not None for key in keys)


def is_machine_changed(request: PlanRequest, spec: Setting) -> bool:
    return names_another(request) if spec.id == "machine" else names_another(request, spec.keys)


def with_machine(request: PlanRequest, spec: Setting, values: Mapping[str, Any]) -> PlanRequest:
    """The request with the values of one of these fields. Another card keeps count and RAM; this machine keeps nothing."""
    keys = spec.keys if spec.id != "machine" else OF_ONE_CARD if values else tuple(ATTRIBUTES)
    attributes: dict[str, Any] = {ATTRIBUTES[key]: values.get(key) for key in keys}
    changed = replace(request, **attributes)
    # The GPUs that were chosen are of this machine.
    return with_gpus(changed, None) if spec.id == "machine" and values else changed


def parse_machine(spec: Setting, text: str) -> dict[str, Any]:
    """Key -> value of what was typed or taken from the list. Raises ValueError with a sentence."""
    if spec.id == "machine":
        return {} if text == HERE else dict(FIGURES) if text == BY_HAND else {"gpu": text}
    key = spec.keys[0]
    if key in ("ram", "gpu_memory"):
        from trainwiz.core.profile.profile import parse_size  # its package reads YAML: not before the first frame

        size = parse_size(text)
        if size is None:
            raise ValueError(tr("This is not a size. Example: 64G or 512M."))
        return {key: size}
    if key == "num_gpus":
        return {key: parse_whole_number(text)}
    return {key: parse_number(text)} if key in RATES else {key: text}


def machine_value(state: PlanState, spec: Setting) -> str:
    """The value of one of these fields as the form shows it; empty while nothing is read."""
    planned = state.plan.machine if state.plan is not None else None
    if spec.id == "machine":
        return _machine_words(state.request, planned)
    asked = getattr(state.request, ATTRIBUTES[spec.keys[0]])
    if asked is None and planned is not None and planned.hypothetical:
        asked = _planned_value(spec.keys[0], planned)
    return _written(spec.keys[0], asked)


def machine_problem(state: PlanState, problem: str) -> str:
    """Why the machine cannot be planned for: of a card that nobody knows, what the list offers instead."""
    if state.request.gpu is None or not any(finding.code == "unknown_gpu" for finding in state.reading.findings):
        return problem
    from trainwiz.core.catalog.gpus import near_gpus

    name, near = plain_text(state.request.gpu, 60), near_gpus(state.request.gpu, MOST_NEAR)
    named = mark("{name} does not match exactly one card in the catalog. Similar: {near}.")
    other = mark("No card in the catalog is called {name}. Choose “another card, by its specs” from the list.")
    return tr(named if near else other, name=name, near=", ".join(near))


def machine_origin(state: PlanState, spec: Setting) -> tuple[str, str]:
    """(origin, reason) of one of these fields."""
    planned = state.plan.machine if state.plan is not None else None
    if is_machine_changed(state.request, spec):
        reason = tr("The plan and its files are for that machine; the run can't start on this machine.")
        return "you", reason if spec.id == "machine" else ""
    if planned is None:
        return "", ""
    if spec.id == "machine":
        if planned.hypothetical:
            return "profile", tr("The profile is for it, and this machine has no such GPU.")
        return "detected", ""
    if spec.keys[0] in FIGURES:
        return "solved", tr("from the GPU catalog")
    if spec.keys[0] == "ram" and planned.notes:
        return "default", tr("assumed, since it is not specified")
    return ("profile" if state.request.profile else "default"), ""


def _machine_words(request: PlanRequest, planned: Machine | None) -> str:
    if request.gpu is not None:
        return request.gpu
    if names_another(request, FIGURES):
        return tr("another card, by its specs")
    if planned is None:
        return ""
    if not planned.hypothetical:
        return tr("this machine")
    name = planned.gpus[0].name if planned.gpus else None
    return name or tr("a machine without a GPU")


def _planned_value(key: str, planned: Machine) -> Any:
    card = planned.gpus[0] if planned.gpus else None
    if key == "num_gpus":
        return len(planned.gpus)
    if key == "ram":
        return planned.ram_total_bytes
    if card is None:
        return None
    if key in RATES:
        from trainwiz.core.catalog.gpus import spec_of

        name, unit = RATES[key]
        rate = getattr(spec_of(card), name, None)
        return None if rate is None else rate / unit
    return card.memory_total_bytes if key == "gpu_memory" else card.compute_capability


def _written(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key in ("ram", "gpu_memory"):
        return f"{value / GIB:.12g} GiB"
    return str(value) if key == "capability" else number(value)


def current_machine(request: PlanRequest) -> str:
    """The entry of the list that is in use."""
    if request.gpu is not None:
        return request.gpu
    return BY_HAND if names_another(request, FIGURES) else HERE


def machine_offers(state: PlanState) -> tuple[Offer, ...]:
    """This machine, the cards of the catalogue, and a card that is in no catalogue."""
    from trainwiz.tui.screens.plan_state import Offer

    reading = state.reading
    at_home = state.plan is None or not state.plan.machine.hypothetical or names_another(state.request)
    here = tr("this machine") if at_home else tr("the profile's machine")
    note = reading.machine.description if reading.machine is not None and at_home else ""
    by_hand = Offer(BY_HAND, tr("another card, by its specs"), tr("memory, TFLOP/s and compute capability"))
    return (Offer(HERE, here, note), *reading.cards, by_hand)
