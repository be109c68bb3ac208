"""Steps of a small model on the CPU for some seconds: their median, in ms. The environment says how threads wait.

python -m tests.benchmarks.waiting_steps SECONDS
"""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import Any

import torch
from trainwiz.core.training.core_watch import core_watch
from transformers import T5Config, T5ForConditionalGeneration

from tests.benchmarks.arrangement_place import CONFIGS, T5_SMALL

ROWS, SOURCE, TARGET, VOCABULARY = 16, 11, 10, 8000
WARM_UP_S = 3.0
"""A watch begins asleep, and needs two looks to find that the cores are free."""


def main(seconds: float) -> None:
    torch.manual_seed(0)
    values: dict[str, Any] = CONFIGS[T5_SMALL] | {"vocab_size": VOCABULARY, "decoder_start_token_id": 0}
    values.pop("model_type")
    model = T5ForConditionalGeneration(T5Config(**values))
    inputs, labels = (torch.randint(1, VOCABULARY, (ROWS, length)) for length in (SOURCE, TARGET))

    def step_s() -> float:
        started = time.perf_counter()
        model(input_ids=inputs, labels=labels).loss.backward()
        model.zero_grad()
        return time.perf_counter() - started

    with core_watch():
        _for(WARM_UP_S, step_s)
        print(1000 * median(_for(seconds, step_s)))


def _for(seconds: float, step_s: Any) -> list[float]:
    end, found = time.monotonic() + seconds, []
    while time.monotonic() < end:
        found.append(step_s())
    return found


if __name__ == "__main__":
    main(float(sys.argv[1]))
