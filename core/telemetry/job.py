"""Job: the processes of one training, and what their arguments name."""

from __future__ import annotations

import itertools
import platform
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwiz.core.files import at_home
from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.lost import ProcessId, identify
from trainwiz.core.telemetry.event_file import EVENT_MARK, begun_s
from trainwiz.core.telemetry.processes import (
    ProcessTable,
    maps_any,
    open_files,
    working_folder,
    written_files,
)
from trainwiz.core.telemetry.trainer_files import folders_below, prints_metrics, written_s
from trainwiz.core.telemetry.words import (
    KEEPER_MODULE,
    NEVER,
    TRAINING_MODULE,
    is_keeper,
    is_launcher,
    is_python,
    is_wrapper,
    program_of,
    shown_command,
    trains_by_its_words,
)
from trainwiz.core.text import plain_text

# The folders and files that a training's command line names for its output.

_OUTPUT = re.compile(
    r"(.*[._-])?(output[_-]?(dir|path|folder)|out[_-]?dir|logging[_-]?dir|log[_-]?dir|logdir|tensorboard[_-]?(log[_-]?)?dir"
    r"|default[_-]root[_-]dir|project[_-]dir|save[_-]?dir|exp(eriment)?[_-]?dir|run[_-]?dir|model[_-]dir|work[_-]?dir)",
    re.IGNORECASE,
)


