"""What the server of forked trainings loads (see runs.py), and what each of them begins with."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accelerate.commands.launch import _validate_launch_command, launch_command, launch_command_parser
from accelerate.utils.launch import prepare_simple_launcher_cmd_env
from torch.distributed import run as torchrun
from trainwiz.core.processes import heavy_imports

with heavy_imports():
    from trainwiz.core.training import session, trainer
    from trainwiz.core.training.__main__ import main

from tests.core.training.recording import note_samples
from tests.engines.look import look
from tests.site import FAULTS_VARIABLE, LOOK_VARIABLE
from tools.faults import striking

assert session


def train_forked(folder: Path, launch: list[str], environment: dict[str, str], recording: bool) -> None:
    """The training process itself, or several: `launch` are the words after `accelerate launch`."""
    # Its loader workers are forked as in any other training, not by a server of their own.
    multiprocessing.set_start_method("fork", force=True)
    os.setsid()
    log = os.open(folder / "train.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)

    def train() -> None:
        if environment.get(FAULTS_VARIABLE):
            striking._change(trainer)
        if environment.get(LOOK_VARIABLE):
            look()
        if recording:
            note_samples()
        main()

    given = launch_command_parser().parse_args(launch)
    arguments, *_ = _validate_launch_command(given)
    sys.argv = [arguments.training_script, *arguments.training_script_args]
    if arguments.num_processes > 1:
        torchrun.run = lambda arguments: run_as_ranks(arguments, train)
        launch_command(given)
    else:
        os.environ.update(prepare_simple_launcher_cmd_env(arguments)[1])
        train()


def run_as_ranks(arguments: Any, train: Callable[[], None]) -> None:
    """Forks the processes that torchrun would start, and ends as they do."""
    count, children = arguments.nproc_per_node, set()
    world = {
        "WORLD_SIZE": count,
        "LOCAL_WORLD_SIZE": count,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": arguments.master_port,
    }
    for rank in map(str, range(int(count))):
        child = os.fork()
        if not child:
            os.environ.update({**world, "RANK": rank, "LOCAL_RANK": rank})
            train()
        children.add(child)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = 0
    while children:
        ended, status = os.wait()
        children.discard(ended)
        if status and not code:
            code = 1
            for other in children:
                os.kill(other, signal.SIGKILL)
    os._exit(code)
