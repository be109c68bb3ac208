"""`python -m trainwiz.core.nodes FOLDER [--resume CHECKPOINT]`: the launcher of node 0, below the keeper of the run."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from trainwiz.core.errors import EXIT_TRAINING_FAILED, UsageError
from trainwiz.core.language import chosen_language, use_language
from trainwiz.core.launch.start import changed_config
from trainwiz.core.nodes.address import NodeProblem, keep_address, main_address
from trainwiz.core.nodes.node import LOADING, TRAINING, Node, write_problem
from trainwiz.core.run.folder import RunFolder


def main() -> int:
    """The exit code for the keeper."""
    use_language(chosen_language(None, os.environ))
    # The arguments are the training's: --resume, --accept.
    folder, *arguments = sys.argv[1:]
    run = RunFolder(Path(folder).resolve())
    try:
        address = main_address(run.path)
        keep_address(run.path, address)
        node = Node(run, changed_config(run), 0, address, os.environ)
    except UsageError as error:
        print(error, flush=True)
        return EXIT_TRAINING_FAILED
    # The keeper asks the training processes here to stop; this process it ends. A batch system asks all at once.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        code = node.attempt(arguments)
    except NodeProblem as problem:
        # Beside what the training says.
        print(problem.message, flush=True)
        write_problem(run, 0, problem, TRAINING if node.process is not None else LOADING)
        return EXIT_TRAINING_FAILED
    # A signal that ended the launcher ends the keeper's launcher alike: it reads the number.
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
