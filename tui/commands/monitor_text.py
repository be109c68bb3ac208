"""A snapshot as lines of text: for `monitor --once` and `--plain`, for pipes and screen readers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainwiz.core.moments import moment_words
from trainwiz.core.plain import plain_text
from trainwiz.core.run.status import ENDED
from trainwiz.core.telemetry.so_far import real_throttling
from trainwiz.tui.figures import duration, epochs, gib, size
from trainwiz.tui.metric_words import measured
from trainwiz.tui.widgets.axes import value_label
from trainwiz.tui.widgets.gpu_lines import mig_words
from trainwiz.tui.widgets.pace_panel import step_seconds

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import GpuReading, Snapshot

LABEL_WIDTH = 10
MEASURED = ("eval_perplexity", "eval_bleu", "eval_accuracy")
WORDS = (
    ("loss", "loss"),
    ("eval_loss", "evaluation loss"),
    ("eval_perplexity", "perplexity"),
    ("eval_accuracy", "accuracy"),
    ("eval_bleu", "BLEU"),
    ("learning_rate", "learning rate"),
    ("grad_norm", "gradient norm"),
)
ELSEWHERE = frozenset(
    {"tokens", "real_tokens", "tokens_per_s", "real_tokens_per_s", "step_s", "data_wait_s", "peak_allocated_bytes"}
    | {"peak_reserved_bytes"}
)
"""Metrics that the lines about pace and memory speak of."""
MOST_METRICS = 6
LONGEST_NAME = 48
MOST_FILES = 3
ADVICE_WORDS = {"error": "urgent: ", "warning": "warning: ", "note": "", "ok": ""}
GAP = "   "


def summary_lines(snapshot: Snapshot) -> list[str]:
    """The whole look, one subject a line."""
    lines = [f"{plain_text(snapshot.name)}{GAP}{snapshot.status}"]
    lines += [_line(label, parts) for label, parts in labelled_parts(snapshot)]
    return [line for line in lines if line]


def labelled_parts(snapshot: Snapshot) -> Iterator[tuple[str, list[str]]]:
    """(subject, what is known of it), in the order of reading; an empty list is a subject that nothing is known of."""
    yield "Progress", progress_parts(snapshot)
    yield "Metrics", metric_parts(snapshot)
    yield "Pace", pace_parts(snapshot)
    yield "Engine", engine_parts(snapshot)
    for gpu in snapshot.used_gpus:
        yield f"GPU {gpu.index}", gpu_parts(gpu, snapshot)
    if not snapshot.used_gpus:
        yield "CPU", cpu_parts(snapshot)
    yield "Host", host_parts(snapshot)
    yield "Processes", process_parts(snapshot)
    for problem in snapshot.problems:
        yield "Problem", [plain_text(problem)]
    for advice in snapshot.advice:
        yield "Advice", [ADVICE_WORDS[advice.level] + plain_text(advice.text)]
        if advice.remedy:
            yield "", [plain_text(advice.remedy)]
    if snapshot.source != "run":
        for path in snapshot.read_from[:MOST_FILES]:
            yield "Read from", [plain_text(path)]
    if snapshot.ending is not None:
        yield "End", [plain_text(snapshot.ending.text)]
        if snapshot.ending.remedy:
            yield "Next", [plain_text(snapshot.ending.remedy)]


def plain_line(snapshot: Snapshot) -> str:
    """One line: the moment of a replay, status, progress, loss, pace, memory, the worst advice."""
    parts = [snapshot.status, *progress_parts(snapshot)]
    if snapshot.replayed_s is not None:
        parts.insert(0, moment_words(snapshot.replayed_s, "%Y-%m-%d %H:%M:%S"))
    parts += leading_metric(snapshot)
    pace = snapshot.pace.real_tokens_per_s or snapshot.pace.tokens_per_s
    if pace is not None:
        parts.append(f"{pace:,.0f} tokens/s")
    used = [gpu for gpu in snapshot.used_gpus if gpu.memory_used_bytes is not None]
    parts += [f"GPU {gpu.index} {gib(gpu.memory_used_bytes)} GiB" for gpu in used]
    if not snapshot.used_gpus and snapshot.job_rss_bytes is not None:
        parts.append(f"RAM {gib(snapshot.job_rss_bytes)} GiB")
    worst = snapshot.advice[0] if snapshot.advice else None
    if worst is not None and worst.level in ("error", "warning"):
        parts.append(plain_text(worst.text))
    elif snapshot.problems:
        parts.append(plain_text(snapshot.problems[0]))
    if snapshot.ending is not None and snapshot.status not in ENDED:
        parts.append(plain_text(snapshot.ending.text))
    return GAP.join(parts)


def leading_metric(snapshot: Snapshot) -> list[str]:
    """The loss; where no metric has that name, one that is called a loss, else the first that there is."""
    known = [name for name, summary in snapshot.metrics.items() if summary.last is not None and name not in ELSEWHERE]
    losses = [name for name in known if "loss" in name.lower()]
    trained = [name for name in losses if not any(word in name.lower() for word in ("eval", "val", "test"))]
    for name in ["loss"] * ("loss" in known) + trained + losses + known:
        last = snapshot.metrics[name].last
        if last is not None:
            return [f"{short_name(name)} {shown_value(name, last)}"]
    return []


def short_name(name: str) -> str:
    """The name as text; of a long one the end, where the names of one job differ."""
    whole = plain_text(name)
    return whole if len(whole) <= LONGEST_NAME else f"…{whole[1 - LONGEST_NAME :]}"


def shown_value(name: str, value: float) -> str:
    if math.isnan(value):
        return "not a number"
    return measured(name, value) if name in MEASURED else value_label(value)


def progress_parts(snapshot: Snapshot) -> list[str]:
    parts = []
    if snapshot.step is not None:
        of = f" of {snapshot.max_steps:,}" if snapshot.max_steps else ""
        parts.append(f"step {snapshot.step:,}{of}")
    if snapshot.epoch is not None:
        parts.append(f"epoch {epochs(snapshot.epoch)}")
    if snapshot.eta_s is not None:
        parts.append(f"finishes in {duration(snapshot.eta_s)}")
    elif snapshot.started_s is not None and snapshot.ended_s is not None:
        parts.append(f"took {duration(max(0.0, snapshot.ended_s - snapshot.started_s))}")
    return parts


def metric_parts(snapshot: Snapshot) -> list[str]:
    """The ones that most trainings have, in words; then others by their names, and how many there are beyond."""
    known = [(name, short) for name, short in WORDS if name in snapshot.metrics]
    rest = [name for name in snapshot.metrics if name not in dict(WORDS) and name not in ELSEWHERE]
    shown = [*known, *((name, short_name(name)) for name in rest[: max(0, MOST_METRICS - len(known))])]
    parts = []
    for name, short in shown:
        summary = snapshot.metrics[name]
        if summary.last is None:
            continue
        at = f" at step {summary.last_step:,.0f}" if name == "eval_loss" and summary.last_step is not None else ""
        parts.append(f"{short} {shown_value(name, summary.last)}{at}")
    beyond = len(known) + len(rest) - len(shown)
    return [*parts, f"{beyond:,} more with --json"] if beyond else parts


def engine_parts(snapshot: Snapshot) -> list[str]:
    """What computes, as read inside the process; before that, what is planned."""
    planned, actual = snapshot.engine.get("planned"), snapshot.engine.get("actual")
    if not planned and not actual:
        return []
    return [plain_text(actual if actual else f"{planned} planned")]


def pace_parts(snapshot: Snapshot) -> list[str]:
    pace, planned = snapshot.pace, snapshot.planned
    parts = []
    if pace.step_s is not None:
        expected = ""
        if planned.step_low_s is not None and planned.step_high_s is not None:
            expected = f" (planned {step_seconds(planned.step_low_s)} to {step_seconds(planned.step_high_s)})"
        parts.append(f"{step_seconds(pace.step_s)} s a step{expected}")
    if pace.real_tokens_per_s is not None:
        parts.append(f"{pace.real_tokens_per_s:,.0f} real tokens/s")
    if pace.tokens_per_s is not None:
        parts.append(f"{pace.tokens_per_s:,.0f} with padding")
    if pace.data_wait is not None:
        parts.append(f"data wait {pace.data_wait * 100:.0f} %")
    return parts


def gpu_parts(gpu: GpuReading, snapshot: Snapshot) -> list[str]:
    parts = [plain_text(gpu.name)]
    if gpu.problem:
        return [*parts, plain_text(gpu.problem)]
    if mig_words(gpu):
        parts.append(f"MIG {plain_text(mig_words(gpu))}")
    if gpu.utilization_percent is not None:
        parts.append(f"busy {gpu.utilization_percent:.0f} %")
    if gpu.memory_used_bytes is not None:
        parts.append(f"{gib(gpu.memory_used_bytes)} of {gib(gpu.memory_total_bytes)} GiB{_memory_note(gpu, snapshot)}")
    if gpu.temperature_c is not None:
        parts.append(f"{gpu.temperature_c:.0f} °C")
    if gpu.power_w is not None:
        limit = f" of {gpu.power_limit_w:.0f}" if gpu.power_limit_w is not None else ""
        parts.append(f"{gpu.power_w:.0f}{limit} W")
    if gpu.clock_mhz is not None:
        limit = f" of {gpu.clock_limit_mhz:.0f}" if gpu.clock_limit_mhz is not None else ""
        parts.append(f"{gpu.clock_mhz:.0f}{limit} MHz")
    if gpu.fan_percent is not None:
        parts.append(f"fan {gpu.fan_percent:.0f} %")
    slowing = real_throttling(gpu.throttle_reasons)
    return [*parts, f"held back by {plain_text(', '.join(slowing))}"] if slowing else parts


def _memory_note(gpu: GpuReading, snapshot: Snapshot) -> str:
    notes = []
    if gpu.job_memory_bytes is not None:
        notes.append(f"this job {gib(gpu.job_memory_bytes)}")
    if snapshot.planned.memory_bytes is not None:
        notes.append(f"planned {gib(snapshot.planned.memory_bytes)}")
    return f" ({', '.join(notes)})" if notes else ""


def cpu_parts(snapshot: Snapshot) -> list[str]:
    """The load of the job, and why no GPU is shown."""
    load = next((load for load in reversed(snapshot.job_cpu_history) if load is not None), None)
    if load is None or snapshot.status in ENDED:
        return []
    why = "it computes on the CPU; the machine has a GPU" if snapshot.gpus else "no GPU"
    return [f"{load:.0f} % by this run (100 is one core)", plain_text(snapshot.unavailable.get("gpus", why))]


def host_parts(snapshot: Snapshot) -> list[str]:
    host = snapshot.host
    parts = []
    if snapshot.job_rss_bytes is not None:
        parts.append(f"RAM of this run {gib(snapshot.job_rss_bytes)} GiB")
    if host.ram_used_bytes is not None:
        parts.append(f"RAM in use {gib(host.ram_used_bytes)} of {gib(host.ram_total_bytes)} GiB")
    if host.disk_free_bytes is not None:
        lasts = f", lasts {duration(host.disk_lasts_s)} at this pace" if host.disk_lasts_s is not None else ""
        parts.append(f"disk {size(host.disk_free_bytes)} free{lasts}")
    reason = snapshot.unavailable.get("host")
    return parts or ([plain_text(reason)] if reason else [])


def process_parts(snapshot: Snapshot) -> list[str]:
    """RAM of the job by role."""
    sizes: dict[str, list[int]] = {}
    for process in snapshot.processes:
        if process.rss_bytes is not None:
            sizes.setdefault(process.role, []).append(process.rss_bytes)
    return [
        f"{plain_text(role)} {f'{len(found)} with ' if len(found) > 1 else ''}{gib(sum(found))} GiB"
        for role, found in sizes.items()
    ]


def _line(label: str, parts: list[str]) -> str:
    return f"{label:<{LABEL_WIDTH}}{GAP.join(parts)}" if parts else ""
