"""What can be trained with a card, some data and a time: the question, the search of plans that fit, the rules that rank them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

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
from trainwiz.core.errors import CannotRunError, Finding, Remedy, UsageError, usage_error
from trainwiz.core.estimate.evidence import Evidence
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.plan.engine import BASE, METHOD
from trainwiz.core.plan.fixes import TO_INSTALL
from trainwiz.core.plan.gather import Gathered, choose_target, gather_data, gather_known, with_data
from trainwiz.core.plan.refine import Refiner
from trainwiz.core.plan.refusals import refusals
from trainwiz.core.plan.resolve import resolve
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.sizes import LENGTH, TARGET
from trainwiz.core.plan.words import duration, plan_command

Method = Literal["full", "lora", "4-bit"]
Rule = Literal["largest", "fastest", "cheapest", "uncut"]
RULES: dict[Rule, str] = {
    "largest": mark("the largest model that completes {passes} in time"),
    "fastest": mark("the shortest time for {passes}"),
    "cheapest": mark("the lowest cost, energy use or time for {passes}"),
    "uncut": mark("the fewest rows truncated, then the largest model that completes {passes} in time"),
}
METHODS: dict[Method, dict[str, Any]] = {
    "full": {METHOD: "none"},
    "lora": {METHOD: "lora", BASE: "none"},
    "4-bit": {METHOD: "lora", BASE: "nf4"},
}
METHOD_NAMES: dict[Method, str] = {"full": mark("full"), "lora": mark("LoRA"), "4-bit": mark("QLoRA")}
METHODS_OF: dict[Task, tuple[Method, ...]] = {
    "causal-lm": ("full", "lora", "4-bit"), "seq2seq": ("full", "lora", "4-bit"), "masked-lm": ("full",),
    "sequence-classification": ("full", "lora"), "token-classification": ("full", "lora"),
}  # fmt: skip
EPOCHS, PASSES = "training.epochs", 3.0
MOST_CUT = 0.1
"""Of the rows; a length that cuts more is taken where no other fits, and never for the time."""
TRACED = 10
"""Rows of an answer; each model and method once."""


@dataclass(frozen=True, slots=True)
class Limit:
    """When a run must be over, or what it may cost; none of both: no limit."""

    seconds: float | None = None
    cost: float | None = None
    per_hour: float | None = None
    """Rent of the machine."""

    def seconds_of(self, plan: Plan) -> float | None:
        """How long the run of a plan may take; None: as long as it likes."""
        if self.cost is None:
            return self.seconds
        whole, cost = plan.time.total_s, self.cost_of(plan)
        if whole is None or cost is None:
            return 0.0
        return whole * self.cost / cost[1] if cost[1] else math.inf

    def cost_of(self, plan: Plan) -> tuple[float, float, float] | None:
        """(low, likely, high) of rent and energy; None where neither has a price."""
        time = plan.time
        if time.total_s is None or time.total_low_s is None or time.total_high_s is None:
            return None
        low, high, rent = time.energy_cost_low, time.energy_cost_high, (self.per_hour or 0.0) / 3600
        if low is None or high is None:
            if self.per_hour is None:
                return None
            low = high = 0.0
        # The ends of the energy are of times that are a factor apart: the middle is of factors too.
        likely = math.sqrt(low * high) + rent * time.total_s
        return low + rent * time.total_low_s, likely, high + rent * time.total_high_s


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. `request` holds data, machine and values of the user's own, but no model."""

    request: PlanRequest
    models: tuple[str, ...] = ()
    """Those alone; empty: all of the catalogue that can do the task."""
    limit: Limit = Limit()
    rule: Rule = "largest"

    @property
    def passes(self) -> float:
        passes = float(self.request.overrides.get(EPOCHS) or PASSES)
        return int(passes) if passes.is_integer() else passes


