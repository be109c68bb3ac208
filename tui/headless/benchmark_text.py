"""A benchmark in words: each figure beside the one of the plan."""

from __future__ import annotations

from trainwiz.core.history.benchmark import Benchmark
from trainwiz.core.language import tr, trn
from trainwiz.core.plain import plain_text
from trainwiz.tui.figures import count, duration, duration_range, percent, size
from trainwiz.tui.output import labelled


def benchmark_lines(measured: Benchmark | None) -> list[str]:
    """One subject a line; nothing where nothing was measured."""
    return [labelled(label, text) for label, text in benchmark_rows(measured)]


def benchmark_rows(measured: Benchmark | None) -> list[tuple[str, str]]:
    """(label, text) of each line."""
    if measured is None:
        return []
    rows = [
        (tr("Step"), step_words(measured)),
        (tr("Pace"), pace_words(measured)),
        (tr("Memory"), memory_words(measured)),
    ]
    return [(label, text) for label, text in rows if text]


def step_words(measured: Benchmark) -> str:
    """ "0.52 s (0.45 to 0.61 s in 28 steps), planned 0.12 to 0.8 s (roofline)"."""
    steps = trn("{n} step", "{n} steps", measured.steps)
    spread = duration_range(measured.step_low_s, measured.step_high_s)
    words = tr("{median} ({range} in {steps})", median=duration(measured.step_s), range=spread, steps=steps)
    if measured.planned_step_low_s is None or measured.planned_step_high_s is None:
        return words
    planned = duration_range(measured.planned_step_low_s, measured.planned_step_high_s)
    basis = plain_text(tr(measured.planned_basis or "roofline"))
    return tr("{measured}; planned {planned} ({basis})", measured=words, planned=planned, basis=basis)


def pace_words(measured: Benchmark) -> str:
    """ "7,878 tokens/s, 6,010 of them real, planned 9,000; 3 % of the time waits for data"."""
    parts = []
    if measured.tokens_per_s is not None and measured.real_tokens_per_s is not None:
        rate, real = count(measured.tokens_per_s), count(measured.real_tokens_per_s)
        parts.append(tr("{count} tokens/s, {real} of them real", count=rate, real=real))
        if measured.planned_tokens_per_s is not None:
            parts.append(tr("planned {count}", count=count(measured.planned_tokens_per_s)))
    if measured.data_wait_share is not None:
        parts.append(tr("{share} of the time waits for data", share=percent(measured.data_wait_share)))
    return tr("; ").join(parts)


def memory_words(measured: Benchmark) -> str:
    """The device where there is one, and host RAM."""
    parts = []
    if measured.peak_allocated_bytes is not None:
        device = tr("{size} allocated at most", size=size(measured.peak_allocated_bytes))
        if measured.planned_allocated_bytes:
            device = tr("{measured}, planned {size}", measured=device, size=size(measured.planned_allocated_bytes))
        parts.append(device)
    if measured.host_ram_bytes is not None:
        host = tr("{size} host RAM at most", size=size(measured.host_ram_bytes))
        if measured.planned_host_ram_bytes:
            host = tr("{measured}, planned {size}", measured=host, size=size(measured.planned_host_ram_bytes))
        parts.append(host)
    return tr("; ").join(parts)
