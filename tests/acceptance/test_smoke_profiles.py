"""Every plain profile as a person tries it first: `trainwiz --profile NAME --smoke --yes`, offline, on this machine.

In every test run those run that are the first of their task with its adapters, or of their strategy with one process or
several; `make test-all` runs them all. Nothing is listed by hand: a new profile is tested because it is there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config.build import build_config
from trainwiz.core.profile import list_profiles

PATIENCE_S = 1200.0
"""DeepSpeed compiles its optimizer once, for minutes on a busy machine."""

LOADERS = {
    "masked-lm": "AutoModelForMaskedLM",
    "causal-lm": "AutoModelForCausalLM",
    "seq2seq": "AutoModelForSeq2SeqLM",
    "sequence-classification": "AutoModelForSequenceClassification",
}

pytestmark = [pytest.mark.real, pytest.mark.timeout(PATIENCE_S + 300)]


def kinds_of_profiles() -> dict[str, tuple[Any, ...]]:
    """Name of each profile that is one setup and not a guide to the letter -> what decides its task and engine."""
    kinds: dict[str, tuple[Any, ...]] = {}
    for profile in list_profiles():
        if profile.origin != "builtin" or profile.variants or profile.name.endswith("-guide"):
            continue
        config = build_config(profile, {})
        several = profile.hardware.num_gpus > 1
        by_devices = "ddp" if several else "single"
        strategy = config.engine.strategy or ("zero2" if config.engine.offload != "none" else by_devices)
        kinds[profile.name] = (config.task, config.peft.method, strategy, several)
    return kinds


def cases() -> list[Any]:
    """One parameter for each profile; those whose task and whose engine came before are for `make test-all` only."""
    seen: set[tuple[Any, ...]] = set()
    found = []
    for name, kind in kinds_of_profiles().items():
        trained, engine = kind[:2], kind[2:]
        found.append(pytest.param(name, marks=[pytest.mark.all] if {trained, engine} <= seen else []))
        seen |= {trained, engine}
    return found


@pytest.mark.parametrize("name", cases())
def test_a_smoke_run_of_the_profile(name: str, tmp_path: Path) -> None:
    kind = kinds_of_profiles()[name]
    if kind[2].startswith("zero") and importlib.util.find_spec("deepspeed") is None:
        pytest.skip(f"{name} needs DeepSpeed, which is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "trainwiz.tui.cli", "--profile", name, "--smoke", "--yes", "--output-dir", "run"],
        cwd=tmp_path,
        env=offline(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
    )
    run = tmp_path / "run"
    assert done.returncode == 0, done.stdout + log_of(run)
    state = json.loads((run / "state.json").read_text())
    assert state["status"] == "finished"
    assert state["engine"]["actual"] == state["engine"]["planned"]
    assert not state["engine"].get("findings")
    # The task, the adapters and the number of processes are the profile's own; only sizes are the machine's.
    assert (state["task"], "adapter" if kind[1] != "none" else "all weights") == (kind[0], trained_part(run))
    assert (state["engine"]["world_size"] > 1) == kind[3]
    assert_falls(losses(run))
    assert_loads(run / "final_model", kind)


def offline(folder: Path) -> Mapping[str, str]:
    """No network, no cache of models or data sets; what DeepSpeed compiled before is used again."""
    return {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "empty"), "HF_ENDPOINT": "http://127.0.0.1:9"}


def log_of(run: Path) -> str:
    log = run / "train.log"
    return f"\n--- train.log ---\n{log.read_text()[-6000:]}" if log.is_file() else ""


def losses(run: Path) -> list[float]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if isinstance(row.get("loss"), float)]


def assert_falls(values: list[float]) -> None:
    """The last third of the steps is below the first third."""
    third = max(1, len(values) // 3)
    assert len(values) >= 4, values
    assert sum(values[-third:]) / third < sum(values[:third]) / third, values


def trained_part(run: Path) -> str:
    """What the checkpoints hold."""
    checkpoint = max(run.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    return "adapter" if (checkpoint / "adapter_model.safetensors").is_file() else "all weights"


def assert_loads(folder: Path, kind: tuple[Any, ...]) -> None:
    """final_model loads by from_pretrained, no weight missing, and computes."""
    import torch
    import transformers

    # An adapter's folder is loaded in the same way: transformers finds its base through peft.
    model, told = getattr(transformers, LOADERS[kind[0]]).from_pretrained(folder, output_loading_info=True)
    assert not told["missing_keys"] and not told["mismatched_keys"], told
    if kind[0] in ("causal-lm", "seq2seq"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        inputs = tokenizer(["a word or two"], return_tensors="pt")
        with torch.no_grad():
            written = model.generate(**inputs, max_new_tokens=4)
        assert written.shape[0] == 1
        return
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[0, 5, 6, 2]])).logits
    assert torch.isfinite(logits).all()
