"""Whole runs with training.loss_chunk against runs without: the same figures on every engine."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config import RunConfig

from tests.core.training.runs import metrics, tiny_config, train, write_run
from tests.core.training.text_runs import text_config

# Two runs each; compiling alone may take minutes on a busy machine.
pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

TWO: dict[str, Any] = {"engine__processes": 2, "batch__gradient_accumulation_steps": 1}
ZERO: dict[str, Any] = {**TWO, "engine__offload": "optimizer"}
LORA: dict[str, Any] = {"peft__method": "lora", "training__learning_rate": 1e-2}
CASES: list[Any] = [
    pytest.param("esm2", {**TWO, "engine__strategy": "ddp"}, id="esm2 on two processes"),
    *(
        pytest.param(model, changes, id=f"{model} {what}", marks=pytest.mark.all)
        for model, what, changes in (
            ("esm2", "recomputed", {**TWO, "engine__strategy": "ddp", "engine__checkpointing": True}),
            ("nllb-tiny", "with adapters on two processes", {**TWO, **LORA, "engine__strategy": "ddp"}),
            ("t5-chat-tiny", "smoothed", {"training__label_smoothing": 0.1}),
            ("gpt2-tiny", "in bf16", {"engine__precision": "bf16"}),
            ("qwen2-tiny", "compiled", {"engine__compile": True}),
            ("opus-mt-tiny", "zero2", {**ZERO, "engine__strategy": "zero2"}),
            ("esm2", "zero3", {**ZERO, "engine__strategy": "zero3"}),
            ("opus-mt-tiny", "zero3", {**ZERO, "engine__strategy": "zero3"}),
        )
    ),
]


def config_of(model: str, changes: dict[str, Any], chunk: int | None) -> RunConfig:
    values = {**changes, "training__max_steps": 3, "training__loss_chunk": chunk}
    return tiny_config(**values) if model == "esm2" else text_config(model, **values)


@pytest.mark.parametrize(("model", "changes"), CASES)
def test_a_run_in_slices_has_the_figures_of_one_without(model: str, changes: dict[str, Any], tmp_path: Path) -> None:
    if "engine__offload" in changes and importlib.util.find_spec("deepspeed") is None:
        pytest.skip("DeepSpeed is not installed (pip install deepspeed)")
    figures = []
    for chunk in (None, 7):
        config = config_of(model, changes, chunk)
        folder = write_run(tmp_path / str(chunk), config)
        assert train(folder, config)["step"] == 3
        lines = metrics(folder)
        figures.append([line[key] for line in lines for key in ("loss", "grad_norm", "eval_loss") if key in line])
    tolerance = 5e-3 if changes.get("engine__precision") == "bf16" else 1e-4
    assert len(figures[0]) >= 7
    assert figures[1] == pytest.approx(figures[0], rel=tolerance)
