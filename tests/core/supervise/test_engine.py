"""The engine that runs, against the one that was planned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import RunState, read_state, write_state
from trainwiz.core.supervise.attempt import engine_findings, take_engine
from trainwiz.core.telemetry.run_source import RunSource

from tests.each import each

PLANNED = {
    "planned": "zero2+offload",
    "planned_values": {
        "device": "cuda", "precision": "bf16", "optimizer": "adamw_torch", "attention": "sdpa", "world_size": 2,
        "compile": False, "adapter": "lora",
    },
}  # fmt: skip
ACTUAL = {
    "actual": "zero2+offload", "device": "cuda:1", "precision": "bf16", "optimizer": "DeepSpeedCPUAdam",
    "attention": "sdpa", "world_size": 2, "compile": False, "adapter": "lora", "zero_stage": 2,
}  # fmt: skip


@each(
    ("key", "value", "message"),
    [
        ("actual", "ddp", "The engine is ddp but was planned as zero2+offload."),
        ("device", "cpu", "The device is cpu but was planned as cuda."),
        ("precision", "fp32", "The precision is fp32 but was planned as bf16."),
        ("optimizer", "SGD", "The optimizer is SGD but was planned as adamw_torch."),
        ("attention", "eager", "The attention is eager but was planned as sdpa."),
        ("world_size", 1, "The number of processes is 1 but was planned as 2."),
        ("compile", True, "torch.compile is on but was planned as off."),
        ("adapter", None, "The adapter is none but was planned as lora."),
    ],
)
def test_each_difference_is_one_sentence(key: str, value: Any, message: str) -> None:
    (finding,) = engine_findings({**PLANNED, **ACTUAL, key: value})
    assert (finding.message, finding.severity, finding.code) == (message, "warning", "engine_not_as_planned")


@each(
    ("planned", "actual", "stage", "differs"),
    [("bf16-true", "bf16", 2, False), ("bf16-true", "bf16", None, True), ("tf32", "fp32", None, True), ("fp16", "bf16", 2, True)],
)  # fmt: skip
def test_deepspeed_calls_bf16_true_bf16(planned: str, actual: str, stage: int | None, differs: bool) -> None:
    engine = {"planned_values": {"precision": planned}, "precision": actual, "zero_stage": stage}
    assert bool(engine_findings(engine)) is differs


def test_nothing_planned_is_no_difference() -> None:
    assert engine_findings({**PLANNED, **ACTUAL}) == ()
    assert engine_findings(ACTUAL) == ()
    assert engine_findings({**ACTUAL, "planned": "zero2+offload", "planned_values": "broken"}) == ()


def test_the_state_carries_the_findings_and_the_monitor_shows_them(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    state = RunState(status="finished", max_steps=129, engine=dict(PLANNED))
    assert not take_engine(state, run)
    # The steps of the process replace the planned ones, where they are some.
    for said, known in (("many", 129), (0, 129), (90, 90)):
        run.engine_json.write_text(json.dumps({"actual": "ddp", "max_steps": said}))
        assert take_engine(state, run) and state.max_steps == known
    run.engine_json.write_text(json.dumps({**ACTUAL, "actual": "ddp", "planned": "forged"}))
    assert take_engine(state, run)
    assert state.engine["planned"] == "zero2+offload"
    write_state(run, state)
    (finding,) = read_state(run).engine["findings"]
    advice = [item for item in RunSource(run).poll().advice if item.code == "engine_not_as_planned"]
    assert [(item.level, item.text) for item in advice] == [("warning", finding["message"])]
    assert "planned as zero2+offload" in finding["message"]
