"""TrafficCard: what goes through the network interfaces and the disks of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text
from trainwiz.tui.cells import cut, pad
from trainwiz.tui.figures import size
from trainwiz.tui.screens.snapshot_card import SnapshotCard
from trainwiz.tui.widgets.meters import spark
from trainwiz.tui.widgets.unknown import machine_reason
from trainwiz.tui.wrapping import wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwiz.core.telemetry.snapshot import Snapshot, TrafficReading

NAME_WIDTH = 16
WORDS = {
    "network": (mark("Network"), mark("received"), mark("sent")),
    "disk": (mark("Disks"), mark("read"), mark("written")),
}


class TrafficCard(SnapshotCard):
    def title_of(self, snapshot: Snapshot) -> str:
        title = tr("traffic of the machine")
        return title if snapshot.ending is None else f"{title} {self.marks.dot} {tr('last reading')}"

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        if not snapshot.host.traffic:
            return [Content.styled(line, "$muted") for line in wrap(_reason(snapshot), width)]
        lines: list[Content] = []
        for kind, words in WORDS.items():
            readings = [reading for reading in snapshot.host.traffic if reading.kind == kind]
            if readings:
                lines += [Content(), *self._group(readings, words, width)]
        return lines[1:]

    def _group(self, readings: Sequence[TrafficReading], words: tuple[str, str, str], width: int) -> list[Content]:
        heading, inward, outward = map(tr, words)
        half = max(14, (width - NAME_WIDTH) // 2)
        lines = [
            Content.assemble(
                (pad(heading, NAME_WIDTH), "bold"),
                (pad(inward, half, right=True) + pad(outward, half, right=True), "$muted"),
            )
        ]
        lines += [self._row(reading, half) for reading in sorted(readings, key=_busiest)]
        return lines

    def _row(self, reading: TrafficReading, half: int) -> Content:
        """Both directions of one device are drawn against the higher of the two."""
        known = [value for value in (*reading.in_history, *reading.out_history) if value is not None]
        highest = max([1.0, *known])
        parts: list[Content] = [Content(pad(cut(plain_text(reading.name), NAME_WIDTH - 1), NAME_WIDTH))]
        for rate, history in (
            (reading.in_bytes_per_s, reading.in_history),
            (reading.out_bytes_per_s, reading.out_history),
        ):
            value = tr("unknown") if rate is None else f"{size(rate)}/s"
            room = max(0, half - 14)
            chart = spark(history, room, highest, self.marks).rjust(room)
            parts.append(Content.assemble("  ", (chart, "$accent 75%"), pad(value, half - 2 - room, right=True)))
        return Content("").join(parts)


def _busiest(reading: TrafficReading) -> float:
    return -((reading.in_bytes_per_s or 0.0) + (reading.out_bytes_per_s or 0.0))


def _reason(snapshot: Snapshot) -> str:
    for key in ("traffic", "host.traffic"):
        if snapshot.unavailable.get(key):
            return plain_text(snapshot.unavailable[key], 300)
    if snapshot.host.sample:
        return tr("No traffic was recorded: it takes two samples, and older runs carry none.")
    return machine_reason(snapshot)
