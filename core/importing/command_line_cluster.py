"""What a job of a cluster says of processes, and what it leaves open."""

from __future__ import annotations

from pathlib import PurePosixPath

from trainwiz.core.importing.report import Collector
from trainwiz.core.importing.shell_words import Word
from trainwiz.core.importing.slurm_job import GPU_COUNTS, Job
from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text

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
