"""The same training by the plain Trainer of transformers and by trainwiz: seconds of a step, and what it computes.

All trainings live at once and do their steps in turns, so that a busy machine slows all alike. The same model folder, rows,
optimizer, schedule and seed; with dynamic padding and with trainwiz the very same rows are in the same steps.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

from tools.benchmarks.arrangement_arms import OURS, PLAIN, Arm, turns
from tools.benchmarks.arrangement_place import SHARED, T5_SMALL, Case, Place
from tools.benchmarks.arrangement_work import Operations, Work, work_of
from tools.benchmarks.measure import Result

PROTEINS = Case("ESM-2 8M, UniRef90 at 512", "esm2-8m", "masked-lm", "proteins", 512, 20, 16)
PAIRS = Case("T5 of 11M, Chinese to English at 128", T5_SMALL, "seq2seq", "pairs", 128, 16, 16)
REPEATS = 3
SHARE_OF_GAIN = 0.9
FIXED, DYNAMIC, GROUPED = PLAIN
LAYERS, HIDDEN = 6, 320
PER_TOKEN = 6 * (LAYERS * 12 * HIDDEN**2 + HIDDEN**2 + 33 * HIDDEN)
PER_SQUARE = 12 * LAYERS * HIDDEN
"""ESM-2 8M: a matrix product takes 2 operations a weight and token forward and 4 backward; attention 4 x hidden for each
token and token that it sees, a layer, and twice that backward (Kaplan et al. 2020, section 2.1)."""


def esm_operations(length: int, target: int) -> float:
    return PER_TOKEN * length + PER_SQUARE * length**2


def tokens_of_both(source: int, target: int) -> float:
    return source + target


def run() -> list[Result]:
    if not SHARED.is_dir():
        print("  ../shared/data is not beside this checkout: nothing to train on")
        return []
    with tempfile.TemporaryDirectory() as folder:
        proteins = _measure(PROTEINS, Path(folder) / "proteins", 1, esm_operations)
        pairs = _measure(PAIRS, Path(folder) / "pairs", 8, tokens_of_both)
    possible = proteins[DYNAMIC].computed_operations / proteins[DYNAMIC].real_operations
    gain = proteins[DYNAMIC].computed_operations / proteins[OURS].computed_operations
    faster, faster_pairs = (of[DYNAMIC].seconds / of[OURS].seconds for of in (proteins, pairs))
    of_pairs = pairs[DYNAMIC].computed / pairs[OURS].computed
    return [
        Result(
            "proteins: computed operations, ours / dynamic padding",
            1 / gain,
            1 / (SHARE_OF_GAIN * possible),
            f"{gain:.2f} times fewer of {possible:.2f} that the lengths allow; limit: {SHARE_OF_GAIN:.0%} of it",
        ),
        Result(
            "proteins: time of the same steps, ours / dynamic padding",
            1 / faster,
            1 / (SHARE_OF_GAIN * gain),
            f"{faster:.2f} times the pace, limit: {SHARE_OF_GAIN:.0%} of {gain:.2f}; "
            f"the same rows: {proteins[OURS].real == proteins[DYNAMIC].real}",
        ),
        Result(
            "pairs: time of the same steps, ours / dynamic padding",
            1 / faster_pairs,
            1.0,
            f"{faster_pairs:.2f} times the pace; {of_pairs:.2f} times fewer tokens of "
            f"{pairs[DYNAMIC].computed / pairs[DYNAMIC].real:.2f} without any padding",
        ),
    ]


def _measure(case: Case, folder: Path, steps: int, operations: Operations) -> dict[str, Work]:
    """Arm -> all its measured steps together."""
    print(f"  {case.name}, {case.micro_batch} x {case.accumulation}, {case.precision}: seconds for {steps} step(s)")
    place = Place(folder, case)
    names = (FIXED, DYNAMIC, GROUPED, OURS)
    arms: list[Arm] = []
    try:
        arms += [Arm(name, place, steps=1000, seed=1, waits=True) for name in names]
        rounds = turns(arms, REPEATS, steps)
    finally:
        for arm in arms:
            arm.end()
    found = {}
    for number, name in enumerate(names):
        each = [work_of(done[number], operations) for done in rounds]
        whole = work_of([step for done in rounds for step in done[number]], operations)
        raw = " ".join(f"{one.seconds:.2f}" for one in each)
        pace = median(one.real / one.seconds for one in each)
        print(
            f"  {name:<24}{raw:<26} {pace:9,.0f} real tokens/s"
            f"   {whole.computed:>9,} tokens computed for {whole.real:>9,} real ones ({whole.computed / whole.real:.2f})"
            f"   {whole.computed_operations / whole.real_operations:.2f} times the operations",
            flush=True,
        )
        found[name] = whole
    return found
