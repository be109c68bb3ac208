"""Measures the grid of grid_cells.py on the GPU of this machine, through the probe of `trainwiz bench`:

    python -m tools.benchmarks.gpu_grid grid.csv                 # every cell, three times; goes on where it stopped
    python -m tools.benchmarks.gpu_grid grid.csv --only esm2-8m --seconds 20
    python -m tools.benchmarks.gpu_grid grid.csv --report        # fits one half, reports the other

Each row of the CSV is one probe: a process of its own, a few real steps with random weights and
rows of full length, beside what the plan for this machine said before it (a full trace, no
measurement). It needs torch with CUDA and the packages of the project, and no network. With --tiny
the same on a CPU, where there is no GPU memory to record.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainwiz.core.catalog.gpus import spec_of
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import TrainwizError
from trainwiz.core.estimate.flops import cost_of
from trainwiz.core.launch.probe import Probe
from trainwiz.core.launch.probe_order import ON_THE_LONGEST, ProbeResult
from trainwiz.core.plan.gather import Gathered, gather
from trainwiz.core.plan.refine import Refiner
from trainwiz.core.plan.result import Plan
from trainwiz.core.tracing.request import TraceRequest, TraceResult
from trainwiz.core.tracing.worker import TraceWorker

from tools.benchmarks.grid_cells import CONFIGS, Cell, cells, tiny_cells
from tools.benchmarks.grid_fit import report
from tools.benchmarks.measured_rows import append_row, read_rows

REPEATS = 3
SECONDS = 20.0
STEPS = 8
"""Of one probe that are timed."""
LOADING_S, LONGEST_S = 180.0, 3600.0
TRACE_S = 120.0
COLUMNS = [
    "cell", "half", "repeat", "gpu", "torch", "precision", "accumulation", "measured_micro_batch", "problem",
    "allocated_bytes", "reserved_bytes", "used_bytes", "host_rss_bytes", "step_s", "step_low_s", "step_high_s", "steps",
    "peak_flops", "bandwidth_bytes_per_s", "traced_allocated_bytes", "traced_reserved_bytes", "flops", "moved_bytes",
    "kernels", "parameters", "tier", "planned_allocated_bytes", "planned_low_bytes", "planned_high_bytes",
    "planned_reserved_bytes", "planned_used_bytes", "planned_step_low_s", "planned_step_high_s",
]  # fmt: skip


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--only", default="", help="cells whose name holds this")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the steps of one probe, at most")
    parser.add_argument(
        "--ahead", type=int, default=3, help="probes that load while one computes; each holds its weights"
    )
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--tiny", action="store_true", help="two tiny cells on the CPU")
    parser.add_argument("--report", action="store_true", help="nothing is measured")
    options = parser.parse_args(arguments)
    if not options.report:
        chosen = [cell for cell in (tiny_cells() if options.tiny else cells()) if options.only in cell.name]
        measure(chosen, options.csv, options.repeats, options.seconds, "cpu" if options.tiny else "cuda", options.ahead)
    print("\n".join(report(read_rows(options.csv))))
    return 0


def measure(chosen: Iterable[Cell], path: Path, repeats: int, seconds: float, device: str, ahead: int) -> None:
    """Append a row for each cell and repeat that `path` does not have. Repeats go round, so that all age alike.

    Loading takes far longer than the steps: while one probe computes, the next `ahead` load and then stand still.
    """
    done = {(row["cell"], row["repeat"]) for row in read_rows(path)}
    todo = [(cell, number) for number in range(repeats) for cell in chosen if (cell.name, str(number)) not in done]
    with (
        TraceWorker() as worker,
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(2) as planner,
        ExitStack() as probes,
    ):
        plans = [planner.submit(_plan_of, cell, Path(folder), worker, device) for cell, _ in todo]
        begun: deque[Turn] = deque()
        for (cell, number), plan in zip(todo, plans, strict=True):
            begun.append(Turn(cell, number, plan, probes))
            if len(begun) > ahead:
                _keep(path, begun.popleft(), worker, seconds)
        for turn in begun:
            _keep(path, turn, worker, seconds)


class Turn:
    """A probe that loads, and then does its steps when it is its turn."""

    def __init__(self, cell: Cell, number: int, plan: Future[Plan], probes: ExitStack) -> None:
        self.row: dict[str, Any] = {
            "cell": cell.name, "half": cell.half, "repeat": number, "precision": cell.precision
        }  # fmt: skip
        self.plan: Plan | None = None
        self._end = ExitStack()
        probes.callback(self._end.close)
        try:
            self.plan = plan.result()
            self._probe = self._end.enter_context(Probe(self.plan, None, LONGEST_S, in_turns=True))
        except TrainwizError as error:
            self.plan, self.row["problem"] = None, _said(error)

    def measured(self, seconds: float) -> ProbeResult | None:
        """After the steps, or `seconds` of them; None where there is nothing to wait for."""
        if self.plan is None:
            return None
        ends_s, allowed = time.monotonic() + LOADING_S, False
        while time.monotonic() < ends_s and not self._probe.problem:
            events = [line.get("event") for line in self._probe.look()]
            if not allowed and "ready" in events:
                self._probe.allow(ON_THE_LONGEST + STEPS)
                ends_s, allowed = time.monotonic() + seconds, True
            if events.count("step") + events.count("short") >= STEPS:
                break
            time.sleep(0.05)
        result = self._probe.result()
        self._end.close()
        return result


def _keep(path: Path, turn: Turn, worker: TraceWorker, seconds: float) -> None:
    row, result = turn.row, turn.measured(seconds)
    if turn.plan is not None and result is not None:
        row |= planned_figures(turn.plan) | traced_figures(turn.plan, worker)
        row |= {"problem": result.problem} if result.measurement is None else _figures(result)
    append_row(path, COLUMNS, row)
    print(f"{row['cell']}: {row.get('problem') or row.get('step_s')}", flush=True)


def _plan_of(cell: Cell, folder: Path, worker: TraceWorker, device: str) -> Plan:
    """What is said before the probe: a full trace, no measurement. Raises TrainwizError for what does not run here."""
    gathered = gather(PlanRequest(overrides=cell.overrides(_model_name(cell.model, folder), device)))
    gathered = Gathered(gathered.profile, gathered.config, gathered.machine, gathered.model, None, gathered.findings)
    return Refiner(worker).improve(gathered, lambda better: None, tier="full")


def _said(error: TrainwizError) -> str:
    return " ".join(finding.message for finding in error.findings)


def _figures(result: ProbeResult) -> dict[str, Any]:
    measured = result.measurement
    assert measured is not None
    return {
        "accumulation": measured.accumulation,
        "measured_micro_batch": measured.micro_batch,
        "problem": "",
        "torch": measured.versions.get("torch", ""),
        "allocated_bytes": measured.peak_allocated_bytes,
        "reserved_bytes": measured.peak_reserved_bytes,
        "used_bytes": measured.device_used_bytes,
        "host_rss_bytes": measured.host_rss_bytes,
        "step_s": measured.step_s,
        "step_low_s": measured.step_low_s,
        "step_high_s": measured.step_high_s,
        "steps": measured.steps,
    }


def planned_figures(plan: Plan) -> dict[str, Any]:
    memory, time = plan.memory, plan.time
    return {
        "gpu": plan.machine.visible_gpus[0].name if plan.machine.visible_gpus else "",
        "tier": memory.tier,
        "planned_allocated_bytes": memory.allocated_bytes,
        "planned_low_bytes": memory.low_bytes,
        "planned_high_bytes": memory.high_bytes,
        "planned_reserved_bytes": memory.reserved_bytes,
        "planned_used_bytes": memory.device_used_bytes,
        "planned_step_low_s": time.step_low_s,
        "planned_step_high_s": time.step_high_s,
    }


def traced_figures(plan: Plan, worker: TraceWorker) -> dict[str, Any]:
    """Of one micro-batch, and the card's own rates."""
    request = TraceRequest.of(plan.work) if plan.work is not None else None
    answer = worker.ask(request, TRACE_S) if request is not None else None
    rates = _rates(plan)
    if plan.work is None or not isinstance(answer, TraceResult):
        return rates
    return rates | {
        "traced_allocated_bytes": answer.allocated_bytes,
        "traced_reserved_bytes": answer.replay.likely if answer.replay else None,
        **asdict(cost_of(plan.work)),
        "parameters": answer.trainable_parameters,
    }


def _rates(plan: Plan) -> dict[str, Any]:
    specs = [spec for gpu in plan.machine.visible_gpus if (spec := spec_of(gpu)) is not None]
    precision = plan.config.engine.precision
    if not specs:
        return {}
    spec = specs[0]
    by_precision = {
        "fp16": spec.fp16_flops, "bf16": spec.bf16_flops, "bf16-true": spec.bf16_flops, "tf32": spec.tf32_flops,
    }  # fmt: skip
    rate = by_precision.get(str(precision), spec.fp32_flops)
    return {"peak_flops": rate or spec.fp32_flops, "bandwidth_bytes_per_s": spec.bandwidth_bytes_per_s}


def _model_name(model: str, folder: Path) -> str:
    """A catalogue name, or the path of a config.json that is written for it."""
    if model not in CONFIGS:
        return model
    path = folder / model / "config.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(CONFIGS[model]), encoding="utf-8")
    return str(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
