"""What a keeper is to start, and what follows a failure: another start with changes, or the end. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trainwiz.core.language import tr
from trainwiz.core.run.attempts import ACCUMULATION, MICRO
from trainwiz.core.run.lost import ProcessId
from trainwiz.core.run.state import read_object

EVALUATION_MICRO = "batch.eval_micro_batch_size"
WORKERS = "data.workers"
OVERFIT_BATCHES = "mode.overfit_batches"

FIRST_WAIT_S = 2.0
LONGEST_WAIT_S = 60.0
KILLING_SIGNALS = frozenset({"SIGKILL", "SIGTERM", "SIGHUP", "SIGINT"})
"""With these a process is ended from outside; the others are those of a process that crashed."""
PASSING = frozenset({"nccl_error", "nccl_timeout", "port_in_use", "node_lost"})


@dataclass(frozen=True, slots=True)
class Setup:
    """What of a run a new start may change, and how often it may start: the RunConfig of the present attempt as plain values."""

    on: bool
    max_restarts: int
    micro_batch_size: int
    gradient_accumulation_steps: int
    eval_micro_batch_size: int | None
    workers: int
    overfit_batches: int | None = None

    def changed(self, changes: Mapping[str, Any]) -> Setup:
        """As the next attempt has it; `changes` are those of a Retry."""
        return replace(self, **{key.rpartition(".")[2]: value for key, value in changes.items()})


@dataclass(frozen=True, slots=True)
class StartOrder:
    """What a front end hands to the keeper that it starts, as JSON on the keeper's stdin: the keeper never has to load
    the configuration itself."""

    command: list[str]
    """The launcher with its arguments; it runs in the run folder, and the keeper adds --resume."""
    mark: str
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that are added to those of the front end."""
    system_every_s: float = 1.0
    resume: str | None = None
    """None from the beginning, "auto" the newest complete checkpoint, else the name of one."""
    owner: ProcessId | None = None
    """The foreground command that the run is tied to: the run is stopped when it is gone."""
    setup: Setup | None = None
    """What a start by itself may change; None: the keeper never starts the training again."""
    renew: list[str] = field(default_factory=list)
    """The command that writes the exported files again for changed settings and prints the launcher's `command` and
    `environment` as JSON; none: the next attempt is started as this one was."""

    accept: list[str] = field(default_factory=list)
    """Parts of the run's identity that may differ from its record (core.run.identity)."""

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> StartOrder:
        """Raises ValueError, TypeError or KeyError when the text is not an order."""
        document: dict[str, Any] = json.loads(text)
        owner = read_object(ProcessId, document["owner"])
        setup = document["setup"] and Setup(**document["setup"])
        return cls(**{**document, "owner": owner, "setup": setup})


@dataclass(frozen=True, slots=True)
class Situation:
    """A failure, and what led to it."""

    setup: Setup
    during: str | None = None
    """"evaluation", "saving" or "loading"; None: the training itself, or not known."""
    killed_by: str | None = None
    """Name of the signal with which somebody outside ended a process of the training."""
    starts: int = 0
    """Starts by itself since the last one that gained a checkpoint; those with a smaller batch do not count."""
    changed_keys: frozenset[str] = frozenset()
    """What earlier starts by itself have changed."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Start again from the newest complete checkpoint."""

    changes: dict[str, Any]
    """Key path -> value: new ones."""
    wait_s: float = 0.0
    counts: bool = True
    """Whether it is one of `recovery.max_restarts`: a batch cannot become smaller for ever."""


@dataclass(frozen=True, slots=True)
class End:
    """It stays ended. `why` is one sentence."""

    why: str


def decide(cause: str, situation: Situation) -> Retry | End:
    """What follows a failure of this cause (one of core.diagnosis)."""
    setup = situation.setup
    if not setup.on or setup.max_restarts == 0:
        return End(tr("trainwiz does not restart it automatically: recovery.on is off or recovery.max_restarts is 0."))
    if cause == "cuda_oom":
        return _smaller_evaluation(setup) if situation.during == "evaluation" else _smaller_batch(setup)
    retry = _same_again(cause, situation)
    if isinstance(retry, Retry) and situation.starts >= setup.max_restarts:
        return End(
            tr(
                "It was restarted {count} times without a new checkpoint (recovery.max_restarts); it is not "
                "restarted again.",
                count=situation.starts,
            )
        )
    return retry


def _smaller_batch(setup: Setup) -> Retry | End:
    micro = next_smaller(setup.micro_batch_size, setup.gradient_accumulation_steps, setup.overfit_batches)
    if micro is None:
        return End(
            tr("The micro-batch is already one row: it cannot be reduced, and the effective batch is not changed.")
        )
    rows = setup.micro_batch_size * setup.gradient_accumulation_steps
    changes: dict[str, Any] = {MICRO: micro, ACCUMULATION: rows // micro}
    if setup.overfit_batches is not None:
        # The same few rows, in more batches.
        changes[OVERFIT_BATCHES] = setup.overfit_batches * setup.micro_batch_size // micro
    return Retry(changes, counts=False)


def next_smaller(
    micro_batch_size: int, gradient_accumulation_steps: int, overfit_batches: int | None = None
) -> int | None:
    """The micro-batch to try next, with which micro-batch x accumulation stays exactly what it is; None below 1.

    Half of an even one, for each start costs minutes and half is sure to be felt; else the largest smaller one that
    divides the product. `overfit_batches` x micro-batch stays too: these are the rows that an overfit run repeats.
    """
    if micro_batch_size % 2 == 0:
        return micro_batch_size // 2
    rows = micro_batch_size * gradient_accumulation_steps
    repeated = micro_batch_size * (overfit_batches or gradient_accumulation_steps)
    return next((micro for micro in range(micro_batch_size - 1, 0, -1) if rows % micro == repeated % micro == 0), None)


def _smaller_evaluation(setup: Setup) -> Retry | End:
    now = setup.eval_micro_batch_size or setup.micro_batch_size
    if now == 1:
        return End(tr("The evaluation batch is already one row: it cannot be reduced."))
    return Retry({EVALUATION_MICRO: now // 2}, counts=False)


def _same_again(cause: str, situation: Situation) -> Retry | End:
    """For what passes, or passes with fewer loader processes."""
    wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**situation.starts)
    workers = situation.setup.workers
    if cause == "dataloader_worker_killed" and workers > 0:
        return Retry({WORKERS: workers // 2}, wait_s)
    if cause == "host_oom":
        if workers > 0 and WORKERS not in situation.changed_keys:
            return Retry({WORKERS: workers // 2}, wait_s)
        return End(tr("A restart would need as much RAM again; it is not restarted automatically."))
    if cause == "user_stop":
        return End(tr("It was ended from outside; it is not restarted automatically."))
    if cause == "node_lost" and situation.during == "loading":
        return End(tr("It already waited for the other nodes once; it is not restarted automatically."))
    if cause in PASSING or (cause == "unknown" and situation.killed_by in KILLING_SIGNALS):
        return Retry({}, wait_s)
    return End(tr("A restart would fail in the same way; it is not restarted automatically."))
