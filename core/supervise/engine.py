"""The engine that was planned and the one that runs: a difference is a finding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.findings import Finding
from trainwiz.core.language import mark, tr
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.state import RunState

FAMILIES: Mapping[str, frozenset[str]] = {
    "adamw_torch": frozenset({"AdamW", "DeepSpeedCPUAdam", "FusedAdam"}),
    "adamw_torch_fused": frozenset({"AdamW", "DeepSpeedCPUAdam", "FusedAdam"}),
    "adafactor": frozenset({"Adafactor"}),
    "sgd": frozenset({"SGD"}),
    "adamw_bnb_8bit": frozenset({"AdamW", "AdamW8bit"}),
    "paged_adamw_8bit": frozenset({"AdamW", "AdamW8bit", "PagedAdamW8bit"}),
}
"""Setting -> classes that are it, each engine's own included (bitsandbytes calls its 8-bit AdamW AdamW too)."""

NAMES = {
    "actual": mark("The engine"),
    "world_size": mark("The number of processes"),
    "device": mark("The device"),
    "precision": mark("The precision"),
    "optimizer": mark("The optimizer"),
    "attention": mark("The attention"),
    "compile": "torch.compile",
    "adapter": mark("The adapter"),
}


def take_engine(state: RunState, run: RunFolder) -> bool:
    """Copy engine.json into the state, with `findings` about what differs from the plan. False while it is not there."""
    engine = read_json(run.engine_json)
    if engine is None:
        return False
    state.engine.update({key: value for key, value in engine.items() if not key.startswith("planned")})
    steps = engine.get("max_steps")
    if isinstance(steps, int) and steps > 0:
        # Only the training process knows how many samples joined texts make with a tokenizer of their own.
        state.max_steps = steps
    state.engine["findings"] = [finding.to_json() for finding in engine_findings(state.engine)]
    return True


def engine_findings(engine: Mapping[str, Any]) -> tuple[Finding, ...]:
    """One warning for each difference between `planned`, `planned_values` and what runs; values not planned are no difference."""
    values = engine.get("planned_values")
    planned = {**(values if isinstance(values, Mapping) else {}), "actual": engine.get("planned")}
    return tuple(
        Finding(
            "engine_not_as_planned",
            "warning",
            f"engine.{'planned' if key == 'actual' else key}",
            tr(
                "{what} is {actual} and was planned as {planned}.",
                what=tr(name),
                actual=_said(engine[key]),
                planned=_said(planned[key]),
            ),
        )
        for key, name in NAMES.items()
        if key in engine and planned.get(key) is not None and not _agrees(key, planned[key], engine)
    )


def _agrees(key: str, planned: Any, engine: Mapping[str, Any]) -> bool:
    actual = engine[key]
    if key == "device":
        return str(actual).split(":")[0] == str(planned)
    if key == "optimizer":
        return str(actual) in FAMILIES.get(str(planned), {str(actual)})
    if key == "precision" and engine.get("zero_stage") is not None:
        # DeepSpeed holds half-precision weights, which is what bf16-true means, and calls it bf16.
        return str(actual).removesuffix("-true") == str(planned).removesuffix("-true")
    if key == "adapter":
        return str(actual or "none") == str(planned)
    return bool(actual == planned)


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return tr("on") if value else tr("off")
    return tr("none") if value is None else str(value)
