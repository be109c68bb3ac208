"""Snapshot: everything that one look at a training tells, as one frozen value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from trainwiz.core.language import tr
from trainwiz.core.lines import JsonLinesTail
from trainwiz.core.run.attempts import ACCUMULATION, MICRO, Advice, PhaseNow
from trainwiz.core.run.state import Attempt
from trainwiz.core.telemetry.log import LogLine
from trainwiz.core.telemetry.metrics import EMPTY_CURVE, NO_PACE, Curve, MetricSummary, Pace
from trainwiz.core.text import numbers_finite, object_in, text_in, whole_in

if TYPE_CHECKING:
    from trainwiz.core.diagnosis.cause import Diagnosis
    from trainwiz.core.telemetry.machine import Saves


SourceKind = Literal["run", "trainer", "tensorboard", "process"]
Action = Literal["stop", "stop_now", "resume", "plan", "command", "model"]


BATCH_KEYS = ("micro_batch", "accumulation", "world_size", "effective_samples", "effective_tokens")
TIME_KEYS = ("step_s", "step_low_s", "step_high_s", "total_s")
MEMORY_KEYS = {
    "memory_bytes": "device_used_bytes", "memory_low_bytes": "low_bytes", "memory_high_bytes": "high_bytes",
    "host_ram_bytes": "host_ram_bytes",
}  # fmt: skip
"""As they are called here, and in plan.json."""
PLAIN_KEYS = (
    "source", "path", "name", "status", "step", "max_steps", "epoch", "eta_s", "peak_memory_bytes", "command",
    "replayed_s", "behind",
)  # fmt: skip
ATTEMPT_KEYS = ("number", "status", "started_s", "ended_s", "resume", "because", "signal", "changes", "not_retried")


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds memory of a GPU."""

    pid: int
    name: str | None
    memory_used_bytes: int | None
    mine: bool
    """Whether it belongs to the job that is looked at."""
    kind: Literal["compute", "graphics"] = "compute"


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The newest sample of one GPU, with its recent past for small charts. None is what could not be read."""

    index: int
    name: str = "GPU"
    uuid: str | None = None
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    job_memory_bytes: int | None = None
    """What the processes of this run hold of it."""
    problem: str | None = None
    """Why the card could not be read at all."""
    utilization_history: tuple[float | None, ...] = ()
    temperature_history: tuple[float | None, ...] = ()
    power_history: tuple[float | None, ...] = ()
    fan_percent: float | None = None
    clock_mhz: float | None = None
    """Clock of the streaming multiprocessors now."""
    clock_limit_mhz: float | None = None
    """The highest that the card is made for."""
    mig: str | None = None
    """"enabled" on a partitioned card, the profile ("1g.10gb") on a slice."""
    processes: tuple[GpuProcess, ...] = ()
    idle_since_s: float | None = None
    """Unix time since which the card has done nothing."""
    sample: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_slice(self) -> bool:
        """A MIG slice: it stands beside its card, and is none itself."""
        return self.mig not in (None, "enabled", "disabled")

    @property
    def computing(self) -> list[int]:
        """The processes that compute on it."""
        return [process.pid for process in self.processes if process.kind == "compute"]


def without_parents(gpus: Iterable[GpuReading]) -> list[GpuReading]:
    """What computes: a card, or its slices in its place, whose figures a partitioned card would count again."""
    gpus = list(gpus)
    sliced = {gpu.index for gpu in gpus if gpu.is_slice}
    return [gpu for gpu in gpus if gpu.is_slice or gpu.index not in sliced]


@dataclass(frozen=True, slots=True)
class HostReading:
    """The machine. Bytes, percent of all cores, seconds."""

    ram_used_bytes: int | None = None
    ram_total_bytes: int | None = None
    cpu_percent: float | None = None
    disk_free_bytes: int | None = None
    disk_lasts_s: float | None = None
    """How long the free disk lasts at the pace of the last minutes; None where it does not shrink steadily."""
    ram_lasts_s: float | None = None
    """How long the free RAM lasts likewise."""
    cpu_history: tuple[float | None, ...] = ()
    sample: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """One process of the run. `cpu_percent` is of one core."""

    pid: int | None
    role: str
    rss_bytes: int | None
    cpu_percent: float | None
    sample: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Planned:
    """What plan.json predicted, as far as the monitor compares it."""

    memory_bytes: int | None = None
    """Peak use of the device as nvidia-smi would show it."""
    memory_low_bytes: int | None = None
    memory_high_bytes: int | None = None
    host_ram_bytes: int | None = None
    step_s: float | None = None
    step_low_s: float | None = None
    step_high_s: float | None = None
    total_s: float | None = None
    steps: int | None = None
    micro_batch: int | None = None
    """This and accumulation as they are now: recovery may have changed them, at the same effective batch."""
    accumulation: int | None = None
    world_size: int | None = None
    effective_samples: int | None = None
    effective_tokens: int | None = None
    model: str | None = None
    device: str | None = None


def read_planned(plan: Mapping[str, Any]) -> Planned:
    """From the document of plan.json; whatever is missing or of another type is None."""
    memory, time, batch, model = (object_in(plan.get(key)) for key in ("memory", "time", "batch", "model"))
    seconds: dict[str, Any] = {name: numbers_finite(time.get(name)) for name in TIME_KEYS}
    counts: dict[str, Any] = {name: whole_in(batch.get(name)) for name in BATCH_KEYS}
    sizes: dict[str, Any] = {name: whole_in(memory.get(key)) for name, key in MEMORY_KEYS.items()}
    steps, name, device = whole_in(time.get("steps")), text_in(model.get("name")), text_in(memory.get("device"))
    return Planned(steps=steps, model=name, device=device, **seconds, **counts, **sizes)


def with_changes(planned: Planned, changes: Mapping[str, Any]) -> Planned:
    """The batch as it is now; `changes` are those of recovery. The time stays as planned; of memory nothing was."""
    micro = whole_in(changes.get(MICRO)) or planned.micro_batch
    accumulation = whole_in(changes.get(ACCUMULATION)) or planned.accumulation
    now = replace(planned, micro_batch=micro, accumulation=accumulation)
    if micro == planned.micro_batch:
        return now
    return replace(now, memory_bytes=None, memory_low_bytes=None, memory_high_bytes=None, host_ram_bytes=None)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended, in one sentence, with what to do next."""

    text: str
    remedy: str | None = None
    command: str | None = None
    cause: str | None = None


