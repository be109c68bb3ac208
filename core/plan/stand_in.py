"""What a smoke run takes in the place of what this machine cannot run."""

from __future__ import annotations

from trainwiz.core.findings import Finding
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.language import tr
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.draft import Draft
from trainwiz.core.plan.hardware_findings import BITSANDBYTES_OPTIMIZERS

OPTIMIZER = "engine.optimizer"


def optimizer_stand_in(draft: Draft, machine: Machine, devices: Devices) -> tuple[Finding, ...]:
    """A smoke run goes on with torch's AdamW where bitsandbytes or its GPU is missing, and says so."""
    optimizer = draft.get(OPTIMIZER)
    if draft.get("mode.kind") != "smoke" or optimizer not in BITSANDBYTES_OPTIMIZERS or machine.hypothetical:
        return ()
    if devices.device == "cuda" and machine.libraries.has("bitsandbytes"):
        return ()
    if devices.device == "cuda":
        draft.put(OPTIMIZER, "adamw_torch", tr("smoke run: bitsandbytes is not installed here"))
        message = tr(
            "bitsandbytes is not installed, so this smoke run does not exercise the optimizer {optimizer}; "
            "install it with: pip install bitsandbytes",
            optimizer=optimizer,
        )
    else:
        draft.put(OPTIMIZER, "adamw_torch", tr("smoke run: optimizers in 8 bits need an NVIDIA GPU"))
        message = tr(
            "Optimizers in 8 bits need an NVIDIA GPU, so this smoke run does not exercise the optimizer {optimizer}.",
            optimizer=optimizer,
        )
    return (Finding("engine_not_exercised", "warning", OPTIMIZER, message),)
