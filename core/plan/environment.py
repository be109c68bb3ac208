"""Environment variables: the rules, what they ask about a run, and what does not go together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from trainwiz.core.config.keys import ENVIRONMENT
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.estimate.host import LOW_MEMORY_BYTES, batch_bytes
from trainwiz.core.hardware.machine import UNKNOWN_LINK, Gpu, gpu_label
from trainwiz.core.language import mark, tr
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.words import gib

# The rules of profiles/environment.yaml: which environment variables a run gets or should not have, and why.

RULES_FILE = "environment.yaml"


@dataclass(frozen=True, slots=True)
class VariableRule:
    """A value that a run gets where the conditions hold."""

    variable: str
    when: Mapping[str, bool]
    """Condition (see conditions_of) -> what it must be."""
    text: str
    """The reason, without its full stop; in English, for `tr`, with the words of the situation in braces."""
    sources: list[str]
    value: str
    """That the run gets where nobody set another one; may hold {interface} and other words of the situation."""

    def holds(self, conditions: Mapping[str, bool | None]) -> bool:
        return all(conditions[name] is wanted for name, wanted in self.when.items())


@cache
def load_variable_rules() -> tuple[VariableRule, ...]:
    """In the order of the file."""
    import yaml  # plans need it, and what only reads a run does not

    text = resources.files("trainwiz.profiles").joinpath(RULES_FILE).read_text(encoding="utf-8")
    return tuple(VariableRule(**row) for row in yaml.safe_load(text)["choices"])


# Conditions: what the rules of profiles/environment.yaml ask about a run. Values only; nothing is read here.

CONSUMER = re.compile(r"\b(RTX|GTX|TITAN)\b", re.IGNORECASE)
WORKSTATION = re.compile(r"\b(A\d{3,4}|RTX \d{4} Ada|Quadro|PRO)\b", re.IGNORECASE)
HAS_CONNECTOR = re.compile(r"\b(2080|3090|TITAN RTX)\b", re.IGNORECASE)
"""Consumer cards that can carry an NVLink bridge: the RTX 2080, 2080 Super, 2080 Ti, 3090, 3090 Ti."""
TURING = (7, 5)
"""GeForce cards before it have peer access over PCIe in their driver; those from it on have it over NVLink alone."""

NCCL_PROCESS_BYTES = 4 * 9_637_888
"""Shared memory of a process: two channels to two neighbours, each a segment as NCCL's own messages name it
(github.com/NVIDIA/nccl/issues/342 and 290)."""


def conditions_of(plan: Plan) -> dict[str, bool | None]:
    """Each condition is yes, no, or None where it is not known; a rule that asks for what is not known does not hold.

    Batch and loading are resolved before.
    """
    machine, devices = plan.machine, plan.devices
    on_gpu = devices.device == "cuda"
    consumer = bool(devices.gpus) and all(is_consumer(gpu) for gpu in devices.gpus)
    since_turing = all(gpu.capability is not None and gpu.capability >= TURING for gpu in devices.gpus)
    shared = machine.shared_memory_bytes
    return {
        # NVIDIA cards compute, several of one machine with a process each; all of them are GeForce or TITAN.
        "on_gpu": on_gpu,
        "several_on_node": on_gpu and devices.processes > 1,
        "several_nodes": devices.nodes > 1,
        "consumer": consumer,
        # No where the driver has no direct path between the cards; not known where nothing says so.
        "peer_access": False if consumer and since_turing and _nvlink(devices.gpus) is False else None,
        # The traffic between cards of one machine goes, or may go, through host memory.
        "through_host": _through_host(plan),
        "wsl": machine.wsl,
        # Smaller than what NCCL and the loader put into /dev/shm.
        "small_shared_memory": None if shared is None else shared < shared_memory_needed(plan),
        "interface_known": bool(machine.network_interfaces) and not machine.hypothetical,
        # So little RAM that what each process holds of it decides.
        "low_memory": 0 < machine.ram_total_bytes < LOW_MEMORY_BYTES,
    }


def condition_words(plan: Plan) -> dict[str, str]:
    """What the texts and values of the rules may name."""
    machine, gpus = plan.machine, plan.devices.gpus
    return {
        "cards": gpu_label(gpus[0]) if gpus else "",
        "shared_memory": gib(machine.shared_memory_bytes or 0),
        "needed": gib(shared_memory_needed(plan)),
        "interface": next(iter(machine.network_interfaces), ""),
    }


def _through_host(plan: Plan) -> bool:
    devices = plan.devices
    return devices.device == "cuda" and devices.processes > 1 and _nvlink(devices.gpus) is not True


def shared_memory_needed(plan: Plan) -> int:
    """Bytes of /dev/shm: NCCL's buffers between cards without NVLink, and the batches that loader workers hand over."""
    devices, get = plan.devices, plan.get
    nccl = devices.processes * NCCL_PROCESS_BYTES if _through_host(plan) else 0
    waiting = (get("data.workers") or 0) * (get("data.prefetch") or 1)
    length, target = get("batch.sequence_length"), get("batch.target_length") or 0
    return nccl + devices.processes * waiting * batch_bytes(get("batch.micro_batch_size") or 1, length, target)


