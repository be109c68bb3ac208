"""`trainwiz hardware` and `trainwiz doctor`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from trainwiz.core.errors import EXIT_CANNOT_RUN, EXIT_FINISHED, EXIT_STOPPED, CannotRunError, Finding, os_reason
from trainwiz.core.hardware.doctor import Check, can_train, check_machine
from trainwiz.core.hardware.machine import Gpu, Machine, Rates, gpu_label
from trainwiz.core.hardware.read import find_tools, probe_machine
from trainwiz.core.hardware.visible import choose_attention, choose_precision, choose_tf32
from trainwiz.core.history.measurement import gpu_key, short_name
from trainwiz.core.history.rates import keep_rates, kept_rates, measure_rates, rates_path
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.output import Row, Waiting, interrupted_by_signals, paint, say, say_json, say_rows
from trainwiz.tui.text import cells, pad, size

LABEL_WIDTH = 12
TITLE_WIDTH = 24

STATUSES = {
    "ok": ("✓", mark("ok"), "good"),
    "warning": ("!", mark("low"), "warning"),
    "missing": ("✗", mark("missing"), "error"),
}
"""Of a check: its sign, its word and its colour."""


def run_hardware(*, as_json: bool, measure: bool = False) -> int:
    """Print what this machine is; exit 0 also where it lacks something: it is still described.

    With `measure` its rates are measured before: CannotRunError, and nothing but its sentence, where that cannot be.
    """
    machine = probe_machine()
    try:
        if measure and not _measure(machine):
            return EXIT_STOPPED
    except OSError as error:
        message = tr(
            "Could not save the performance data to {path}: {reason}.", path=rates_path(), reason=os_reason(error)
        )
        raise CannotRunError(Finding("not_kept", "error", str(rates_path()), message)) from error
    kept = kept_rates(machine)
    if as_json:
        say_json({**machine.to_json(), "rates": [rates.to_json() for rates in kept]})
        return EXIT_FINISHED
    rows = (*_hardware_rows(machine), *_rates_rows(kept))
    say_rows([(label, plain_text(text)) for label, text in rows], LABEL_WIDTH)
    return EXIT_FINISHED


def _measure(machine: Machine) -> bool:
    """Of each kind of GPU that programs see, or of the CPU where there is none; False where Ctrl-C ended it."""
    kinds = {gpu_key(machine.accelerator, gpu): gpu for gpu in machine.visible_gpus}
    device = machine.accelerator if kinds else "cpu"
    measured: list[tuple[Gpu, ...]] = [(gpu,) for gpu in kinds.values()] or [()]
    try:
        with interrupted_by_signals(), Waiting(tr("measuring this machine")):
            for gpus in measured:
                keep_rates(measure_rates(machine, device, gpus, machine.cpu_cores))
    except KeyboardInterrupt:
        say(tr("Stopped. Nothing was saved, and no process is left running."), sys.stderr)
        return False
    return True


def _rates_rows(kept: Sequence[Rates]) -> Iterator[Row]:
    if not kept:
        yield (
            tr("Performance"),
            tr("not measured with these library versions; run trainwiz hardware --measure (a few seconds)"),
        )
    for rates in kept:
        best = {one.format: one.flops_per_s for one in sorted(rates.products, key=lambda one: one.flops_per_s)}
        products = [f"{format} {_in_steps(flops)}FLOP/s" for format, flops in best.items()]
        bandwidth = tr("memory bandwidth {rate}B/s", rate=_in_steps(rates.bytes_per_s))
        yield tr("Performance"), tr(", ").join((short_name(rates.device), *products, bandwidth))
        yield "", tr("measured {day}; in full with --json", day=rates.day)


def _in_steps(rate: float) -> str:
    """ "3.03 T" or "21.4 G", for a unit to follow."""
    return f"{rate / 1e12:.3g} T" if rate >= 1e12 else f"{rate / 1e9:.3g} G"


def run_doctor(*, as_json: bool) -> int:
    machine = probe_machine()
    checks = check_machine(machine, find_tools())
    ready = can_train(checks)
    if as_json:
        documents = [check.to_json() for check in checks]
        found = {"machine": machine.description, "can_train": ready, "checks": documents, "notes": list(machine.notes)}
        say_json(found)
        return EXIT_FINISHED if ready else EXIT_CANNOT_RUN
    say(plain_text(machine.description))
    say()
    for check in checks:
        _say_check(check)
    for note in machine.notes:
        say(f"· {plain_text(note)}")
    say()
    say(_verdict(machine, ready))
    return EXIT_FINISHED if ready else EXIT_CANNOT_RUN


def _hardware_rows(machine: Machine) -> Iterator[Row]:
    yield tr("Machine"), machine.description
    for gpu in machine.gpus:
        yield from _gpu_rows(gpu)
    if not machine.gpus:
        yield "GPU", tr("none: {reason}", reason=machine.unavailable.get("gpus") or tr("no GPU found"))
    cores = trn("{n} usable core", "{n} usable cores", machine.cpu_cores)
    yield "CPU", f"{machine.cpu_model or tr('unknown CPU')}{tr(', ')}{cores}"
    free, whole = size(machine.ram_available_bytes), size(machine.ram_total_bytes)
    yield tr("RAM"), tr("{free} of {whole} available", free=free, whole=whole)
    disk = machine.unavailable.get("disk_free_bytes") or tr("{size} free", size=size(machine.disk_free_bytes))
    yield tr("Disk"), tr("{disk} at {path}", disk=disk, path=machine.disk_path)
    if machine.shared_memory_bytes is not None:
        yield "/dev/shm", size(machine.shared_memory_bytes)
    system = f"{machine.platform} {machine.os_version or ''}".strip()
    yield tr("System"), tr("{system}, on Windows (WSL)", system=system) if machine.wsl else system
    tf32, tf32_reason = choose_tf32(machine)
    choices = {
        tr("Precision"): choose_precision(machine),
        tr("Attention"): choose_attention(machine),
        "TF32": (tr("on") if tf32 else tr("off"), tf32_reason),
    }
    for label, (choice, reason) in choices.items():
        yield label, tr("{origin}: {reason}", origin=choice, reason=reason)
    torch = machine.unavailable.get("torch_cuda", "")
    if machine.torch_cuda:
        version = machine.libraries.versions.get("torch")
        torch = tr(", ").join((str(version), tr("built for CUDA {version}", version=machine.torch_cuda)))
    yield "torch", torch
    for note in machine.notes:
        yield tr("Note"), note


def _gpu_rows(gpu: Gpu) -> Iterator[Row]:
    is_slice = gpu.parent_uuid is not None
    label = tr("  slice") if is_slice else f"GPU {gpu.index}"
    if "gpu" in gpu.unavailable:
        name = f"{gpu_label(gpu)}: " if gpu.name is not None else ""
        yield label, f"{name}{gpu.unavailable['gpu']}"
        return
    if gpu.memory_total_bytes is None:
        reason = gpu.unavailable.get("memory_total_bytes") or tr("not reported")
        memory = tr("memory unknown ({reason})", reason=reason)
    else:
        free, whole = size(gpu.memory_free_bytes), size(gpu.memory_total_bytes)
        memory = tr("{free} of {whole} free", free=free, whole=whole)
    hidden = "" if gpu.visible else tr("hidden from programs")
    facts = (
        tr("{gpu} of GPU {index}", gpu=gpu_label(gpu), index=gpu.index) if is_slice else gpu_label(gpu),
        memory,
        f"sm {gpu.compute_capability}" if gpu.compute_capability else "",
        tr("driver {version}", version=gpu.driver) if gpu.driver and not is_slice else "",
        tr("MIG {state}", state=tr(gpu.mig)) if gpu.mig == "enabled" else hidden,
    )
    yield label, tr(", ").join(filter(None, facts))
    if gpu.links:
        yield "", tr("interconnect: {links}", links=", ".join(gpu.links))


def _say_check(check: Check) -> None:
    sign, word, style = STATUSES[check.status]
    # Nothing is wrong without these: an H100 that lacked flash-attn alone had a line marked ✗.
    spare = check.command is None or check.feature in ("flash_attention", "deepspeed", "deepspeed_compiler")
    if check.status == "missing" and spare and not check.required:
        sign, style = "·", "quiet"
    head = f"{sign} {pad(check.title, TITLE_WIDTH)}{pad(tr(word), 9)}"
    width = cells(head)
    rows = [(paint(head, style), check.reason), *([("", check.remedy)] if check.remedy else [])]
    say_rows([(label, plain_text(text)) for label, text in rows], width)
    if check.command is not None:
        say(" " * width + paint(plain_text(check.command), "strong"))


def _verdict(machine: Machine, ready: bool) -> str:
    if not ready:
        return tr("✗ This machine can't train yet. See the lines marked ✗ above.")
    if machine.accelerator == "cuda" and machine.torch_cuda is None:
        return tr("! Training runs on the CPU: the installed PyTorch can't use the GPU.")
    return {
        "cuda": tr("✓ This machine can train, on the GPU."),
        "mps": tr("✓ This machine can train, on the Apple GPU."),
    }.get(machine.accelerator, tr("✓ This machine can train, on the CPU."))
