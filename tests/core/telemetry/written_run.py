"""Writes run folders in the real format, byte for byte as the supervisor and the training write them."""

import json
import math
import random
from pathlib import Path
from typing import Any

from trainwiz.core.run.folder import RunFolder
from trainwiz.core.telemetry.run_source import RunSource

NOW_S = 1_795_269_731.0
"""2026-11-21 14:02:11 UTC: the frozen clock of the tests."""
GIB = 1024**3


def write_run(
    folder: Path,
    *,
    status: str = "running",
    steps: int = 400,
    log_every: int = 4,
    max_steps: int = 500_000,
    step_s: float = 742.0,
    nan_at: tuple[int, ...] = (),
    gpus: int = 1,
    throttled: bool = False,
    exit_: dict[str, Any] | None = None,
    log: str | None = None,
    attempts: list[dict[str, Any]] | None = None,
    phase: dict[str, Any] | None = None,
) -> Path:
    """A run of `steps` logged steps that is now in `status`. The newest sample is NOW_S old by a second."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.yaml").write_text(f"name: {folder.name}\ntraining:\n  max_steps: {max_steps}\n")
    write_json(folder / "plan.json", plan(gpus, step_s, max_steps))
    record = state(folder.name, status, steps * log_every * step_s, max_steps, exit_)
    write_json(folder / "state.json", record | ({"attempts": attempts} if attempts else {}))
    if phase is not None:
        write_json(folder / "phase.json", phase)
    write_lines(folder / "metrics.jsonl", metric_rows(steps, log_every, step_s, nan_at))
    write_lines(folder / "system.jsonl", [system_row(index, gpus, throttled) for index in range(120)] if steps else [])
    (folder / "train.log").write_text(default_log() if log is None else log)
    if status == "finished":
        (folder / "final_model").mkdir(exist_ok=True)
    return folder


def source_of(path: Path, now_s: float = NOW_S) -> RunSource:
    return RunSource(RunFolder(path), clock=lambda: now_s)


def write_json(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document), encoding="utf-8")


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def state(name: str, status: str, age_s: float, max_steps: int, exit_: dict[str, Any] | None) -> dict[str, Any]:
    ended = status in ("finished", "failed", "stopped")
    return {
        "schema_version": 1, "status": status, "name": name, "profile": "2080super", "model": "esm2-650m",
        "max_steps": max_steps, "created_s": NOW_S - age_s - 5, "started_s": NOW_S - age_s,
        "ended_s": NOW_S if ended else None, "heartbeat_s": NOW_S - (1 if status != "lost" else 3600),
        "host": "workstation", "machine": "another-machine", "exit": exit_,
        "engine": {"planned": "zero2+offload", "actual": "zero2+offload"},
    }  # fmt: skip


def plan(gpus: int, step_s: float, max_steps: int) -> dict[str, Any]:
    used, low, high = (5.4, 5.1, 5.9) if gpus else (1.5, 1.2, 1.9)
    memory = {
        "tier": "analytic", "device": "GPU 0 · RTX 2080 Super" if gpus else "host RAM", "verdict": "fits",
        "allocated_bytes": 5 * GIB, "reserved_bytes": 5 * GIB, "capacity_bytes": 8 * GIB, "breakdown": {},
        "device_used_bytes": int(used * GIB), "low_bytes": int(low * GIB), "high_bytes": int(high * GIB),
        "peak_moment": "backward", "host_ram_bytes": int(21.4 * GIB), "host_ram_capacity_bytes": None,
        "host_ram_parts": {}, "disk_bytes": int(18.9 * GIB), "disk_capacity_bytes": None,
    }  # fmt: skip
    batch = {
        "micro_batch": 6, "accumulation": 651, "world_size": 1, "effective_samples": 3906, "sequence_length": 512,
        "effective_tokens": 1_999_872, "real_tokens": None, "target_tokens": None, "target_samples": None, "deviation": None,
    }  # fmt: skip
    size = 651_043_254
    model = {"name": "esm2-650m", "architecture": None, "parameters": size, "trainable_parameters": size}
    seconds = {"": 1.0, "_low": 0.62, "_high": 1.55}
    time = {f"total{end}_s": step_s * max_steps * share for end, share in seconds.items()}
    time |= {f"step{end}_s": step_s * share for end, share in (seconds | {"": 0.9}).items()}
    names = [{"uuid": f"GPU-{index}", "name": "NVIDIA GeForce RTX 2080 SUPER"} for index in range(gpus)]
    choice = {"key": "engine.precision", "value": "fp16", "origin": "detected", "reason": "sm 7.5 has no bf16"}
    return {
        "profile": "2080super", "machine": {"gpus": names}, "model": model, "batch": batch, "memory": memory,
        "time": {**time, "steps": max_steps}, "choices": [choice],
        "findings": [{"code": "long", "severity": "warning", "message": "The plan takes years."}],
    }  # fmt: skip


def metric_rows(steps: int, log_every: int, step_s: float, nan_at: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    noise = random.Random(7)
    rows: list[dict[str, Any]] = []
    for index in range(1, steps + 1):
        step = index * log_every
        loss = 2.6 + 0.5 * math.exp(-index / steps * 5) + noise.gauss(0, 0.02)
        at = {"time_s": NOW_S - (steps - index) * log_every * step_s - 30, "step": step, "epoch": round(step / 4000, 4)}
        tokens, tokens_per_s = step * 1_999_872, 1_999_872 / step_s
        rows.append({
            **at, "loss": math.nan if step in nan_at else round(loss, 4),
            "learning_rate": 4e-4 * min(1.0, index / 50) * (1 - 0.4 * index / steps),
            "grad_norm": round(0.8 + noise.gauss(0, 0.05), 4), "tokens": tokens, "real_tokens": int(tokens * 0.565),
            "tokens_per_s": tokens_per_s, "real_tokens_per_s": tokens_per_s * 0.565, "step_s": step_s,
            "data_wait_s": step_s * 0.02, "peak_allocated_bytes": 5 * GIB, "peak_reserved_bytes": int(5.2 * GIB),
        })  # fmt: skip
        if index % max(1, steps // 5) == 0:
            rows.append({**at, "time_s": at["time_s"] + 20, "eval_loss": loss + 0.09})
    return rows


def system_row(index: int, gpus: int, throttled: bool = False, count: int = 120) -> dict[str, Any]:
    noise = random.Random(index)
    throttled = throttled and index > count - 20
    cards = [
        {
            "index": number, "uuid": f"GPU-{number}", "name": "NVIDIA GeForce RTX 2080 SUPER", "memory_used_bytes": int((5.3 + 0.1 * number) * GIB),
            "utilization_percent": 96 - noise.randrange(8) * (index % 7 == 0) * 5, "memory_total_bytes": int(7.8 * GIB),
            "temperature_c": 62 + min(17, index // 3), "power_w": 225 + noise.randrange(20), "power_limit_w": 250,
            "throttle_reasons": ["heat (software)"] if throttled else [], "fan_percent": 62,
            "clock_mhz": 1815 - 150 * throttled, "clock_limit_mhz": 1980, "processes": [],
        }
        for number in range(gpus)
    ]  # fmt: skip
    sizes = [(0.04, 0.3, "supervisor"), (9.8 if gpus else 1.0, 180.0, "trainer")]
    sizes += [(0.7, 20.0, "loader")] * 12 if gpus else [(0.2, 20.0, "loader")] * 2
    return {
        "time_s": NOW_S - (count - index),
        "gpus": cards,
        "host": {
            "ram_used_bytes": int(24.1 * GIB), "ram_total_bytes": int(62.7 * GIB),
            "cpu_percent": 30.0 + noise.randrange(30), "disk_free_bytes": 181 * GIB,
        },
        "processes": [
            {"pid": 100 * (n + 1), "role": role, "rss_bytes": int(gib * GIB), "cpu_percent": cpu}
            for n, (gib, cpu, role) in enumerate(sizes)
        ],
        "unavailable": {} if gpus else {"gpus": "no NVIDIA driver on this machine"},
    }  # fmt: skip


def default_log() -> str:
    bar = "".join(f"\r{percent}%|{'#' * (percent // 10)}" for percent in range(0, 101, 10))
    return (
        "loading uniref.parquet: 10,000 rows\n"
        "\x1b[32mmodel\x1b[0m esm2-650m, 651,043,254 parameters\n"
        f"{bar}\n"
        "saved checkpoint-1200 (9.1 GB, 13 s)\n"
        "[bold]markup stays text[/bold]\n"
    )
