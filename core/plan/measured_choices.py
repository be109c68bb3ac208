"""What `trainwiz bench --choose` measured on this machine, where nobody chose a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.data.packing import packs_rows
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.findings import Finding, Remedy
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.comparison import Alternative, Comparison
from trainwiz.core.history.device import device_key
from trainwiz.core.history.match import model_digest
from trainwiz.core.language import tr
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.draft import Draft
from trainwiz.core.plan.words import duration

SAME_NUMBERS = ("engine.attention", "engine.optimizer", "engine.tf32")
"""Settings that are taken by their pace. The precision is offered: it changes what is computed."""
COMPILE = "engine.compile"
PRECISION = "engine.precision"
LENGTH_FACTOR = 2.0
"""Rows that are longer or shorter by more than this were not measured: attention's share is another."""


def comparisons_of(
    comparisons: Sequence[Comparison], machine: Machine, devices: Devices, view: RunConfig, work: Workload | None
) -> tuple[Comparison, ...]:
    """Those of this work, newest first: the same device, model, task, precision and strategy, rows of like length, and
    padded or end to end as these. `view`: what is settled so far."""
    if work is None or not work.model_config or not comparisons or devices.nodes > 1:
        return ()
    key, model = device_key(machine, devices.device, devices.gpus), model_digest(work.model_config)
    threads, packed = view.engine.cpu_threads, packs_rows(view)
    torch = _release(machine.libraries.versions.get("torch"))
    return tuple(
        one
        for one in comparisons
        if one.machine == key
        and one.model == model
        and (one.task, one.precision, one.strategy) == (work.task, work.precision, work.strategy)
        and (one.offload, one.world_size) == (work.offload, work.world_size)
        and (one.lora_rank > 0) == work.lora
        and one.packed == packed
        and (devices.device != "cpu" or one.threads in (None, threads))
        and 1 / LENGTH_FACTOR <= one.length / work.length <= LENGTH_FACTOR
        and _release(one.versions.get("torch")) == torch
    )


def measured(comparisons: Sequence[Comparison], key: str) -> tuple[Comparison, Alternative] | None:
    """The newest one in which there was time for this setting; of several values the one that is taken or faster."""
    for comparison in comparisons:
        tried = [one for one in comparison.alternatives if one.key == key and one.verdict != "not_measured"]
        if tried:
            return comparison, max(tried, key=lambda one: (one.taken, one.verdict == "faster"))
    return None


def prefer_measured(
    draft: Draft, comparisons: Sequence[Comparison], remedy: Callable[[str, dict[str, Any]], Remedy]
) -> tuple[Finding, ...]:
    """Takes the measured values of what is open; the finding offers a faster precision."""
    for key in SAME_NUMBERS:
        comparison, found = measured(comparisons, key) or (None, None)
        if comparison is None or found is None or not found.taken:
            continue
        if _is_open(draft, key) and draft.get(key) == found.base[key]:
            draft.put(key, found.changes[key], _faster(comparison, found, key), "detected")
    return _offered(draft, comparisons, remedy)


def settle_compile(draft: Draft, comparisons: Sequence[Comparison], work: Workload | None, steps: int | None) -> None:
    """torch.compile, where it saves more over the steps of this run than compiling takes."""
    comparison, found = measured(comparisons, COMPILE) or (None, None)
    if comparison is None or found is None or work is None or steps is None or not found.taken:
        return
    if not _is_open(draft, COMPILE) or draft.get(COMPILE) or not comparison.step_s or not found.gain:
        return
    then = comparison.micro_batch * comparison.accumulation * comparison.length
    step_s = comparison.step_s * work.tokens * work.accumulation / then
    saved_s, once_s = steps * step_s * (1 - 1 / found.gain), found.once_s or 0.0
    figures = {
        "day": comparison.day,
        "gain": f"{found.gain:.2f}",
        "saved": duration(saved_s),
        "once": duration(once_s),
    }
    if saved_s > once_s:
        reason = tr(
            "measured here on {day}: {gain} times the pace; it saves {saved} in this run, compiling takes {once}",
            **figures,
        )
    else:
        reason = tr(
            "measured here on {day}: {gain} times the pace, but it saves only {saved} in this run, and compiling "
            "takes {once}",
            **figures,
        )
    draft.put(COMPILE, saved_s > once_s, reason, "detected")


def _offered(
    draft: Draft, comparisons: Sequence[Comparison], remedy: Callable[[str, dict[str, Any]], Remedy]
) -> tuple[Finding, ...]:
    comparison, found = measured(comparisons, PRECISION) or (None, None)
    if comparison is None or found is None or found.verdict != "faster" or not _is_open(draft, PRECISION):
        return ()
    if draft.get(PRECISION) != found.base[PRECISION]:
        return ()
    words = {"value": found.changes[PRECISION], "day": comparison.day, "gain": f"{found.gain:.2f}"}
    reason = tr(
        "{value} was {gain} times as fast here on {day}, with fewer digits: it is yours to choose "
        "(--precision {value})",
        **words,
    )
    draft.put(PRECISION, draft.get(PRECISION), reason, "detected")
    message = tr("{value} was measured here on {day} at {gain} times the pace of {base}.", **words, base=draft.get(PRECISION))  # fmt: skip
    offer = remedy(tr("train in {value}", value=words["value"]), {PRECISION: found.changes[PRECISION]})
    return (Finding("faster_precision", "note", PRECISION, message, (offer,)),)


def _is_open(draft: Draft, key: str) -> bool:
    """Nobody chose it: neither the user nor a profile."""
    return key not in draft.config.origins


def _faster(comparison: Comparison, found: Alternative, key: str) -> str:
    base = found.base[key]
    figures = {"day": comparison.day, "gain": f"{found.gain:.2f}"}
    if isinstance(base, bool):
        return tr("measured here on {day}: {gain} times the pace", **figures)
    return tr("measured here on {day}: {gain} times the pace of {base}", **figures, base=base)


def _release(version: str | None) -> str:
    """ "2.13" of "2.13.0+cpu": kernels change with it."""
    return ".".join((version or "").split("+")[0].split(".")[:2])
