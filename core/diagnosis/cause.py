"""Causes, the evidence for them, and a Diagnosis: the cause of an end, its proof, its remedies."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from trainwiz.core.errors import after
from trainwiz.core.language import mark, tr
from trainwiz.core.run.state import read_fields
from trainwiz.core.text import objects_in, plain_text

# Cause: the codes of why a training ended. DESIGN.md names them; programs rely on them.

Cause = Literal[
    "cuda_oom", "host_oom", "disk_full", "nccl_timeout", "nccl_error", "bf16_unsupported",
    "flash_attention_missing", "dataloader_worker_killed", "shared_memory", "deepspeed_mismatch",
    "port_in_use", "nan_loss", "missing_file", "config_mismatch", "gpu_lost", "node_lost", "user_stop",
    "time_limit", "python_error", "unknown",
]  # fmt: skip
CAUSES: tuple[Cause, ...] = get_args(Cause)

Confidence = Literal["high", "medium", "low"]
"""high: a sentence of the framework or the system names the cause; medium: it follows from what
they say; low: one weak clue, or nothing."""


# What each cause is called, for people.

SENTENCES: Mapping[Cause, str] = {
    "cuda_oom": mark("The GPU ran out of memory"),
    "host_oom": mark("The machine ran out of RAM"),
    "disk_full": mark("The disk is full"),
    "nccl_timeout": mark("Communication between the training processes timed out"),
    "nccl_error": mark("Communication between the training processes failed"),
    "bf16_unsupported": mark("This device does not support bf16"),
    "flash_attention_missing": mark("FlashAttention was requested but is not available"),
    "dataloader_worker_killed": mark("A loader worker was killed"),
    "shared_memory": mark("Shared memory (/dev/shm) is too small for the loader workers"),
    "deepspeed_mismatch": mark("The DeepSpeed config does not match the training arguments"),
    "port_in_use": mark("The port for the training processes is already in use"),
    "nan_loss": mark("The loss is NaN or infinite"),
    "missing_file": mark("A file is missing"),
    "config_mismatch": mark("Two settings contradict each other or do not match the model"),
    "gpu_lost": mark("A GPU stopped responding"),
    "node_lost": mark("A node of the run did not join or was lost"),
    "user_stop": mark("The training was stopped on purpose"),
    "time_limit": mark("The job reached the time limit of its scheduler"),
    "python_error": mark("The training stopped"),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log, without what loggers, launchers and terminals put before it."""

    number: int
    """From 1, counted by line feeds as an editor does."""
    text: str
    rank: int | None = None
    is_error: bool = False
    """An exception, or a line that its logger calls an error."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that speaks for a cause."""

    cause: Cause
    confidence: Confidence
    line: Line
    consequence: bool = False
    """It may come of the failure of another process: a lost connection, a wait without an end."""
    during: str | None = None


KEPT_TAIL = 5


@dataclass(slots=True)
class LogFacts:
    """All that `diagnose` needs of a log."""

    source: str = "log"
    """Name of the file, for proofs."""
    lines: int = 0
    hits: list[Hit] = field(default_factory=list)
    """In their order; `python_error` is an exception that speaks for no other cause. What the training survived is not among them."""
    signals: list[tuple[str, Line]] = field(default_factory=list)
    """(name of the signal, line) of processes that were ended by one, in order."""
    root: Line | None = None
    """The line of torchrun's table with the rank that it calls the first failure."""
    finished: Line | None = None
    """The line that says that the training finished, where nothing was trained after it."""
    not_finite: Line | None = None
    """The last line of metrics, where its loss is NaN or infinite."""
    step: int | None = None
    """Last step that the log names."""
    tail: deque[Line] = field(default_factory=lambda: deque(maxlen=KEPT_TAIL))
    """The last lines that are not empty."""

    def rank_of(self, line: Line) -> int | None:
        """Lines without a prefix are those of the process that torchrun saw fail first, where no other is known."""
        return self.root.rank if line.rank is None and self.root is not None else line.rank

    def proof(self, line: Line) -> Proof:
        text = line.text.strip()
        if line.rank is not None and "rank" not in text.lower():
            text = f"rank {line.rank}: {text}"
        return Proof(line.number, clean(text), self.source)


# Evidence: all that is known about an end, as plain values; `diagnose` reads nothing else.

OWN_ERRORS = frozenset({"UsageError", "CannotRunError", "TrainwizError"})


