"""After a stop: is every process of the run gone, and its GPU memory given back? One sentence, and the facts."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from trainwiz.core.language import tr
from trainwiz.core.supervise.gpu_ledger import GIB, GpuCheck, GpuLedger
from trainwiz.core.supervise.marks import run_processes


def verify_gone(mark: str, keeper: int, spare: Collection[int], ledger: GpuLedger) -> dict[str, Any]:
    """{processes_left: [pids], gpu: a GpuCheck or None, text: one sentence}. Takes seconds only where a GPU was used.

    `spare`: the keeper's guard, which carries the mark too.
    """
    left = sorted(run_processes(mark, keeper) - set(spare))
    gpu = _check(ledger)
    return {"processes_left": left, "gpu": gpu.to_json() if gpu else None, "text": verified_words(left, gpu)}


def _check(ledger: GpuLedger) -> GpuCheck | None:
    from trainwiz.core.hardware.nvml import Unreadable, in_time
    from trainwiz.core.telemetry.gpu import GpuSampler

    sampler = GpuSampler()
    try:
        return ledger.check(sampler.sample)
    finally:
        # A driver that did not come back from a look does not come back from the closing either.
        with suppress(Unreadable):
            in_time(sampler.close)


def verified_words(left: Collection[int], gpu: GpuCheck | None) -> str:
    """One sentence, or two where something is left."""
    if left:
        processes = tr(
            "These processes of the run hang in the kernel and could not be ended: {pids}. "
            "They go when their driver or disk answers again, or with a reboot.",
            pids=", ".join(map(str, left)),
        )
        return processes if gpu is None or gpu.verdict == "free" else f"{processes} {gpu.reason}"
    if gpu is None:
        return tr("No process of the run is left.")
    if gpu.verdict == "free" and not gpu.held_bytes:
        return tr("No process of the run is left, neither here nor on a GPU.")
    if gpu.verdict == "free":
        amount = f"{gpu.held_bytes / GIB:.1f}"
        return tr("No process of the run is left, and its {amount} GiB on the GPU are free again.", amount=amount)
    return tr("No process of the run is left. {gpu}", gpu=gpu.reason)