def output_paths(command: Sequence[str], cwd: Path) -> list[Path]:
    """Named by options (`--output_dir X`, `train.output_dir=X`), none twice. Whether they exist is not asked."""
    named = []
    for word, after in itertools.zip_longest(command, command[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if _OUTPUT.fullmatch(name.lstrip("-+")) and (equals or (word.startswith("--") and not after.startswith("--"))):
            named.append(value if equals else after)
    return list(dict.fromkeys(cwd / at_home(Path(text)) for text in named if text and "\0" not in text))


# Files in which a training records its metrics: how they are called, where they lie, and which process writes one.

EVENT_FILE = re.compile(r"events\.out\.tfevents\.\d+\.(?P<host>.+?)(\.(?P<pid>\d+)\.\d+)?(\.v2)?")
RECORDS = ("trainer_state.json", "metrics.csv")
GRAPHICS = ("/dev/nvidia", "/dev/dxg", "/dev/kfd")
"""Devices through which CUDA, CUDA in WSL and ROCm compute."""
CLOCK_SLACK_S = 2.0
MOST_FOLDERS = 500
DEEPEST = 5
SKIPPED = re.compile(r"(venv|node_modules|site-packages|__pycache__|wandb)$")


def records(folder: Path, since_s: float, is_wanted: Callable[[str], bool]) -> list[Path]:
    """The files below `folder` with a wanted name that were written since `since_s` (Unix time), the newest first.

    Looks into MOST_FOLDERS folders at most.
    """
    places = itertools.islice(folders_below(folder, SKIPPED, DEEPEST), MOST_FOLDERS)
    files = [place / name for place, names in places for name in names if is_wanted(name)]
    found = [(at_s, file) for file in files if (at_s := written_s(file)) is not None and at_s >= since_s]
    return [file for _, file in sorted(found, reverse=True)]


def named_writer(event_file: Path) -> int | None:
    """The process that an event file of this host is named after, dead or alive; None for any other file.

    "events.out.tfevents.<Unix time>.<host>.<pid>.<n>": tensorboard's own writer opens its file for each
    flush only, so that no descriptor tells.
    """
    match = EVENT_FILE.fullmatch(event_file.name)
    return int(match["pid"]) if match and match["pid"] and match["host"] == platform.node() else None


def began(event_file: Path) -> int | None:
    """The process of this machine that began an event file, by the name of the file, where it is still there."""
    pid = named_writer(event_file)
    process = None if pid is None else identify(pid)
    # A number that was used again belongs to a process that began after the file.
    is_older = process is not None and process.create_time <= begun_s(event_file) + CLOCK_SLACK_S
    return pid if is_older else None


def is_event_file(name: str) -> bool:
    return EVENT_MARK in name


def is_record(name: str) -> bool:
    return is_event_file(name) or name in RECORDS


FRAMEWORKS = (
    "libtorch_cpu",
    "libtorch.so",
    "libtorch_python",
    "_pywrap_tensorflow",
    "libtensorflow",
    "xla_extension",
    "libpaddle",
)
"""Libraries that a training has loaded."""
CHILD_MODULES = (
    "multiprocessing.spawn",
    "multiprocessing.resource_tracker",
    "multiprocessing.forkserver",
    "torch._inductor",
)
LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class Job:
    """One training on this machine."""

    root: ProcessId
    """The top of its process tree."""
    name: str
    """Script or module of what trains."""
    command: str
    """Of the root, secrets left out."""
    run: RunFolder | None = None
    """Where it is a run of trainwiz."""

    @property
    def pid(self) -> int:
        return self.root.pid

    @property
    def started_s(self) -> float:
        return self.root.create_time

    def is_alive(self) -> bool:
        return self.root.is_alive()


def job_of(pid: int, table: ProcessTable) -> Job | None:
    """The job that process `pid` belongs to: up to its launcher, or down from a shell to what trains below it.

    None when there is no such process. A process that trains nothing is a job of its own; one with
    several trainings below it is taken with all of them, and `trainings_below` tells them apart.
    """
    if not table.is_alive(pid):
        return None
    top = top_of(pid, table)
    if top == pid and len(below := trainings_below(pid, table)) == 1:
        top = below[0]
    root = identify(top)
    if root is None:
        return None
    name = plain_text(job_name(top, table), LONGEST_NAME)
    return Job(root, name, shown_command(table.command(top)), run_of(top, table))


def trains(pid: int, table: ProcessTable) -> bool:
    """Whether it is a keeper, a launcher that has launched, or `is_training`."""
    command = table.command(pid)
    launches = is_launcher(command) and bool(table.children(pid))
    return is_keeper(command) or launches or is_training(pid, table)


def training_tops(table: ProcessTable, computing: Collection[int] = ()) -> list[int]:
    """The tops of all trainings of this machine that this user can see, without who only stands above some.

    `computing`: pids that compute on a GPU, which count whatever they are called.
    """
    alive = [pid for pid in table.members if table.is_alive(pid)]
    tops = {top_of(pid, table) for pid in alive if pid in computing or trains(pid, table)}
    return sorted(top for top in tops if top in computing or not trainings_below(top, table))


def trainings_below(pid: int, table: ProcessTable) -> list[int]:
    """The tops of the trainings below a process that is none itself: a shell, a session, a queue; [] for any other."""
    command = table.command(pid)
    if is_launcher(command) or is_keeper(command) or (is_python(command) and TRAINING_MODULE in command):
        return []
    tops = _tops_below(pid, table)
    itself = tops and not is_wrapper(command) and loads_framework(pid, table) and works(pid, table)
    return [] if itself else tops


def _tops_below(pid: int, table: ProcessTable) -> list[int]:
    below = table.tree(pid)[1:]
    # Who names a shell of theirs knows what it runs: a program that is called like a training is one before it has loaded.
    found = (one for one in below if trains_by_its_words(table.command(one)) or trains(one, table))
    tops = {top_of(one, table) for one in found}.intersection(below)
    return sorted(top for top in tops if not trainings_below(top, table))


def members_of(top: int, table: ProcessTable) -> list[int]:
    """The processes of a job, parents first: its tree without the trainings below that are jobs of their own."""
    others = {pid for other in _tops_below(top, table) for pid in table.tree(other)}
    return [pid for pid in table.tree(top) if pid not in others]


def loads_framework(pid: int, table: ProcessTable) -> bool:
    """Whether it is a Python program with a framework loaded, and none that only shows or serves."""
    command = table.command(pid)
    return is_python(command) and program_of(command).split(".")[0] not in NEVER and maps_any(pid, FRAMEWORKS)


def is_training(pid: int, table: ProcessTable) -> bool:
    """Whether a Python program has a framework loaded, and its arguments or its files say that it trains."""
    command = table.command(pid)
    if not loads_framework(pid, table):
        return False
    if trains_by_its_words(command):
        return True
    cwd = working_folder(pid)
    return (cwd is not None and bool(output_paths(command, cwd))) or works(pid, table)


def works(pid: int, table: ProcessTable) -> bool:
    """Whether it has a graphics card open, writes records or a log with metrics, or began an event file."""
    files, cwd, here = open_files(pid) or [], working_folder(pid), identify(pid)
    if here is None or any(file.name.startswith(GRAPHICS) for file in files):
        return here is not None
    if any(is_record(path.name) for path in written_files(pid, files)):
        return True
    if any(file.path is not None and file.descriptor in (1, 2) and prints_metrics(file.path) for file in files):
        return True
    folders = [] if cwd is None else [*output_paths(table.command(pid), cwd), cwd]
    events = (path for folder in folders for path in records(folder, here.create_time, is_event_file))
    return any(began(path) == pid for path in events)


def top_of(pid: int, table: ProcessTable) -> int:
    """The highest process of the same job: its keeper or launcher, the trainer of a loader worker, else itself."""
    top = below = pid
    for above in table.ancestors(pid):
        command = table.command(above)
        if is_keeper(command) or is_launcher(command) or _is_child_of_a_python(table.command(below), command):
            top = above
        elif not is_wrapper(command):
            break
        below = above
    return top


def _is_child_of_a_python(command: list[str], parent: list[str]) -> bool:
    """Whether a process was forked or spawned by the Python program above it."""
    if not is_python(parent):
        return False
    return command == parent or any(module in word for word in command[1:5] for module in CHILD_MODULES)


def job_name(top: int, table: ProcessTable) -> str:
    """The script or module that trains: of a launcher or a shell the one below it."""
    for pid in table.tree(top):
        command = table.command(pid)
        if is_python(command) and not is_launcher(command) and not is_keeper(command) and program_of(command):
            return program_of(command)
    return program_of(table.command(top)) or tr("process {pid}", pid=top)


def run_of(top: int, table: ProcessTable) -> RunFolder | None:
    """The run of ours that the job is: its keeper, or where it was started by hand its training, names the folder."""
    for pid in table.tree(top):
        command = table.command(pid)
        module = next((word for word in command if word in (KEEPER_MODULE, TRAINING_MODULE)), None)
        if module is None or not is_python(command):
            continue
        cwd = working_folder(pid) or Path("/")
        for word in command[command.index(module) + 1 :]:
            if RunFolder(cwd / word).is_run():
                return RunFolder((cwd / word).resolve())
    return None
