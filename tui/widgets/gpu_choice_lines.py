"""The lines of one GPU to choose: taken or not, name, busy, free memory, who holds it. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.tui.cells import cells, cut, pad
from trainwiz.tui.figures import gib, size
from trainwiz.tui.theme import Marks

if TYPE_CHECKING:
    from trainwiz.core.hardware import Gpu, Machine
    from trainwiz.core.telemetry.gpu_load import GpuHolder, GpuLoad, GpuLoads

INDENT = 4
MOST_HOLDERS = 3
BUSY_WIDTH = 5
SHORTEST_NAME = 8


@dataclass(frozen=True, slots=True)
class RowView:
    """What a row shows of one card or slice."""

    gpu: Gpu
    load: GpuLoad | None
    is_chosen: bool = False
    can_be_chosen: bool = False
    of_several: bool = False
    """There is something to choose: the row has a box."""
    is_gone: bool = False
    hidden_by: str = ""
    """CUDA_VISIBLE_DEVICES, as it is set."""


def row_lines(view: RowView, width: int, marks: Marks, *, focused: bool, roomy: bool) -> list[Content]:
    """The lines of a row in `width` cells; `roomy` or the focus shows who holds the card and what it is."""
    gpu = view.gpu
    mark = marks.here if focused else " "
    box = ("[x] " if view.is_chosen else "[ ] " if view.can_be_chosen else "    ") if view.of_several else ""
    number = "  " if gpu.parent_uuid is not None else ""
    head = f"{mark} {box}{number}{tr('GPU {index}', index=gpu.index)}  "
    problem = _problem(view)
    tails = [""] if problem else _load_words(view)
    least = width - cells(head) - SHORTEST_NAME - 1
    tail = next((words for words in tails if cells(words) <= least), tails[-1])
    room = width - cells(head) - cells(tail) - 1
    name = cut(plain_text(_name(gpu), 80), max(SHORTEST_NAME, room), marks.ellipsis)
    style = "$foreground" if view.is_chosen or not view.of_several else "$muted"
    lines = [
        Content.assemble(
            (f"{mark} ", "$accent"), (head[2:], style), (pad(name, max(0, room)), style), " ", (tail, style)
        )
    ]
    below = width - INDENT - 1
    if problem:
        lines += [_hanging(line, "$warning") for line in _wrapped(f"{marks.tight} {problem}", below)]
    elif focused or roomy or not view.of_several:
        lines += [_hanging(line, "$muted") for line in _wrapped(_holders_words(view.load), below)]
    if (focused or not view.of_several) and not view.is_gone:
        lines += [_hanging(line, "$muted") for line in _wrapped(_facts(gpu, marks), below)]
    return lines


def notes_below(machine: Machine, loads: GpuLoads | None, refused: str) -> list[str]:
    """What there is to say of all of them."""
    notes = [refused] if refused else []
    if loads is not None and loads.problem:
        notes.append(tr("What the GPUs do now cannot be read: {reason}.", reason=plain_text(loads.problem)))
    if machine.cuda_visible_devices is None:
        # What CUDA would take by itself: a run names its GPUs by UUID.
        return notes
    return notes + [plain_text(note) for note in machine.notes if "CUDA_VISIBLE_DEVICES" in note]


def _name(gpu: Gpu) -> str:
    name = (gpu.name or tr("unknown")).removeprefix("NVIDIA ").removeprefix("GeForce ")
    return f"MIG {gpu.mig}" if gpu.parent_uuid is not None and gpu.mig else name


def _problem(view: RowView) -> str:
    """Why the card cannot be used; empty where it can."""
    gpu, load = view.gpu, view.load
    if view.is_gone:
        return tr("This GPU is gone: the driver does not name it any more. The plan goes on without it.")
    reason = gpu.unavailable.get("gpu") or (load.problem if load is not None else "")
    if reason and view.is_chosen:
        return tr("This GPU cannot be used: {reason}. Space takes it out.", reason=plain_text(reason))
    if reason:
        return tr("This GPU cannot be used: {reason}. The plan goes on without it.", reason=plain_text(reason))
    if gpu.visible or view.can_be_chosen:
        return ""
    if gpu.mig == "enabled" and gpu.parent_uuid is None:
        return tr("Cut into MIG slices; a run uses a slice.")
    return tr("Not visible to this process (CUDA_VISIBLE_DEVICES={value}).", value=plain_text(view.hidden_by, 60))


def _load_words(view: RowView) -> list[str]:
    """ "93 %  5.0 of 8.0 GiB free", each part at the same place in every row; then the same in fewer words."""
    busy, free = _busy(view), f"{gib(_free(view)):>5}"
    total = gib(view.gpu.memory_total_bytes)
    return [
        f"{busy}  {tr('{free} of {total} GiB free', free=free, total=total)}",
        f"{busy}  {tr('{free} GiB free', free=free)}",
        f"{busy} {free}",
    ]


def _busy(view: RowView) -> str:
    percent = view.load.utilization_percent if view.load is not None else None
    return pad("" if percent is None else f"{percent} %", BUSY_WIDTH, right=True)


def _free(view: RowView) -> int | None:
    from trainwiz.core.telemetry.gpu_load import free_bytes

    return free_bytes(view.gpu, view.load)


def _holders_words(load: GpuLoad | None) -> str:
    """Who holds the memory, the largest first; empty where nobody does or nobody is known."""
    if load is None or not load.holders:
        return ""
    names = [_holder_words(holder) for holder in load.holders[:MOST_HOLDERS]]
    rest = len(load.holders) - len(names)
    listed = ", ".join(names)
    if rest:
        return tr("held by {processes} and {n} more", processes=listed, n=rest)
    return tr("held by {processes}", processes=listed)


def _holder_words(holder: GpuHolder) -> str:
    name = plain_text(holder.name, 30) if holder.name else tr("a process not visible from here")
    held = "" if holder.memory_bytes is None else f" {size(holder.memory_bytes)}"
    return f"{name} ({holder.pid}){held}"


def _facts(gpu: Gpu, marks: Marks) -> str:
    parts = [
        f"sm {gpu.compute_capability}" if gpu.compute_capability else "",
        tr("driver {version}", version=plain_text(gpu.driver)) if gpu.driver else "",
        plain_text(gpu.uuid) if gpu.uuid else "",
    ]
    return f" {marks.dot} ".join(part for part in parts if part)


def _wrapped(text: str, width: int) -> list[str]:
    if not text:
        return []
    return [line.plain.rstrip() for line in Content(text).wrap(max(8, width))]


def _hanging(text: str, style: str) -> Content:
    return Content.styled(" " * INDENT + text, style)
