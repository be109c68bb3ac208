"""Windows over the monitor: commands, all metrics, the plan; and what asks before a run is stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static
from trainwiz.core.config import RunConfig
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.plan.result import BatchPlan, MemoryPlan, Plan, PlannedModel, TimePlan
from trainwiz.core.run.attempts import attempt_words
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.state import RunState, read_state
from trainwiz.core.telemetry.metrics import MetricSummary
from trainwiz.core.text import object_in, objects_in, plain_text
from trainwiz.tui.keys import bindings
from trainwiz.tui.plan_words import trained_words
from trainwiz.tui.run_words import engine_problems, now_words, ordered_names, with_checkpoint_words
from trainwiz.tui.screens.plan_state import Offer
from trainwiz.tui.text import count, pad, value_label
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.chooser import Chooser
from trainwiz.tui.widgets.field_row import ActionButton
from trainwiz.tui.widgets.frame import Window
from trainwiz.tui.widgets.lists import Pressed, level_sign
from trainwiz.tui.widgets.monitor_panel import frame_title
from trainwiz.tui.widgets.plan_panel import panel_lines

if TYPE_CHECKING:
    from trainwiz.core.launch.actions import StopCost


def command_chooser(commands: Mapping[str, str]) -> Chooser:
    """Answers a command of the run. `commands`: what it does -> the command."""
    return Chooser(tr("Copy a command"), [Offer(command, what, command) for what, command in commands.items()], "")


def metric_chooser(metrics: Mapping[str, MetricSummary], current: str) -> Chooser:
    """Answers the name of a metric, the telling ones first, or None when it was closed."""
    names = list(dict.fromkeys([*ordered_names(metrics), *metrics]))
    heading = trn("Metric to plot: {n} available", "Metric to plot: {n} available", len(names), n=f"{len(names):,}")
    return Chooser(
        heading, [Offer(name, plain_text(name), before=metric_words(metrics[name])) for name in names], current
    )


def metric_words(summary: MetricSummary) -> str:
    """The last value, and how many there are."""
    last = "—" if summary.last is None else value_label(summary.last)
    values = trn("{n} value", "{n} values", summary.count, n=f"{summary.count:,}")
    return f"{pad(last, 10, right=True)}  {pad(values, 16, right=True)}"


# Dialogs that ask before something is done to a run.

CANCEL = "cancel"
GOES_DETACHED = mark("It runs detached, as before: closing this monitor does not stop it.")


class AskDialog(Window[str]):
    """A title, sentences, and a button for each answer; None is the answer of the button CANCEL and of closing.

    `find` reads files: it runs in a thread, and its sentences take the place of the first ones when it is done.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("confirm")]
    AUTO_FOCUS = "ActionButton"

    DEFAULT_CSS = """
    AskDialog > Vertical { width: 76; max-height: 96%; padding: 1 2; }
    AskDialog Static { margin-bottom: 1; }
    AskDialog Horizontal { height: auto; }
    """

    def __init__(
        self,
        title: str,
        sentences: Sequence[str],
        answers: Sequence[tuple[str, str]],
        find: Callable[[], Sequence[str]],
    ) -> None:
        """`answers`: what stands on a button, and the answer."""
        super().__init__()
        self._title, self._sentences, self._answers, self._find = title, sentences, answers, find

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content.styled(self._title, "bold"), markup=False)
            for sentence in self._sentences:
                yield Static(sentence, classes="sentence", markup=False)
            with Horizontal():
                for label, answer in self._answers:
                    yield ActionButton(label, answer)

    def on_mount(self) -> None:
        self._look_up()

    @work(thread=True, exit_on_error=False)
    def _look_up(self) -> None:
        self.app.call_from_thread(self._show, self._find())

    def _show(self, sentences: Sequence[str]) -> None:
        for static, sentence in zip(self.query(".sentence").results(Static), sentences, strict=False):
            static.update(plain_text(sentence))

    @on(Pressed)
    def action_press(self) -> None:
        """A click has put the focus on its button."""
        if isinstance(self.focused, ActionButton):
            self.dismiss(None if self.focused.action == CANCEL else self.focused.action)


def resume_dialog(find_start: Callable[[], str]) -> AskDialog:
    """Asks before a run that has ended is started again; answers "resume". `find_start` says where it goes on."""
    return AskDialog(
        tr("Resume this run?"),
        (tr("Searching for its newest complete checkpoint."), tr(GOES_DETACHED)),
        ((tr("resume"), "resume"), (tr("cancel"), CANCEL)),
        lambda: (find_start(),),
    )


