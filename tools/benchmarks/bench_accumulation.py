"""How far two orders of one optimizer step are apart where an engine adds up gradients: real trainings, on the CPU.

Each row is one engine and number format. The table has, as relative differences of the gradient that the optimizer gets
(Euclidean norm of the difference over the norm):

- sum: the same micro-batches, the last one first. Only the sum differs.
- order: the rows arranged by length against the rows as drawn. Each row is computed beside others, so that in half
  precision it is rounded differently already before the sum.
- fp32: the rows as drawn against the same in fp32 throughout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch
from trainwiz.core.config import RunConfig
from trainwiz.core.export.launch_script import launch_command, launch_environment
from trainwiz.core.run.folder import DEEPSPEED_JSON

from tests.core.training.runs import tiny_config, write_run
from tools.benchmarks.accumulation_cell import GRADIENT, REVERSED
from tools.benchmarks.measure import Result

ROOT = Path(__file__).parents[2]
MICRO_BATCH, ACCUMULATION = 2, 64
EXACT = 1e-5
"""What two orders may differ by where gradients are added in fp32."""
LIBRARIES = ("torch", "transformers", "accelerate", "deepspeed")
SIZES = {"num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 256}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


ORDERS = ("drawn", f"drawn{REVERSED}", "arranged")
SUMS = {True: "fp32", False: "as weights"}
"""Whether deepspeed.json asks for data_types.grad_accum_dtype fp32, as ours do."""


@dataclass(frozen=True)
class Engine:
    """One training process at a time; `sums` of SUMS are compared."""

    precision: str
    strategy: str = "single"
    offload: str = "none"

    @property
    def sums(self) -> tuple[bool, ...]:
        half = self.precision in ("bf16", "fp16")
        return (False, True) if half and self.strategy != "single" else (True,)

    @property
    def name(self) -> str:
        return f"{self.strategy}{'+offload' if self.offload != 'none' else ''}, {self.precision}"


ENGINES = (
    Engine("fp32"),
    Engine("bf16"),
    Engine("bf16-true"),
    Engine("fp32", "zero2"),
    *(
        Engine(precision, strategy, offload)
        for precision in ("bf16", "fp16")
        for strategy, offload in (("zero1", "none"), ("zero2", "none"), ("zero2", "optimizer"))
    ),
)


def config_of(engine: Engine, *, arranged: bool) -> RunConfig:
    return tiny_config(
        engine__precision=engine.precision,
        engine__strategy=engine.strategy,
        engine__offload=engine.offload,
        engine__cpu_threads=2,
        model__architecture_overrides={**SIZES, **NO_DROPOUT},
        data__sources=[{"name": "sample-proteins", "max_rows": 400}],
        data__validation_rows=0,
        data__arrange_by_length=arranged,
        batch__micro_batch_size=MICRO_BATCH,
        batch__gradient_accumulation_steps=ACCUMULATION,
        batch__sequence_length=200,
        training__max_steps=1,
        training__max_grad_norm=0.0,
    )


def gradients(engine: Engine, place: Path) -> dict[tuple[bool, str], torch.Tensor]:
    """By how they are added and by the order of the rows."""
    folders = {}
    for in_fp32 in engine.sums:
        for order in ORDERS:
            config = config_of(engine, arranged=order == "arranged")
            folder = folders[in_fp32, order] = write_run(place / str(in_fp32) / order, config)
            if not in_fp32:
                file = folder / DEEPSPEED_JSON
                document = json.loads(file.read_text())
                del document["data_types"]
                file.write_text(json.dumps(document))
    launched = launch_command(config)[2:]
    words = [sys.executable, "-m", "accelerate.commands.launch", *launched[: launched.index("-m")]]
    words += ["-m", "tools.benchmarks.accumulation_cell", *map(str, folders.values())]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = {**os.environ, **launch_environment(config), "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{engine.name}: {done.stderr[-6000:]}")
    return {key: torch.load(folder / GRADIENT) for key, folder in folders.items()}


def apart(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first - second).norm() / second.norm())


def run() -> Iterator[Result]:
    print(f"{MICRO_BATCH} x {ACCUMULATION} rows; " + ", ".join(f"{name} {version(name)}" for name in LIBRARIES))
    print("| engine | added in | sum | order | fp32 |\n|---|---|---|---|---|")
    exact: torch.Tensor | None = None
    with tempfile.TemporaryDirectory() as place:
        for engine in ENGINES:
            found = gradients(engine, Path(place) / engine.name.replace(", ", "-"))
            for in_fp32 in engine.sums:
                drawn, reverse, arranged = (found[in_fp32, order] for order in ORDERS)
                exact = drawn if exact is None else exact
                # Those of fp16 hold the loss scale.
                scaled = drawn * (exact.norm() / drawn.norm()) if engine.precision == "fp16" else drawn
                figures = [apart(reverse, drawn), apart(arranged, drawn), apart(scaled, exact)]
                added = "bf16" if engine.precision == "bf16-true" else SUMS[in_fp32]
                print(f"| {engine.name} | {added} | " + " | ".join(f"{one:.1e}" for one in figures) + " |", flush=True)
                if engine.precision != "bf16-true" and in_fp32:
                    yield Result(
                        f"accumulation: {engine.name}", figures[0], EXACT, "one step's micro-batches, two orders"
                    )
