"""Entry of one training process. Heavy imports come after the signal handlers, so that no stop is lost."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from trainwiz.core.errors import EXIT_USAGE, UsageError
from trainwiz.core.language import chosen_language, use_language
from trainwiz.core.launch.start import changed_config
from trainwiz.core.processes import heavy_imports, wait_briefly
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.identity import PARTS
from trainwiz.core.supervise.ties import hold_to_parent
from trainwiz.core.training.process import (
    StopRequest,
    exit_after_failure,
    let_output_be_dropped,
    packages_without_use,
    rank_of_this_process,
)

if TYPE_CHECKING:
    from trainwiz.core.supervise.by_hand import KeptByHand


def main() -> None:
    has_keeper = hold_to_parent()
    use_language(chosen_language(None, os.environ))
    parser = argparse.ArgumentParser(prog="trainwiz.core.training", description="Train the run in RUNFOLDER.")
    parser.add_argument("folder", type=Path, help="run folder that holds run.yaml")
    parser.add_argument(
        "--resume", type=Path, default=None, metavar="CHECKPOINT", help="checkpoint folder to go on from"
    )
    parser.add_argument(
        "--accept", default="", metavar="PARTS", help=f"go on with other {', '.join(PARTS)} than the run began with"
    )
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    choices = parser.parse_args()
    # Before torch loads its OpenMP, which reads it.
    wait_briefly(os.environ)
    folder = choices.folder.resolve()
    if choices.probe:
        probe(folder)
    else:
        accept = [part.strip() for part in choices.accept.split(",") if part.strip()]
        train(folder, choices.resume.resolve() if choices.resume else None, accept, has_keeper=has_keeper)
    leave()


def train(folder: Path, checkpoint: Path | None, accept: list[str], *, has_keeper: bool) -> None:
    let_output_be_dropped()
    stop = StopRequest.install()
    kept = None if has_keeper else keep_by_hand(folder, checkpoint, stop)
    try:
        with loading(folder):
            from trainwiz.core.training.session import TrainingSession

        TrainingSession(folder, checkpoint, stop, accept).run()
    except BaseException as error:  # noqa: BLE001 - every way to die is written down
        exit_after_failure(folder, error, kept.end if kept else None)
    if kept:
        kept.end(0)


def probe(folder: Path) -> None:
    """A few steps with a clock beside them: see core/training/probe.py."""
    try:
        with loading(folder):
            from trainwiz.core.training.probe import run_probe

        run_probe(folder)
    except BaseException as error:  # noqa: BLE001
        exit_after_failure(folder, error)
    sys.stdout.flush()
    # Loader workers and NCCL's threads may take seconds to close; nothing is left to write.
    os._exit(0)


@contextlib.contextmanager
def loading(folder: Path) -> Iterator[None]:
    # Files named in the exports (deepspeed.json) are relative to the run folder.
    os.chdir(folder)
    with heavy_imports(packages_without_use(changed_config(RunFolder(folder)))):
        yield


def leave() -> None:
    """End a process that did its work. One of several ends without taking the interpreter apart: threads of gloo that
    still run then abort it now and then ("terminate called without an active exception"), and a good run counts as failed."""
    sys.stdout.flush()
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def keep_by_hand(folder: Path, checkpoint: Path | None, stop: StopRequest) -> KeptByHand | None:
    """Started by launch.sh: rank 0 keeps the state of the run. A refusal ends this process and leaves no mark."""
    from trainwiz.core.supervise.by_hand import KeptByHand, refuse_active

    try:
        if rank_of_this_process() == 0:
            return KeptByHand(folder, checkpoint, lambda: stop.requested)
        refuse_active(folder)
        return None
    except UsageError as error:
        if rank_of_this_process() == 0:
            print("\n".join(finding.message for finding in error.findings), file=sys.stderr, flush=True)
        sys.exit(EXIT_USAGE)


if __name__ == "__main__":
    main()
