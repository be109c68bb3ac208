"""A snapshot as lines of text: for `monitor --once` and `--plain`, for pipes and screen readers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainwiz.core.language import mark, tr
from trainwiz.core.run.state import ENDED
from trainwiz.core.telemetry.machine import real_throttling
from trainwiz.core.text import moment_words, plain_text
from trainwiz.tui.output import labelled
from trainwiz.tui.run_words import measured
from trainwiz.tui.text import duration, gib, size, value_label
from trainwiz.tui.theme import UNICODE_MARKS
from trainwiz.tui.widgets.gpu_lines import mig_words, of_limit
from trainwiz.tui.widgets.host_panel import role_parts, step_parts, token_parts
from trainwiz.tui.widgets.run_header import phase_part, progress_words

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import GpuReading, Snapshot


# What a snapshot says of the machine, as phrases: GPUs, CPU, host and the processes of the job.


def gpu_parts(gpu: GpuReading, snapshot: Snapshot) -> list[str]:
    parts = [plain_text(gpu.name)]
    if gpu.problem:
        return [*parts, plain_text(gpu.problem)]
    if mig_words(gpu):
        parts.append(f"MIG {plain_text(mig_words(gpu))}")
    if gpu.utilization_percent is not None:
        parts.append(tr("busy {share} %", share=f"{gpu.utilization_percent:.0f}"))
    if gpu.memory_used_bytes is not None:
        used = tr("{amount} of {whole} GiB", amount=gib(gpu.memory_used_bytes), whole=gib(gpu.memory_total_bytes))
        parts.append(used + _memory_note(gpu, snapshot))
    if gpu.temperature_c is not None:
        parts.append(f"{gpu.temperature_c:.0f} °C")
    if gpu.power_w is not None:
        parts.append(f"{of_limit(gpu.power_w, gpu.power_limit_w)} W")
    if gpu.clock_mhz is not None:
        parts.append(f"{of_limit(gpu.clock_mhz, gpu.clock_limit_mhz)} MHz")
    if gpu.fan_percent is not None:
        parts.append(tr("fan {share} %", share=f"{gpu.fan_percent:.0f}"))
    if slowing := real_throttling(gpu.throttle_reasons):
        parts.append(tr("held back by {reasons}", reasons=plain_text(tr(", ").join(map(tr, slowing)))))
    return parts


def _memory_note(gpu: GpuReading, snapshot: Snapshot) -> str:
    notes = []
    if gpu.job_memory_bytes is not None:
        notes.append(tr("this job {amount}", amount=gib(gpu.job_memory_bytes)))
    if snapshot.planned.memory_bytes is not None:
        notes.append(tr("planned {amount}", amount=gib(snapshot.planned.memory_bytes)))
    return f" ({', '.join(notes)})" if notes else ""


def cpu_parts(snapshot: Snapshot) -> list[str]:
    """The load of the job, and why no GPU is shown."""
    load = next((load for load in reversed(snapshot.job_cpu_history) if load is not None), None)
    if load is None or snapshot.status in ENDED:
        return []
    why = tr("it computes on the CPU; the machine has a GPU") if snapshot.gpus else tr("no GPU")
    return [
        tr("{share} % by this run (100 is one core)", share=f"{load:.0f}"),
        plain_text(snapshot.unavailable.get("gpus", why)),
    ]


def host_parts(snapshot: Snapshot) -> list[str]:
    host, parts = snapshot.host, []
    if snapshot.job_rss_bytes is not None:
        parts.append(tr("RAM of this run {amount} GiB", amount=gib(snapshot.job_rss_bytes)))
    if host.ram_used_bytes is not None:
        used, whole = gib(host.ram_used_bytes), gib(host.ram_total_bytes)
        parts.append(tr("RAM in use {amount} of {whole} GiB", amount=used, whole=whole))
    if host.disk_free_bytes is not None:
        words = tr("disk {size} free", size=size(host.disk_free_bytes))
        if host.disk_lasts_s is not None:
            words = tr("{disk}, lasts {time} at this pace", disk=words, time=duration(host.disk_lasts_s))
        parts.append(words)
    reason = snapshot.unavailable.get("host")
    return parts or ([plain_text(reason)] if reason else [])


def process_parts(snapshot: Snapshot) -> list[str]:
    """RAM of the job by role, as the screen has it."""
    parts = [part.plain for part in role_parts(snapshot, UNICODE_MARKS.times)]
    return [*parts[:-1], f"{parts[-1]} GiB"] if parts else []


# A snapshot as lines of text: for `monitor --once` and `--plain`, for pipes and screen readers.

MEASURED = ("eval_perplexity", "eval_bleu", "eval_accuracy")
WORDS = (
    ("loss", mark("loss {value}")),
    ("eval_loss", mark("evaluation loss {value}")),
    ("eval_perplexity", mark("perplexity {value}")),
    ("eval_accuracy", mark("accuracy {value}")),
    ("eval_bleu", mark("BLEU {value}")),
    ("learning_rate", mark("learning rate {value}")),
    ("grad_norm", mark("gradient norm {value}")),
)
ELSEWHERE = frozenset(
    {"tokens", "real_tokens", "tokens_per_s", "real_tokens_per_s", "step_s", "data_wait_s", "peak_allocated_bytes"}
    | {"peak_reserved_bytes"}
)
"""Metrics that the lines about pace and memory speak of."""
MOST_METRICS = 6
LONGEST_NAME = 48
MOST_FILES = 3
ADVICE_WORDS = {"error": mark("urgent: {text}"), "warning": mark("warning: {text}")}
GAP = "   "


def summary_lines(snapshot: Snapshot) -> list[str]:
    """The whole look, one subject a line."""
    lines = [f"{plain_text(snapshot.name)}{GAP}{tr(snapshot.status)}"]
    lines += [_line(label, parts) for label, parts in labelled_parts(snapshot)]
    return [line for line in lines if line]


def labelled_parts(snapshot: Snapshot) -> Iterator[tuple[str, list[str]]]:
    """(subject, what is known of it), in the order of reading; an empty list is a subject that nothing is known of."""
    yield tr("Progress"), progress_words(snapshot)
    yield tr("Now"), work_parts(snapshot)
    yield tr("Metrics"), metric_parts(snapshot)
    yield tr("Pace"), pace_parts(snapshot)
    yield tr("Engine"), engine_parts(snapshot)
    for gpu in snapshot.used_gpus:
        yield f"GPU {gpu.index}", gpu_parts(gpu, snapshot)
    if not snapshot.used_gpus:
        yield "CPU", cpu_parts(snapshot)
    yield tr("Host"), host_parts(snapshot)
    yield tr("Processes"), process_parts(snapshot)
    for problem in snapshot.problems:
        yield tr("Problem"), [plain_text(problem)]
    for advice in snapshot.advice:
        yield tr("Advice"), [tr(ADVICE_WORDS.get(advice.level, "{text}"), text=plain_text(advice.text))]
        if advice.remedy:
            yield "", [plain_text(advice.remedy)]
    if snapshot.source != "run":
        for path in snapshot.read_from[:MOST_FILES]:
            yield tr("Read from"), [plain_text(path)]
    if snapshot.ending is not None:
        yield tr("End"), [plain_text(snapshot.ending.text)]
        if snapshot.not_retried:
            yield "", [plain_text(snapshot.not_retried)]
        if snapshot.ending.remedy:
            yield tr("Next"), [plain_text(snapshot.ending.remedy)]


def plain_line(snapshot: Snapshot) -> str:
    """One line: the moment of a replay, status, progress, loss, pace, memory, the worst advice."""
    parts = [tr(snapshot.status), *work_parts(snapshot), *progress_words(snapshot)]
    if snapshot.replayed_s is not None:
        parts.insert(0, moment_words(snapshot.replayed_s, "%Y-%m-%d %H:%M:%S"))
    parts += leading_metric(snapshot)
    pace = snapshot.pace.real_tokens_per_s or snapshot.pace.tokens_per_s
    if pace is not None:
        parts.append(tr("{count} tokens/s", count=f"{pace:,.0f}"))
    used = [gpu for gpu in snapshot.used_gpus if gpu.memory_used_bytes is not None]
    parts += [f"GPU {gpu.index} {gib(gpu.memory_used_bytes)} GiB" for gpu in used]
    if not snapshot.used_gpus and snapshot.job_rss_bytes is not None:
        parts.append(tr("RAM {amount} GiB", amount=gib(snapshot.job_rss_bytes)))
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
        return tr("not a number")
    return measured(name, value) if name in MEASURED else value_label(value)


def work_parts(snapshot: Snapshot) -> list[str]:
    """What is done while no steps are made, and an attempt that is not the first."""
    return [words for words in (phase_part(snapshot), snapshot.attempt_words) if words]


def metric_parts(snapshot: Snapshot) -> list[str]:
    """The ones that most trainings have, in words; then others by their names, and how many there are beyond."""
    words = {name: form for name, form in WORDS if name in snapshot.metrics}
    rest = [name for name in snapshot.metrics if name not in words and name not in ELSEWHERE]
    shown = rest[: max(0, MOST_METRICS - len(words))]
    parts = []
    for name in (*words, *shown):
        summary = snapshot.metrics[name]
        if summary.last is not None:
            value = shown_value(name, summary.last)
            said = tr(words[name], value=value) if name in words else f"{short_name(name)} {value}"
            if name == "eval_loss" and summary.last_step is not None:
                said = tr("{metric} at step {step}", metric=said, step=f"{summary.last_step:,.0f}")
            parts.append(said)
    beyond = len(rest) - len(shown)
    return [*parts, tr("{count} more with --json", count=f"{beyond:,}")] if beyond else parts


def engine_parts(snapshot: Snapshot) -> list[str]:
    """What computes, as read inside the process; before that, what is planned."""
    planned, actual = snapshot.engine.get("planned"), snapshot.engine.get("actual")
    if not planned and not actual:
        return []
    return [plain_text(actual) if actual else tr("{engine} planned", engine=plain_text(planned))]


def pace_parts(snapshot: Snapshot) -> list[str]:
    """Tokens and steps, as the screen has them."""
    pace = snapshot.pace
    parts = step_parts(snapshot, UNICODE_MARKS) if pace.step_s is not None else []
    if pace.tokens_per_s is not None or pace.real_tokens_per_s is not None:
        parts += token_parts(snapshot)
    return [part.plain for part in parts]


def _line(label: str, parts: list[str]) -> str:
    return labelled(label, GAP.join(parts)) if parts else ""
