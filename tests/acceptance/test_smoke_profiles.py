"""Profiles as a person tries them first: `trainwiz --profile NAME --smoke --yes`, offline, on this machine.

What a smoke run keeps of each profile: tests/core/config/test_modes.py.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.plan.gather import plan_run
from trainwiz.core.profile.store import list_profiles

from tests.core.plan.machines import machine, real
from tests.each import each

PATIENCE_S = 1200.0
"""DeepSpeed compiles its optimizer once, for minutes on a busy machine."""
PROFILES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "2x2080super": ("masked-lm", "AutoModelForMaskedLM", {"strategy": "zero2", "world_size": 2, "adapters": False}),
    "3x3080-20g": ("seq2seq", "AutoModelForSeq2SeqLM", {"strategy": "ddp", "world_size": 2, "adapters": False}),
    "lora-r320-a100-80g": ("causal-lm", "AutoModelForCausalLM", {"strategy": "", "world_size": 1, "adapters": True}),
}
"""Each task with its engine, by the command (tests/engines has several without it) -> what loads its model, and what must have run."""


@pytest.mark.real
@pytest.mark.timeout(PATIENCE_S + 300)
@pytest.mark.parametrize("name", PROFILES)
def test_a_smoke_run_of_the_profile(name: str, tmp_path: Path) -> None:
    import transformers

    task, loader, engine = PROFILES[name]
    if engine["strategy"] == "zero2" and importlib.util.find_spec("deepspeed") is None:
        pytest.skip(f"{name} needs DeepSpeed, which is not installed")
    # No network, no cache of models or data sets.
    nothing = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "empty"), "HF_ENDPOINT": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-m", "trainwiz.tui.cli", "--profile", name, "--smoke", "--yes", "--output-dir", "run"],
        cwd=tmp_path, env={**os.environ, **nothing}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=PATIENCE_S,
    )  # fmt: skip
    run, log = tmp_path / "run", tmp_path / "run" / "train.log"
    assert done.returncode == 0, done.stdout + (log.read_text()[-6000:] if log.is_file() else "")
    state = json.loads((run / "state.json").read_text())
    assert (state["status"], state["task"]) == ("finished", task)
    assert state["engine"]["actual"] == state["engine"]["planned"] and not state["engine"].get("findings")
    assert state["engine"]["actual"].startswith(engine["strategy"])
    assert state["engine"]["world_size"] == engine["world_size"]
    assert bool(list(run.glob("checkpoint-*/adapter_model.safetensors"))) == engine["adapters"]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if isinstance(row.get("loss"), float)]
    third = len(losses) // 3
    assert len(losses) >= 4 and sum(losses[-third:]) < sum(losses[:third]), losses
    # An adapter's folder is loaded in the same way: transformers finds its base through peft.
    _, told = getattr(transformers, loader).from_pretrained(run / "final_model", output_loading_info=True)
    assert not told["missing_keys"] and not told["mismatched_keys"], told


@each("name", [profile.name for profile in list_profiles() if not profile.variants])
def test_every_profile_can_be_tried_on_a_cpu(name: str) -> None:
    plan = plan_run(PlanRequest(profile=name, mode="smoke"), real(machine(gpu=None), bitsandbytes="0.49"))
    assert not plan.errors
