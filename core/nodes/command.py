"""The launch commands of a node."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from trainwiz.core.nodes.address import Address
from trainwiz.core.run.folder import ACCELERATE_YAML

TRAINING_MODULE = "trainwiz.core.training"


def accelerate_command(node: int, address: Address, threads: int, arguments: Sequence[str]) -> list[str]:
    """`accelerate launch` of one node, to run in the run folder; static rendezvous, for the ranks must be known:
    rank 0, which writes the run's record, belongs to the node that has the keeper."""
    return [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--config_file",
        ACCELERATE_YAML,
        "--machine_rank",
        str(node),
        "--main_process_ip",
        address.host,
        "--main_process_port",
        str(address.port),
        "--num_cpu_threads_per_process",
        str(threads),
        "-m",
        TRAINING_MODULE,
        ".",
        *arguments,
    ]
