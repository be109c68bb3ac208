"""A folder of event files or CSV tables of metrics as a source."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainwiz.core.files import read_small
from trainwiz.core.language import tr
from trainwiz.core.lines import share_read
from trainwiz.core.telemetry.event_proto import HPARAMS, MOST_HPARAMS
from trainwiz.core.telemetry.event_runs import EventRun, EventRuns, FindFiles
from trainwiz.core.telemetry.foreign import ForeignSource, Reading, loss_name
from trainwiz.core.telemetry.metrics import MOST_NAMES, Pace
from trainwiz.core.telemetry.scalar_files import TagSeries
from trainwiz.core.telemetry.series import EMPTY_CURVE, Curve
from trainwiz.core.telemetry.target import Target
from trainwiz.core.telemetry.trainer_state import ARGUMENTS_TAG, as_text, parse_arguments
from trainwiz.core.telemetry.words import shown_words
from trainwiz.core.text import parse_json

EPOCH_TAGS = ("epoch", "train/epoch")
HPARAMS_YAML = "hparams.yaml"
LARGEST_HPARAMS_BYTES = 256 * 1024


class TensorBoardSource(ForeignSource):
    """Metrics are named by their tags; where there are several runs, "run/tag". Step, epoch and pace
    are those of the runs that were written to last, as a job may write several (train and validation)."""

    def __init__(
        self, target: Target, *, clock: Callable[[], float] = time.time, find: FindFiles | None = None
    ) -> None:
        """`find` names the files, else all below the target's folder are read."""
        super().__init__(target, clock=clock)
        self._runs = EventRuns(target.path, find=find)
        self._several = False
        self._left_out = 0
        self._hparams: tuple[Path, dict[str, str]] | None = None

    def read(self, deadline: float) -> Reading:
        runs = self._runs
        runs.read(deadline)
        series = self._by_name()
        newest = runs.newest
        settings = runs.text(HPARAMS)
        arguments = parse_arguments((newest.text(ARGUMENTS_TAG) if newest else None) or settings or "")
        current = runs.current()
        step = max((run.scalars.step for run in current if run.scalars.step is not None), default=None)
        epoch = next((epoch for run in current if (epoch := _epoch(run)) is not None), None)
        metrics = {name: tag.summary() for name, tag in series.items()}
        loss = loss_name(name for run in current for name in self._names_of(run) if name in series)
        recent = (newest.table_times if newest else ()) or (series[loss].recent if loss else ())
        return Reading(
            metrics=metrics,
            curve=lambda name: _curve(series, name),
            non_finite_steps=lambda name: series[name].series.non_finite_steps if name in series else (),
            first_loss=series[loss].series.first if loss else None,
            step=step,
            max_steps=arguments.steps_in_all(step, epoch),
            epoch=epoch,
            pace=pace_of(recent),
            pause_s=pause_of(recent),
            started_s=newest.began_s if newest else None,
            written_s=newest.last_time_s if newest else None,
            written_by_file_time=bool(newest and not newest.event_tails),
            grew=runs.grew,
            hyperparameters=shown_values(parse_json(settings))
            if settings
            else arguments.shown or self._read_hparams(newest),
            files=tuple(tail.path for tail in runs.tails),
            notes=self._notes(bool(metrics), newest.launches if newest else 0),
            problems=tuple(runs.problems()) or self._missing(),
            behind=runs.behind,
            read_share=share_read(runs.tails) if runs.behind else 1.0,
        )

    def _by_name(self) -> dict[str, TagSeries]:
        with_scalars = [run for run in self._runs.runs.values() if run.scalars.tags]
        self._several = len(with_scalars) > 1
        self._left_out = sum(run.scalars.names_left_out for run in with_scalars)
        found: dict[str, TagSeries] = {}
        for run in with_scalars:
            for name, series in zip(self._names_of(run), run.scalars.tags.values(), strict=True):
                if len(found) < MOST_NAMES:
                    found[name] = series
                else:
                    self._left_out += 1
        return found

    def _names_of(self, run: EventRun) -> list[str]:
        return [_name(run, tag) if self._several else tag for tag in run.scalars.tags]

    def _notes(self, has_scalars: bool, launches: int) -> tuple[str, ...]:
        left_out = self._left_out
        notes = [joined_words(launches)] if launches > 1 else []
        if left_out:
            counts = {"left_out": f"{left_out:,}", "shown": f"{MOST_NAMES:,}"}
            notes.append(tr("{left_out} more metrics are left out: {shown} are shown.", **counts))
        others = self._runs.others()
        if others and not has_scalars:
            what = ", ".join(f"{count:,} {tr(kind)}" for kind, count in others.most_common(5))
            notes.append(tr("The event files hold no scalars ({what}).", what=what))
        elif self._runs.tails and not has_scalars and any(tail.texts for tail in self._runs.event_tails):
            notes.append(tr("The event files hold the settings of the training, and no metrics yet."))
        return tuple(notes)

    def _missing(self) -> tuple[str, ...]:
        if self._runs.tails:
            return ()
        return (tr("{path} holds no event files any more.", path=self.target.path),)

    def _read_hparams(self, run: EventRun | None) -> dict[str, str]:
        """Lightning's hparams.yaml beside the newest run's files, read once."""
        if run is None or not run.tails:
            return {}
        path = run.tails[0].path.with_name(HPARAMS_YAML)
        if self._hparams is None or self._hparams[0] != path:
            self._hparams = (path, read_hparams(path))
        return self._hparams[1]


