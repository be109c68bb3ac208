"""What the server of forked trainings loads (see runs.py), and what each of them begins with."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path

from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_simple_launcher_cmd_env
from trainwiz.core.processes import heavy_imports

with heavy_imports():
    from trainwiz.core.training import session, trainer
    from trainwiz.core.training.__main__ import main

from tests.core.training.recording import note_samples
from tests.site import FAULTS_VARIABLE
from tools.faults import striking

assert session


def train_forked(folder: Path, launch: list[str], environment: dict[str, str], recording: bool) -> None:
    """The training process itself: `launch` are the words after `accelerate launch`."""
    # Its loader workers are forked as in any other training, not by a server of their own.
    multiprocessing.set_start_method("fork", force=True)
    os.setsid()
    log = os.open(folder / "train.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    arguments, *_ = _validate_launch_command(launch_command_parser().parse_args(launch))
    os.environ.update(prepare_simple_launcher_cmd_env(arguments)[1])
    sys.argv = [arguments.training_script, *arguments.training_script_args]
    if environment.get(FAULTS_VARIABLE):
        striking._change(trainer)
    if recording:
        note_samples()
    main()
