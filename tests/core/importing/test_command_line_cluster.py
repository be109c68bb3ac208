"""Launch commands under Slurm and MPI: how many processes and machines the cluster starts."""

from __future__ import annotations

from typing import Any

import pytest
from trainwiz.core.importing import command_line
from trainwiz.core.importing.merge import data_parallel_findings
from trainwiz.core.importing.report import Imported, engine_values

from tests.each import each

JOB = """#!/bin/bash
#SBATCH --job-name=x
#SBATCH -N 2                # machines
#SBATCH --ntasks-per-node=4
##SBATCH --ntasks-per-node=9
#SBATCH --gres=gpu:a100:4
#SBATCH -c 8 --time 24:00:00
module load cuda
"""


def read(command: str) -> Imported:
    return command_line.read(command, "job.sh")


def engine(imported: Imported) -> dict[str, Any]:
    return engine_values(imported.setup)


def test_the_header_of_a_job_is_in_the_report() -> None:
    imported = read(JOB + "srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=$SLURM_GPUS_ON_NODE train.py")
    assert (engine(imported)["engine.nodes"], engine(imported)["engine.processes"]) == (2, 4)
    dropped = {one.name for one in imported.report.dropped}
    assert {"#SBATCH job-name", "#SBATCH gres", "#SBATCH cpus-per-task", "#SBATCH time"} <= dropped


@each(
    "command",
    [
        "srun python train.py",
        JOB + "srun python train.py",
        "mpirun -np 8 -H a:4,b:4 python train.py",
        "mpirun python train.py",
        "#SBATCH --nodes=2-4\nsrun python train.py",
        "mpirun -np $N python t.py",
    ],
)
def test_what_nobody_can_know_is_said_and_not_guessed(command: str) -> None:
    imported = read(command)
    assert engine(imported) == {}
    assert "processes_unknown" in {finding.code for finding in imported.report.findings}
    assert not list(data_parallel_findings(imported.setup, {}, "job.sh"))


@pytest.mark.parametrize(("gpus", "told"), [(1, 0), (3, 1)])
def test_plain_python_in_a_job_sees_the_gpus_of_its_machine(gpus: int, told: int) -> None:
    imported = read(f"#SBATCH --gpus-per-node={gpus}\npython train.py")
    assert engine(imported)["engine.processes"] == gpus
    assert len(list(data_parallel_findings(imported.setup, {}, "job.sh"))) == told
