"""What the header of a Slurm job says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from trainwiz.core.importing.report import Collector, whole
from trainwiz.core.importing.shell_words import Word
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text

# What a job asks of Slurm: the #SBATCH lines of its script.
#
# Source: sbatch(1) of Slurm 24.11, its options and the variables that a job finds.

HEADER = re.compile(r"#SBATCH\s+(?P<options>.*)")
GPUS = re.compile(r"(?:gpu:)?(?:[A-Za-z][\w.-]*:)?(?P<count>\d+)")
"""`gpu:a100:4` of --gres, `a100:4` or `4` of --gpus."""
SHORT = {"N": "nodes", "n": "ntasks", "c": "cpus-per-task", "G": "gpus", "A": "account", "p": "partition", "t": "time",
         "J": "job-name", "o": "output", "e": "error", "q": "qos", "w": "nodelist", "x": "exclude", "d": "dependency",
         "D": "chdir", "C": "constraint", "a": "array"}  # fmt: skip
COUNTS = {"nodes": "nodes", "ntasks": "tasks", "ntasks-per-node": "tasks_per_node", "cpus-per-task": "cpus_per_task"}
GPU_COUNTS = {
    "gres": "gpus_per_node",
    "gpus-per-node": "gpus_per_node",
    "gpus": "gpus",
    "gpus-per-task": "gpus_per_task",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One option of a job."""

    name: str
    value: str
    line: int


@dataclass(slots=True)
class Job:
    """What a job asks for. Counts are None where it says nothing, or nothing that is one number."""

    asked: list[Asked] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """nodes, tasks, tasks_per_node, cpus_per_task, gpus, gpus_per_node, gpus_per_task."""

    def tasks(self) -> int | None:
        """Processes that srun starts: one for each node unless another number is asked for."""
        if "tasks" in self.counts:
            return self.counts["tasks"]
        per_node = self.counts.get("tasks_per_node", 1 if "nodes" in self.counts else 0)
        return per_node * self.counts.get("nodes", 1) or None

    def gpus_per_node(self) -> int | None:
        if "gpus_per_node" in self.counts:
            return self.counts["gpus_per_node"]
        nodes, tasks = self.counts.get("nodes", 1), self.tasks() or 1
        total = self.counts.get("gpus", self.counts.get("gpus_per_task", 0) * tasks)
        return total // nodes if total and total % nodes == 0 else None

    def add(self, name: str, value: str, line: int) -> None:
        name = SHORT.get(name, name)
        self.asked.append(Asked(name, value, line))
        if name in COUNTS and whole(value):
            self.counts[COUNTS[name]] = int(value)
        elif name in GPU_COUNTS:
            counted = [match for part in value.split(",") if (match := GPUS.fullmatch(part))]
            if len(counted) == 1 and int(counted[0]["count"]) and (name != "gres" or "gpu" in value):
                self.counts[GPU_COUNTS[name]] = int(counted[0]["count"])

    def variables(self) -> dict[str, Word]:
        """The variables that Slurm sets in the job, as far as the job says their values."""
        known = {
            "SLURM_NNODES": self.counts.get("nodes"),
            "SLURM_JOB_NUM_NODES": self.counts.get("nodes"),
            "SLURM_NTASKS": self.tasks(),
            "SLURM_NPROCS": self.tasks(),
            "SLURM_NTASKS_PER_NODE": self.counts.get("tasks_per_node"),
            "SLURM_CPUS_PER_TASK": self.counts.get("cpus_per_task"),
            "SLURM_GPUS_ON_NODE": self.gpus_per_node(),
            "SLURM_GPUS_PER_NODE": self.gpus_per_node(),
            "SLURM_GPUS_PER_TASK": self.counts.get("gpus_per_task"),
            "SLURM_GPUS": self.counts.get("gpus"),
        }
        line = self.asked[0].line if self.asked else 1
        return {name: Word(str(value), line) for name, value in known.items() if value is not None}


def read_job(text: str) -> Job:
    """The #SBATCH lines of a script: those in front of its first command, as sbatch reads them."""
    job = Job()
    for number, line in enumerate(text.splitlines(), 1):
        match = HEADER.match(line.strip())
        if match is not None:
            for name, value in options(_words(match["options"])):
                job.add(name, value, number)
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return job


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def options(words: Sequence[str]) -> Iterable[tuple[str, str]]:
    """(name without dashes, value) of "--name=value", "--name value", "-N 2" and "-N2"."""
    at = 0
    while at < len(words):
        word, at = words[at], at + 1
        if not word.startswith("-") or word.strip("-") == "":
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("--") and len(name) > 1 and name[0] in SHORT and not name.isalpha():
            name, value, equals = name[0], name[1:], "="
        if not equals and at < len(words) and not words[at].startswith("-"):
            value, at = words[at], at + 1
        yield name, value


# What a job of a cluster says of processes, and what it leaves open.

OF_SLURM = mark("trainwiz writes a job for Slurm itself: trainwiz export RUN --slurm")
MPI = frozenset({"mpirun", "mpiexec", "horovodrun"})
STARTS_SEVERAL = MPI | {"srun"}


def say_processes_unknown(program: str, line: int, collector: Collector) -> None:
    """`srun python ...`, `mpirun python ...`: how many processes, only the cluster knows."""
    collector.setup["launcher"] = program
    message = tr(
        "How many processes {program} starts is not read; say it with --num-gpus and --nodes.", program=program
    )
    collector.find("processes_unknown", "warning", message, line)


def read_alone(job: Job, collector: Collector) -> None:
    """Plain `python ...` in a job: one process that sees the GPUs of its machine."""
    gpus = job.gpus_per_node()
    if gpus is None or collector.setup.get("gpu_ids"):
        return
    collector.setup |= {"visible_gpus": gpus, "num_processes": gpus}
    collector.setup["distributed_type"] = "MULTI_GPU" if gpus > 1 else "NO"
    for one in job.asked:
        if GPU_COUNTS.get(one.name) in job.counts:
            collector.map(f"#SBATCH {one.name}", one.value, "engine.processes", gpus, one.line)


def say_nodes_unknown(hosts: str, line: int, collector: Collector) -> None:
    """`hosts`: the file that names them, which lies on the cluster."""
    message = tr("How many machines {file} names is not known here; say it with --nodes.", file=plain_text(hosts, 80))
    collector.find("nodes_unknown", "note", message, line)


def basename(word: Word) -> str:
    """The program that a word names."""
    return PurePosixPath(word.text).name


def drop_the_rest(job: Job, collector: Collector) -> None:
    """What a job asks of Slurm and no setting of a run says."""
    mapped = {(one.name, one.line) for one in collector.mapped()}
    for one in job.asked:
        if (f"#SBATCH {one.name}", one.line) not in mapped:
            collector.drop(f"#SBATCH {one.name}", one.value, OF_SLURM, one.line)
