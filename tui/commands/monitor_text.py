"""A snapshot as lines of text: for `monitor --once` and `--plain`, for pipes and screen readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwiz.core.plain import plain_text
from trainwiz.tui.figures import duration, gib, size
from trainwiz.tui.metric_words import measured
from trainwiz.tui.widgets.axes import value_label
from trainwiz.tui.widgets.pace_panel import step_seconds

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import GpuReading, Snapshot

LABEL_WIDTH = 10
MEASURED = ("eval_perplexity", "eval_bleu")
GAP = "   "


def summary_lines(snapshot: Snapshot) -> list[str]:
    """The whole look, one subject a line."""
    lines = [f"{plain_text(snapshot.name)}{GAP}{snapshot.status}", _line("Progress", progress_parts(snapshot))]
    lines.append(_line("Metrics", metric_parts(snapshot)))
    lines.append(_line("Pace", pace_parts(snapshot)))
    lines.append(_line("Engine", engine_parts(snapshot)))
    lines += [_line(f"GPU {gpu.index}", gpu_parts(gpu, snapshot)) for gpu in snapshot.used_gpus]
    if not snapshot.used_gpus and snapshot.job_cpu_history and snapshot.job_cpu_history[-1] is not None:
        lines.append(_line("CPU", [f"{snapshot.job_cpu_history[-1]:.0f} % by this run (100 is one core)", "no GPU"]))
    lines.append(_line("Host", host_parts(snapshot)))
    lines += [_line("Problem", [plain_text(problem)]) for problem in snapshot.problems]
    words = {"error": "urgent: ", "warning": "warning: ", "note": "", "ok": ""}
    lines += [_line("Advice", [words[advice.level] + plain_text(advice.text)]) for advice in snapshot.advice]
    if snapshot.ending is not None:
        lines.append(_line("End", [plain_text(snapshot.ending.text)]))
        if snapshot.ending.remedy:
            lines.append(_line("Next", [plain_text(snapshot.ending.remedy)]))
    return [line for line in lines if line]


def plain_line(snapshot: Snapshot) -> str:
    """One line: status, progress, loss, pace, memory."""
    parts = [snapshot.status, *progress_parts(snapshot)]
    loss = snapshot.metrics.get("loss")
    if loss is not None and loss.last is not None:
        parts.append(f"loss {value_label(loss.last)}")
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
    return GAP.join(parts)


def progress_parts(snapshot: Snapshot) -> list[str]:
    parts = []
    if snapshot.step is not None:
        of = f" of {snapshot.max_steps:,}" if snapshot.max_steps else ""
        parts.append(f"step {snapshot.step:,}{of}")
    if snapshot.epoch is not None:
        parts.append(f"epoch {snapshot.epoch:.3g}")
    if snapshot.eta_s is not None:
        parts.append(f"finishes in {duration(snapshot.eta_s)}")
    elif snapshot.started_s is not None and snapshot.ended_s is not None:
        parts.append(f"took {duration(max(0.0, snapshot.ended_s - snapshot.started_s))}")
    return parts


def metric_parts(snapshot: Snapshot) -> list[str]:
    parts = []
    for name, short in (
        ("loss", "loss"),
        ("eval_loss", "evaluation loss"),
        ("eval_perplexity", "perplexity"),
        ("eval_bleu", "BLEU"),
        ("learning_rate", "learning rate"),
        ("grad_norm", "gradient norm"),
    ):
        summary = snapshot.metrics.get(name)
        if summary is None or summary.last is None:
            continue
        at = f" at step {summary.last_step:,.0f}" if name == "eval_loss" and summary.last_step is not None else ""
        shown = measured(name, summary.last) if name in MEASURED else value_label(summary.last)
        parts.append(f"{short} {shown}{at}")
    return parts


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
    if gpu.utilization_percent is not None:
        parts.append(f"busy {gpu.utilization_percent:.0f} %")
    if gpu.memory_used_bytes is not None:
        planned = snapshot.planned.memory_bytes
        note = f" (planned {gib(planned)})" if planned is not None else ""
        parts.append(f"{gib(gpu.memory_used_bytes)} of {gib(gpu.memory_total_bytes)} GiB{note}")
    if gpu.temperature_c is not None:
        parts.append(f"{gpu.temperature_c:.0f} °C")
    if gpu.power_w is not None:
        limit = f" of {gpu.power_limit_w:.0f}" if gpu.power_limit_w is not None else ""
        parts.append(f"{gpu.power_w:.0f}{limit} W")
    return parts


def host_parts(snapshot: Snapshot) -> list[str]:
    host = snapshot.host
    parts = []
    if snapshot.job_rss_bytes is not None:
        parts.append(f"RAM of this run {gib(snapshot.job_rss_bytes)} GiB")
    if host.ram_used_bytes is not None:
        parts.append(f"RAM in use {gib(host.ram_used_bytes)} of {gib(host.ram_total_bytes)} GiB")
    if host.disk_free_bytes is not None:
        parts.append(f"disk {size(host.disk_free_bytes)} free")
    return parts


def _line(label: str, parts: list[str]) -> str:
    return f"{label:<{LABEL_WIDTH}}{GAP.join(parts)}" if parts else ""
