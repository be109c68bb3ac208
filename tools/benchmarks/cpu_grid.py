"""Steps of small models of six families on the CPU of this machine, beside what the rates of the machine say of them:

    python -m tools.benchmarks.cpu_grid steps.csv --state quiet --rates rates.json    # measures both; goes on where it stopped
    python -m tools.benchmarks.cpu_grid steps.csv --state busy --rates rates.json     # beside programs that take all cores
    python -m tools.benchmarks.cpu_grid steps.csv --rates rates.json --report         # plans anew, and prints the table
    python -m tools.benchmarks.cpu_grid steps.csv --rates rates.json --write docs/estimator.md

Each row of the CSV is one probe of `trainwiz bench`: real steps with random weights and rows of full length. `own_s` is the
time in which the step's own thread had a core: what the step takes on a machine with nothing else to do. The rates in
rates.json are measured first, in the same state of the machine, where they are not there yet. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import TrainwizError, usage_error
from trainwiz.core.hardware.machine import Rates
from trainwiz.core.hardware.read import probe_machine
from trainwiz.core.history.rates import measure_rates
from trainwiz.core.launch.probe import Probe
from trainwiz.core.plan.gather import Gathered, gather
from trainwiz.core.plan.refine import Refiner
from trainwiz.core.plan.result import Plan

from tools.benchmarks.grid_cells import Cell
from tools.benchmarks.measured_rows import Row, append_row, read_rows

SECONDS = 45.0
CONFIGS: dict[str, dict[str, Any]] = {
    "bert-tiny": {
        "model_type": "bert", "architectures": ["BertForMaskedLM"], "vocab_size": 30522, "hidden_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512,
    },
    "bert-mini-6x384": {
        "model_type": "bert", "architectures": ["BertForMaskedLM"], "vocab_size": 30522, "hidden_size": 384,
        "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536,
    },
    "gpt2-tiny": {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 5000, "n_embd": 128, "n_layer": 4, "n_head": 4,
    },
    "gpt2-4x512": {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 50257, "n_embd": 512, "n_layer": 4, "n_head": 8,
    },
    "qwen2-tiny": {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 8000, "hidden_size": 192,
        "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2,
        "max_position_embeddings": 2048, "tie_word_embeddings": True,
    },
    "qwen2-8x512": {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 32000, "hidden_size": 512,
        "intermediate_size": 1536, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2,
        "max_position_embeddings": 2048, "tie_word_embeddings": True,
    },
    "llama-8x768": {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 8000, "hidden_size": 768,
        "intermediate_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 12, "num_key_value_heads": 12,
        "max_position_embeddings": 2048, "tie_word_embeddings": False,
    },
    "t5-tiny": {
        "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 8000, "d_model": 128, "d_kv": 32,
        "d_ff": 512, "num_layers": 3, "num_decoder_layers": 3, "num_heads": 4, "decoder_start_token_id": 0, "pad_token_id": 0,
    },
    "t5-small": {
        "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 32128, "d_model": 512, "d_kv": 64,
        "d_ff": 2048, "num_layers": 6, "num_decoder_layers": 6, "num_heads": 8, "decoder_start_token_id": 0, "pad_token_id": 0,
    },
}  # fmt: skip
FUSED: dict[str, Any] = {"engine.optimizer": "adamw_torch_fused"}


def cells() -> list[Cell]:
    def cell(model: str, task: str, micro_batch: int, length: int, **values: Any) -> Cell:
        return Cell(
            model, task, "fp32", values.pop("attention", "sdpa"), micro_batch=micro_batch, length=length, **values
        )

    mlm, lm, pairs = "masked-lm", "causal-lm", "seq2seq"
    return [
        cell("esm2-tiny", mlm, 8, 128),
        cell("esm2-8m", mlm, 4, 256),
        cell("bert-tiny", mlm, 8, 64),
        cell("bert-mini-6x384", mlm, 8, 64),
        cell("gpt2-tiny", lm, 4, 128),
        cell("gpt2-4x512", lm, 2, 128),
        cell("qwen2-tiny", lm, 4, 256),
        cell("qwen2-8x512", lm, 2, 256),
        cell("llama-8x768", lm, 1, 256),
        cell("t5-tiny", pairs, 8, 64, target_length=64),
        cell("t5-small", pairs, 4, 64, target_length=64),
        cell("esm2-8m", mlm, 2, 128, checkpointing=True),
        cell("bert-mini-6x384", mlm, 2, 256, attention="eager"),
        cell("gpt2-4x512", lm, 1, 256, changes=FUSED, accumulation=2),
    ]


COLUMNS = ["cell", "state", "options", "config", "step_s", "own_s", "steps", "load", "parameters", "torch", "problem"]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--state", choices=["quiet", "busy"], default="quiet")
    parser.add_argument("--rates", type=Path, required=True, help="made where it is not there")
    parser.add_argument("--only", default="", help="cells whose name holds this")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of one probe, at most")
    parser.add_argument("--report", action="store_true", help="no step is measured")
    parser.add_argument("--write", type=Path, help="the page that the table is written into; no step is measured")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, busy_cores(options.state == "busy" and not options.report):
        rates = rates_of(options.rates)
        if not (options.report or options.write):
            measure(options, Path(folder))
        lines = table(read_rows(options.csv), rates, Path(folder))
    if options.write:
        write(options.write, lines)
    print("\n".join(lines))
    return 0


def rates_of(path: Path) -> Rates:
    """Those of the file; measured now where there is none."""
    if not path.exists():
        machine = probe_machine()
        path.write_text(json.dumps(measure_rates(machine, "cpu", (), None).to_json(), indent=1), encoding="utf-8")
    return Rates.from_json(json.loads(path.read_text(encoding="utf-8")))


@contextmanager
def busy_cores(busy: bool) -> Iterator[None]:
    """A program on each core that never waits."""
    count = probe_machine().cpu_cores if busy else 0
    programs = [subprocess.Popen([sys.executable, "-c", "while True: sum(range(10000))"]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def measure(options: argparse.Namespace, folder: Path) -> None:
    """Append a row for each cell that `csv` has no step of in this state."""
    import psutil

    done = {(row["cell"], row["state"]) for row in read_rows(options.csv) if row["own_s"]}
    for cell in cells():
        if options.only not in cell.name or (cell.name, options.state) in done:
            continue
        row: dict[str, Any] = {"cell": cell.name, "state": options.state, "config": json.dumps(CONFIGS.get(cell.model))}
        row["options"] = " ".join(f"{key}={value}" for key, value in cell.overrides(cell.model, "cpu").items())
        psutil.cpu_percent()
        try:
            row |= measured(planned(cell, folder), options.seconds)
        except TrainwizError as error:
            row["problem"] = " ".join(finding.message for finding in error.findings)
        row["load"] = psutil.cpu_percent() / 100
        append_row(options.csv, COLUMNS, row)
        print(f"{cell.name}: {row.get('problem') or (row['step_s'], row['own_s'])}", flush=True)


def measured(plan: Plan, seconds: float) -> dict[str, Any]:
    """One probe; raises TrainwizError for what does not run here."""
    lines: list[Mapping[str, Any]] = []
    with Probe(plan, None, limit_s=seconds, search=False) as probe:
        result = probe.run(lines.append)
    own = [float(line["own_s"]) for line in lines if line.get("event") == "step"]
    found = result.measurement
    assert found is not None and plan.work is not None
    if not own:
        raise usage_error("no_step", "bench", "no whole step in the time (--seconds)")
    return {
        "step_s": found.step_s,
        "own_s": statistics.median(own),
        "steps": found.steps,
        "parameters": plan.work.architecture.parameters,
        "torch": found.versions.get("torch", ""),
    }


def planned(cell: Cell, folder: Path, rates: Rates | None = None) -> Plan:
    """By formulas and rates alone: no step of any model was measured."""
    name = cell.model
    if name in CONFIGS:
        path = folder / name / "config.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(CONFIGS[name]), encoding="utf-8")
        name = str(path)
    found = gather(PlanRequest(overrides=cell.overrides(name, "cpu")))
    without_data = Gathered(found.profile, found.config, found.machine, found.model, None, found.findings)
    return Refiner(rates=lambda machine: () if rates is None else (rates,)).plan(without_data)


def table(rows: list[Row], rates: Rates, folder: Path) -> list[str]:
    """Predicted and measured, a line for each cell; then how far apart they are."""
    lines = [
        "| model, batch | parameters | predicted | likely range | quiet, measured | busy, by the clock | busy, own time | measured / predicted |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    ratios: list[float] = []
    inside = 0
    for cell in cells():
        found = {row["state"]: row for row in rows if row["cell"] == cell.name and row["own_s"]}
        if not found:
            continue
        time = planned(cell, folder, rates).time
        if time.step_s is None or time.step_low_s is None or time.step_high_s is None:
            continue
        own = [float(row["own_s"]) for row in found.values()]
        ratios += [seconds / time.step_s for seconds in own]
        inside += sum(time.step_low_s <= seconds <= time.step_high_s for seconds in own)
        each = {
            f"{state} {name}": f"{float(row[name]):.3f} s"
            for state, row in found.items()
            for name in ("step_s", "own_s")
        }
        parameters = f"{float(next(iter(found.values()))['parameters']) / 1e6:.1f}M"
        lines.append(
            f"| {cell.name} | {parameters} | {time.step_s:.3f} s | {time.step_low_s:.3f} to {time.step_high_s:.3f} s "
            f"| {each.get('quiet own_s', '-')} | {each.get('busy step_s', '-')} | {each.get('busy own_s', '-')} "
            f"| {', '.join(f'{seconds / time.step_s:.2f}' for seconds in own)} |"
        )
    if ratios:
        off = sorted(max(ratio, 1 / ratio) for ratio in ratios)
        lines += [
            "",
            f"{inside} of {len(ratios)} inside the range; off by a factor of {statistics.median(off):.2f} in the middle, "
            f"{off[-1]:.2f} at most. Rates of {rates.day}.",
        ]
    return lines


BEGIN, END = "<!-- generated: rates -->", "<!-- end: rates -->"


def write(page: Path, lines: list[str]) -> None:
    """Between the markers, which the page must have."""
    head, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    tail = rest.partition(END)[2]
    page.write_text("\n".join([head + BEGIN, "", *lines, "", END]) + tail, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