def finished_words(place: str | None, first_loss: float | None, last_loss: float | None) -> str:
    """The sentence of a training that reached its end. `place`: as `step_words` says it."""
    if place is None:
        return tr("Finished.")
    if first_loss is None or last_loss is None:
        return tr("Finished at {place}.", place=place)
    return tr("Finished at {place}, loss {losses}.", place=place, losses=f"{first_loss:.4g} → {last_loss:.4g}")


def computes_on_cpu(engine: Mapping[str, Any]) -> bool:
    """Whether the engine record of a run says CPU: as read inside the process, before that as planned."""
    planned = engine.get("planned_values")
    return (engine.get("device") or (planned.get("device") if isinstance(planned, Mapping) else None)) == "cpu"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at a run."""

    source: SourceKind
    path: str
    name: str
    status: str
    time_s: float
    """When the look was taken (Unix time)."""
    step: int | None = None
    max_steps: int | None = None
    epoch: float | None = None
    eta_s: float | None = None
    command: str | None = None
    """Command line of a job that was started elsewhere, secrets left out."""
    started_s: float | None = None
    ended_s: float | None = None
    written_s: float | None = None
    """When files of another tool's job were last written, which tells nothing of its end."""
    pace: Pace = NO_PACE
    metrics: Mapping[str, MetricSummary] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    """Curves of the metrics that were asked for."""
    non_finite_steps: tuple[float, ...] = ()
    """The first steps at which the loss was not a number."""
    logged_s: float | None = None
    """Of a run: Unix time of its newest row of metrics, and its usual pause between two."""
    pause_s: float | None = None
    gpus: tuple[GpuReading, ...] = ()
    host: HostReading = field(default_factory=HostReading)
    processes: tuple[ProcessReading, ...] = ()
    job_cpu_history: tuple[float | None, ...] = ()
    """CPU of all processes of the run together, percent of one core."""
    peak_memory_bytes: int | None = None
    """The highest use of the device that the plan speaks of, as far as samples saw it."""
    unavailable: Mapping[str, str] = field(default_factory=dict)
    planned: Planned = field(default_factory=Planned)
    engine: Mapping[str, Any] = field(default_factory=dict)
    saves: Saves | None = None
    """What the run still writes to its disk, where that is known."""
    heartbeat_s: float | None = None
    """When the keeper of a run said its last word (Unix time)."""
    attempts: tuple[Attempt, ...] = ()
    """Every start of the training, the first one first."""
    attempt_words: str = ""
    """The newest attempt, why there is one and how it differs from the plan; empty for a first one as planned."""
    phase: PhaseNow | None = None
    """What the training does now, while it says so."""
    ending: Ending | None = None
    diagnosis: Diagnosis | None = None
    """Of a job of another tool: what `trainwiz diagnose` says of its log, where that names a cause."""
    answers: tuple[PromptAnswers, ...] = ()
    """What the model said to each prompt."""
    advice: tuple[Advice, ...] = ()
    log: tuple[LogLine, ...] = ()
    log_path: str | None = None
    """Where all of the log lies; None where this kind of source has none."""
    read_from: tuple[str, ...] = ()
    """The files that the metrics come from, for sources that had to look for them."""
    actions: frozenset[Action] = frozenset()
    """What can be done to the run from here, now."""
    replayed_s: float | None = None
    """Of a replay: the moment of the run (Unix time) that this look shows."""
    replay_speed: float | None = None
    """Of a replay: seconds of the run in one second; 0 while it pauses."""
    problems: tuple[str, ...] = ()
    """Files that are there and could not be read, one sentence each."""
    behind: bool = False
    """True while older lines are still being read; until then figures, counts and curves are of a part of them."""
    read_share: float = 1.0
    """Of the bytes of its files, while `behind`."""

    @property
    def used_gpus(self) -> tuple[GpuReading, ...]:
        """The GPUs that matter to this run: none where it computes on the CPU, whatever cards the machine has."""
        return () if computes_on_cpu(self.engine) else self.gpus

    @property
    def not_retried(self) -> str | None:
        """Of a run that has ended: one sentence why trainwiz did not start it again by itself."""
        return self.attempts[-1].not_retried if self.ending is not None and self.attempts else None

    @property
    def job_rss_bytes(self) -> int | None:
        sizes = [process.rss_bytes for process in self.processes if process.rss_bytes is not None]
        return sum(sizes) if sizes else None

    @property
    def left_s(self) -> float | None:
        return self.pace.left_s(self.step, self.max_steps)

    def curve(self, name: str) -> Curve:
        return self.curves.get(name, EMPTY_CURVE)

    def to_json(self) -> dict[str, Any]:
        """The document of `trainwiz monitor --once --json`."""
        return {
            **{name: getattr(self, name) for name in PLAIN_KEYS},
            "step_s": self.pace.step_s,
            "pace": asdict(self.pace),
            "planned": asdict(self.planned),
            "metrics": {name: summary.to_json() for name, summary in self.metrics.items()},
            "gpus": [dict(gpu.sample) for gpu in self.gpus],
            "host": {**self.host.sample, "disk_lasts_s": self.host.disk_lasts_s},
            "processes": [dict(process.sample) for process in self.processes],
            "unavailable": dict(self.unavailable),
            "engine": dict(self.engine),
            "exit": None
            if self.ending is None
            else {"cause": self.ending.cause, "message": self.ending.text, "remedy": self.ending.remedy},
            "diagnosis": None if self.diagnosis is None else self.diagnosis.to_json(),
            "attempts": [{name: getattr(attempt, name) for name in ATTEMPT_KEYS} for attempt in self.attempts],
            "phase": None if self.phase is None else asdict(self.phase),
            "answers": [prompt.to_json() for prompt in self.answers],
            "advice": [advice.to_json() for advice in self.advice],
            "problems": list(self.problems),
            "read_share": round(self.read_share, 4),
            "read_from": list(self.read_from),
        }


