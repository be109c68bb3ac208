"""The output folder of a Trainer as a source."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwiz.core.files import is_file
from trainwiz.core.language import mark, tr
from trainwiz.core.lines import share_read
from trainwiz.core.telemetry.event_runs import SHARE_OF_A_CORE_FOR_LOOKS, EventRun, EventRuns
from trainwiz.core.telemetry.foreign import ForeignSource, Reading
from trainwiz.core.telemetry.metrics import MetricSummary, Pace
from trainwiz.core.telemetry.process_source import model_name
from trainwiz.core.telemetry.scalar_files import Scalars
from trainwiz.core.telemetry.series import EMPTY_CURVE
from trainwiz.core.telemetry.target import Target
from trainwiz.core.telemetry.tensorboard import joined_words, pace_of, pause_of
from trainwiz.core.telemetry.trainer_log import TrainerLog, find_log
from trainwiz.core.telemetry.trainer_state import (
    ARGUMENTS_TAG,
    CHECKPOINT,
    NewestState,
    TrainerArguments,
    TrainerState,
    parse_arguments,
)
from trainwiz.core.telemetry.trainer_summary import EPOCH, TrainerScalars, TrainerSummary
from trainwiz.core.text import numbers_finite

LOOK_FOR_LOG_S = 15.0
COUNTED = mark("The log names no steps and shows no progress bar: its points are counted.")
SEVERAL = mark(
    "Several trainings write to this folder at the same time; shown is the one that began last. The others: {commands}"
)
MOST_NAMED = 3
NOTHING_LOGGED = mark("The job has begun and logged nothing yet.")


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The one place that the metrics are taken from."""

    scalars: Scalars
    step: int | None
    epoch: float | None
    files: tuple[Path, ...]
    written_s: float | None
    by_file_time: bool
    started_s: float | None = None


