"""StartOrder, the keeper's log, and the engine that runs against the planned one."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainwiz.core.errors import Finding
from trainwiz.core.language import mark, tr
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.lost import ProcessId
from trainwiz.core.run.state import RunState
from trainwiz.core.supervise.recovery import Setup

# The keeper's own log (supervisor.log is its stderr): never a reason to fail.


def log(text: str) -> None:
    """One line with its time. A full disk loses the line, not the keeper."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        sys.stderr.flush()


def log_exception() -> None:
    """The traceback of the exception that is being handled."""
    log(traceback.format_exc().rstrip())


# The engine that was planned and the one that runs: a difference is a finding.

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


# StartOrder: what a front end hands to the keeper that it starts, as JSON on the keeper's stdin.


@dataclass(frozen=True, slots=True)
class StartOrder:
    """All that the keeper needs, so that it never has to load the configuration itself."""

    command: list[str]
    """The launcher with its arguments; it runs in the run folder, and the keeper adds --resume."""
    mark: str
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that are added to those of the front end."""
    system_every_s: float = 1.0
    resume: str | None = None
    """None from the beginning, "auto" the newest complete checkpoint, else the name of one."""
    owner: ProcessId | None = None
    """The foreground command that the run is tied to: the run is stopped when it is gone."""
    setup: Setup | None = None
    """What a start by itself may change; None: the keeper never starts the training again."""
    renew: list[str] = field(default_factory=list)
    """The command that writes the exported files again for changed settings and prints the launcher's `command`,
    `environment` and `setup` as JSON; none: the next attempt is started as this one was."""

    accept: list[str] = field(default_factory=list)
    """Parts of the run's identity that may differ from its record (core.run.identity)."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the record of the run: what was accepted."""

    def to_text(self) -> str:
        return json.dumps(
            {
                "command": self.command,
                "mark": self.mark,
                "environment": self.environment,
                "system_every_s": self.system_every_s,
                "resume": self.resume,
                "owner": self.owner.to_json() if self.owner else None,
                "setup": self.setup.to_json() if self.setup else None,
                "renew": self.renew,
                "accept": self.accept,
                "notes": self.notes,
            }
        )

    @classmethod
    def from_text(cls, text: str) -> StartOrder:
        """Raises ValueError or KeyError when the text is not an order."""
        document: dict[str, Any] = json.loads(text)
        return cls(
            command=[str(word) for word in document["command"]],
            mark=str(document["mark"]),
            environment={str(key): str(value) for key, value in document["environment"].items()},
            system_every_s=float(document["system_every_s"]),
            resume=document["resume"],
            owner=ProcessId.from_json(document["owner"]),
            setup=Setup.from_json(document.get("setup")),
            renew=[str(word) for word in document.get("renew") or []],
            accept=[str(word) for word in document.get("accept") or []],
            notes=[str(word) for word in document.get("notes") or []],
        )
