"""Settles how several processes of one machine talk to each other."""

from __future__ import annotations

import re

from trainwiz.core.hardware.machine import UNKNOWN_LINK, Gpu, Machine
from trainwiz.core.language import tr
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.draft import Draft

ENVIRONMENT = "engine.environment"
DEFAULT_TIMEOUT_S = 1800
"""What transformers gives every process group."""
CONSUMER = re.compile(r"\b(RTX|GTX|TITAN)\b", re.IGNORECASE)
WORKSTATION = re.compile(r"\b(A\d{3,4}|RTX \d{4} Ada|Quadro|PRO)\b", re.IGNORECASE)
HAS_CONNECTOR = re.compile(r"\b(2080|3090|TITAN RTX)\b", re.IGNORECASE)
"""Consumer cards that can carry an NVLink bridge: the RTX 2080, 2080 Super, 2080 Ti, 3090, 3090 Ti."""


def settle_communication(draft: Draft, machine: Machine, devices: Devices, step_high_s: float | None) -> None:
    """NCCL's variables on consumer cards, and how long a process waits for the others."""
    if devices.world_size == 1:
        return
    _timeout(draft, step_high_s)
    if devices.device != "cuda" or devices.nodes > 1 or not devices.gpus:
        return
    if not all(_is_consumer(gpu) for gpu in devices.gpus):
        return
    name = (devices.gpus[0].name or "").removeprefix("NVIDIA ").removeprefix("GeForce ")
    if _without_nvlink(machine, devices.gpus):
        reason = tr(
            "{name} cards without NVLink have no direct path over PCIe in their driver: NCCL goes through host "
            "memory at once instead of trying it, and hanging where the driver says otherwise",
            name=name,
        )
        _put(draft, "NCCL_P2P_DISABLE", reason)
    _put(draft, "NCCL_IB_DISABLE", tr("the processes are on one machine: NCCL need not look for InfiniBand"))


def _is_consumer(gpu: Gpu) -> bool:
    name = gpu.name or ""
    return CONSUMER.search(name) is not None and WORKSTATION.search(name) is None


def _without_nvlink(machine: Machine, gpus: tuple[Gpu, ...]) -> bool:
    """True where it is known: by the links that were read, or because the card has no place for a bridge."""
    if all(gpu.links for gpu in gpus):
        return not any("NVLink" in link or tr(UNKNOWN_LINK) in link for gpu in gpus for link in gpu.links)
    return not any(HAS_CONNECTOR.search(gpu.name or "") for gpu in gpus)


def _put(draft: Draft, name: str, reason: str) -> None:
    """Set a variable that nobody chose."""
    key = f"{ENVIRONMENT}.{name}"
    if name not in draft.config.engine.environment:
        draft.put(key, "1", reason)


def _timeout(draft: Draft, step_high_s: float | None) -> None:
    """Longer than a step may last: a process that runs ahead waits for the slowest at its end."""
    longest = 3 * (step_high_s or 0.0)
    if longest <= DEFAULT_TIMEOUT_S:
        draft.settle(
            "engine.process_timeout_s", DEFAULT_TIMEOUT_S, tr("half an hour: a save or an evaluation may take long")
        )
        return
    rounded = -(-int(longest) // 600) * 600
    draft.settle(
        "engine.process_timeout_s",
        rounded,
        tr("a step may take {step_high_s} s; three of them", step_high_s=f"{step_high_s:,.0f}"),
    )
