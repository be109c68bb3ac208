"""The held-out loss after fifty steps of 320 proteins, by the plain Trainer and by trainwiz, with three seeds each.

It computes for hours, one training on each core; in half precision each takes up to 4 GB. TRAINWIZ_BENCHMARK_KEPT names a
folder that keeps each training's checkpoints and its loss: the next run goes on from them.
"""

from __future__ import annotations

import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from threading import Lock
from typing import Any

import pyarrow.parquet as pq
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer, DataCollatorForLanguageModeling

from tools.benchmarks.arrangement_arms import OURS, PLAIN, Arm
from tools.benchmarks.arrangement_place import SHARED, Place
from tools.benchmarks.bench_arrangement import PROTEINS
from tools.benchmarks.measure import Result

STEPS, SEEDS = 50, (1, 2, 3)
ARMS = (PLAIN[1], OURS)
SAVE_EVERY = 10
LIMIT = 2.776
"""Student's t of two means of three, 4 degrees of freedom, 5 % two-sided."""
ONE_AT_A_TIME = Lock()
"""The masks of held-out rows are drawn by torch's generator, which all threads share."""
ONLY_WHEN_NAMED = True


def run() -> list[Result]:
    if not SHARED.is_dir():
        print("  ../shared/data is not beside this checkout: nothing to train on")
        return []
    # Half precision in both, where the processor computes in it: less than half the time.
    precision = "bf16" if torch.cpu._is_avx512_bf16_supported() else "fp32"
    kept = os.environ.get("TRAINWIZ_BENCHMARK_KEPT")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(kept or temporary).resolve()
        place = Place(folder / f"data-{precision}", replace(PROTEINS, precision=precision))
        trainings = [(place, name, seed) for name in ARMS for seed in SEEDS]
        # Only losses count here, and four trainings of one thread do 1.4 times the steps of one of four threads.
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            losses = list(pool.map(_trained, *zip(*trainings, strict=True)))
    plain, ours = losses[: len(SEEDS)], losses[len(SEEDS) :]
    spread = ((stdev(plain) ** 2 + stdev(ours) ** 2) / len(SEEDS)) ** 0.5
    apart = mean(ours) - mean(plain)
    detail = (
        f"{mean(plain):.4f} and {mean(ours):.4f}, {apart:+.4f} apart; of seeds {stdev(plain):.4f} and {stdev(ours):.4f}"
    )
    return [Result("loss after 50 steps: difference / its standard error", abs(apart) / spread, LIMIT, detail)]


def _trained(place: Place, name: str, seed: int) -> float:
    """The held-out loss of one training, which is done only where its result is not kept yet."""
    precision = place.case.precision
    result = place.folder.parent / f"{name.replace(' ', '-')}-{seed}-{precision}.json"
    if not result.exists():
        arm = Arm(name, place, steps=STEPS, seed=seed, waits=False, save_every=SAVE_EVERY, threads=1)
        try:
            arm.wait()
        finally:
            arm.end()
        said = {"arm": name, "seed": seed, "steps": STEPS, "precision": precision}
        with ONE_AT_A_TIME:
            loss = held_out_loss(arm.model, place)
        result.write_text(json.dumps({**said, "loss": loss}))
    found: dict[str, Any] = json.loads(result.read_text())
    print(f"  {name:<18} seed {seed}: {found['loss']:.4f} in {precision}", flush=True)
    return float(found["loss"])


def held_out_loss(model_folder: Path, place: Place) -> float:
    """Nats for each masked token of the held-out rows, with the same masks for every model."""
    tokenizer = AutoTokenizer.from_pretrained(place.model)
    model: Any = AutoModelForMaskedLM.from_pretrained(model_folder).eval()
    texts = pq.read_table(place.held_out)[place.case.columns[0]].to_pylist()
    rows = sorted((tokenizer(text, truncation=True, max_length=place.case.length) for text in texts), key=_length)
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    torch.manual_seed(0)
    total, labels = 0.0, 0
    with torch.no_grad():
        for start in range(0, len(rows), place.case.micro_batch):
            batch = collate(rows[start : start + place.case.micro_batch])
            count = int((batch["labels"] != -100).sum())
            total += float(model(**batch).loss) * count
            labels += count
    return total / labels


def _length(row: Any) -> int:
    return len(row["input_ids"])
