"""A run that lives while it is looked at: a real recorder, a keeper's heartbeat, and metrics and log that grow.

`python -m tools.benchmarks.live_run FOLDER --points N` makes FOLDER a run folder with N points of each metric and
keeps it alive until it is ended.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.lost import machine_identity, this_process
from trainwiz.core.run.state import HEARTBEAT_EVERY_S, RunState, write_state
from trainwiz.core.supervise.recorder import Recorder

STEP_S = 1.0
MAX_STEPS = 10_000_000
SAMPLE_EVERY_S = 1.0


def metric_line(step: int, now_s: float, noise: random.Random) -> str:
    """One line of metrics.jsonl with the keys that the training writes."""
    row = {
        "time_s": now_s,
        "step": step,
        "epoch": round(step / 4000, 4),
        "loss": round(2.6 + noise.gauss(0, 0.05) + 0.5 * 2.7 ** (-step / 20_000), 4),
        "learning_rate": 4e-4 * min(1.0, step / 2000),
        "grad_norm": round(0.8 + noise.gauss(0, 0.05), 4),
        "tokens": step * 16_384,
        "real_tokens": step * 9_257,
        "tokens_per_s": 16_384 / STEP_S,
        "real_tokens_per_s": 9_257 / STEP_S,
        "step_s": STEP_S,
        "data_wait_s": 0.02,
        "peak_allocated_bytes": 5 * 1024**3,
    }
    return json.dumps(row) + "\n"


def write_points(run: RunFolder, points: int) -> None:
    """A run of `points` logged steps, the last one now."""
    noise = random.Random(1)
    now_s = time.time()
    run.path.mkdir(parents=True, exist_ok=True)
    run.run_yaml.write_text(f"name: {run.path.name}\n", encoding="utf-8")
    with run.metrics_jsonl.open("w", encoding="utf-8") as file:
        for step in range(1, points + 1):
            file.write(metric_line(step, now_s - (points - step) * STEP_S, noise))
    run.train_log.write_text("".join(f"loaded shard {shard}\n" for shard in range(200)), encoding="utf-8")


def live(run: RunFolder, step: int, log_lines_per_s: float) -> None:
    """Keep the run alive: a step every STEP_S, a heartbeat, samples of the machine, lines of the log."""
    noise = random.Random(2)
    state = RunState(
        status="running",
        name=run.path.name,
        max_steps=MAX_STEPS,
        created_s=time.time() - step * STEP_S,
        started_s=time.time() - step * STEP_S,
        host="workstation",
        machine=machine_identity(),
        supervisor=this_process(),
    )
    recorder = Recorder(run, SAMPLE_EVERY_S)
    recorder.start()
    next_beat = next_step = time.monotonic()
    logged, began = 0, time.monotonic()
    print("alive", flush=True)
    while True:
        now = time.monotonic()
        if now >= next_beat:
            state.heartbeat_s = time.time()
            write_state(run, state)
            next_beat += HEARTBEAT_EVERY_S
        if now >= next_step:
            step += 1
            with run.metrics_jsonl.open("a", encoding="utf-8") as file:
                file.write(metric_line(step, time.time(), noise))
            next_step += STEP_S
        wanted = int((now - began) * log_lines_per_s)
        if wanted > logged:
            with run.train_log.open("a", encoding="utf-8") as file:
                file.writelines(
                    f"2026-11-21 14:02:11 INFO trainer: line {line} of the log\n" for line in range(logged, wanted)
                )
            logged = wanted
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--log-lines-per-s", type=float, default=1.0)
    options = parser.parse_args()
    run = RunFolder(options.folder)
    write_points(run, options.points)
    live(run, options.points, options.log_lines_per_s)


if __name__ == "__main__":
    sys.exit(main())