class TrainerSource(ForeignSource):
    """Metrics come from the event files, which are written live; from the newest readable state where
    that reaches further, or there are none; from the log where that reaches further than a state."""

    def __init__(self, target: Target, *, clock: Callable[[], float] = time.time, log: Path | None = None) -> None:
        """`log`: where its standard output goes, for whom knows; else it is looked for in the folder."""
        super().__init__(target, clock=clock)
        path = target.path
        holds_file = is_file(path)
        is_state = holds_file and path.suffix == ".json"
        self._folder = None if holds_file else path
        self._state = NewestState(path) if is_state or not holds_file else None
        self._last_state: TrainerState | None = None
        self._state_scalars: tuple[TrainerState, Scalars] | None = None
        self._event_scalars = TrainerScalars()
        self._events: EventRuns | None = None
        self._begin_events()
        path_of_log = path if holds_file and not is_state else log
        self._log = TrainerLog(path_of_log) if path_of_log is not None else None
        self._next_look_for_log = 0.0
        self._mixed = False
        """Two trainings write to the folder at the same time."""
        self._model: tuple[str | None] | None = None

    def _begin_events(self) -> None:
        self._event_scalars = TrainerScalars()
        if self._folder is not None:
            self._events = EventRuns(self._folder, new_scalars=self._event_scalars.session, skip=CHECKPOINT)

    def read(self, deadline: float) -> Reading:
        grew = self._read_events(deadline)
        state = self._state.look() if self._state else None
        grew = self._read_log(state, deadline) or grew or state is not self._last_state
        self._last_state = state
        chosen = self._choose(state)
        arguments = self._arguments()
        metrics = {name: tag.summary() for name, tag in chosen.scalars.tags.items() if name != EPOCH}
        tags = chosen.scalars.tags
        loss = tags.get("loss")
        step, epoch = chosen.step, chosen.epoch
        max_steps = self._max_steps(chosen, state, arguments)
        summary = TrainerSummary.of(metrics) if _has_ended(metrics) else None
        early = state.stopped_early if state is not None and (state.step or 0) >= (step or 0) else None
        return Reading(
            metrics=metrics,
            curve=lambda name: tags[name].series.curve() if name in tags else EMPTY_CURVE,
            non_finite_steps=lambda name: tags[name].series.non_finite_steps if name in tags else (),
            first_loss=loss.series.first if loss else None,
            step=step,
            max_steps=max_steps,
            epoch=epoch,
            pace=self._pace(chosen, metrics, summary, max_steps),
            ended=summary is not None or early is not None,
            ended_early=early,
            pause_s=pause_of(loss.recent if loss else ()),
            started_s=chosen.started_s,
            written_s=chosen.written_s,
            written_by_file_time=chosen.by_file_time,
            grew=grew,
            effective_samples=summary.effective_samples(_unit(state, arguments), step, epoch, max_steps)
            if summary
            else None,
            model=self._model_name(),
            hyperparameters=arguments.shown,
            files=chosen.files,
            log=self._log.lines.lines() if self._log else (),
            log_version=self._log.lines.version if self._log else 0,
            log_path=self._log.path if self._log else None,
            notes=self._notes(chosen),
            problems=self._problems(metrics),
            behind=self._behind,
            read_share=self._read_share(),
        )

    @property
    def _behind(self) -> bool:
        return bool((self._events and self._events.behind) or (self._log and self._log.behind))

    def _read_share(self) -> float:
        if not self._behind:
            return 1.0
        return share_read(
            [*(self._events.tails if self._events else ()), *([self._log.printed.tail] if self._log else ())]
        )

    def _read_events(self, deadline: float) -> bool:
        if self._events is None:
            return False
        rewritten = self._events.rewritten
        self._events.read(deadline)
        mixed = bool(self._event_scalars.apart)
        if self._events.rewritten != rewritten or (mixed and not self._mixed):
            # Once it is known that two train, what the other wrote before is not joined either.
            self._mixed = mixed
            self._begin_events()
            self._events.read(deadline)
            return True
        return self._events.grew

    def _read_log(self, state: TrainerState | None, deadline: float) -> bool:
        if self._log is None and self._folder is not None and time.monotonic() >= self._next_look_for_log:
            started_s = time.thread_time()
            found = find_log(self._folder)
            cost_s = time.thread_time() - started_s
            self._next_look_for_log = time.monotonic() + max(LOOK_FOR_LOG_S, cost_s / SHARE_OF_A_CORE_FOR_LOOKS)
            self._log = TrainerLog(found) if found is not None else None
        return self._log is not None and self._log.read(deadline, state.logging_steps if state else None)

    def _choose(self, state: TrainerState | None) -> _Chosen:
        began_s = self._event_scalars.training_began_s
        if state is not None and began_s is not None and state.written_s < began_s:
            # Left by a training before the one that writes the events now, however far it went.
            state = None
        if self._event_scalars.apart:
            # Whose states and lines the others are, nothing says.
            return self._from_events() or self._nothing_yet()
        places = [place for place in (self._from_events(), self._from_state(state), self._from_log()) if place]
        # On a tie the first: event files are the finest, a log is rounded.
        return max(places, key=_reach, default=self._nothing_yet())

    def _nothing_yet(self) -> _Chosen:
        """A job that has begun its event file and logged nothing."""
        newest = self._events.newest if self._events else None
        if newest is None:
            return _Chosen(Scalars(), None, None, (), None, by_file_time=True)
        files = tuple(tail.path for tail in newest.tails)
        return _Chosen(
            Scalars(), None, None, files, newest.last_time_s, by_file_time=False, started_s=newest.first_time_s
        )

    def _from_events(self) -> _Chosen | None:
        scalars, events = self._event_scalars, self._events
        if events is None or not scalars.tags:
            return None
        newest = events.newest
        return _Chosen(
            scalars,
            scalars.step,
            scalars.last(EPOCH),
            tuple(tail.path for tail in events.tails),
            newest.last_time_s if newest else None,
            by_file_time=False,
            started_s=self._current_run.began_s if self._current_run else None,
        )

    @property
    def _current_run(self) -> EventRun | None:
        """The session that trains, or trained last; without one what was written last."""
        if self._events is None:
            return None
        current = self._event_scalars.current
        return next((run for run in self._events.runs.values() if run.scalars is current), self._events.newest)

    def _from_state(self, state: TrainerState | None) -> _Chosen | None:
        if state is None:
            return None
        if self._state_scalars is None or self._state_scalars[0] is not state:
            scalars = Scalars()
            scalars.add_all(state.scalars())
            self._state_scalars = (state, scalars)
        step = state.step if state.step is not None else self._state_scalars[1].step
        return _Chosen(self._state_scalars[1], step, state.epoch, (state.path,), state.written_s, by_file_time=True)

    def _from_log(self) -> _Chosen | None:
        log = self._log
        if log is None or not log.printed.rows:
            return None
        printed = log.printed
        return _Chosen(log.scalars, printed.step, printed.epoch, (log.path,), log.written_s, by_file_time=True)

    def _arguments(self) -> TrainerArguments:
        newest = self._current_run
        texts = [run.text(ARGUMENTS_TAG) for run in self._events.runs.values()] if self._events else []
        own = newest.text(ARGUMENTS_TAG) if newest else None
        return parse_arguments(own or next((text for text in reversed(texts) if text), None) or "")

    def _max_steps(self, chosen: _Chosen, state: TrainerState | None, arguments: TrainerArguments) -> int | None:
        if arguments.max_steps and (chosen.step is None or chosen.step <= arguments.max_steps):
            return arguments.max_steps
        if state is not None and state.max_steps and (chosen.step is None or chosen.step <= state.max_steps):
            return state.max_steps
        if self._log is not None and self._log.printed.max_steps:
            return self._log.printed.max_steps
        return arguments.steps_in_all(chosen.step, chosen.epoch)

    def _pace(
        self,
        chosen: _Chosen,
        metrics: Mapping[str, MetricSummary],
        summary: TrainerSummary | None,
        max_steps: int | None,
    ) -> Pace:
        loss = chosen.scalars.tags.get("loss")
        curve = loss.series.curve() if loss is not None and summary is not None else EMPTY_CURVE
        done = summary.session_steps(curve, chosen.step, max_steps) if summary else None
        if chosen.scalars is self._event_scalars:
            wall = pace_of(loss.recent if loss else ()).wall_step_s
        elif summary is not None:
            wall = summary.runtime_s / done if done and summary.runtime_s else None
        else:
            in_log = self._log is not None and chosen.scalars is self._log.scalars
            wall = self._log.printed.step_s if self._log and in_log else None
        tokens_per_s = _last(metrics, "train_tokens_per_second")
        if summary is not None and not summary.covers_plan(done, max_steps):
            tokens_per_s = None
        return Pace(_last(metrics, "step_time"), wall, tokens_per_s, None, None)

    def _model_name(self) -> str | None:
        if self._folder is None:
            return None
        if self._model is None:
            self._model = (model_name(self._folder),)
        return self._model[0]

    def _notes(self, chosen: _Chosen) -> tuple[str, ...]:
        if not chosen.scalars.tags and chosen.files:
            return (tr(NOTHING_LOGGED),)
        log = self._log
        apart = self._event_scalars.apart
        if apart and self._events is not None:
            others = [self._events.root / run.name for run in self._events.runs.values() if run.scalars in apart]
            commands = "; ".join(shlex.join(["trainwiz", "monitor", str(path)]) for path in others[:MOST_NAMED])
            return (tr(SEVERAL, commands=commands),)
        if chosen.scalars is self._event_scalars and self._event_scalars.joined > 1:
            return (joined_words(self._event_scalars.joined),)
        return (tr(COUNTED),) if log is not None and chosen.scalars is log.scalars and log.printed.counted else ()

    def _problems(self, metrics: Mapping[str, MetricSummary]) -> tuple[str, ...]:
        problems = list(self._state.problems) if self._state else []
        problems += self._events.problems() if self._events else []
        problems += [self._log.problem] if self._log and self._log.problem else []
        begun = self._events is not None and self._events.tails
        if not metrics and not problems and not begun and not self._behind:
            nothing = tr("{path} holds no metrics yet: event files, states and logs have none.", path=self.target.path)
            problems.append(nothing)
        return tuple(problems)


def _reach(place: _Chosen) -> float:
    """How far the metrics of a place go. A state's own step may lie after its last row, as a file of events' does not."""
    return place.scalars.step if place.scalars.step is not None else -1


def _has_ended(metrics: Mapping[str, MetricSummary]) -> bool:
    """The Trainer writes its runtime once, when its training is over; a resumed one logs losses after that."""
    runtime, loss = metrics.get("train_runtime"), metrics.get("loss")
    if runtime is None or runtime.last_step is None:
        return False
    return loss is None or loss.last_step is None or runtime.last_step >= loss.last_step


def _last(metrics: Mapping[str, MetricSummary], name: str) -> float | None:
    return numbers_finite(metrics[name].last) if name in metrics else None


def _unit(state: TrainerState | None, arguments: TrainerArguments) -> int:
    """What the sequences of a step are a multiple of, as far as it is known."""
    return max(arguments.batch or 1, state.batch or 1 if state else 1) * (arguments.accumulation or 1)
