"""Entry of one process of a probe, as `accelerate launch -m` starts it with the folder of its order.

A few real steps of the run in FOLDER with a clock beside them: model, batches, loss, engine and
optimizer are those that train. The weights are random, which changes neither time nor memory. Nothing
is evaluated or saved. The first process writes FOLDER/probe.jsonl, one object a line:

    ready     the first step begins
    warm      seconds, step, micro_batch: a step on the longest batch
    memory    allocated_bytes, reserved_bytes, used_bytes, rss_bytes, each of the fullest process
    loading   seconds: in which one process makes one micro-batch of the data
    step      step, seconds (of a step of the plan), own_s (of them the thread had a core; not on a GPU), tokens (over all
              processes), micro_batch
    short     step, seconds: of the last step of an epoch, which has fewer micro-batches
    trial     micro_batch, fits, seconds, allocated_bytes
    largest   micro_batch, why, fails
    rows      rows, why: what the batches are made from, where it is not what was asked for
    end       all was done
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trainwiz.core.processes import heavy_imports, wait_briefly
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.supervise.ties import hold_to_parent
from trainwiz.core.training.process import exit_after_failure, packages_without_use, read_config


def main() -> None:
    hold_to_parent()
    folder = Path(sys.argv[1]).resolve()
    wait_briefly(os.environ)
    try:
        os.chdir(folder)
        with heavy_imports(packages_without_use(read_config(RunFolder(folder)))):
            from trainwiz.core.training.probe_trainer import run_probe

        run_probe(folder)
    except BaseException as error:  # noqa: BLE001 - every way to die is written down
        exit_after_failure(folder, error)
    sys.stdout.flush()
    # Loader workers and NCCL's threads may take seconds to close; nothing is left to write.
    os._exit(0)


if __name__ == "__main__":
    main()
