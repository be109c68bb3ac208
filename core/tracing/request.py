"""What is asked of a trace, what comes back, and the answers that are kept."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import platformdirs
from trainwiz.core.estimate.workload import HALF, KINDS, Moment, Workload
from trainwiz.core.files import open_file, read_small
from trainwiz.core.run.folder import write_atomic
from trainwiz.core.text import parse_json, plain_text

# What a trace depends on besides its request: versions of libraries and of the traced code. Without importing either.

LIBRARIES = ("torch", "transformers", "accelerate", "peft", "bitsandbytes")
TRACED_CODE = ("estimate/trace", "training")
"""Folders of trainwiz.core: the tracer, and the training that it traces."""
FORMAT = "2"
"""Of what stands in the cache."""


@cache
def trace_versions() -> dict[str, str]:
    """Name -> version, "" for what is not installed. A trace made with other ones is not used."""
    return {**{name: _version(name) for name in LIBRARIES}, "code": _code_digest(), "format": FORMAT}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except (metadata.PackageNotFoundError, OSError):
        return ""


def _code_digest() -> str:
    """Of the sources themselves: an editable install changes without a new version."""
    core = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256(_version("trainwiz").encode())
    for folder in TRACED_CODE:
        for file in sorted((core / folder).glob("*.py")):
            try:
                digest.update(file.name.encode() + b"\0" + read_small(file))
            except OSError:
                continue
    return digest.hexdigest()[:16]


# TraceRequest: everything that the memory of one training process depends on.

MOST_ACCUMULATION = 2
"""More micro-batches add nothing: the second already meets the gradients of the first."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One process, before strategies share its states out (core/estimate/memory.py does that). Hashable; made of JSON values."""

    model_config: str
    """Hugging Face config as JSON with sorted keys."""
    task: str
    micro_batch: int
    length: int
    target_length: int
    accumulation: int
    precision: str
    half_weights: bool
    """Weights and gradients themselves are held in the half format (DeepSpeed, bf16-true, a LoRA base)."""
    attention: str
    checkpointing: bool
    optimizer: str
    lora_rank: int
    lora_targets: tuple[str, ...]
    lora_dropout: bool
    loss_chunk: int | None
    label_smoothing: bool
    clipping: bool
    eval_micro_batch: int
    device: str
    """ "cuda" is imitated; "cpu" and "mps" are traced as they are."""
    deepspeed: bool = False
    """DeepSpeed holds and computes everything in the half format by itself, without autocast, adapters too."""
    padded: bool = True
    """Rows of a batch are filled up to the longest, so that models make a mask."""
    strategy: str = "single"
    """Which states processes share out, for the replay; all moments are of one process with all of them."""
    world_size: int = 1
    lengths: tuple[int, ...] = ()
    """Quantiles, from 0 to 1, of the longest row of what begins a step: the replay meets them in some order.
    Empty where they are not known."""
    dora: bool = False
    modules_to_save: tuple[str, ...] = ()
    base_precision: str = "none"
    """Of the frozen base of adapters: "nf4", "int8", or "none" for that of the rest."""

    @classmethod
    def of(cls, work: Workload) -> TraceRequest | None:
        """None where there is no config to build a model from."""
        if not work.model_config or work.packed:
            return None
        same = {field.name: getattr(work, field.name) for field in fields(cls) if hasattr(work, field.name)}
        special = {
            "target_length": work.target_length if work.architecture.kind == "encoder-decoder" else 0,
            "accumulation": min(work.accumulation, MOST_ACCUMULATION),
            "half_weights": work.formats.weights == HALF,
            "strategy": work.strategy if work.shares_states else "single",
            "world_size": work.world_size if work.shares_states else 1,
            "lengths": work.step_lengths,
        }
        return cls(**{**same, **special})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TraceRequest:
        given: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in values.items()}
        return cls(**given)

    def key(self, versions: dict[str, str]) -> str:
        """Name of its place in the cache: a digest of the request and of the libraries that are traced."""
        text = json.dumps([self.to_json(), versions], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


# What a trace says: the fullest point of each phase.

ProblemCode = Literal[
    "unknown_model", "remote_code", "invalid_config", "unsupported", "timeout", "worker_died", "worker_missing"
]


@dataclass(frozen=True, slots=True)
class Replay:
    """Bytes of torch's allocator, replayed over the run's steps in several orders of their lengths."""

    allocated: int
    """The most that was allocated in it."""
    low: int
    """Reserved, of the order that reserves least; the one in the middle; the most."""
    likely: int
    high: int
    held: int
    """The most in segments that are in use, in any order: torch gives the others back before it fails."""

    def factor(self, size: int) -> float:
        """Of one of these over what was allocated."""
        return max(1.0, size / max(1, self.allocated))


@dataclass(frozen=True, slots=True)
class TraceResult:
    """Bytes of one process before strategies share its states out. Moments are in the order of the step."""

    training: tuple[Moment, ...]
    """The fullest point of each phase of the second optimizer step (states exist by then)."""
    evaluation: tuple[Moment, ...]
    """Likewise of evaluating; empty where nothing is held out."""
    parameters: int
    trainable_parameters: int
    replay: Replay | None = None
    """Over training and evaluation; None where no CUDA allocator is."""

    @property
    def allocated_bytes(self) -> int:
        return max(moment.bytes for moment in self.training)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any) -> TraceResult:
        """Of another process or a file: ValueError for anything that is no trace."""
        result: TraceResult = _reader().validate_python(values)
        moments = [moment.parts for moment in (*result.training, *result.evaluation)]
        counts = [size for parts in moments for size in parts.values()]
        counts += [result.parameters, result.trainable_parameters]
        counts += [] if result.replay is None else asdict(result.replay).values()
        known = bool(result.training) and all(parts.keys() <= set(KINDS) for parts in moments)
        if not known or not all(0 <= count < MOST_COUNT for count in counts):
            raise ValueError("no trace: values of the wrong kind")
        return result


