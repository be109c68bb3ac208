"""PlanCard: the plan that a run was started from, as plan.json has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static
from trainwiz.core.language import mark, tr
from trainwiz.core.run.attempts import attempt_words
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.state import Attempt, read_state
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import bindings
from trainwiz.tui.plan_words import (
    energy_words,
    gain_words,
    memory_title,
    need_words,
    pace_words,
    padding_words,
    shown_words,
    source_words,
    time_part_words,
    trained_words,
)
from trainwiz.tui.run_words import engine_problems
from trainwiz.tui.text import count, duration, duration_range, gib, pad, size
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.frame import Window
from trainwiz.tui.widgets.lists import level_sign
from trainwiz.tui.widgets.monitor_panel import frame_title

KEY_WIDTH = 34
LABEL_WIDTH = 10
VERDICTS = {"fits": mark("fits"), "tight": mark("tight"), "does_not_fit": mark("does not fit")}
FACTORS = ("micro_batch", "accumulation", "world_size")
PADDING = ("effective_tokens", "padded_tokens", "padding_waste", "arranged_waste", "drawn_waste")


class PlanCard(Window[None]):
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("dialog", "document")]
    AUTO_FOCUS = "VerticalScroll"

    DEFAULT_CSS = """
    PlanCard > VerticalScroll { width: 104; max-height: 92%; border-title-color: $muted; }
    """

    def __init__(self, folder: RunFolder, marks: Marks) -> None:
        super().__init__()
        self._folder = folder
        self._marks = marks

    def compose(self) -> ComposeResult:
        plan, state = read_json(self._folder.plan_json), read_state(self._folder)
        attempt = state.newest
        with VerticalScroll() as card:
            card.border_title = frame_title(tr("plan"))
            yield Static(plan_content(plan, self._marks, state.engine, attempt), markup=False)


def plan_content(
    plan: Mapping[str, Any] | None,
    marks: Marks,
    engine: Mapping[str, Any] | None = None,
    attempt: Attempt | None = None,
) -> Content:
    """The document of plan.json as text: figures first, then findings, then every choice with its reason.

    `engine` is the engine record of the run's state: planned and actual. `attempt` is the newest one.
    """
    if not plan:
        return Content(tr("This run folder has no plan.json: it was not created by trainwiz, or the file was removed."))
    lines = [*_figures(plan, marks, attempt), *_engine(engine or {}, marks), *_findings(plan, marks), *_choices(plan)]
    return Content("\n").join(lines)


def _figures(plan: Mapping[str, Any], marks: Marks, attempt: Attempt | None) -> Iterator[Content]:
    batch, memory, time, model = (_object(plan, key) for key in ("batch", "memory", "time", "model"))
    parameters = _number(model, "parameters")
    trained = trained_words(parameters, _number(model, "trainable_parameters"))
    words = (plain_text(model.get("name")), tr("{n} parameters", n=count(parameters)), trained)
    product = tr(
        "{factors} = {sequences} sequences, {tokens} tokens per step",
        factors=f" {marks.times} ".join(count(_number(batch, key)) for key in FACTORS),
        sequences=count(_number(batch, "effective_samples")),
        tokens=count(_number(batch, "effective_tokens")),
    )
    verdict = str(memory.get("verdict") or "")
    judged = tr(VERDICTS[verdict]) if verdict in VERDICTS else plain_text(verdict) or tr("capacity unknown")
    need, shown = _memory_words(memory, str(_object(_object(plan, "config"), "engine").get("device")))
    basis = pace_words(str(time["basis"]), str(time.get("basis_text") or "")) if time.get("basis") else ""
    least, most, total = (_number(time, f"total_{key}") for key in ("low_s", "high_s", "s"))
    parts = time_part_words(*(_number(time, key) for key in ("total_s", "evaluation_s", "generation_s", "saving_s")))
    low, high, low_cost, high_cost = (
        _number(time, f"energy_{key}") for key in ("low_kwh", "high_kwh", "cost_low", "cost_high")
    )
    rows = (
        (tr("Profile"), str(plan.get("profile") or tr("none"))),
        (tr("Model"), tr(", ").join(filter(None, words))),
        (tr("Task"), plain_text(plan.get("task") or tr("unknown"))),
        (tr("Batch"), product),
        ("", tr("; ").join(padding_words(*(_number(batch, key) for key in PADDING)))),
        ("attempt", attempt_words(attempt, batch) if attempt is not None and attempt.changes else ""),
        (memory_title(str(memory.get("device") or "")), f"{need}: {judged}"),
        ("", shown),
        ("", source_words(*(str(memory.get(key) or "") for key in ("tier", "basis")))),
        (tr("RAM"), f"{gib(_number(memory, 'host_ram_bytes'))} GiB"),
        (tr("Disk"), size(_number(memory, "disk_bytes"))),
        (tr("Step"), duration_range(_number(time, "step_low_s"), _number(time, "step_high_s"))),
        ("", basis),
        ("", gain_words(_number(time, "pace_gain"), _number(time, "possible_pace_gain"))),
        (tr("Time"), duration(total) if least is None or most is None else duration_range(least, most)),
        ("", tr("including {parts}", parts=tr(", ").join(parts)) if parts else ""),
        ("", energy_words(low, high, low_cost, high_cost, str(time.get("currency") or ""))),
    )
    for label, text in rows:
        if text and label == "attempt":
            yield Content.styled(f"{' ' * LABEL_WIDTH}{text}", "$warning")
        elif text or label not in ("", "attempt"):
            # What has no label is more about the line above.
            yield _line(label, text)


def _engine(engine: Mapping[str, Any], marks: Marks) -> Iterator[Content]:
    planned, actual = engine.get("planned"), engine.get("actual")
    problems = engine_problems(engine)
    if actual:
        yield _line(
            tr("Engine"), tr("{engine}, as planned", engine=actual) if planned and not problems else str(actual)
        )
    elif planned:
        yield _line(tr("Engine"), tr("{engine} planned, actual engine not read yet", engine=planned))
    for problem in problems:
        yield Content.assemble(" " * LABEL_WIDTH, (f"{marks.tight} {plain_text(problem)}", "$warning"))


def _findings(plan: Mapping[str, Any], marks: Marks) -> Iterator[Content]:
    findings = [item for item in plan.get("findings") or () if isinstance(item, dict)]
    if findings:
        yield Content()
        yield Content.styled(tr("Findings"), "bold")
    for finding in findings:
        yield Content.assemble(
            level_sign(str(finding.get("severity")), marks), " ", plain_text(finding.get("message"), 500)
        )


def _choices(plan: Mapping[str, Any]) -> Iterator[Content]:
    choices = [item for item in plan.get("choices") or () if isinstance(item, dict)]
    if choices:
        yield Content()
        yield Content.styled(tr("Choices"), "bold")
    for choice in choices:
        key, value = plain_text(choice.get("key"), KEY_WIDTH), plain_text(choice.get("value"), 40)
        origin, reason = tr(str(choice.get("origin"))), str(choice.get("reason") or "")
        note = plain_text(tr("{origin}: {reason}", origin=origin, reason=reason) if reason else origin, 200)
        yield Content.assemble((pad(key, KEY_WIDTH) + " ", "$muted"), f"{value}  ", (note, "$muted"))


def _line(label: str, value: str) -> Content:
    return Content.assemble((pad(label, LABEL_WIDTH), "$muted"), plain_text(value))


def _memory_words(memory: Mapping[str, Any], kind: str) -> tuple[str, str]:
    """What is needed, and what nvidia-smi shows; "" for that on a CPU, and of plans that knew only one figure."""
    used, low, high = (_number(memory, key) for key in ("device_used_bytes", "low_bytes", "high_bytes"))
    need = need_words(_number(memory, "needed_bytes"), _number(memory, "needed_high_bytes"))
    if memory.get("device") == "host RAM" or not need:
        return tr("{amount} GiB, between {low} and {high}", amount=gib(used), low=gib(low), high=gib(high)), ""
    return need, shown_words(used, low, high, kind)


def _object(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _number(document: Mapping[str, Any], key: str) -> float | None:
    value = document.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
