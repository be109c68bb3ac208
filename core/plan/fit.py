"""What can be trained with a card, some data and a time: the question, its rows, and the rules that rank them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from trainwiz.core.config.request import PlanRequest
from trainwiz.core.config.values import Task
from trainwiz.core.data.detect import RowsKind, RowsTold
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.language import mark, trn
from trainwiz.core.plan.engine import BASE, METHOD
from trainwiz.core.plan.gather import Gathered
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.words import plan_command

# What is asked.

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
EPOCHS = "training.epochs"
PASSES = 3.0
MOST_CUT = 0.1
"""Of the rows; a length that cuts more is taken where no other fits, and never for the time."""
TRACED = 10


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
    most: int = TRACED
    """Rows; each model and method once. 0: every length and rank of each."""

    @property
    def passes(self) -> float:
        passes = float(self.request.overrides.get(EPOCHS) or PASSES)
        return int(passes) if passes.is_integer() else passes


# What is answered.


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
        return plan_command(self.plan.config, self.plan.machine, None, {})

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
    """Smaller is better: the group, then what the rule says."""
    time, group = fit.plan.time, group_of(fit)
    seen = -round(fit.passes, 2) if group == 2 else 0.0
    cut, seconds = round(fit.cut, 2), time.total_s or math.inf
    tie = (cut, list(METHODS).index(fit.method), -(fit.rank or 0), seconds)
    if rule == "fastest":
        return group, seen, seconds, -fit.parameters, *tie
    if rule == "cheapest":
        energy = time.energy_high_kwh
        price = fit.cost[1] if fit.cost is not None else seconds if energy is None else energy
        return group, seen, price, -fit.parameters, *tie
    return (group, seen, cut, -fit.parameters, *tie) if rule == "uncut" else (group, seen, -fit.parameters, *tie)


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
        return replace(self, rows=tuple(sorted(rows, key=lambda fit: sort_key(fit, self.question.rule))))


def passes_words(passes: float) -> str:
    return trn("{passes} epoch", "{passes} epochs", 1 if passes == 1 else 2, passes=f"{passes:g}")
