"""`trainwiz hardware` and `trainwiz doctor`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from trainwiz.core.errors import EXIT_CANNOT_RUN, EXIT_FINISHED, EXIT_STOPPED
from trainwiz.core.hardware.doctor import Check, can_train, check_machine
from trainwiz.core.hardware.machine import Gpu, Machine, Rates, gpu_label
from trainwiz.core.hardware.read import find_tools, probe_machine
from trainwiz.core.hardware.visible import choose_attention, choose_precision
from trainwiz.core.history.measurement import gpu_key, short_name
from trainwiz.core.history.rates import keep_rates, kept_rates, measure_rates
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.output import Row, Waiting, interrupted_by_signals, paint, say, say_json, say_rows, under
from trainwiz.tui.text import cells, pad, size

LABEL_WIDTH = 12
TITLE_WIDTH = 24

STATUSES = {
    "ok": ("✓", mark("ok"), "good"),
    "warning": ("!", mark("low"), "warning"),
    "missing": ("✗", mark("missing"), "error"),
    "spare": ("·", mark("missing"), "quiet"),
}
"""Of a check: its sign, its word and its colour."""


def run_hardware(*, as_json: bool, measure: bool = False) -> int:
    """Print what this machine is; exit 0 also where it lacks something: it is still described.

    With `measure` its rates are measured before: CannotRunError, and nothing but its sentence, where that cannot be.
    """
    machine = probe_machine()
    if measure:
        try:
            _measure(machine)
        except KeyboardInterrupt:
            say(tr("Stopped. Nothing was saved, and no process is left running."), sys.stderr)
            return EXIT_STOPPED
    kept = kept_rates(machine)
    if as_json:
        say_json({**machine.to_json(), "rates": [rates.to_json() for rates in kept]})
        return EXIT_FINISHED
    rows = (*_hardware_rows(machine), *_rates_rows(kept))
    say_rows([(label, plain_text(text)) for label, text in rows], LABEL_WIDTH)
    return EXIT_FINISHED


def _measure(machine: Machine) -> None:
    """Of each kind of GPU that programs see, or of the CPU where there is none."""
    kinds = {gpu_key(machine.accelerator, gpu): gpu for gpu in machine.visible_gpus}
    device = machine.accelerator if kinds else "cpu"
    measured: list[tuple[Gpu, ...]] = [(gpu,) for gpu in kinds.values()] or [()]
    with interrupted_by_signals(), Waiting(tr("measuring this machine")):
        for gpus in measured:
            keep_rates(measure_rates(machine, device, gpus, machine.cpu_cores))


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
        measured = tr("measured {day}; in full with --json", day=rates.day)
        yield from under(tr("Performance"), tr(", ").join((short_name(rates.device), *products, bandwidth)), measured)


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
    else:
        say(plain_text(machine.description))
        say()
        for check in checks:
            _say_check(check)
        for note in machine.notes:
            say(f"· {plain_text(note)}")
        say()
        device = {"cuda": "GPU", "mps": "Apple GPU"}.get(machine.accelerator, "CPU")
        if not ready:
            say(tr("✗ This machine can't train yet. See the lines marked ✗ above."))
        elif machine.accelerator == "cuda" and machine.torch_cuda is None:
            say(tr("! Training runs on the CPU: the installed PyTorch can't use the GPU."))
        else:
            say(tr("✓ This machine can train, on the {device}.", device=device))
    return EXIT_FINISHED if ready else EXIT_CANNOT_RUN


def _hardware_rows(machine: Machine) -> Iterator[Row]:
    """What trainwiz doctor checks, such as shared memory, TF32 and the build of torch, stands there."""
    unavailable = machine.unavailable
    yield tr("Machine"), machine.description
    for gpu in machine.gpus:
        yield from under(f"GPU {gpu.index}" if gpu.parent_uuid is None else tr("  slice"), *_gpu_texts(gpu))
    if not machine.gpus:
        yield "GPU", tr("none: {reason}", reason=unavailable.get("gpus") or tr("no GPU found"))
    cores = trn("{n} usable core", "{n} usable cores", machine.cpu_cores)
    yield "CPU", f"{machine.cpu_model or tr('unknown CPU')}{tr(', ')}{cores}"
    free, whole = size(machine.ram_available_bytes), size(machine.ram_total_bytes)
    yield tr("RAM"), tr("{free} of {whole} available", free=free, whole=whole)
    disk = unavailable.get("disk_free_bytes") or tr("{size} free", size=size(machine.disk_free_bytes))
    yield tr("Disk"), tr("{disk} at {path}", disk=disk, path=machine.disk_path)
    for label, choose in ((tr("Precision"), choose_precision), (tr("Attention"), choose_attention)):
        choice, reason = choose(machine)
        yield label, tr("{origin}: {reason}", origin=choice, reason=reason)
    yield from under(tr("Note"), *machine.notes)


def _gpu_texts(gpu: Gpu) -> tuple[str, str]:
    """What it is, and what it is connected with."""
    if "gpu" in gpu.unavailable:
        return f"{gpu_label(gpu)}: {gpu.unavailable['gpu']}" if gpu.name else gpu.unavailable["gpu"], ""
    memory = tr("{free} of {whole} free", free=size(gpu.memory_free_bytes), whole=size(gpu.memory_total_bytes))
    if gpu.memory_total_bytes is None:
        reason = gpu.unavailable.get("memory_total_bytes") or tr("not reported")
        memory = tr("memory unknown ({reason})", reason=reason)
    facts = (
        gpu_label(gpu),
        memory,
        f"sm {gpu.compute_capability}" if gpu.compute_capability else "",
        tr("driver {version}", version=gpu.driver) if gpu.driver else "",
        "MIG" if gpu.mig == "enabled" else "",
        "" if gpu.visible else tr("hidden from programs"),
    )
    links = tr("interconnect: {links}", links=", ".join(gpu.links)) if gpu.links else ""
    return tr(", ").join(filter(None, facts)), links


def _say_check(check: Check) -> None:
    # Nothing is wrong without these: an H100 that lacked flash-attn alone had a line marked ✗.
    is_spare = check.command is None or check.feature in ("flash_attention", "deepspeed", "deepspeed_compiler")
    is_quiet = check.status == "missing" and is_spare and not check.required
    sign, word, style = STATUSES["spare" if is_quiet else check.status]
    head = f"{sign} {pad(check.title, TITLE_WIDTH)}{pad(tr(word), 9)}"
    width = cells(head)
    say_rows(under(paint(head, style), plain_text(check.reason), plain_text(check.remedy or "")), width)
    if check.command is not None:
        say(" " * width + paint(plain_text(check.command), "strong"))
