"""What a plan costs beside the lengths of 20,000 pairs, against one beside a hundred: it is made at every keystroke."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import cache

from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.plan.make import make_plan

from tools.benchmarks.measure import Result, interleaved_medians

REPEATS = 40
LIMIT_RATIO = 8.0
"""With the rows sorted and counted anew at each question it is 15 and more."""
SMALL_CARD = "RTX 2080 Super"


def run() -> list[Result]:
    few, many = _plan_seconds(100), _plan_seconds(20_000)
    few_s, many_s = interleaved_medians(REPEATS, few, many)
    fits_s, searched_s = interleaved_medians(REPEATS, many, _plan_seconds(20_000, SMALL_CARD, "fp32"))
    searched = f"on an {SMALL_CARD} in fp32, against {fits_s * 1000:.1f} ms where it fits"
    detail = f"{many_s * 1000:.1f} against {few_s * 1000:.1f} ms of CPU, median of {REPEATS} in turns"
    return [
        Result("plan beside 20,000 lengths against 100, ratio", many_s / few_s, LIMIT_RATIO, detail),
        Result("plan beside 20,000 lengths, ms", many_s * 1000, 50.0, "NLLB-600M on an RTX 4090"),
        Result("plan of what does not fit, with every setting tried, ms", searched_s * 1000, 50.0, searched),
    ]


@cache
def _data(rows: int) -> DataSummary:
    """One for all plans, as in the wizard: another tuple of the same lengths is compared number by number."""
    generator = random.Random(rows)
    lengths, targets = (tuple(generator.randint(5, 600) for _ in range(rows)) for _ in range(2))
    return DataSummary(5_000_000, True, lengths, target_lengths=targets, validation_rows=2000)


def _plan_seconds(rows: int, gpu: str = "RTX 4090", precision: str | None = None) -> Callable[[], float]:
    data = _data(rows)
    machine = catalogue_machine(gpu=gpu, num_gpus=1, ram_bytes=64 * 1024**3, cpu_cores=16)
    wanted = {
        "task": "seq2seq",
        "model": {"name": "nllb-600m"},
        "batch": {"target_samples": 96},
        "evaluation": {"generate": True},
    }
    config = RunConfig.model_validate(wanted)
    if precision is not None:
        config = config.with_values({"engine.precision": precision, "batch.micro_batch_size": 32}, "you")
    model = load_models()[config.model.name]

    def seconds() -> float:
        started = time.thread_time()
        make_plan(machine, config, model=model, data=data, profile=None)
        return time.thread_time() - started

    return seconds