@dataclass(frozen=True, slots=True)
class Failure:
    """What failure-rank<N>.json says."""

    rank: int = 0
    type: str = "Exception"
    message: str = ""
    traceback: str = ""
    time_s: float = math.inf
    step: int | None = None
    codes: tuple[str, ...] = ()
    """Codes of the findings, where the error is one of trainwiz."""
    phase: str | None = None
    """What the process was at (core.run.attempts.Phase), where it says so."""

    @property
    def is_own(self) -> bool:
        """An error of trainwiz itself: a whole sentence, not a foreign exception."""
        return bool(self.codes) or self.type in OWN_ERRORS

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Failure:
        """Takes what is there: the file may come from a process that was dying."""
        codes = [str(finding.get("code")) for finding in objects_in(document.get("findings"))]
        return cls(**read_fields(cls, {**document, "codes": codes}))


@dataclass(frozen=True, slots=True)
class Settings:
    """What remedies need to know of the run; None where it is not known."""

    micro_batch: int | None = None
    accumulation: int | None = None
    workers: int | None = None
    sequence_length: int | None = None
    learning_rate: float | None = None
    precision: str | None = None
    checkpointing: bool | None = None
    again: tuple[str, ...] = ()
    """Arguments after `trainwiz` that plan the same run anew; empty where they are not known."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known when a training has ended. All of it may be absent."""

    run: str | None = None
    """The name that commands take, quoted for a shell; None for a log from elsewhere."""
    exit_code: int | None = None
    """Of the launcher; negative when a signal ended it."""
    failures: tuple[Failure, ...] = ()
    log: LogFacts = field(default_factory=LogFacts)
    oom_kills: int | None = None
    """Processes that the kernel killed for memory in this container while the training ran; None: nobody could ask it."""
    disk_free_bytes: int | None = None
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True, slots=True)
class Proof:
    """One thing that was found. `text` is plain (no control characters) and not endless."""

    line: int | None
    """Of the file `source`, from 1; None where it is no line of a file."""
    text: str
    source: str
    """Name of the log or file, "failure-rank0.json", "kernel", "state.json", ..."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One thing to do. `command` can be pasted into a shell; None where there is none for it."""

    text: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a training ended, or what ails it."""

    cause: Cause | None
    """None: nothing failed (it finished, runs, or was never started); `message` says which."""
    confidence: Confidence
    message: str
    """Whole sentences."""
    evidence: tuple[Proof, ...] = ()
    """What proves the cause; the first is the strongest."""
    remedies: tuple[Remedy, ...] = ()
    """The best first."""
    step: int | None = None
    """Last optimizer step that was finished before it, where that is known."""
    rank: int | None = None
    """Global rank that failed first, where that is known."""
    signal: str | None = None
    """Name of the signal that ended a training process or the launcher from outside, like "SIGKILL"."""
    during: str | None = None
    """"evaluation", "saving" or "loading" where the failure says so; None: the training itself, or not known."""

    @property
    def remedy(self) -> str:
        """The remedies as one text, for state.json."""
        return " ".join(f"{one.text} {one.command or ''}".strip() for one in self.remedies[:1])

    @property
    def proofs(self) -> tuple[str, ...]:
        """The texts of the evidence alone, for state.json."""
        return tuple(proof.text for proof in self.evidence)

    def to_json(self) -> dict[str, Any]:
        """What `trainwiz diagnose --json` prints."""
        return asdict(self)


# The words of a diagnosis: whole sentences, made harmless for a terminal.

LONGEST_EVIDENCE = 300
LONGEST_SAID = 160


def clean(text: str, limit: int = LONGEST_EVIDENCE) -> str:
    """Foreign text for one line of a terminal: no control characters, no endless length."""
    return plain_text(text.strip(), limit)


def of_cause(cause: Cause, said: str = "", step: int | None = None) -> str:
    """The cause in a sentence; `said` is what the framework or the exception said, `step` the last one that was made."""
    text = tr(SENTENCES[cause])
    if step is not None:
        text = tr("{cause} after step {step}", cause=text, step=step)
    if cause == "python_error":
        text = tr("{cause} with {error}", cause=text, error=clean(said))
    elif said := clean(said, LONGEST_SAID).rstrip("."):
        text = tr("{cause} ({said})", cause=text, said=said)
    return text if text.endswith((".", "!", "?", "。", "！", "？")) else tr("{sentence}.", sentence=text)


def signal_words(signal: str, *, launcher: bool = False, kernel_told: bool = False) -> str:
    """A process that a signal ended. `kernel_told`: the kernel was asked, and has not killed it for memory."""
    if launcher:
        return tr(
            "The launcher was terminated by an external {signal}; the training processes ended with it.", signal=signal
        )
    if signal in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"):
        return tr("A training process crashed in native code ({signal}).", signal=signal)
    said = tr("A training process was terminated by an external {signal}.", signal=signal)
    if signal != "SIGKILL":
        return said
    if kernel_told:
        return said + after(tr("According to the kernel, lack of memory was not the cause."))
    return said + after(tr("The usual cause is lack of RAM."))
