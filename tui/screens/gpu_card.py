"""GpuCard: all that is known of one GPU: its recent past, its clocks, and who holds its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.content import Content
from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text
from trainwiz.tui.cells import pad
from trainwiz.tui.figures import gib
from trainwiz.tui.keys import KeyBinding, bindings, keys_of
from trainwiz.tui.screens.snapshot_card import SnapshotCard
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.gpu_lines import card_lines, held_words, processes_lines, short_name
from trainwiz.tui.widgets.meters import LABEL_WIDTH, bar_meter, spark_meter

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import GpuReading, Snapshot

ALL_LINES = 99
SENSOR_WORDS = {
    "utilization_percent": mark("busy"),
    "memory_used_bytes": mark("memory in use"),
    "memory_total_bytes": mark("memory"),
    "temperature_c": mark("heat"),
    "power_w": mark("power"),
    "power_limit_w": mark("power limit"),
    "throttle_reasons": mark("what holds the clock back"),
    "fan_percent": mark("fan"),
    "clock_mhz": mark("clock"),
    "clock_limit_mhz": mark("highest clock"),
    "processes": mark("processes"),
}


class GpuCard(SnapshotCard):
    """`place` is the place of the card among those of the run; the arrow keys go to the others."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("gpu")]

    def __init__(self, look: Callable[[], Snapshot | None], place: int, marks: Marks) -> None:
        super().__init__(look, marks)
        self._place = place

    def key_rows(self) -> list[KeyBinding]:
        snapshot = self._look()
        several = snapshot is not None and len(snapshot.used_gpus) > 1
        return [*keys_of("dialog"), *(keys_of("gpu") if several else ())]

    def action_other_card(self, by: int) -> None:
        snapshot = self._look()
        if snapshot is not None and snapshot.used_gpus:
            self._place = (self._place + by) % len(snapshot.used_gpus)
            self.draw()

    def _gpu(self, snapshot: Snapshot) -> GpuReading | None:
        return snapshot.used_gpus[min(self._place, len(snapshot.used_gpus) - 1)] if snapshot.used_gpus else None

    def title_of(self, snapshot: Snapshot) -> str:
        gpu = self._gpu(snapshot)
        return "GPU" if gpu is None else f"GPU {gpu.index} {self.marks.dot} {short_name(gpu.name)}"

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        gpu = self._gpu(snapshot)
        if gpu is None:
            return [Content.styled(tr("The GPU is gone: no card is visible any more."), "$warning")]
        lines = card_lines(gpu, snapshot.planned, width, ALL_LINES, self.marks)
        if gpu.problem:
            return [*lines, *self._identity(gpu)]
        if gpu.memory_history and gpu.memory_total_bytes:
            total = gpu.memory_total_bytes
            value = Content(f"{gib(gpu.memory_used_bytes)} GiB")
            lines.insert(2, spark_meter("", gpu.memory_history, total, value, width, self.marks, 15))
        if gpu.fan_percent is not None:
            value = Content(f"{gpu.fan_percent:.0f} %")
            lines.append(bar_meter(tr("fan"), gpu.fan_percent / 100, value, width, self.marks, None, 15))
        lines += [Content(), Content(held_words(gpu)), Content(), *self._processes(snapshot, gpu)]
        lines += [Content(), *self._identity(gpu), *self._unreadable(snapshot, gpu)]
        return lines

    def _processes(self, snapshot: Snapshot, gpu: GpuReading) -> list[Content]:
        lines = processes_lines(gpu, self.marks)
        reason = snapshot.unavailable.get(f"gpus.{gpu.index}.processes")
        if lines:
            return [Content.styled(tr("Processes on this card"), "bold"), *lines]
        said = tr("Processes: {reason}", reason=plain_text(reason)) if reason else tr("No process holds memory.")
        return [Content.styled(said, "$muted")]

    def _identity(self, gpu: GpuReading) -> list[Content]:
        facts = [(tr("name"), gpu.name), ("UUID", gpu.uuid or tr("unknown")), *([("MIG", gpu.mig)] if gpu.mig else [])]
        return [Content.assemble((pad(label, LABEL_WIDTH), "$muted"), plain_text(text, 80)) for label, text in facts]

    def _unreadable(self, snapshot: Snapshot, gpu: GpuReading) -> list[Content]:
        """Each sensor that the card does not report, with the reason."""
        prefix = f"gpus.{gpu.index}."
        lines = []
        for key, reason in snapshot.unavailable.items():
            sensor = key.removeprefix(prefix)
            if key.startswith(prefix) and sensor in SENSOR_WORDS:
                lines.append(
                    Content.styled(
                        tr("{sensor}: {reason}", sensor=tr(SENSOR_WORDS[sensor]), reason=plain_text(reason, 120)),
                        "$muted",
                    )
                )
        return lines
