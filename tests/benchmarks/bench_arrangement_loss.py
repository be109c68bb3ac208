"""The held-out loss after fifty steps of 320 proteins, by the plain Trainer and by trainwiz, with three seeds each.

It computes for hours. TRAINWIZ_BENCHMARK_KEPT names a folder that keeps each training that has ended: the next run goes on.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pyarrow.parquet as pq
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer, DataCollatorForLanguageModeling

from tests.benchmarks.arrangement_arms import OURS, PLAIN, PROTEINS, SHARED, Arm, Place
from tests.benchmarks.measure import Result

STEPS, SEEDS = 50, (1, 2, 3)
ARMS = (PLAIN[1], OURS)
LIMIT = 2.776
"""Student's t of two means of three, 4 degrees of freedom, 5 % two-sided."""
ONLY_WHEN_NAMED = True


def run() -> list[Result]:
    if not SHARED.is_dir():
        print("  ../shared/data is not beside this checkout: nothing to train on")
        return []
    kept = os.environ.get("TRAINWIZ_BENCHMARK_KEPT")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(kept or temporary).resolve()
        pairs = [[_trained(name, seed, folder) for name in ARMS] for seed in SEEDS]
    plain, ours = (list(of_arm) for of_arm in zip(*pairs, strict=True))
    spread = ((stdev(plain) ** 2 + stdev(ours) ** 2) / len(SEEDS)) ** 0.5
    apart = mean(ours) - mean(plain)
    detail = (
        f"{mean(plain):.4f} and {mean(ours):.4f}, {apart:+.4f} apart; of seeds {stdev(plain):.4f} and {stdev(ours):.4f}"
    )
    return [Result("loss after 50 steps: difference / its standard error", abs(apart) / spread, LIMIT, detail)]


def _trained(name: str, seed: int, folder: Path) -> float:
    """The held-out loss of one training, which is done only where its result is not kept yet."""
    result = folder / f"{name.replace(' ', '-')}-{seed}.json"
    if not result.exists():
        # Half precision in both, where the processor computes in it: less than half the time.
        precision = "bf16" if torch.cpu._is_avx512_bf16_supported() else "fp32"
        place = Place(folder / f"data-{os.getpid()}", replace(PROTEINS, precision=precision))
        arm = Arm(name, place, steps=STEPS, seed=seed, waits=False, saves=True)
        try:
            seconds = [arm.read()["seconds"] for _ in range(STEPS)]
            arm.wait()
        finally:
            arm.end()
        said: dict[str, Any] = {"loss": held_out_loss(arm.model, place), "precision": precision, "seconds": seconds}
        result.write_text(json.dumps(said))
    found: dict[str, Any] = json.loads(result.read_text())
    print(
        f"  {name:<18} seed {seed}: {found['loss']:.4f} in {found['precision']}, {sum(found['seconds']):.0f} s",
        flush=True,
    )
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
