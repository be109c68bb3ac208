"""RunFolder: the names inside a run folder, and its atomic reads and writes."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.errors import usage_error
from trainwiz.core.files import MOST_BYTES, ROWS, read_small
from trainwiz.core.language import tr
from trainwiz.core.text import is_text, parse_json

# Names of run folders.

DEFAULT_ROOT = Path("runs")
LONGEST_NAME_BYTES = 200


def check_name(name: str) -> str:
    """The name itself when it is one plain folder name; raises UsageError for anything else.

    Letters, digits, '-', '_' and '.', not starting with '.' or '-': such a name cannot leave the
    folder that it is put in, nor hide there, nor be read as an option.
    """
    if not name or name.startswith((".", "-")) or any(not (char.isalnum() or char in "-_.") for char in name):
        raise usage_error(
            "bad_run_name",
            "name",
            tr(
                "A run cannot be named {name}: use letters, digits, '-', '_' and '.', and do not start with '.' or "
                "'-'.",
                name=repr(name),
            ),
        )
    return name


def check_text(path: Path) -> None:
    """Raises UsageError for a path with bytes that are no UTF-8: no file of a run could name it."""
    if not is_text(str(path.absolute())):
        message = tr("{path} cannot be a run folder: its name is not valid UTF-8.", path=path)
        raise usage_error("bad_run_name", str(path), message)


def new_run_folder(root: Path, name: str, now_s: float | None = None) -> Path:
    """A path below `root` that nothing has yet: `<year-month-day_hourminute>-<name>`, then with -2, -3, ...

    The folder is not made. Raises UsageError for a name that is not one plain folder name.
    """
    check_name(name)
    stamp = time.strftime("%Y-%m-%d_%H%M", time.localtime(now_s))
    short = name.encode()[:LONGEST_NAME_BYTES].decode("utf-8", "ignore")
    return free_path(root / f"{stamp}-{short}")


def free_path(path: Path) -> Path:
    """The path itself, or with -2, -3, ... where something has that name already, be it a link to nothing."""
    candidate, number = path, 2
    while os.path.lexists(candidate):
        candidate, number = path.with_name(f"{path.name}-{number}"), number + 1
    return candidate


def name_for_commands(folder: Path) -> str:
    """What a user types after `trainwiz runs resume`: the name below runs/, else the path, quoted for a shell."""
    return shlex.quote(folder.name if folder.parent.name == DEFAULT_ROOT.name else str(folder))


# RunFolder: the names inside a run folder, and its atomic reads and writes.

RUN_YAML = "run.yaml"
PLAN_JSON = "plan.json"
ACCELERATE_YAML = "accelerate.yaml"
DEEPSPEED_JSON = "deepspeed.json"
LAUNCH_SH = "launch.sh"
STATE_JSON = "state.json"
OUTCOME_JSON = "outcome.json"
"""The last word of the training: finished or stopped, at which step."""
TRAIN_LOG = "train.log"
SUPERVISOR_LOG = "supervisor.log"
ATTEMPTS = "attempts"
"""What earlier attempts said about themselves, by number."""
NODES = "nodes"
"""The output of the nodes other than 0, by number."""
MEETING_TOKEN = ".meeting"
"""There while node 0 waits for the others; what is in it proves that they see the same folder."""
STOPPED_BY = "stopped_by"
"""In the folder of the nodes: which of them was told to stop, in the attempt under way."""
FINAL_MODEL = "final_model"
TENSORBOARD_LOGS = "logs"
TOKENIZER = "tokenizer"
"""Tokenizer that the training made from its own rows; loaded from here when the run goes on."""
BASE_MODEL = "base_model"
"""Base of a LoRA run from scratch, saved once: the adapters load back onto it."""
ADAPTER = "adapter"
"""LoRA adapter of a finished run whose final model is merged."""
TRACE = "trace"
"""Chrome traces of the torch profiler."""
PARTIAL = ".partial"
"""Ending of a folder while it is written; renamed when it is whole."""
GENERATIONS = "generations.jsonl"
"""Texts that the model wrote at evaluations: source, reference, generation, step."""

RUN_MARK_VARIABLE = "TRAINWIZ_RUN_MARK"
"""Environment variable that the supervisor sets and every process of the run inherits."""


class _Named:
    """What lies under this name in a run folder."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: RunFolder, owner: type) -> Path:
        return run.path / self.name


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run folder: the only contract between launcher, training process and viewers."""

    path: Path

    run_yaml = _Named(RUN_YAML)
    plan_json = _Named(PLAN_JSON)
    state_json = _Named(STATE_JSON)
    metrics_jsonl = _Named("metrics.jsonl")
    system_jsonl = _Named("system.jsonl")
    train_log = _Named(TRAIN_LOG)
    engine_json = _Named("engine.json")
    """Written by rank 0 of the training: which engine really runs. The supervisor copies it into state.json."""
    final_model = _Named(FINAL_MODEL)
    tokenizer = _Named(TOKENIZER)
    base_model = _Named(BASE_MODEL)
    adapter = _Named(ADAPTER)
    trace = _Named(TRACE)
    rows = _Named(ROWS)
    generations_jsonl = _Named(GENERATIONS)

    def file(self, name: str) -> Path:
        return self.path / name

    def failure_json(self, rank: int) -> Path:
        """Written by a training process that dies of an exception."""
        return self.path / f"failure-rank{rank}.json"

    def is_run(self) -> bool:
        """False also where that may not be known: Path.is_file() would raise PermissionError below a closed folder."""
        return os.path.isfile(self.run_yaml)  # noqa: PTH113


class FolderPlace:
    """The folder that stood at a path at one moment, known by its identity: another one of the same name is not it."""

    def __init__(self, path: Path) -> None:
        """Raises OSError where there is no folder."""
        self.path = path
        # Held open: the number of a folder that is gone is not given to another one.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def holds(self) -> bool:
        """Whether the folder still stands at its path."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self.path.stat())
        except OSError:
            return False


def write_atomic(path: Path, text: str) -> None:
    """Write by temporary file and rename: a reader sees the old or the new content, never half."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_in_place(path: Path, text: str) -> None:
    """Into the blocks that a file has already: what must be said on a full disk, where no new file finds room.

    Not atomic. Raises OSError, also where there is no such file.
    """
    with path.open("r+", encoding="utf-8") as file:
        file.write(text)
        file.truncate()


def write_json_atomic(path: Path, document: Mapping[str, Any]) -> None:
    text = json.dumps(document, ensure_ascii=False, indent=1)
    # Names of files may hold bytes that are no text; JSON has a way to write what stands for them.
    write_atomic(path, (text if is_text(text) else json.dumps(document, indent=1)) + "\n")


def read_json(path: Path, most: int = MOST_BYTES) -> dict[str, Any] | None:
    """The document, or None when it is absent, above `most` bytes or not (yet) a JSON object."""
    try:
        document = parse_json(read_small(path, most).decode())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
