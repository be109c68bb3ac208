"""MachineFacts: what was detected of this machine, or what is planned for another one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.core.language import tr, trn
from trainwiz.tui.figures import gib
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.facts import FactsView, hanging, line, title, waiting

if TYPE_CHECKING:
    from trainwiz.core.hardware import Machine
    from trainwiz.tui.screens.plan_state import PlanState

MOST_LIBRARIES = 8
MOST_REASONS = 2


class MachineFacts(FactsView):
    """Its GPUs have rows of their own above."""

    def facts(self, state: PlanState, width: int) -> Content:
        machine, plan = state.reading.machine, state.plan
        if machine is None:
            return waiting(tr(state.reading.waits_for) or tr("reading this machine"), self.marks)
        is_elsewhere = plan is not None and plan.machine.hypothetical
        return Content("\n").join(machine_lines(machine, width, self.marks, with_gpus=is_elsewhere))


def machine_lines(machine: Machine, width: int, marks: Marks, *, with_gpus: bool) -> Iterator[Content]:
    """`with_gpus` names the cards, which have no rows of their own while another machine is planned for."""
    yield Content()
    yield title(tr("This machine"))
    if not machine.gpus:
        yield line("GPU", tr("none"), "", width, marks)
        for reason in list(dict.fromkeys(machine.unavailable.values()))[:MOST_REASONS]:
            yield from hanging("", reason, width)
    if with_gpus:
        for gpu in machine.gpus:
            free = tr("{free} of {total} GiB free", free=gib(gpu.memory_free_bytes), total=gib(gpu.memory_total_bytes))
            yield line(f"GPU {gpu.index}", (gpu.name or tr("unknown")).removeprefix("NVIDIA "), free, width, marks)
    cores = trn("{n} core", "{n} cores", machine.cpu_cores)
    yield line("CPU", cores, machine.cpu_model or "", width, marks)
    available, total = gib(machine.ram_available_bytes), gib(machine.ram_total_bytes)
    yield line(tr("RAM"), tr("{free} of {total} GiB free", free=available, total=total), "", width, marks)
    if machine.disk_free_bytes is not None:
        free = tr("{free} GiB free", free=gib(machine.disk_free_bytes))
        yield line(tr("Disk"), free, machine.disk_path or "", width, marks)
    found = [f"{name} {version}" for name, version in machine.libraries.versions.items() if version]
    if found:
        yield from hanging(tr("Libraries"), ", ".join(found[:MOST_LIBRARIES]), width)