def stop_dialog(is_stopping: bool, find_cost: Callable[[], StopCost]) -> AskDialog:
    """Asks before a run is stopped, and says what each way costs; answers "checkpoint" or "now"."""

    def sentences(cost: StopCost | None) -> tuple[str, str]:
        return with_checkpoint_words(cost, stopping=is_stopping), now_words(cost)

    answers = [(tr("with a checkpoint"), "checkpoint"), (tr("keep running"), CANCEL), (tr("now"), "now")]
    if is_stopping:
        answers = [(tr("wait for the checkpoint"), CANCEL), (tr("stop now"), "now")]
    title = tr("The run is already stopping.") if is_stopping else tr("Stop this run?")
    return AskDialog(title, sentences(None), answers, lambda: sentences(find_cost()))


# PlanCard: the plan that a run was started from, as plan.json has it.


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
        with VerticalScroll() as card:
            card.border_title = frame_title(tr("plan"))
            lines = plan_lines(read_json(self._folder.plan_json) or {}, read_state(self._folder))
            yield Static(Content("\n").join(lines), markup=False)


def plan_lines(plan: Mapping[str, Any], state: RunState) -> list[Content]:
    """The document of plan.json as text: what runs otherwise, figures, findings, and every choice with its reason."""
    if not plan:
        words = tr("This run folder has no plan.json: it was not created by trainwiz, or the file was removed.")
        return [Content(words)]
    try:
        figures = [*_head(plan), Content(), *_figures(plan)]
    except (AttributeError, KeyError, TypeError, ValueError):
        # Of another version, or written by somebody else: what it found and chose can still be read.
        figures = []
    batch, newest = object_in(plan.get("batch")), state.newest
    changed = [attempt_words(newest, batch)] if newest is not None and newest.changes else []
    otherwise = [f"{marks.tight} {plain_text(words)}" for words in (*engine_problems(state.engine), *changed)]
    lines = [*(Content.styled(words, "$warning") for words in otherwise), *figures]
    findings = objects_in(plan.get("findings"))
    if findings:
        lines += [Content(), Content.styled(tr("Findings"), "bold")]
    for finding in findings:
        words = plain_text(finding.get("message"), 500)
        lines.append(Content.assemble(level_sign(str(finding.get("severity"))), " ", words))
    choices = objects_in(plan.get("choices"))
    if choices:
        lines += [Content(), Content.styled(tr("Choices"), "bold")]
    for choice in choices:
        key, value = plain_text(choice.get("key"), KEY_WIDTH), plain_text(choice.get("value"), 40)
        note = ": ".join(filter(None, (tr(str(choice.get("origin"))), str(choice.get("reason") or ""))))
        lines.append(
            Content.assemble((pad(key, KEY_WIDTH + 1), "$muted"), f"{value}  ", (plain_text(note, 200), "$muted"))
        )
    return lines


def _head(plan: Mapping[str, Any]) -> Iterator[Content]:
    model = plan["model"]
    parameters, trained = model["parameters"], trained_words(model["parameters"], model["trainable_parameters"])
    words = (str(model["name"]), tr("{n} parameters", n=count(parameters)), trained)
    rows = (
        (tr("Profile"), plan.get("profile") or tr("none")),
        (tr("Model"), tr(", ").join(filter(None, words))),
        (tr("Task"), plan.get("task") or tr("unknown")),
    )
    for label, value in rows:
        yield Content.assemble((pad(label, LABEL_WIDTH), "$muted"), plain_text(value))


def _figures(document: Mapping[str, Any]) -> list[Content]:
    """As the wizard shows them."""

    def part(kind: type[Part], key: str) -> Part:
        return kind(**{one.name: document[key][one.name] for one in fields(kind) if one.name in document[key]})  # type: ignore[arg-type]

    memory = part(MemoryPlan, "memory")
    config = RunConfig.model_validate({"engine": {"device": "cpu" if memory.device == "host RAM" else "cuda"}})
    figures = part(PlannedModel, "model"), part(BatchPlan, "batch"), memory, part(TimePlan, "time")
    return panel_lines(Plan(Machine(), config, *figures), FIGURES_WIDTH)[:-1]