def is_consumer(gpu: Gpu) -> bool:
    name = gpu.name or ""
    return CONSUMER.search(name) is not None and WORKSTATION.search(name) is None


def _nvlink(gpus: tuple[Gpu, ...]) -> bool | None:
    """By the links that were read, or because the card has no place for a bridge; None where it is not known."""
    links = " ".join(link for gpu in gpus for link in gpu.links)
    if gpus and all(gpu.links for gpu in gpus):
        return True if "NVLink" in links else None if tr(UNKNOWN_LINK) in links else False
    bridged = any(HAS_CONNECTOR.search(gpu.name or "") or not is_consumer(gpu) for gpu in gpus)
    return None if bridged else False


# How several processes talk to each other: the environment variables of a run, and how long it waits.

DEFAULT_TIMEOUT_S = 1800
"""What transformers gives every process group."""


def resolve_communication(plan: Plan) -> None:
    """The variables of the rules that hold here (of two for one variable the first), and how long a process waits."""
    conditions, words = conditions_of(plan), condition_words(plan)
    if plan.devices.world_size > 1:
        # Longer than a step may last: a process that runs ahead waits for the slowest at its end.
        step_s = plan.pace.step.high if plan.pace is not None else 0.0
        timeout = max(DEFAULT_TIMEOUT_S, -(-int(3 * step_s) // 600) * 600)
        why = mark("three times the longest expected step ({step_s} s), and at least half an hour")
        plan.resolve("engine.process_timeout_s", timeout, tr(why, step_s=f"{step_s:,.0f}"))
    done = set(plan.config.engine.environment)
    for rule in load_variable_rules():
        if rule.variable not in done and rule.holds(conditions):
            done.add(rule.variable)
            plan.put(f"{ENVIRONMENT}.{rule.variable}", rule.value.format(**words), tr(rule.text, **words))


# Shared memory that is too small.

SHM_SIZE = mark("start the container with more: docker run --shm-size=1g (or --ipc=host)")


def environment_findings(plan: Plan) -> Iterator[Finding]:
    there, needed, workers = plan.machine.shared_memory_bytes, shared_memory_needed(plan), plan.get("data.workers")
    if there is not None and there < needed and (workers or _through_host(plan)):
        message = tr(
            "/dev/shm has {there}, but about {needed} is needed: the processes exchange batches and gradients there.",
            there=gib(there),
            needed=gib(needed),
        )
        no_workers = [(tr("no data loader workers"), {"data.workers": 0})] if workers else []
        yield plan.finding("shared_memory", "warning", "hardware", message, Remedy(tr(SHM_SIZE)), *no_workers)
