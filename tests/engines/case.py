"""Case: one engine on one kind of device, as a test runs it and the table names it."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Literal

Device = Literal["cpu", "cuda", "mps"]
PROCESSES = 2


@dataclass(frozen=True, slots=True)
class Case:
    """What is asked of `trainwiz`."""

    strategy: str
    offload: str
    device: Device

    @property
    def name(self) -> str:
        """The engine as engine.json names it in `actual` and `offload` together, and the device."""
        kept = {"none": "", "optimizer": "+offload", "all": "+offload of all"}
        return f"{self.strategy}{kept[self.offload]} on {self.device}"

    @property
    def actual(self) -> str:
        """What engine.json is to say."""
        return self.strategy if self.offload == "none" else f"{self.strategy}+offload"

    @property
    def offloaded(self) -> tuple[str | None, ...]:
        """What engine.json may say is in host RAM."""
        if self.offload == "none":
            return (None, "none")
        if self.strategy == "fsdp":
            return ("parameters",)
        return ("optimizer+parameters" if self.offload == "all" else "optimizer",)

    @property
    def uses_deepspeed(self) -> bool:
        return self.strategy.startswith("zero")

    def processes(self) -> int:
        """How many are started here."""
        if self.strategy == "single" or self.device == "mps":
            return 1
        if self.device == "cpu":
            return PROCESSES
        import torch

        return max(1, min(PROCESSES, torch.cuda.device_count()))

    def why_not(self) -> str | None:
        """Why this machine cannot run it; None where it can."""
        import torch

        if self.uses_deepspeed and importlib.util.find_spec("deepspeed") is None:
            return "DeepSpeed is not installed (pip install deepspeed)"
        if self.device == "mps" and not torch.backends.mps.is_available():
            return "there is no Apple GPU here"
        if self.device == "cuda" and not torch.cuda.is_available():
            return "there is no NVIDIA GPU here, or torch cannot use it"
        if self.device == "cuda" and self.strategy in ("ddp", "fsdp") and torch.cuda.device_count() < PROCESSES:
            return "there is one NVIDIA GPU here, and this engine needs two"
        return None


ENGINES: tuple[tuple[str, str], ...] = (
    ("single", "none"), ("ddp", "none"), ("zero1", "none"), ("zero1", "optimizer"), ("zero2", "none"),
    ("zero2", "optimizer"), ("zero3", "none"), ("zero3", "optimizer"), ("zero3", "all"), ("fsdp", "none"),
    ("fsdp", "all"),
)  # fmt: skip
CASES: tuple[Case, ...] = (
    *(Case(strategy, offload, "cpu") for strategy, offload in ENGINES),
    *(Case(strategy, offload, "cuda") for strategy, offload in ENGINES),
    Case("single", "none", "mps"),
)
IN_SHORT = frozenset({"single on cpu", "zero3 on cpu", "fsdp on cpu"})
"""Those that `make test` runs, and DDP as two machines (tests/core/nodes); `python -m tests.engines` runs all."""
