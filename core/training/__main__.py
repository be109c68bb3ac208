"""Entry of one training process. Heavy imports come after the signal handlers, so that no stop is lost."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from trainwiz.core.supervise.lifeline import hold_to_parent
from trainwiz.core.training.failure import exit_after_failure
from trainwiz.core.training.stop import StopRequest


def main() -> None:
    hold_to_parent()
    parser = argparse.ArgumentParser(prog="trainwiz.core.training", description="Train the run in RUNFOLDER.")
    parser.add_argument("folder", type=Path, help="run folder that holds run.yaml")
    parser.add_argument(
        "--resume", type=Path, default=None, metavar="CHECKPOINT", help="checkpoint folder to go on from"
    )
    choices = parser.parse_args()
    folder = choices.folder.resolve()
    checkpoint = choices.resume.resolve() if choices.resume else None
    stop = StopRequest.install()
    # Threads that spin while they wait slow a step a hundredfold on a CPU that does other work too.
    # Read when torch loads its OpenMP.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        # Files named in the exports (deepspeed.json) are relative to the run folder.
        os.chdir(folder)
        from trainwiz.core.training.session import TrainingSession

        TrainingSession(folder, checkpoint, stop).run()
    except BaseException as error:  # noqa: BLE001 - every way to die is written down
        exit_after_failure(folder, error)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
