"""What a profile says of its own number of GPUs, solved again where there are others."""

from __future__ import annotations

from trainwiz.core.batch import accumulation_for, deviation, largest_exact, nearest_large
from trainwiz.core.config import RunConfig
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.language import tr, trn
from trainwiz.core.plan.batch_findings import NOTABLE_DEVIATION
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.draft import Draft
from trainwiz.core.plan.sizes import target_samples
from trainwiz.core.profile.profile import Profile

STRATEGY = "engine.strategy"
MICRO, ACCUMULATION, WORKERS = "batch.micro_batch_size", "batch.gradient_accumulation_steps", "data.workers"


def for_other_cards(config: RunConfig, machine: Machine, profile: Profile | None) -> RunConfig:
    """`config`, with the strategy open where a profile of one card says "single" and several are to be used."""
    if profile is None or profile.hardware.gpu is None or config.mode.kind == "smoke":
        return config
    if config.engine.strategy != "single" or config.origin(STRATEGY).origin != "profile":
        return config
    if machine.accelerator != "cuda" or config.engine.device not in (None, "cuda"):
        return config
    cards = len(machine.visible_gpus) if config.engine.gpus is None else len(config.engine.gpus)
    if (config.engine.processes or cards) == 1:
        return config
    return config.model_copy(update={"engine": config.engine.model_copy(update={"strategy": None})})


def reopen_for_processes(draft: Draft, devices: Devices, profile: Profile | None) -> None:
    """Accumulation, and where it alone misses the target the micro-batch; the loader's workers are shared."""
    if profile is None:
        return
    own = max(1, profile.hardware.num_gpus)
    if devices.world_size == own:
        return
    _batch(draft, devices, own)
    workers = draft.get(WORKERS)
    if workers and devices.processes > own and draft.config.origin(WORKERS).origin == "profile":
        share = max(1, workers * own // devices.processes)
        draft.put(
            WORKERS,
            share,
            tr(
                "the {workers} of the profile, shared by {processes} processes",
                workers=workers * own,
                processes=devices.processes,
            ),
        )


def _batch(draft: Draft, devices: Devices, own: int) -> None:
    """A profile's accumulation belongs to its number of GPUs: with another one the target says what it should be."""
    micro, accumulation = draft.get(MICRO), draft.get(ACCUMULATION)
    if accumulation is not None:
        if draft.config.origin(ACCUMULATION).origin != "profile":
            return
        if target_samples(draft) is None and micro is not None:
            reason = trn(
                "the profile's {micro} × {accumulation} × {n} GPU",
                "the profile's {micro} × {accumulation} × {n} GPUs",
                own,
                micro=micro,
                accumulation=accumulation,
            )
            draft.put("batch.target_samples", micro * accumulation * own, reason)
    target = target_samples(draft)
    if target is None:
        return
    draft.values[ACCUMULATION] = None
    if micro is None or draft.config.origin(MICRO).origin != "profile":
        return
    processes = devices.world_size
    nearest = micro * accumulation_for(target, micro, processes) * processes
    if abs(deviation(nearest, target)) <= NOTABLE_DEVIATION:
        return
    exact = largest_exact(target, processes, micro)
    better = exact if exact is not None and 2 * exact.micro_batch >= micro else nearest_large(target, processes, micro)
    if abs(deviation(better.samples, target)) < abs(deviation(nearest, target)):
        reason = trn(
            "{micro} on {n} GPU would make {nearest} sequences a step",
            "{micro} on {n} GPUs would make {nearest} sequences a step",
            processes,
            micro=micro,
            nearest=f"{nearest:,}",
        )
        draft.put(MICRO, better.micro_batch, reason)