def read_hparams(path: Path) -> dict[str, str]:
    """The values of an hparams.yaml as text; empty where there is none, or one that is no plain mapping."""
    import yaml
    from trainwiz.core.config.yaml_text import load_yaml

    try:
        if path.stat().st_size > LARGEST_HPARAMS_BYTES:
            return {}
        document: Any = load_yaml(read_small(path).decode(errors="replace"))
    except (OSError, yaml.YAMLError, RecursionError, ValueError):
        return {}
    return shown_values(document)


def shown_values(document: Any) -> dict[str, str]:
    """The plain values of a mapping as text."""
    if not isinstance(document, dict):
        return {}
    plain = [(str(key), as_text(value)) for key, value in document.items() if _is_plain(value)][:MOST_HPARAMS]
    # Scripts save all their arguments: tokens and keys among them are not shown, as in a command line.
    return {key: shown_words([f"{key}={value}"])[0][len(key) + 1 :] for key, value in plain}


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)


def joined_words(launches: int) -> str:
    return tr(
        "{n} launches wrote here one after another: joined by their steps, the later one where both have a step; "
        "time and pace are of the last.",
        n=f"{launches:,}",
    )


def pace_of(recent: Sequence[tuple[float, float]]) -> Pace:
    """By step and time of the newest points."""
    wall = None
    if len(recent) >= 2:
        (first_step, first_s), (last_step, last_s) = recent[0], recent[-1]
        if last_step > first_step and last_s > first_s:
            wall = (last_s - first_s) / (last_step - first_step)
    return Pace(None, wall, None, None, None)


def pause_of(recent: Sequence[tuple[float, float]]) -> float | None:
    """Mean seconds between two of the newest points."""
    if len(recent) < 2:
        return None
    return max(0.0, recent[-1][1] - recent[0][1]) / (len(recent) - 1)


def _epoch(run: EventRun) -> float | None:
    return next((value for tag in EPOCH_TAGS if (value := run.scalars.last(tag)) is not None), None)


def _name(run: EventRun, tag: str) -> str:
    return tag if run.name == "." else f"{run.name}/{tag}"


def _curve(series: dict[str, TagSeries], name: str) -> Curve:
    return series[name].series.curve() if name in series else EMPTY_CURVE
