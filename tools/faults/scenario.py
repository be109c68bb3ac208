"""Scenario: a tiny training that the campaign hurts. All of them are started by the command that users type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

STEPS = 16
SAVE_EVERY = 3
EVALUATE_EVERY = 8

_ALL = {
    "training.max_steps": STEPS,
    "checkpoint.every_steps": SAVE_EVERY,
    "checkpoint.keep": 3,
    "evaluation.every_steps": EVALUATE_EVERY,
    "data.validation_rows": 13,
    "logging.every_steps": 1,
    "logging.report_to": "none",
    "engine.cpu_threads": 1,
}
_ESM = ("--profile", "cpu-demo", "--length", "48")
_LLAMA = (
    "--task", "causal-lm", "--model", "llama-tiny", "--dataset", "sample-text", "--length", "48", "--precision", "fp32",
    "--micro-batch", "4", "--accumulation", "12",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scenario:
    """`choices` are words of the command line; the same choices give the same tensors, bit by bit."""

    name: str
    choices: tuple[str, ...]
    processes: int = 1
    workers: int = 0

    def words(self) -> list[str]:
        values = {**_ALL, "data.workers": self.workers, **_processes(self.processes)}
        return [*self.choices, *(word for key, value in values.items() for word in ("--set", f"{key}={value}"))]


def _processes(count: int) -> Mapping[str, int]:
    return {"engine.processes": count} if count > 1 else {}


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("esm", (*_ESM, "--micro-batch", "6", "--accumulation", "8")),
        Scenario("esm-workers", (*_ESM, "--micro-batch", "6", "--accumulation", "4"), workers=2),
        Scenario("esm-two", (*_ESM, "--micro-batch", "6", "--accumulation", "4", "--strategy", "ddp"), processes=2),
        Scenario("llama", (*_LLAMA, "--set", "model.init=scratch"), workers=2),
        Scenario("esm-zero2", (*_ESM, "--micro-batch", "6", "--accumulation", "4", "--strategy", "zero2"), processes=2),
    )
}