@dataclass(frozen=True, slots=True)
class Fit:
    """A way to train that fits, and its plan: of all passes, or of those that there is time for."""

    model: str
    method: Method
    changes: Mapping[str, Any]
    """Key path -> value, beside what was asked."""
    plan: Plan
    cut: float
    """Share of the rows that are longer than the length."""
    limit_s: float | None
    in_time: bool
    """All passes are."""
    cost: tuple[float, float, float] | None
    """(low, likely, high) of rent and energy."""
    request: PlanRequest = field(default_factory=PlanRequest)
    """What any front end makes this plan of."""
    gathered: Gathered | None = None

    @property
    def parameters(self) -> int:
        return self.plan.architecture.parameters if self.plan.architecture is not None else 0

    @property
    def passes(self) -> float:
        """Over the data, within the limit."""
        whole, passes = self.plan.time.total_s, self.plan.time.epochs or 0.0
        if self.in_time or whole is None or self.limit_s is None or whole <= self.limit_s:
            return passes
        return passes * self.limit_s / whole

    @property
    def rank(self) -> int | None:
        return None if self.method == "full" else self.plan.config.peft.rank

    @property
    def command(self) -> str:
        """`trainwiz plan` of it; without the word `plan` the wizard opens on it, or with --yes it starts."""
        return plan_command(self.plan.config, self.plan.machine, {})

    def to_json(self) -> dict[str, Any]:
        """`model` to `time` are as in the JSON of `trainwiz plan`."""
        plan, ends = self.plan, ("low", "likely", "high")
        return {
            "name": self.model,
            "method": self.method,
            "length": plan.batch.sequence_length,
            "rank": self.rank,
            "verdict": plan.memory.verdict,
            "in_time": self.in_time,
            "rows_cut": self.cut,
            "cost": None if self.cost is None else dict(zip(ends, self.cost, strict=True)),
            "command": self.command,
            "task": plan.task,
            **{part: asdict(getattr(plan, part)) for part in ("model", "batch", "memory", "time")},
        }


def group_of(fit: Fit) -> int:
    """0: in time, fits safely and cuts few rows; 1: in time; 2: sees the data less often than asked."""
    if not fit.in_time:
        return 2
    return 0 if fit.plan.memory.verdict == "fits" and fit.cut <= MOST_CUT else 1


def sort_key(fit: Fit, rule: Rule) -> tuple[Any, ...]:
    """Smaller is better: the group, how often the data is seen where that is too rarely, then what the rule says."""
    time, group = fit.plan.time, group_of(fit)
    cut, seconds = round(fit.cut, 2), time.total_s or math.inf
    price = fit.cost[1] if fit.cost is not None else time.energy_high_kwh or seconds
    first = {"largest": (), "fastest": (seconds,), "cheapest": (price,), "uncut": (cut,)}[rule]
    seen = -round(fit.passes, 2) if group == 2 else 0.0
    return group, seen, *first, -fit.parameters, cut, list(METHODS).index(fit.method), -(fit.rank or 0), seconds


@dataclass(frozen=True, slots=True)
class Fits:
    """The rows, best first."""

    rows: tuple[Fit, ...]
    question: Question
    kind: RowsKind
    told: RowsTold | None
    """How the task was found; None where it was named."""
    data: DataSummary
    machine: Machine
    tried: int
    """Models that can do the task."""

    def with_plan(self, fit: Fit, plan: Plan) -> Fits:
        """With a better plan of a row; one that does not fit any more is left out."""
        whole = plan.time.total_s
        in_time = fit.in_time and (fit.limit_s is None or (whole is not None and whole <= fit.limit_s))
        better = replace(fit, plan=plan, cost=self.question.limit.cost_of(plan), in_time=in_time)
        rows = [other for other in self.rows if other is not fit]
        rows += [better] if plan.memory.verdict != "does_not_fit" else []
        return replace(self, rows=tuple(sorted(rows, key=partial(sort_key, rule=self.question.rule))))


def passes_words(passes: float) -> str:
    return trn("{passes} epoch", "{passes} epochs", 1 if passes == 1 else 2, passes=f"{passes:g}")


# What the data is, which models can do its task, and what is worth a plan.

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


def _told(config: RunConfig) -> tuple[RowsKind | None, RowsTold | None]:
    """(kind of the rows, how it was told); no kind where only a plan can say it. UsageError where it is in doubt."""
    if config.origin("data.sources").origin != "you" and "data.sources.0.name" not in config.origins:
        message = tr("Specify the data to train on: trainwiz fit --dataset FILE (or try sample-chat).")
        raise usage_error("no_data_named", "--dataset", message)
    told = what_rows_are(config.data.sources[0])
    if "task" not in config.origins:
        if told.kind is None:
            message = tr(
                "The task of {name} cannot be detected ({columns}). Set it with --task: {tasks}.",
                name=config.data.sources[0].name,
                columns=told.why or ", ".join(map(repr, told.columns[:12])),
                tasks=tr(" or ").join(METHODS_OF),
            )
            raise usage_error("task_not_told", "--task", message)
        return told.kind, told
    if told.kind in ("chats", "proteins") and TASK_OF[told.kind] == config.task:
        return told.kind, None
    kinds: dict[Task, RowsKind | None] = {task: kind for kind, task in TASK_OF.items()}
    return {**kinds, "causal-lm": None, "masked-lm": "texts"}[config.task], None


