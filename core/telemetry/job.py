"""Job: all processes of one training, found from any one of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.processid import ProcessId, identify
from trainwiz.core.telemetry.process_facts import environment_of, maps_any, working_folder
from trainwiz.core.telemetry.process_table import ProcessTable
from trainwiz.core.telemetry.shown_command import shown_command
from trainwiz.core.telemetry.training_words import (
    KEEPER_MODULE,
    TRAINING_MODULE,
    is_keeper,
    is_launcher,
    is_python,
    is_wrapper,
    program_of,
    trains_by_its_words,
)

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
GROUP_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID")
"""Alike in all ranks of one job, whoever started them."""


@dataclass(frozen=True, slots=True)
class Job:
    """One training on this machine: the tops of its process trees, one but for ranks without a common parent."""

    roots: tuple[ProcessId, ...]
    name: str
    """Script or module of what trains."""
    command: str
    """Of the first root, secrets left out."""
    run: RunFolder | None = None
    """Where it is a run of trainwiz."""

    @property
    def pid(self) -> int:
        return self.roots[0].pid

    @property
    def started_s(self) -> float:
        return min(root.create_time for root in self.roots)

    def is_alive(self) -> bool:
        return any(root.is_alive() for root in self.roots)


def job_of(pid: int, table: ProcessTable) -> Job | None:
    """The job that process `pid` belongs to: up to its launcher, or down from a shell to what trains below it.

    None when there is no such process. A process that trains nothing is a job of its own; one with
    several trainings below it is taken with all of them, and `trainings_below` tells them apart.
    """
    if not table.is_alive(pid):
        return None
    top = top_of(pid, table)
    if top == pid and stands_above(table.command(pid)):
        below = trainings_below(pid, table)
        if len(below) == 1:
            top = below[0]
    roots = [found for found in map(identify, (top, *_other_ranks(top, table))) if found is not None]
    if not roots or roots[0].pid != top:
        return None
    return Job(
        tuple(roots),
        plain_text(job_name(top, table), LONGEST_NAME),
        shown_command(table.command(top)),
        run_of(top, table),
    )


def stands_above(command: list[str]) -> bool:
    """Whether a process is no training itself, and may have some below it: a shell, a session, the first process."""
    return is_wrapper(command) or not (is_python(command) or is_launcher(command))


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


def trainings_below(pid: int, table: ProcessTable) -> list[int]:
    """The tops of all trainings below a shell or session, in order of their numbers; [] where none is seen."""
    surely, perhaps = [], []
    waiting = table.children(pid)
    while waiting:
        one = waiting.pop()
        command = table.command(one)
        if is_launcher(command) or is_keeper(command) or trains_by_its_words(command):
            surely.append(one)
        elif is_python(command) and maps_any(one, FRAMEWORKS):
            perhaps.append(one)
        else:
            waiting += table.children(one)
    return sorted(surely or perhaps)


def job_name(top: int, table: ProcessTable) -> str:
    """The script or module that trains: of a launcher the one that it launches."""
    trains = is_launcher(table.command(top)) or is_keeper(table.command(top))
    for pid in table.tree(top) if trains else [top]:
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


def _other_ranks(top: int, table: ProcessTable) -> list[int]:
    """Tops of the other ranks, where ranks have no launcher above them: it was killed, or a scheduler started them."""
    command = table.command(top)
    if not is_python(command) or is_launcher(command) or is_keeper(command):
        return []
    group = _group(top)
    if group is None:
        return []
    same = [pid for pid in table.members if pid != top and table.command(pid) == command and table.is_alive(pid)]
    return sorted(pid for pid in same if top_of(pid, table) == pid and _group(pid) == group)


def _group(pid: int) -> tuple[str | None, ...] | None:
    """What names the job in the environment of a rank; None for a process that is no rank of several."""
    variables = environment_of(pid)
    if variables.get("WORLD_SIZE", variables.get("SLURM_NTASKS", "1")) == "1":
        return None
    group = tuple(variables.get(name) for name in GROUP_VARIABLES)
    return group if any(group) else None


def training_tops(table: ProcessTable, computing: Iterable[int] = ()) -> list[int]:
    """The tops of all trainings of this machine that this user can see.

    `computing`: pids that compute on a GPU, which count whatever they are called. Of others, a
    launcher counts, and a Python program that has loaded a framework and reads like a training.
    """
    tops = {top_of(pid, table) for pid in computing if table.is_alive(pid)}
    for pid in table.members:
        command = table.command(pid)
        if not command or not table.is_alive(pid):
            continue
        if (
            is_keeper(command)
            or (is_launcher(command) and len(table.children(pid)) > 0)
            or (is_python(command) and trains_by_its_words(command) and maps_any(pid, FRAMEWORKS))
        ):
            tops.add(top_of(pid, table))
    return sorted(tops)
