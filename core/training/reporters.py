"""Reporters (TensorBoard, Weights & Biases, ...): none of them may end a training."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from trainwiz.core.catalog.hub_cache import is_offline
from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

OFFLINE: Mapping[str, Mapping[str, str]] = {"wandb": {"WANDB_MODE": "offline"}}
"""What makes a reporter write into the run folder instead of to its server."""


class GuardedReporter(TrainerCallback):
    """Passes every event on. What fails is said once in the log, and the training goes on without it.

    A reporter that fails at the start and can write into the run folder instead does so.
    """

    def __init__(self, name: str, make: Callable[[], TrainerCallback]) -> None:
        self._name = name
        self._make = make
        self._inner: TrainerCallback | None = None
        self._attempt(self._create)

    def pass_on(
        self, event: str, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        def call() -> None:
            if self._inner is not None:
                getattr(self._inner, event)(args, state, control, **kwargs)

        self._attempt(call, first=event == "on_train_begin")

    def _create(self) -> None:
        self._inner = self._make()

    def _create_anew(self) -> None:
        # A package that has read its environment reads it again only after this.
        tear_down = getattr(sys.modules.get(self._name), "teardown", None)
        if tear_down is not None:
            tear_down()
        self._create()

    def _attempt(self, call: Callable[[], None], first: bool = False) -> None:
        try:
            call()
            return
        except Exception as error:  # noqa: BLE001 - whatever a reporter does, the training goes on
            problem = error
        offline = {key: value for key, value in OFFLINE.get(self._name, {}).items() if key not in os.environ}
        if first and offline:
            print(f"{self._name} writes into the run folder, for its server cannot be used: {problem}", flush=True)
            os.environ.update(offline)
            self._attempt(self._create_anew)
            self._attempt(call)
            return
        self._inner = None
        print(f"{self._name} failed and reports no more: {type(problem).__name__}: {problem}", flush=True)


def _passing_on(event: str) -> Callable[..., None]:
    def handle(
        self: GuardedReporter, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.pass_on(event, args, state, control, **kwargs)

    return handle


for _event in dir(TrainerCallback):
    if _event.startswith("on_"):
        setattr(GuardedReporter, _event, _passing_on(_event))


def take_reporters(args: TrainingArguments) -> list[GuardedReporter]:
    """The reporters of `args`, which names none afterwards, so that the Trainer adds none of its own.

    Offline (HF_HUB_OFFLINE) they write into the run folder. Raises UsageError for a name that is not known.
    """
    names = [args.report_to] if isinstance(args.report_to, str) else list(args.report_to or [])
    names = [name for name in names if name != "none"]
    unknown = [name for name in names if name not in INTEGRATION_TO_CALLBACK]
    if unknown:
        known = ", ".join(sorted(INTEGRATION_TO_CALLBACK))
        raise usage_error(
            "reporter_not_supported",
            "logging.report_to",
            tr(
                "There is no reporter {names}; transformers reports to {known}, or none (logging.report_to).",
                names=", ".join(unknown),
                known=known,
            ),
        )
    args.report_to = []
    if is_offline():
        for name in names:
            for key, value in OFFLINE.get(name, {}).items():
                os.environ.setdefault(key, value)
    return [_class_of(name)(name, INTEGRATION_TO_CALLBACK[name]) for name in dict.fromkeys(names)]


def _class_of(name: str) -> type[GuardedReporter]:
    """A class for each: the Trainer warns of two callbacks of the same one."""
    return type(f"{GuardedReporter.__name__}_{name}", (GuardedReporter,), {})


def add_reporters(trainer: Trainer, reporters: list[GuardedReporter]) -> None:
    for reporter in reporters:
        trainer.add_callback(reporter)