def _can_do(spec: ModelSpec, kind: RowsKind, task: Task) -> bool:
    """Whether a model of the catalogue is one for such rows. Those without published weights are there for tests."""
    reads_proteins = spec.architecture.get("model_type") == "esm"
    if default_init(spec) != "pretrained" or reads_proteins != (kind == "proteins"):
        return False
    learns = "masked-lm" if task in CLASSIFIES else task
    return reads_proteins or (spec.task == learns and (kind != "chats" or is_instruct(spec)))


def may_fit(parameters: float, method: Method, machine: Machine) -> bool:
    """Whether it is worth a plan: a bound that no setting of an engine gets below."""
    if method == "4-bit" and machine.accelerator != "cuda":
        return False
    sizes = [card.memory_total_bytes or 0 for card in machine.visible_gpus] or [machine.ram_available_bytes]
    # A base in 4 bits is whole on each card.
    return LEAST_BYTES[method] * parameters <= (max(sizes) if method == "4-bit" else sum(sizes))


def lengths_of(data: DataSummary, joined: bool) -> list[tuple[int, int | None]]:
    """(longest input, longest target) of each length that is worth a plan, the longest first. Of joined texts every
    sequence is full."""
    if joined:
        return [(length, None) for length in JOINED]

    def covering(share: float, rows: tuple[int, ...]) -> int:
        length = float(np.quantile(rows, share))
        step = SHORTEST if length <= 512 else 256
        return max(SHORTEST, math.ceil(length / step) * step)

    targets = data.target_lengths
    pairs = ((covering(share, data.lengths), covering(share, targets) if targets else None) for share in COVERED)
    return list(dict.fromkeys(pairs))


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
    refused: list[Finding] = field(default_factory=list)
    """What speaks against plans that would fit."""
    _known: dict[str, Gathered] = field(default_factory=dict)
    _data: dict[tuple[Any, ...], DataSummary] = field(default_factory=dict)

    def run(self) -> Fits:
        request, rule = self.question.request, self.question.rule
        self.config = build_config(None, request.overrides)
        machine, _ = choose_target(request, None, self.here)
        self.evidence = self.refiner.measured(machine)
        kind, told = _told(self.config)
        if kind is None:
            # Of rows of which only the task was said: what an instruct model would learn of them.
            tuned = next(spec for spec in load_models().values() if spec.task == "causal-lm" and is_instruct(spec))
            kind = "chats" if trains_on_chats(self._gathered(tuned.name).config) else "texts"
        self.kind = kind
        specs = sorted(self._models(), key=_parameters, reverse=True)
        found: list[Fit] = []
        for spec in specs:
            for method in self._methods(spec):
                if may_fit(_parameters(spec), method, machine):
                    found += self._of(spec, method)
            if rule == "largest" and sum(group_of(fit) == 0 for fit in found) >= TRACED:
                # All others are smaller, and would come after these.
                break
        if not found and self.refused:
            raise CannotRunError(self.refused)
        if not found:
            least = {"n": len(specs), "name": specs[-1].name}
            message = tr("Nothing fits: even the smallest of {n} models, {name}, needs more than there is.", **least)
            larger = Remedy(tr("see what fits on a larger GPU: --gpu NAME"))
            raise CannotRunError(Finding("nothing_fits", "error", "memory", message, (larger,)))
        key = partial(sort_key, rule=rule)
        rows = [fit for fit in map(self._finished, sorted(found, key=key)[:TRACED]) if fit is not None]
        if not rows:
            fastest = min(found, key=lambda fit: fit.plan.time.total_s or math.inf)
            message = tr(
                "Not enough time to train: the fastest, {name} ({method}), takes {whole} for {passes}; you have {time}.",
                name=fastest.model,
                method=tr(METHOD_NAMES[fastest.method]),
                whole=duration(fastest.plan.time.total_s or 0.0),
                passes=passes_words(self.question.passes),
                time=duration(fastest.limit_s or 0.0),
            )
            raise usage_error("no_time", "time", message)
        rows, data = sorted(rows, key=key), rows[0].plan.data
        assert data is not None
        return Fits(tuple(rows), self.question, self.kind, told, data, machine, len(specs))

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

    def _summary(self, config: RunConfig) -> DataSummary:
        """What the data holds, read once for all that count its tokens alike. Chats are not looked at, which takes seconds."""
        joined = joins_texts(config)
        length = config.batch.sequence_length if joined or config.data.too_long == "drop" else 0
        tokenizer = None if config.row_kind == "proteins" else tokenizer_folder(config, Path.cwd())
        data, template = config.data.model_dump_json(), config.model.chat_template
        key = (tokenizer, config.task, data, template, joined, length)
        if key not in self._data:
            self._data[key] = summarize_data(config)
        return self._data[key]

    def _methods(self, spec: ModelSpec) -> list[Method]:
        if default_init(spec) != "pretrained" or self.config.model.init == "scratch":
            return ["full"]
        yours = {key: self.config.value(key) for key in (METHOD, BASE) if self._is_yours(key)}
        able = METHODS_OF[self._task]
        return [one for one in able if all(METHODS[one].get(key, value) == value for key, value in yours.items())]

    def _of(self, spec: ModelSpec, method: Method) -> list[Fit]:
        """The best of what fits of a model and a method; none where nothing does."""
        known, found = self._gathered(spec.name), list[Fit]()
        for length, target in self._lengths(known, method):
            changes = {EPOCHS: self.question.passes, **METHODS[method], LENGTH: length, TARGET: target}
            own = {key: value for key, value in changes.items() if value is not None and not self._is_yours(key)}
            fit = self._planned(known, spec.name, method, own)
            found += [fit] if fit is not None else []
            # A shorter length may do what this one does not: end in time.
            if found and (found[-1].in_time or found[-1].cut >= MOST_CUT or _is_far_too_long(found[-1])):
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
        plan, limit = self._resolved(known, changes), self.question.limit
        memory, cost = plan.memory, limit.cost_of(plan)
        if plan.work is None or memory.verdict not in ("fits", "tight") or not _host_holds(plan):
            return None
        errors = [finding for finding in refusals(plan) if finding.severity == "error"]
        self.refused = self.refused or [finding for finding in errors if finding.code not in TO_INSTALL]
        if any(finding.code not in TO_INSTALL for finding in errors):
            return None
        if limit.cost is not None and cost is None:
            message = tr("The power draw of the machine is unknown: set the price per hour, --per-hour 0.80.")
            raise usage_error("no_price", "--budget", message)
        limit_s, whole = limit.seconds_of(plan), plan.time.total_s
        in_time = limit_s is None or (whole is not None and whole <= limit_s)
        cut = 0.0 if plan.data is None or joins_texts(plan.config) else share_cut(plan.data, plan.config)
        return Fit(model, method, changes, plan, cut, limit_s, in_time, cost)

    def _resolved(self, known: Gathered, changes: Mapping[str, Any]) -> Plan:
        """Without what is said of a plan, which takes longer than the plan."""
        config = known.config.with_values(dict(changes), "you")
        plan = Plan(known.machine, config, asked=config, spec=known.model, data=self._summary(config))
        plan.known, plan.found = self.evidence, known.findings
        return resolve(plan)

    def _finished(self, fit: Fit) -> Fit | None:
        """The row as any front end plans it, ended in time; None where a step takes longer than the limit."""
        changes, limit_s, total_s = dict(fit.changes), fit.limit_s or 0.0, fit.plan.time.total_s or math.inf
        steps = fit.plan.steps or 0
        # A start does not shrink with the steps, so that one cut may not be enough.
        while not fit.in_time and total_s > limit_s:
            steps = int(LESS * steps * limit_s / total_s)
            if steps < 1:
                return None
            changes[STEPS] = steps
            total_s = self._resolved(self._gathered(fit.model), changes).time.total_s or math.inf
        request = self._request(fit.model, changes)
        known = gather_known(request, None, self.here, online=False)
        gathered = with_data(known, self._summary(known.config), ())
        again = replace(fit, changes=changes, plan=self.refiner.plan(gathered), request=request, gathered=gathered)
        return replace(again, cost=self.question.limit.cost_of(again.plan))


def _parameters(spec: ModelSpec) -> float:
    architecture, _ = read_architecture(spec.architecture, spec.task)
    return architecture.parameters if architecture is not None else math.inf


def _is_far_too_long(fit: Fit) -> bool:
    whole = fit.plan.time.total_s
    return whole is None or fit.limit_s is None or whole > FAR_TOO_LONG * fit.limit_s


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
