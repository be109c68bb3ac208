"""GpuLedger: what the run holds on each GPU, so that after its end one can look whether all of it was given back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainwiz.core.language import tr

LEAST_BYTES = 256 * 1024**2
"""Below this a card is not one that the run computes on: a CUDA context alone is larger."""
RELEASE_TAKES_AT_MOST_S = 15.0
"""A driver gives the memory of a killed process back after seconds, not at once."""
LOOK_EVERY_S = 0.5
DRIVER_ANSWERS_WITHIN_S = 10.0
GIB = 1024**3

Verdict = Literal["free", "held", "unclear", "not_checked"]
Sample = Callable[[], tuple[list[dict[str, Any]], dict[str, str]]]
"""GpuSampler.sample."""


@dataclass(frozen=True, slots=True)
class GpuCheck:
    """What a look at the GPUs after the end of a run found."""

    verdict: Verdict
    """free: our processes are gone from the cards, or, where the driver names only those of the machine (in a
    container), the cards hold no more than before the run; unclear: such a card holds more."""
    held_bytes: int
    """What the run held before its end."""
    pids_left: tuple[int, ...] = ()
    reason: str = ""
    """One sentence for every verdict but `free`."""

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "held_bytes": self.held_bytes,
            "pids_left": list(self.pids_left),
            "reason": self.reason,
        }


class GpuLedger:
    """Is told of each line of system.jsonl, in the thread that samples."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._grown: dict[str, int] = {}
        self._ours: dict[str, int] = {}
        self._pids: set[int] = set()

    def note(self, row: Mapping[str, Any]) -> None:
        """One sample. The first one that shows a card is taken for what it held before the run."""
        own = {process["pid"] for process in row.get("processes") or ()}
        for gpu in row.get("gpus") or ():
            uuid, used = gpu.get("uuid"), gpu.get("memory_used_bytes")
            if uuid is None or used is None:
                continue
            grown = used - self._before.setdefault(uuid, used)
            ours = {one["pid"]: one.get("memory_used_bytes") or 0 for one in gpu.get("processes") or ()}
            ours = {pid: held for pid, held in ours.items() if pid in own}
            # What was held last is remembered: samples go on for a moment after all is given back.
            if grown >= LEAST_BYTES:
                self._grown[uuid] = grown
            if any(ours.values()):
                self._ours[uuid] = sum(ours.values())
            self._pids |= ours.keys()

    @property
    def held(self) -> dict[str, int]:
        """uuid -> bytes that the run held; by the growth of a card where the driver does not name our processes."""
        return dict(self._ours or self._grown)

    def check(self, sample: Sample, *, patience_s: float = RELEASE_TAKES_AT_MOST_S) -> GpuCheck | None:
        """Look until all is given back, `patience_s` at most; None where the run held nothing on any GPU."""
        held, pids = self.held, frozenset(self._pids)
        if not held and not pids:
            return None
        deadline = time.monotonic() + patience_s
        while True:
            found = self._look(sample, held, pids)
            if found.verdict in ("free", "not_checked") or time.monotonic() > deadline:
                return found
            time.sleep(LOOK_EVERY_S)

    def _look(self, sample: Sample, held: Mapping[str, int], pids: frozenset[int]) -> GpuCheck:
        total = sum(held.values())
        gpus, problem = _in_time(sample)
        if problem is not None:
            return GpuCheck(
                "not_checked", total, reason=tr("The GPUs could not be looked at: {reason}.", reason=problem)
            )
        left = {
            one["pid"]: one.get("memory_used_bytes") or 0
            for gpu in gpus
            for one in gpu.get("processes") or ()
            if one["pid"] in pids
        }
        if left:
            reason = tr(
                "Process {pids} is still named on a GPU, with {amount} GiB: look at it with nvidia-smi.",
                pids=", ".join(map(str, left)),
                amount=f"{sum(left.values()) / GIB:.1f}",
            )
            return GpuCheck("held", total, tuple(left), reason)
        unread = sorted(set(held) - {gpu.get("uuid") for gpu in gpus if gpu.get("memory_used_bytes") is not None})
        if unread:
            reason = tr("{gpu} could not be looked at: the driver does not answer for it.", gpu=unread[0])
            return GpuCheck("not_checked", total, reason=reason)
        return GpuCheck("free", total) if pids else self._compared(gpus, held, total)

    def _compared(self, gpus: Sequence[Mapping[str, Any]], held: Mapping[str, int], total: int) -> GpuCheck:
        for gpu in gpus:
            more = gpu["memory_used_bytes"] - self._before[gpu["uuid"]] if gpu.get("uuid") in held else 0
            if more >= LEAST_BYTES:
                reason = tr(
                    "GPU {index} holds {amount} GiB more than before the run; the driver does not say whose it is.",
                    index=gpu.get("index"),
                    amount=f"{more / GIB:.1f}",
                )
                return GpuCheck("unclear", total, reason=reason)
        return GpuCheck("free", total)


def _in_time(sample: Sample) -> tuple[list[dict[str, Any]], str | None]:
    """A sample, or why there is none."""
    # Imported here: the keeper has this module loaded all the time, and pynvml only where there is a GPU.
    from trainwiz.core.hardware.nvml import Unreadable, in_time

    try:
        gpus, unavailable = in_time(sample, DRIVER_ANSWERS_WITHIN_S)
    except Unreadable as error:
        return [], error.reason
    return gpus, unavailable.get("gpus")
