"""`trainwiz hardware` and `trainwiz doctor`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from trainwiz.core.errors import EXIT_CANNOT_RUN, EXIT_FINISHED
from trainwiz.core.hardware.checkup import Check, can_train
from trainwiz.core.hardware.choices import choose_attention, choose_precision, choose_tf32
from trainwiz.core.hardware.describe import gpu_label
from trainwiz.core.hardware.doctor import check_machine
from trainwiz.core.hardware.machine import Gpu, Machine
from trainwiz.core.hardware.probe import probe_machine
from trainwiz.core.hardware.tools import find_tools
from trainwiz.core.plain import plain_text
from trainwiz.tui.figures import size
from trainwiz.tui.output import paint, say, say_json, wrapped

LABEL_WIDTH = 12
TITLE_WIDTH = 24

_MARKS = {"ok": "✓", "warning": "!", "missing": "✗"}
_WORDS = {"ok": "ok", "warning": "low", "missing": "missing"}
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
    yield "Machine", machine.description
    for gpu in machine.gpus:
        yield from _gpu_lines(gpu)
    if not machine.gpus:
        yield "GPU", f"none: {machine.unavailable.get('gpus', 'no GPU was found')}"
    yield "CPU", f"{machine.cpu_model or 'unknown processor'}, {machine.cpu_cores} usable cores"
    yield "RAM", f"{size(machine.ram_available_bytes)} available of {size(machine.ram_total_bytes)}"
    disk = machine.unavailable.get("disk_free_bytes") or f"{size(machine.disk_free_bytes)} free"
    yield "Disk", f"{disk} at {machine.disk_path}"
    if machine.shared_memory_bytes is not None:
        yield "/dev/shm", size(machine.shared_memory_bytes)
    system = f"{machine.platform} {machine.os_version or ''}".strip()
    yield "System", f"{system}, inside Windows (WSL)" if machine.wsl else system
    precision, precision_reason = choose_precision(machine)
    attention, attention_reason = choose_attention(machine)
    tf32, tf32_reason = choose_tf32(machine)
    yield "Precision", f"{precision}: {precision_reason}"
    yield "Attention", f"{attention}: {attention_reason}"
    yield "TF32", f"{'on' if tf32 else 'off'}: {tf32_reason}"
    torch = machine.libraries.versions.get("torch")
    cuda = f"built for CUDA {machine.torch_cuda}" if machine.torch_cuda else machine.unavailable.get("torch_cuda", "")
    yield "torch", f"{torch}, {cuda}" if torch is not None and machine.torch_cuda else cuda
    for note in machine.notes:
        yield "Note", note


def _gpu_lines(gpu: Gpu) -> Iterable[tuple[str, str]]:
    slice_of = f" of GPU {gpu.index}" if gpu.parent_uuid is not None else ""
    label = "  slice" if gpu.parent_uuid is not None else f"GPU {gpu.index}"
    if "gpu" in gpu.unavailable:
        name = f"{gpu_label(gpu)}: " if gpu.name is not None else ""
        yield label, f"{name}{gpu.unavailable['gpu']}"
        return
    facts = [gpu_label(gpu) + slice_of]
    if gpu.memory_total_bytes is not None:
        facts.append(f"{size(gpu.memory_free_bytes)} free of {size(gpu.memory_total_bytes)}")
    else:
        facts.append(f"memory unknown ({gpu.unavailable.get('memory_total_bytes', 'not reported')})")
    if gpu.compute_capability is not None:
        facts.append(f"sm {gpu.compute_capability}")
    if gpu.driver is not None and gpu.parent_uuid is None:
        facts.append(f"driver {gpu.driver}")
    if gpu.mig is not None and gpu.parent_uuid is None:
        facts.append(f"MIG {gpu.mig}")
    if not gpu.visible and gpu.mig != "enabled":
        facts.append("hidden from programs")
    yield label, ", ".join(facts)
    if gpu.uuid is not None:
        yield "", gpu.uuid
    if gpu.links:
        yield "", "links: " + ", ".join(gpu.links)


def _say_labelled(label: str, text: str, width: int) -> None:
    first, *rest = wrapped(plain_text(text), " " * width, sys.stdout)
    say(f"{label:<{width}}{first}")
    for line in rest:
        say(" " * width + line)


def _say_check(check: Check) -> None:
    style = _STYLES[check.status]
    quiet = check.status == "missing" and check.command is None and not check.required
    mark = "·" if quiet else _MARKS[check.status]
    head = f"{mark} {check.title:<{TITLE_WIDTH}}{_WORDS[check.status]:<9}"
    indent = " " * len(head)
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
        return "✗ Nothing can be trained here yet: see the lines marked ✗ above."
    if machine.accelerator == "cuda" and machine.torch_cuda is None:
        return "! Training runs here on the CPU: this torch cannot use the GPU."
    where = {"cuda": "on the GPU", "mps": "on the Apple GPU", "cpu": "on the CPU"}[machine.accelerator]
    return f"✓ Training can run here, {where}."
