"""TRAINWIZ_FAULTS: failures on purpose inside the real training, which knows nothing of them.

    TRAINWIZ_FAULTS="oom@7:above=3; nan@12; nccl@5:rank=1:once; slow@9:seconds=3; oom@10:during=evaluation"

`KIND@STEP`, the step (counted from 1) in whose forward pass it happens, then options: `rank=N` (all
ranks without it), `above=M` (only while the micro-batch is larger than M rows), `once` (only in the
first attempt that reaches it; noted in the run folder), `times=N` (no more than N times in a process, where a step is
tried again), `during=evaluation|saving`, `seconds=S`.
Kinds: oom (torch.OutOfMemoryError), host_oom (MemoryError), nan (the loss becomes NaN), nccl
(torch.distributed.DistBackendError), error (ValueError), worker (a loader process is killed),
kill (this process gets SIGKILL), slow, disk (OSError ENOSPC).
"""

from __future__ import annotations

import errno
import functools
import importlib.abc
import importlib.util
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast, get_args

from tests.site import FAULTS_VARIABLE

TRAINER = "trainwiz.core.training.trainer"

Moment = Literal["training", "evaluation", "saving"]
SLOW_S = 1.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One failure on purpose."""

    kind: str
    step: int
    rank: int | None = None
    above: int | None = None
    once: bool = False
    times: int | None = None
    during: Moment = "training"
    seconds: float = SLOW_S

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Raises ValueError for what is no fault."""
        head, *options = (part.strip() for part in text.split(":"))
        kind, at, step = head.partition("@")
        if kind not in KINDS or not at or not step.isdecimal() or int(step) < 1:
            raise ValueError(
                f"{FAULTS_VARIABLE}: {text!r} is no fault; write KIND@STEP, KIND one of {', '.join(KINDS)}"
            )
        values: dict[str, str] = {name: value for name, _, value in (option.partition("=") for option in options)}
        unknown = set(values) - {"rank", "above", "once", "times", "during", "seconds"}
        during = values.get("during", "training")
        if unknown or during not in get_args(Moment):
            raise ValueError(f"{FAULTS_VARIABLE}: {text!r} has an option that is not known")
        return cls(
            kind,
            int(step),
            int(values["rank"]) if "rank" in values else None,
            int(values["above"]) if "above" in values else None,
            "once" in values,
            int(values["times"]) if "times" in values else None,
            cast(Moment, during),
            float(values.get("seconds", SLOW_S)),
        )

    @property
    def note(self) -> str:
        """Name of the file that says that it has happened."""
        return f".fault-{self.kind}-{self.step}-{self.during}" + ("" if self.rank is None else f"-rank{self.rank}")


class Faults:
    """The faults that this process is to have; none in every run that is not a test."""

    def __init__(self, faults: tuple[Fault, ...], folder: Path) -> None:
        rank = int(os.environ.get("RANK", "0"))
        self._faults = tuple(fault for fault in faults if fault.rank in (None, rank))
        self._folder = folder
        self._struck: Counter[Fault] = Counter()

    @classmethod
    def of_environment(cls, folder: Path, environment: Mapping[str, str] = os.environ) -> Faults:
        """Raises ValueError where the variable holds no faults."""
        texts = [text for text in environment.get(FAULTS_VARIABLE, "").split(";") if text.strip()]
        return cls(tuple(Fault.parse(text) for text in texts), folder)

    def strike(self, during: Moment, step: int, micro_batch_size: int) -> bool:
        """Let happen what is due at `step`; raises what the fault is. True when the loss is to become NaN."""
        spoils = False
        for fault in self._faults:
            if (fault.during, fault.step) != (during, step) or micro_batch_size <= (fault.above or 0):
                continue
            if fault.times is not None and self._struck[fault] >= fault.times:
                continue
            if fault.once and self._was_in_another_attempt(fault):
                continue
            self._struck[fault] += 1
            print(f"{FAULTS_VARIABLE}: {fault.kind} at step {step}, {during}", flush=True)
            spoils = fault.kind == "nan" or spoils
            KINDS[fault.kind](fault)
        return spoils

    def _was_in_another_attempt(self, fault: Fault) -> bool:
        """The ranks of one attempt have the same parent."""
        note, attempt = self._folder / fault.note, str(os.getppid())
        try:
            with note.open("x", encoding="ascii") as file:
                file.write(attempt)
        except FileExistsError:
            return note.read_text(encoding="ascii") not in ("", attempt)
        return False


