"""`trainwiz hardware` and `trainwiz doctor`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from trainwiz.core.errors import EXIT_CANNOT_RUN, EXIT_FINISHED
from trainwiz.core.hardware.doctor import Check, can_train, check_machine
from trainwiz.core.hardware.machine import Gpu, Machine, gpu_label
from trainwiz.core.hardware.read import find_tools, probe_machine
from trainwiz.core.hardware.visible import choose_attention, choose_precision, choose_tf32
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.output import paint, say, say_json, wrapped
from trainwiz.tui.text import cells, pad, size

LABEL_WIDTH = 12
TITLE_WIDTH = 24

_MARKS = {"ok": "✓", "warning": "!", "missing": "✗"}
_WORDS = {"ok": mark("ok"), "warning": mark("low"), "missing": mark("missing")}
_STYLES = {"ok": "good", "warning": "warning", "missing": "error"}


def run_hardware(*, as_json: bool) -> int:
    """Print what this machine is; always exit 0: a machine that lacks something is still described."""
    machine = probe_machine()
    if as_json:
        say_json(machine.to_json())
        return EXIT_FINISHED
    for label, text in _hardware_lines(machine):
        _say_labelled(label, text, LABEL_WIDTH)
    return EXIT_FINISHED


def run_doctor(*, as_json: bool) -> int:
    """Print what is here and what is missing; exit 3 when no training at all can run here, else 0."""
    machine = probe_machine()
    checks = check_machine(machine, find_tools())
    ready = can_train(checks)
    if as_json:
        say_json(
            {
                "machine": machine.description,
                "can_train": ready,
                "checks": [check.to_json() for check in checks],
                "notes": list(machine.notes),
            }
        )
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


def _hardware_lines(machine: Machine) -> Iterable[tuple[str, str]]:
    yield tr("Machine"), machine.description
    for gpu in machine.gpus:
        yield from _gpu_lines(gpu)
    if not machine.gpus:
        yield "GPU", tr("none: {reason}", reason=machine.unavailable.get("gpus") or tr("no GPU was found"))
    cores = trn("{n} usable core", "{n} usable cores", machine.cpu_cores)
    yield "CPU", f"{machine.cpu_model or tr('unknown processor')}{tr(', ')}{cores}"
    yield (
        tr("RAM"),
        tr(
            "{free} available of {whole}",
            free=size(machine.ram_available_bytes),
            whole=size(machine.ram_total_bytes),
        ),
    )
    disk = machine.unavailable.get("disk_free_bytes") or tr("{size} free", size=size(machine.disk_free_bytes))
    yield tr("Disk"), tr("{disk} at {path}", disk=disk, path=machine.disk_path)
    if machine.shared_memory_bytes is not None:
        yield "/dev/shm", size(machine.shared_memory_bytes)
    system = f"{machine.platform} {machine.os_version or ''}".strip()
    yield tr("System"), tr("{system}, inside Windows (WSL)", system=system) if machine.wsl else system
    precision, precision_reason = choose_precision(machine)
    attention, attention_reason = choose_attention(machine)
    tf32, tf32_reason = choose_tf32(machine)
    yield tr("Precision"), tr("{origin}: {reason}", origin=precision, reason=precision_reason)
    yield tr("Attention"), tr("{origin}: {reason}", origin=attention, reason=attention_reason)
    yield "TF32", tr("{origin}: {reason}", origin=tr("on") if tf32 else tr("off"), reason=tf32_reason)
    torch = machine.libraries.versions.get("torch")
    cuda = (
        tr("built for CUDA {version}", version=machine.torch_cuda)
        if machine.torch_cuda
        else machine.unavailable.get("torch_cuda", "")
    )
    yield "torch", f"{torch}{tr(', ')}{cuda}" if torch is not None and machine.torch_cuda else cuda
    for note in machine.notes:
        yield tr("Note"), note


def _gpu_lines(gpu: Gpu) -> Iterable[tuple[str, str]]:
    is_slice = gpu.parent_uuid is not None
    label = tr("  slice") if is_slice else f"GPU {gpu.index}"
    if "gpu" in gpu.unavailable:
        name = f"{gpu_label(gpu)}: " if gpu.name is not None else ""
        yield label, f"{name}{gpu.unavailable['gpu']}"
        return
    facts = [tr("{gpu} of GPU {index}", gpu=gpu_label(gpu), index=gpu.index) if is_slice else gpu_label(gpu)]
    if gpu.memory_total_bytes is not None:
        facts.append(
            tr(
                "{free} free of {whole}",
                free=size(gpu.memory_free_bytes),
                whole=size(gpu.memory_total_bytes),
            )
        )
    else:
        reason = gpu.unavailable.get("memory_total_bytes") or tr("not reported")
        facts.append(tr("memory unknown ({reason})", reason=reason))
    if gpu.compute_capability is not None:
        facts.append(f"sm {gpu.compute_capability}")
    if gpu.driver is not None and gpu.parent_uuid is None:
        facts.append(tr("driver {version}", version=gpu.driver))
    if gpu.mig is not None and gpu.parent_uuid is None:
        facts.append(tr("MIG {state}", state=tr(gpu.mig)))
    if not gpu.visible and gpu.mig != "enabled":
        facts.append(tr("hidden from programs"))
    yield label, tr(", ").join(facts)
    if gpu.uuid is not None:
        yield "", gpu.uuid
    if gpu.links:
        yield "", tr("links: {links}", links=", ".join(gpu.links))


def _say_labelled(label: str, text: str, width: int) -> None:
    first, *rest = wrapped(plain_text(text), " " * width, sys.stdout)
    say(pad(label, width) + first)
    for line in rest:
        say(" " * width + line)


def _say_check(check: Check) -> None:
    style = _STYLES[check.status]
    quiet = check.status == "missing" and check.command is None and not check.required
    sign = "·" if quiet else _MARKS[check.status]
    head = f"{sign} {pad(check.title, TITLE_WIDTH)}{pad(tr(_WORDS[check.status]), 9)}"
    indent = " " * cells(head)
    first, *rest = wrapped(plain_text(check.reason), indent, sys.stdout)
    say(f"{paint(head, 'quiet' if quiet else style, sys.stdout)}{first}")
    for line in rest:
        say(indent + line)
    if check.remedy is not None:
        for line in wrapped(plain_text(check.remedy), indent, sys.stdout):
            say(indent + line)
    if check.command is not None:
        say(indent + paint(plain_text(check.command), "strong", sys.stdout))


def _verdict(machine: Machine, ready: bool) -> str:
    if not ready:
        return tr("✗ Nothing can be trained here yet: see the lines marked ✗ above.")
    if machine.accelerator == "cuda" and machine.torch_cuda is None:
        return tr("! Training runs here on the CPU: this torch cannot use the GPU.")
    if machine.accelerator == "cuda":
        return tr("✓ Training can run here, on the GPU.")
    if machine.accelerator == "mps":
        return tr("✓ Training can run here, on the Apple GPU.")
    return tr("✓ Training can run here, on the CPU.")