# What the model said to each prompt, step by step: generations.jsonl as far as it was read.


MOST_STEPS = 200
"""Of each prompt the first answer and the newest ones are kept."""
MOST_PROMPTS = 16


@dataclass(frozen=True, slots=True)
class Answer:
    """What was said at a step; step 0 is before the training."""

    step: int
    text: str
    ended: bool
    """By itself, and not because it reached the longest length."""


@dataclass(frozen=True, slots=True)
class PromptAnswers:
    """One prompt, and its answers with the oldest first; there is at least one."""

    source: str
    reference: str | None
    """What the data answers."""
    answers: tuple[Answer, ...]

    @property
    def first(self) -> Answer:
        return self.answers[0]

    @property
    def newest(self) -> Answer:
        return self.answers[-1]

    def to_json(self) -> dict[str, Any]:
        """Of the monitor's document: the two that matter, and at which steps there are others."""
        return {
            "source": self.source,
            "reference": self.reference,
            "first": asdict(self.first),
            "newest": asdict(self.newest),
            "steps": [answer.step for answer in self.answers],
        }


class AnswersFile:
    """Answers to the prompts of a run, and the texts that it generated for BLEU."""

    def __init__(self, tail: JsonLinesTail) -> None:
        self._tail = tail
        self._prompts: dict[tuple[str, int], PromptAnswers] = {}

    def read(self) -> tuple[PromptAnswers, ...]:
        """All so far, in the order in which they were first asked."""
        rows = self._tail.read_new()
        if self._tail.began_anew:
            self._prompts.clear()
        for row in rows:
            self._take(row)
        return tuple(prompt for prompt in self._prompts.values() if prompt.answers)

    def _take(self, row: Mapping[str, Any]) -> None:
        since = whole_in(row.get("resumed_from"))
        if since is not None:
            for key, prompt in self._prompts.items():
                kept = tuple(answer for answer in prompt.answers if 0 < since >= answer.step)
                self._prompts[key] = replace(prompt, answers=kept)
            return
        step, kind = whole_in(row.get("step")), "prompt" if "prompt" in row else "row"
        number, text = whole_in(row.get(kind)), row.get("generation")
        if step is None or number is None or text is None:
            return
        before = self._prompts.get((kind, number))
        if before is None and len(self._prompts) >= MOST_PROMPTS:
            return
        answers = [answer for answer in before.answers if answer.step < step] if before else []
        # A text that reads as a number that JSON does not have comes back as one.
        answers.append(Answer(step, str(text), row.get("ended") is not False))
        if len(answers) > MOST_STEPS:
            del answers[1]
        reference = row.get("reference")
        source, known = str(row.get("source", "")), None if reference is None else str(reference)
        self._prompts[kind, number] = PromptAnswers(source, known, tuple(answers))
