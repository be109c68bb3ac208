"""The search for what fits: of each model and method a plan by formulas, and of the best rows the plans of a front end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.catalog.models import default_init, is_instruct, load_models, resolve_model
from trainwiz.core.config.build import build_config
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.config.run import ModelSection, RunConfig
from trainwiz.core.config.values import CLASSIFIES, Task
from trainwiz.core.data.detect import TASK_OF, RowsKind, RowsTold, what_rows_are
from trainwiz.core.data.lengths import joins_texts, tokenizer_folder, trains_on_chats
from trainwiz.core.data.summary import DataSummary, summarize_data
from trainwiz.core.errors import CannotRunError, Finding, Remedy, TrainwizError, UsageError, usage_error
from trainwiz.core.estimate.evidence import Evidence
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.language import tr, trn
from trainwiz.core.plan.engine import BASE, METHOD
from trainwiz.core.plan.fit import (
    EPOCHS,
    METHOD_NAMES,
    METHODS,
    METHODS_OF,
    MOST_CUT,
    TRACED,
    Fit,
    Fits,
    Method,
    Question,
    group_of,
    passes_words,
    sort_key,
)
from trainwiz.core.plan.gather import Gathered, choose_target, gather_data, gather_known, with_data
from trainwiz.core.plan.refine import Refiner
from trainwiz.core.plan.refusals import refusals
from trainwiz.core.plan.resolve import LENGTH, TARGET, TO_INSTALL, resolve
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.words import duration, gib

STEPS = "training.max_steps"
LEAST_BYTES: dict[Method, float] = {"full": 8.0, "lora": 2.0, "4-bit": 0.5}
"""Of memory for each weight, whatever else is chosen: weights and gradients in fp32, or a frozen base."""
JOINED = (2048, 1024, 512)
"""Lengths of sequences that joined texts fill: nothing is cut."""
COVERED = (0.999, 0.99, 0.9, 0.5)
"""Shares of the rows that a length leaves whole."""
FAR_TOO_LONG = 1.5
"""Times the limit: what a shorter length may save, which cuts few rows."""
SHORTEST = 64
LESS = 0.95
"""Times the steps that took too long: so the search for those that are in time ends."""
MOST_COLUMNS = 12

# What the data is, and which models can do its task.


def _told(config: RunConfig) -> tuple[RowsKind | None, RowsTold | None]:
    """(kind of the rows, how it was told); no kind where only a plan can say it. UsageError where it is in doubt."""
    if config.origin("data.sources").origin != "you" and "data.sources.0.name" not in config.origins:
        message = tr("Specify the data to train on: trainwiz fit --dataset FILE (or try sample-chat).")
        raise usage_error("no_data_named", "--dataset", message)
    told = what_rows_are(config.data.sources[0])
    if "task" in config.origins:
        if config.task == "causal-lm":
            return ("chats" if told.kind == "chats" else None), None
        if config.task == "masked-lm":
            return ("proteins" if told.kind == "proteins" else "texts"), None
        return next(kind for kind, task in TASK_OF.items() if task == config.task), None
    if told.kind is None:
        columns = tr("its columns: {columns}", columns=", ".join(map(repr, told.columns[:MOST_COLUMNS])))
        message = tr(
            "The task of {name} cannot be detected ({columns}). Set it with --task: {tasks}.",
            name=config.data.sources[0].name,
            columns=columns if told.columns else told.why,
            tasks=tr(" or ").join(METHODS_OF),
        )
        raise usage_error("task_not_told", "--task", message)
    return told.kind, told


def _can_do(spec: ModelSpec, kind: RowsKind, task: Task) -> bool:
    """Whether a model of the catalogue is one for such rows. Those without published weights are there for tests."""
    if default_init(spec) != "pretrained":
        return False
    reads_proteins = spec.architecture.get("model_type") == "esm"
    if kind == "proteins" or reads_proteins:
        return reads_proteins and kind == "proteins"
    learns = "masked-lm" if task in CLASSIFIES else task
    return spec.task == learns and (kind != "chats" or is_instruct(spec))


def may_fit(parameters: float, method: Method, machine: Machine) -> bool:
    """Whether it is worth a plan: a bound that no setting of an engine gets below."""
    cards = machine.visible_gpus
    if machine.accelerator == "cpu" or not cards:
        return method != "4-bit" and LEAST_BYTES[method] * parameters <= machine.ram_available_bytes
    if method == "4-bit" and machine.accelerator != "cuda":
        return False
    sizes = [card.memory_total_bytes or 0 for card in cards]
    # A base in 4 bits is whole on each card.
    return LEAST_BYTES[method] * parameters <= (max(sizes) if method == "4-bit" else sum(sizes))


# The lengths that are worth a plan.


def lengths_of(data: DataSummary, joined: bool) -> list[tuple[int, int | None]]:
    """(longest input, longest target) of each, the longest first. Of joined texts every sequence is full."""
    if joined:
        return [(length, None) for length in JOINED]
    found: dict[tuple[int, int | None], None] = {}
    for share in COVERED:
        source = _rounded(float(np.quantile(data.lengths, share)))
        target = _rounded(float(np.quantile(data.target_lengths, share))) if data.target_lengths else None
        found[source, target] = None
    return list(found)


def _rounded(length: float) -> int:
    step = SHORTEST if length <= 512 else 256
    return max(SHORTEST, math.ceil(length / step) * step)


def share_cut(data: DataSummary, config: RunConfig) -> float:
    """Share of the rows of which something is cut."""
    cut, target = np.asarray(data.lengths) > config.batch.sequence_length, config.batch.target_length
    if target is not None and len(data.target_lengths) == len(cut):
        cut = cut | (np.asarray(data.target_lengths) > target)
    return float(cut.mean()) if len(cut) else 0.0


# The search: analytic plans, first of what each model and method would do best, then those of the rows as they are shown.


@dataclass
class _Search:
    question: Question
    here: Machine
    refiner: Refiner
    config: RunConfig = field(init=False)
    kind: RowsKind = "texts"
    evidence: Evidence = field(init=False)
    _known: dict[str, Gathered] = field(default_factory=dict)
    _tokenizers: dict[str, Path | None] = field(default_factory=dict)
    _data: dict[tuple[Any, ...], DataSummary] = field(default_factory=dict)

    def run(self) -> Fits:
        request = self.question.request
        self.config = build_config(None, request.overrides)
        machine, _ = choose_target(request, None, self.here)
        self.evidence = self.refiner.measured(machine)
        kind, told = _told(self.config)
        self.kind = kind or self._causal_kind()
        specs = self._models()
        found: list[Fit] = []
        rule = self.question.rule
        for spec in sorted(specs, key=self._parameters, reverse=True):
            for method in self._methods(spec):
                if may_fit(self._parameters(spec), method, machine):
                    found += self._of(spec, method)
            if rule == "largest" and sum(group_of(fit) == 0 for fit in found) >= TRACED:
                # All others are smaller, and would come after these.
                break
        if not found:
            raise self._nothing_fits(specs, machine)
        key = partial(sort_key, rule=rule)
        chosen = sorted(found, key=key)[:TRACED]
        rows = [fit for fit in map(self._finished, chosen) if fit is not None]
        if not rows:
            raise self._no_time(min(found, key=lambda fit: fit.plan.time.total_s or math.inf))
        assert rows[0].plan.data is not None
        return Fits(
            tuple(sorted(rows, key=key)), self.question, self.kind, told, rows[0].plan.data, machine, len(specs)
        )

    def _parameters(self, spec: ModelSpec) -> float:
        architecture, _ = read_architecture(spec.architecture, self._task)
        return architecture.parameters if architecture is not None else math.inf

    def _is_yours(self, key: str) -> bool:
        return self.config.origin(key).origin == "you"

    @property
    def _task(self) -> Task:
        return self.config.task if self._is_yours("task") else TASK_OF[self.kind]

    def _models(self) -> list[ModelSpec]:
        if not self.question.models:
            return [spec for spec in load_models().values() if _can_do(spec, self.kind, self._task)]
        found = []
        for name in self.question.models:
            spec, findings = resolve_model(ModelSection(name=name), online=True)
            if spec is None:
                raise UsageError(findings)
            found.append(replace(spec, name=name))
        return found

    def _causal_kind(self) -> RowsKind:
        """Of rows of which only the task was said: what an instruct model would learn of them."""
        tuned = next(spec for spec in load_models().values() if spec.task == "causal-lm" and is_instruct(spec))
        return "chats" if trains_on_chats(self._gathered(tuned.name).config) else "texts"

    def _request(self, model: str, changes: Mapping[str, Any]) -> PlanRequest:
        """The request of a front end for a way. No model of the catalogue is made for classes: that task is named."""
        task = {"task": TASK_OF[self.kind]} if self.kind in ("classes", "tags") else {}
        request = self.question.request
        return replace(request, overrides={**task, **request.overrides, "model.name": model, **changes})

    def _gathered(self, model: str) -> Gathered:
        """Without its data."""
        if model not in self._known:
            self._known[model] = gather_known(self._request(model, {}), None, self.here, online=False)
        return self._known[model]

    def _summary(self, config: RunConfig, *, look: bool = False) -> DataSummary:
        """What the data holds, read once for all that count its tokens alike; `look`: chats as the model reads them."""
        name, joined = config.model.name, joins_texts(config)
        if name not in self._tokenizers:
            self._tokenizers[name] = None if config.row_kind == "proteins" else tokenizer_folder(config, Path.cwd())
        length = config.batch.sequence_length if joined or config.data.too_long == "drop" else 0
        data, template = config.data.model_dump_json(), config.model.chat_template
        key = (self._tokenizers[name], look, config.task, data, template, joined, length)
        if key not in self._data:
            # A look at chats with a tokenizer that is here takes seconds: it is for the rows that are traced.
            quick = self._tokenizers[name] is not None and not look
            summary, findings = (summarize_data(config), ()) if quick else gather_data(config)
            if summary is None:
                raise UsageError(findings)
            self._data[key] = summary
        return self._data[key]

    def _methods(self, spec: ModelSpec) -> list[Method]:
        if default_init(spec) != "pretrained" or self.config.model.init == "scratch":
            return ["full"]
        yours = {key: self.config.value(key) for key in (METHOD, BASE) if self._is_yours(key)}
        return [
            method
            for method in METHODS_OF[self._task]
            if all(METHODS[method].get(key, value) == value for key, value in yours.items())
        ]

    def _of(self, spec: ModelSpec, method: Method) -> list[Fit]:
        """The best of what fits of a model and a method; none where nothing does."""
        known, found = self._gathered(spec.name), list[Fit]()
        for length, target in self._lengths(known, method):
            changes = {EPOCHS: self.question.passes, **METHODS[method], LENGTH: length, TARGET: target}
            own = {key: value for key, value in changes.items() if value is not None and not self._is_yours(key)}
            fit = self._planned(known, spec.name, method, own)
            found += [fit] if fit is not None else []
            if found and not _is_worth_shorter(found[-1]):
                break
        return sorted(found, key=partial(sort_key, rule=self.question.rule))[:1]

    def _lengths(self, known: Gathered, method: Method) -> list[tuple[int, int | None]]:
        if self._is_yours(LENGTH):
            return [(self.config.batch.sequence_length, self.config.batch.target_length)]
        config = known.config.with_values(METHODS[method], "you")
        architecture = read_architecture(known.model.architecture, config.task)[0] if known.model is not None else None
        most = (architecture.max_positions if architecture is not None else None) or math.inf
        pairs = lengths_of(self._summary(config), joins_texts(config))
        return list(dict.fromkeys((int(min(length, most)), target) for length, target in pairs))

    def _planned(self, known: Gathered, model: str, method: Method, changes: Mapping[str, Any]) -> Fit | None:
        plan = self._resolved(known, changes)
        memory, limit = plan.memory, self.question.limit
        if plan.work is None or memory.verdict not in ("fits", "tight") or not _host_holds(plan):
            return None
        if any(finding.severity == "error" and finding.code not in TO_INSTALL for finding in refusals(plan)):
            return None
        if limit.cost is not None and limit.cost_of(plan) is None:
            message = tr(
                "The cost of a run is unknown because the power draw of the machine is unknown: set the price per "
                "hour, --per-hour 0.80."
            )
            raise usage_error("no_price", "--budget", message)
        limit_s, whole = limit.seconds_of(plan), plan.time.total_s
        in_time = limit_s is None or (whole is not None and whole <= limit_s)
        cut = 0.0 if plan.data is None or joins_texts(plan.config) else share_cut(plan.data, plan.config)
        return Fit(model, method, changes, plan, cut, limit_s, in_time, limit.cost_of(plan))

    def _resolved(self, known: Gathered, changes: Mapping[str, Any]) -> Plan:
        """Without what is said of a plan, which takes longer than the plan."""
        config = known.config.with_values(dict(changes), "you")
        data = self._summary(config)
        asked = Plan(known.machine, config, asked=config, spec=known.model, data=data, known=self.evidence)
        asked.found = known.findings
        return resolve(asked)

    def _finished(self, fit: Fit) -> Fit | None:
        """The row as any front end plans it, ended in time; None where a step takes longer than the limit."""
        if fit.in_time:
            return self._made(fit, None)
        known, limit_s = self._gathered(fit.model), fit.limit_s or 0.0
        steps, total_s = fit.plan.steps or 0, fit.plan.time.total_s or math.inf
        # A start does not shrink with the steps, so that one cut may not be enough.
        while total_s > limit_s:
            steps = int(LESS * steps * limit_s / total_s)
            if steps < 1:
                return None
            ended = self._resolved(known, {**fit.changes, STEPS: steps})
            total_s = ended.time.total_s or math.inf
        return self._made(fit, steps)

    def _made(self, fit: Fit, steps: int | None) -> Fit:
        changes = {**fit.changes, **({STEPS: steps} if steps is not None else {})}
        request = self._request(fit.model, changes)
        known = gather_known(request, None, self.here, online=False)
        gathered = with_data(known, self._summary(known.config), ())
        plan = self.refiner.plan(gathered)
        return replace(fit, plan=plan, request=request, gathered=gathered, cost=self.question.limit.cost_of(plan))

    def _nothing_fits(self, specs: Sequence[ModelSpec], machine: Machine) -> TrainwizError:
        """With what the smallest needs, in its smallest way."""
        spec = min(specs, key=self._parameters)
        method = [one for one in self._methods(spec) if one != "4-bit" or machine.accelerator == "cuda"][-1]
        known = self._gathered(spec.name)
        length, target = self._lengths(known, method)[-1]
        plan = self._resolved(known, {**METHODS[method], LENGTH: length, **({TARGET: target} if target else {})})
        refused = [finding for finding in refusals(plan) if finding.severity == "error"]
        if refused and plan.memory.verdict != "does_not_fit":
            return CannotRunError(refused)
        message = tr(
            "Nothing fits: the smallest of {n}, {name}, needs {needed} ({method}, {length} tokens), but {device} "
                "has {there}.",
            n=trn("{n} model", "{n} models", len(specs)),
            name=spec.name, method=tr(METHOD_NAMES[method]), length=length, device=plan.memory.device,
            needed=gib(plan.memory.needed_high_bytes), there=gib(plan.memory.capacity_bytes or 0),
        )  # fmt: skip
        larger = Remedy(tr("see what fits on a larger GPU: --gpu NAME"))
        return CannotRunError(Finding("nothing_fits", "error", "memory", message, (larger,)))

    def _no_time(self, fit: Fit) -> TrainwizError:
        one = self._resolved(self._gathered(fit.model), {**fit.changes, STEPS: 1})
        message = tr(
            "Not enough time to train: the fastest, {name} ({method}), takes {whole} for {passes} and {least} for "
                "one step with startup and evaluations; you have {time}.",
            name=fit.model, method=tr(METHOD_NAMES[fit.method]), passes=passes_words(self.question.passes),
            whole=duration(fit.plan.time.total_s or 0.0), least=duration(one.time.total_s or 0.0),
            time=duration(fit.limit_s or 0.0),
        )  # fmt: skip
        return usage_error("no_time", "time", message)


def _is_worth_shorter(fit: Fit) -> bool:
    """Whether a shorter length may do what this one does not: end in time."""
    whole, limit_s = fit.plan.time.total_s, fit.limit_s
    if fit.in_time or fit.cut >= MOST_CUT or whole is None or limit_s is None:
        return False
    return whole <= FAR_TOO_LONG * limit_s


def _host_holds(plan: Plan) -> bool:
    memory = plan.memory
    ram = memory.host_ram_capacity_bytes if plan.devices.device != "cpu" else None
    fits = ram is None or memory.host_ram_bytes <= ram
    return fits and (memory.disk_capacity_bytes is None or memory.disk_bytes <= memory.disk_capacity_bytes)


def find_fits(question: Question, here: Machine, refiner: Refiner) -> Fits:
    """The answer by formulas. `refiner` makes the plans of its rows as everywhere else.

    Raises UsageError for what is asked wrongly, data that cannot be read and a time that is too short, CannotRunError
    where nothing fits.
    """
    return _Search(question, here, refiner).run()


def improved(fits: Fits, better: Callable[[Gathered], Plan]) -> Iterator[Fits]:
    """The answer as `better` makes the plan of one row after the other, the first rows first."""
    for fit in fits.rows[:TRACED]:
        if fit.gathered is not None:
            # Chats are looked at as the model reads them, which the quick answer has no time for.
            data, _ = gather_data(fit.gathered.config)
            fits = fits.with_plan(fit, better(replace(fit.gathered, data=data or fit.gathered.data)))
            yield fits
