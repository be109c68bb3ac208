"""The GPUs of this machine that a run is given: which there are, which are taken, in words. Pure functions of the state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainwiz.core.language import tr, trn
from trainwiz.core.plan.request import PlanRequest

if TYPE_CHECKING:
    from trainwiz.core.hardware import Gpu, Machine
    from trainwiz.tui.screens.plan_state import PlanState

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
    return tuple(gpu for gpu in machine.gpus if gpu.visible or (by_name and _is_free_slice(gpu)))


def _is_free_slice(gpu: Gpu) -> bool:
    return gpu.parent_uuid is not None and gpu.uuid is not None and "gpu" not in gpu.unavailable


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
        return "" if machine is None else _all_words(machine.visible_gpus)
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
        return tr("None of them trains: the plan is for the CPU.") if taken else ""
    processes = engine.processes or taken
    return trn("One of them trains.", "{n} of them train.", processes) if processes < taken else ""


def _all_words(visible: Sequence[Gpu]) -> str:
    if len(visible) == 1:
        return trn("GPU {names}", "GPUs {names}", 1, names=_short(visible[0]))
    return tr("all {n}", n=len(visible)) if visible else tr("none")


def _short(gpu: Gpu) -> str:
    return f"{gpu.index} (MIG {gpu.mig})" if gpu.parent_uuid is not None else str(gpu.index)