def _out_of_memory(fault: Fault) -> None:
    import torch

    raise torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.12 GiB is "
        "free. Of the allocated memory 21.70 GiB is allocated by PyTorch."
    )


def _host_out_of_memory(fault: Fault) -> None:
    raise MemoryError("cannot allocate 2.00 GiB")


def _nccl(fault: Fault) -> None:
    import torch

    raise torch.distributed.DistBackendError(
        "NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error, NCCL version 2.27.5\n"
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error."
    )


def _error(fault: Fault) -> None:
    raise ValueError("a failure on purpose")


def _worker(fault: Fault) -> None:
    for worker in multiprocessing.active_children()[:1]:
        if worker.pid is not None:
            os.kill(worker.pid, signal.SIGKILL)
            time.sleep(SLOW_S)


def _kill(fault: Fault) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _disk(fault: Fault) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


KINDS: dict[str, Callable[[Fault], None]] = {
    "oom": _out_of_memory,
    "host_oom": _host_out_of_memory,
    "nan": lambda fault: None,
    "nccl": _nccl,
    "error": _error,
    "worker": _worker,
    "kill": _kill,
    "slow": lambda fault: time.sleep(fault.seconds),
    "disk": _disk,
}


class _WhenLoaded(importlib.abc.MetaPathFinder):
    """Waits for the trainer's module, and changes it as soon as it is loaded: torch is imported when the training does it."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name != TRAINER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        load = spec.loader.exec_module

        def load_and_change(module: ModuleType) -> None:
            load(module)
            _change(module)

        spec.loader.exec_module = load_and_change  # type: ignore[method-assign]
        return spec


def strike_when_loaded() -> None:
    """Make the training of this process have the faults of TRAINWIZ_FAULTS."""
    sys.meta_path.insert(0, _WhenLoaded())


def _change(module: Any) -> None:
    trainer, base = module.RunTrainer, module.Trainer
    faults = functools.cache(lambda folder: Faults.of_environment(Path(folder or ".")))
    evaluating: list[Any] = []
    evaluate, sums = trainer.evaluation_loop, module.batch_sums
    compute_loss, save = trainer.compute_loss, base._save_checkpoint

    def evaluation_loop(self: Any, *given: Any, **named: Any) -> Any:
        evaluating[:] = [self]
        return evaluate(self, *given, **named)

    def batch_sums(*given: Any, **named: Any) -> Any:
        own = evaluating[0]
        faults(own.args.output_dir).strike("evaluation", own.state.global_step, own.args.per_device_eval_batch_size)
        return sums(*given, **named)

    def loss(self: Any, *given: Any, **named: Any) -> Any:
        step = self.state.global_step + 1
        spoilt = faults(self.args.output_dir).strike("training", step, self.args.per_device_train_batch_size)
        found = compute_loss(self, *given, **named)
        return found * float("nan") if spoilt else found

    def save_checkpoint(self: Any, *given: Any, **named: Any) -> Any:
        size = self.args.per_device_train_batch_size
        faults(self.args.output_dir).strike("saving", self.state.global_step, size)
        return save(self, *given, **named)

    trainer.evaluation_loop, module.batch_sums = evaluation_loop, batch_sums
    trainer.compute_loss, base._save_checkpoint = loss, save_checkpoint
