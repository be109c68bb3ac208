"""One process that loads rows as a training process does and trains nothing; prints what it and its workers hold."""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

BATCHES = 40


def main(folder: Path) -> None:
    os.chdir(folder)
    import psutil
    from trainwiz.core.export.training_arguments import training_arguments
    from trainwiz.core.launch.start import changed_config
    from trainwiz.core.processes import heavy_imports
    from trainwiz.core.run.folder import RunFolder
    from trainwiz.core.training.process import packages_without_use

    from tools.benchmarks.process_cost import memory_of

    config = changed_config(RunFolder(folder))
    with heavy_imports(packages_without_use(config)):
        from trainwiz.core.training.engine import join_processes
        from trainwiz.core.training.metrics import StepMeter
        from trainwiz.core.training.tasks import build_task
        from trainwiz.core.training.trainer import RunTrainer
        from transformers import TrainingArguments

    args = TrainingArguments(**(training_arguments(config) | join_processes(config)))
    parts = build_task(config, folder, None, args.world_size)
    weights = sum(one.numel() * one.element_size() for one in parts.model.parameters())
    loader = RunTrainer(args, parts, StepMeter()).get_train_dataloader()
    inner = getattr(loader, "base_dataloader", loader)
    first = inner.worker_init_fn

    def collect(worker: int) -> None:
        if first is not None:
            first(worker)
        # As it comes to in a long run: each object that is looked at becomes the worker's own.
        gc.collect()

    inner.worker_init_fn = collect
    # All of it, also pages of libraries that other programs hold now: alone on a machine nobody shares them.
    alone = memory_of([os.getpid()]).rss
    batches = iter(loader)
    for _ in range(BATCHES):
        next(batches)
    workers = [child.pid for child in psutil.Process().children() if "data_worker" in child.name()]
    each = [memory_of([pid]).uss for pid in workers]
    del batches
    print(json.dumps({"trainer": alone - weights, "workers": each}))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
