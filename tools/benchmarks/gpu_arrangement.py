"""The same training by the plain Trainer and by trainwiz on a GPU of this machine:

    python -m tools.benchmarks.gpu_arrangement rows.csv                # all cases; goes on where it stopped
    python -m tools.benchmarks.gpu_arrangement rows.csv --only esm2-650m --steps 2
    python -m tools.benchmarks.gpu_arrangement rows.csv --report       # the table alone, nothing is measured

Each row of the CSV is one process: a step that is not counted, then some that are, always the same ones. It has the card for
itself; the kinds of trainings take turns, so that all age alike. Weights are random, rows are those of ../shared/data. With
--tiny the same on a CPU, with tiny models.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from trainwiz.core.catalog.gpus import spec_of
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.flops import micro_batch_flops
from trainwiz.core.estimate.time import gpu_rate
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.hardware.read import probe_machine

from tools.benchmarks.arrangement_arms import OURS, PLAIN, Arm
from tools.benchmarks.arrangement_place import SHARED, Case, Place, config_of
from tools.benchmarks.arrangement_table import COLUMNS, table
from tools.benchmarks.arrangement_work import Operations, work_of
from tools.benchmarks.grid_cells import LLM, LORA
from tools.benchmarks.measured_rows import append_row, read_rows

REPEATS, STEPS = 3, 2
NAMES = (*PLAIN, OURS)
OUT_OF_MEMORY = "out of memory"


def cases() -> list[Case]:
    """Each of them fits 24 GB. The windows hold 320 proteins, 512 pairs, 128 answers."""
    plain = {"device": "cuda", "precision": "bf16", "changes": {"engine.checkpointing": False}}
    adapters = {**plain, "changes": {"engine.checkpointing": False, **_written(LORA)}}
    return [
        Case("esm2-650m at 512", "esm2-650m", "masked-lm", "proteins", 512, 8, 40, **plain),
        Case("esm2-650m at 1,024", "esm2-650m", "masked-lm", "proteins", 1024, 4, 80, **plain),
        Case("t5-chat-0.2b, pairs at 128", "t5-chat-0.2b", "seq2seq", "pairs", 128, 32, 16, **plain),
        Case("nllb-600m, pairs at 128", "nllb-600m", "seq2seq", "pairs", 128, 16, 32, **plain),
        Case("LoRA of llama-1.1b, answers at 512", LLM, "causal-lm", "answers", 512, 4, 32, **adapters),
    ]


def tiny_cases() -> list[Case]:
    """The same kinds, for a try of this on any machine."""
    changes: dict[str, dict[str, Any]] = {
        "esm2-650m": {"model": "esm2-tiny", "length": 256},
        "t5-chat-0.2b": {"model": "t5-chat-tiny", "length": 64},
        # Its vocabulary is no smaller than the large one's.
        "nllb-600m": {"model": "nllb-tiny", "length": 32},
        LLM: {"model": "llama-tiny", "length": 128},
    }
    small = {"device": "cpu", "precision": "fp32", "micro_batch": 4, "accumulation": 4}
    chosen = [(case, changes[case.model]) for case in cases() if case.length < 1024]
    return [replace(case, name=change["model"], **change, **small) for case, change in chosen]


def _written(changes: dict[str, Any]) -> dict[str, Any]:
    """As --set takes them."""
    return {key: f"[{', '.join(value)}]" if isinstance(value, list) else value for key, value in changes.items()}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--steps", type=int, default=STEPS, help="that are counted, of each process")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--tiny", action="store_true", help="tiny models on the CPU")
    parser.add_argument("--report", action="store_true", help="nothing is measured")
    options = parser.parse_args(arguments)
    if not options.report:
        if not SHARED.is_dir():
            print("../shared/data is not beside this checkout: nothing to train on")
            return 1
        chosen = [case for case in (tiny_cases() if options.tiny else cases()) if options.only in case.name]
        measure(chosen, options.csv, options.repeats, options.steps)
    print("\n".join(table(read_rows(options.csv))))
    return 0


def measure(chosen: Iterable[Case], path: Path, repeats: int, steps: int) -> None:
    """Append a row for each case, kind of training and repeat that `path` does not have."""
    done = {(row["case"], row["arm"], row["repeat"]) for row in read_rows(path)}
    for case in chosen:
        todo = [(number, name) for number in range(repeats) for name in NAMES]
        todo = [(number, name) for number, name in todo if (case.name, name, str(number)) not in done]
        if not todo:
            continue
        with tempfile.TemporaryDirectory() as folder:
            place = Place(Path(folder), case)
            for number, name in todo:
                row = {"case": case.name, "arm": name, "repeat": number, **_measured(place, name, steps)}
                append_row(path, COLUMNS, row)
                print(f"{case.name}, {name}: {row.get('problem') or row['seconds']}", flush=True)


def _measured(place: Place, name: str, steps: int) -> dict[str, Any]:
    """One process."""
    case, row = place.case, _device(place.case)
    try:
        # One seed: all repeats do the same steps.
        arm = Arm(name, place, steps=1000, seed=1, waits=True)
    except RuntimeError as error:
        return {**row, "problem": " ".join(str(error).split())[:500]}
    try:
        arm.step()
        done = [arm.step() for _ in range(steps)]
    except RuntimeError as error:
        said = str(error)
        return {**row, "problem": OUT_OF_MEMORY if OUT_OF_MEMORY in said.lower() else " ".join(said.split())[-500:]}
    finally:
        arm.end()
    work = work_of(done, operations_of(place))
    return row | {
        "steps": steps,
        "seconds": work.seconds,
        "real_tokens": work.real,
        "computed_tokens": work.computed,
        "real_operations": work.real_operations,
        "computed_operations": work.computed_operations,
        "peak_bytes": done[-1]["peak_bytes"],
        "step_rows": case.step_rows,
    }


def operations_of(place: Place) -> Operations:
    """Of one row, forward and backward, by the product's formulas; what checkpointing would compute twice not counted."""
    architecture, reason = read_architecture(config_of(place))
    if architecture is None:
        raise RuntimeError(reason)
    lora = "peft.method" in place.case.changes
    work = Workload(
        architecture=architecture,
        micro_batch=1,
        length=1,
        target_length=1,
        precision=place.case.precision,
        device=place.case.device,
        task=place.case.task,
        lora_rank=int(LORA["peft.rank"]) if lora else 0,
        lora_targets=tuple(LORA["peft.targets"]) if lora else (),
    )

    @cache
    def operations(source: int, target: int) -> float:
        return micro_batch_flops(replace(work, length=source, target_length=target))

    return operations


def _device(case: Case) -> dict[str, Any]:
    """The device and what it computes at best."""
    row: dict[str, Any] = {"precision": case.precision, "torch": torch.__version__}
    gpu = next(iter(probe_machine().visible_gpus), None) if case.device == "cuda" else None
    if gpu is None:
        return row | {"device": "CPU" if case.device == "cpu" else ""}
    spec = spec_of(gpu)
    rate = gpu_rate(spec, case.precision, tf32=False) if spec is not None else None
    return row | {"device": gpu.name, "peak_flops": rate.flops if rate is not None else ""}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