@dataclass(frozen=True, slots=True)
class TraceProblem:
    code: ProblemCode
    message: str


TraceAnswer = TraceResult | TraceProblem


LONGEST_MESSAGE = 400
MOST_COUNT = 1 << 60
"""Bytes or parameters. More is no trace, and arithmetic with it may overflow."""


def problem_of(values: Any) -> TraceProblem:
    """ValueError for anything that is no problem. The message becomes one harmless line."""
    from pydantic import TypeAdapter  # takes a tenth of a second

    problem = TypeAdapter(TraceProblem).validate_python(values)
    return replace(problem, message=plain_text(problem.message, LONGEST_MESSAGE))


@cache
def _reader() -> Any:
    from pydantic import TypeAdapter  # likewise

    return TypeAdapter(TraceResult)


# TraceCache: traces that were made before, one file for each, in the user's cache folder.

MOST_TRACES = 4000
"""About 2 kB each. Half of them stay when there are more, those that were used last."""
LARGEST_FILE_BYTES = 1 << 20


def user_cache_folder() -> Path:
    return Path(platformdirs.user_cache_dir("trainwiz")) / "traces"


class TraceCache:
    """Never raises: a folder that cannot be used is a cache that knows nothing. Safe for threads and processes."""

    def __init__(
        self, folder: Path | None = None, most: int = MOST_TRACES, versions: Mapping[str, str] | None = None
    ) -> None:
        """`most` 0 keeps nothing. `versions` are those of this installation unless given."""
        self._folder = user_cache_folder() if folder is None else folder
        self._most = most
        self._versions = dict(trace_versions() if versions is None else versions)

    def file(self, request: TraceRequest) -> Path:
        return self._folder / f"{request.key(self._versions)}.json"

    def get(self, request: TraceRequest) -> TraceResult | None:
        """None for what is not there, and for a file that is broken."""
        path = self.file(request)
        try:
            with open_file(path) as file:
                result = TraceResult.from_json(parse_json(file.read(LARGEST_FILE_BYTES)))
        except (OSError, ValueError):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return result

    def put(self, request: TraceRequest, result: TraceResult) -> None:
        """Keeps `result`; a reader meanwhile sees the old or the new file, never half of one."""
        if self._most == 0:
            return
        with contextlib.suppress(OSError, ValueError):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomic(self.file(request), json.dumps(result.to_json()))
            keep_newest(self._folder, self._most)


def keep_newest(folder: Path, most: int) -> None:
    """Where `folder` has more than `most` files, half of that stay: those that were used last. What killed writers left goes
    too. Raises OSError."""
    with os.scandir(folder) as entries:
        files = sorted((entry.stat().st_mtime, entry.path) for entry in entries if entry.is_file())
    if len(files) > most:
        for _, path in files[: len(files) - most // 2]:
            Path(path).unlink(missing_ok=True)
