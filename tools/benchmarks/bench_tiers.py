"""The two tiers of the preview: how near formulas are to a trace, how long each takes, and no torch in what draws.

`python -m tools.benchmarks tiers --quick` takes a few models and settings instead of all.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from trainwiz.core.estimate.memory import estimate_evaluation, estimate_memory
from trainwiz.core.tracing.request import TraceCache, TraceProblem, TraceRequest, TraceResult
from trainwiz.core.tracing.worker import TraceWorker

from tools.benchmarks.measure import Result
from tools.benchmarks.tier_settings import Case, cases
from tools.benchmarks.tier_sweep import Row, sweep

LARGE_VOCABULARY = 100_000
ANALYTIC_LIMIT, ANALYTIC_LIMIT_LARGE_VOCABULARY = 0.15, 0.25
ANALYTIC_LIMIT_S, TRACED_LIMIT_S, KILLED_AT_S = 0.005, 15.0, 60.0
TIMED_SETTING = "bf16 4x512"
NO_CACHE = TraceCache(Path(), most=0)

DRAWS = """
import json, sys
from trainwiz.tui import app
from trainwiz.core.tracing.request import TraceRequest
from trainwiz.core.tracing.request import TraceResult
from trainwiz.core.tracing.worker import TraceWorker
request = TraceRequest.from_json(json.loads(sys.argv[1]))
with TraceWorker() as worker:
    assert isinstance(worker.ask(request, 120), TraceResult)
print(sum(name in sys.modules for name in ("torch", "transformers", "accelerate", "peft")))
"""


def run() -> list[Result]:
    chosen = list(cases(quick="--quick" in sys.argv))
    rows = list(sweep(chosen))
    return [*accuracy(rows), *timings(chosen), killed(chosen), torch_where_it_draws(chosen)]


def accuracy(rows: list[Row]) -> list[Result]:
    large = [row for row in rows if row.case.work.architecture.vocabulary > LARGE_VOCABULARY]
    others = [row for row in rows if row not in large]
    missing = [row for row in rows if row.full is None]
    example = f"{missing[0].case.model}, {missing[0].case.setting}: {missing[0].problem}" if missing else ""
    return [
        worst("analytic against the trace", others, ANALYTIC_LIMIT),
        worst("the same, vocabulary above 100,000", large, ANALYTIC_LIMIT_LARGE_VOCABULARY),
        Result(f"cases of {len(rows)} without a trace", len(missing), 0, example),
    ]


def worst(claim: str, rows: list[Row], limit: float) -> Result:
    errors = [(abs(error), row) for row in rows if (error := row.error) is not None]
    if not errors:
        return Result(claim, 0.0, limit, "no case")
    most, row = max(errors, key=lambda one: one[0])
    outside = sum(error > limit for error, _ in errors)
    median = statistics.median(error for error, _ in errors)
    detail = f"median {median:.4f}, {outside} of {len(errors)} outside; worst: {row.case.model}, {row.case.setting}, "
    detail += f"{row.moment}: {row.analytic:,} against {row.full:,} bytes"
    return Result(claim, most, limit, detail)


def timings(chosen: list[Case]) -> list[Result]:
    """Seconds. The tracer is warm: it has traced each kind of model before."""
    analytic = []
    for case in chosen:
        started = time.perf_counter()
        estimate_memory(case.work)
        estimate_evaluation(case.work)
        analytic.append(time.perf_counter() - started)
    traced: list[tuple[float, str]] = []
    with TraceWorker(NO_CACHE) as worker:
        for repeat in range(2):
            for case in chosen:
                request = TraceRequest.of(case.work)
                if case.setting != TIMED_SETTING or request is None:
                    continue
                started = time.perf_counter()
                answer = worker.ask(request)
                if repeat and isinstance(answer, TraceResult):
                    traced.append((time.perf_counter() - started, case.model))
    slowest, model = max(traced, default=(0.0, "none"))
    median = statistics.median(seconds for seconds, _ in traced) if traced else 0.0
    return [
        Result(
            "formulas, slowest case in s",
            max(analytic),
            ANALYTIC_LIMIT_S,
            f"median {statistics.median(analytic):.5f} s",
        ),
        Result("traced, slowest model in s", slowest, TRACED_LIMIT_S, f"{model}; median {median:.2f} s"),
    ]


def killed(chosen: list[Case]) -> Result:
    """A model of a size that nobody traces in a minute."""
    request = TraceRequest.of(chosen[-1].work)
    assert request is not None
    llama = '{"model_type": "llama", "num_hidden_layers": 3000, "hidden_size": 4096, "vocab_size": 32000}'
    with TraceWorker(NO_CACHE) as worker:
        started = time.perf_counter()
        answer = worker.ask(replace(request, model_config=llama, task="causal-lm", target_length=0))
        seconds = time.perf_counter() - started
    said = answer.message if isinstance(answer, TraceProblem) else "it was traced in that time"
    return Result("a full trace of 3,000 layers ends, in s", seconds, KILLED_AT_S + 1, said)


def torch_where_it_draws(chosen: list[Case]) -> Result:
    request = TraceRequest.of(chosen[0].work)
    assert request is not None
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", DRAWS, json.dumps(request.to_json())]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return Result("heavy packages in a front end that has traced", float(done.stdout), 0, "torch, transformers, ...")
