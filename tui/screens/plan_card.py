"""PlanCard: the plan that a run was started from, as plan.json has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static
from trainwiz.core.config import RunConfig
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.language import tr
from trainwiz.core.plan.result import BatchPlan, MemoryPlan, Plan, PlannedModel, TimePlan
from trainwiz.core.run.attempts import attempt_words
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.state import Attempt, read_state
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import bindings
from trainwiz.tui.plan_words import trained_words
from trainwiz.tui.run_words import engine_problems
from trainwiz.tui.text import count, pad
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.frame import Window
from trainwiz.tui.widgets.lists import level_sign
from trainwiz.tui.widgets.monitor_panel import frame_title
from trainwiz.tui.widgets.plan_panel import panel_lines

KEY_WIDTH = 34
LABEL_WIDTH = 10
FIGURES_WIDTH = 96

Part = TypeVar("Part")


class PlanCard(Window[None]):
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("dialog", "document")]
    AUTO_FOCUS = "VerticalScroll"

    DEFAULT_CSS = """
    PlanCard > VerticalScroll { width: 104; max-height: 92%; border-title-color: $muted; }
    """

    def __init__(self, folder: RunFolder) -> None:
        super().__init__()
        self._folder = folder

    def compose(self) -> ComposeResult:
        plan, state = read_json(self._folder.plan_json), read_state(self._folder)
        attempt = state.newest
        with VerticalScroll() as card:
            card.border_title = frame_title(tr("plan"))
            yield Static(plan_content(plan, state.engine, attempt), markup=False)


def plan_content(
    plan: Mapping[str, Any] | None,
    engine: Mapping[str, Any] | None = None,
    attempt: Attempt | None = None,
) -> Content:
    """The document of plan.json as text: figures first, then findings, then every choice with its reason.

    `engine` is the engine record of the run's state: planned and actual. `attempt` is the newest one.
    """
    if not plan:
        return Content(tr("This run folder has no plan.json: it was not created by trainwiz, or the file was removed."))
    try:
        figures = [*_head(plan, attempt), Content(), *_figures(plan)]
    except (AttributeError, KeyError, TypeError, ValueError):
        # Of another version, or written by somebody else: what it found and chose can still be read.
        figures = []
    return Content("\n").join([*_engine(engine or {}), *figures, *_findings(plan), *_choices(plan)])


def _head(plan: Mapping[str, Any], attempt: Attempt | None) -> Iterator[Content]:
    model = plan["model"]
    parameters, trained = model["parameters"], trained_words(model["parameters"], model["trainable_parameters"])
    words = (plain_text(model["name"]), tr("{n} parameters", n=count(parameters)), trained)
    yield _line(tr("Profile"), str(plan.get("profile") or tr("none")))
    yield _line(tr("Model"), tr(", ").join(filter(None, words)))
    yield _line(tr("Task"), plain_text(plan.get("task") or tr("unknown")))
    if attempt is not None and attempt.changes:
        yield Content.styled(f"{' ' * LABEL_WIDTH}{attempt_words(attempt, plan['batch'])}", "$warning")


def _figures(document: Mapping[str, Any]) -> list[Content]:
    """As the wizard shows them."""

    def part(kind: type[Part], key: str) -> Part:
        return kind(**{one.name: document[key][one.name] for one in fields(kind) if one.name in document[key]})  # type: ignore[arg-type]

    memory = part(MemoryPlan, "memory")
    config = RunConfig.model_validate({"engine": {"device": "cpu" if memory.device == "host RAM" else "cuda"}})
    figures = part(PlannedModel, "model"), part(BatchPlan, "batch"), memory, part(TimePlan, "time")
    return panel_lines(Plan(Machine(), config, *figures), FIGURES_WIDTH)[:-1]


def _engine(engine: Mapping[str, Any]) -> Iterator[Content]:
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


def _findings(plan: Mapping[str, Any]) -> Iterator[Content]:
    findings = [item for item in plan.get("findings") or () if isinstance(item, dict)]
    if findings:
        yield Content()
        yield Content.styled(tr("Findings"), "bold")
    for finding in findings:
        yield Content.assemble(level_sign(str(finding.get("severity"))), " ", plain_text(finding.get("message"), 500))


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
