"""Environment variables: the rules, what they ask about a run, and what does not go together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from trainwiz.core.config.keys import ENVIRONMENT
from trainwiz.core.errors import Finding, Remedy, Severity
from trainwiz.core.estimate.host import LOW_MEMORY_BYTES, batch_bytes
from trainwiz.core.hardware.machine import UNKNOWN_LINK, Gpu
from trainwiz.core.language import mark, tr
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.words import gib
from trainwiz.core.text import plain_text

# The rules of profiles/environment.yaml: which environment variables a run gets or should not have, and why.

RULES_FILE = "environment.yaml"


@dataclass(frozen=True, slots=True)
class VariableRule:
    """A value that a run gets where the conditions hold, or one of somebody's that does not go with what the run has."""

    variable: str
    when: Mapping[str, bool]
    """Condition (see conditions_of) -> what it must be."""
    text: str
    """The reason, without its full stop; in English, for `tr`, with the words of the situation in braces."""
    sources: tuple[str, ...]
    value: str = ""
    """That the run gets where nobody set another one; may hold {interface} and other words of the situation."""
    severity: Severity = "note"
    """Of the finding where somebody set another value."""
    values: tuple[str, ...] = ()
    """Those of somebody's that are meant, in lower case; () for any."""
    instead: str | None = None
    """The value that would do; None takes the variable away."""
    renamed: str | None = None
    """What the variable is called today."""
    understood: str | None = None
    """Of the library that reads it, a regular expression: all other values are meant, whatever `values` says."""

    def means(self, value: str) -> bool:
        """Whether somebody's `value` is one of those that are meant."""
        if self.understood is not None:
            return re.fullmatch(self.understood, value.strip(), re.IGNORECASE) is None
        return not self.values or value.strip().lower() in self.values

    def holds(self, conditions: Mapping[str, bool | None]) -> bool:
        return all(conditions[name] is wanted for name, wanted in self.when.items())


@cache
def load_variable_rules() -> dict[str, tuple[VariableRule, ...]]:
    """Choices, conflicts and formats, in the order of the file; one for each of `variables` that are read alike."""
    import yaml  # plans need it, and what only reads a run does not

    text = resources.files("trainwiz.profiles").joinpath(RULES_FILE).read_text(encoding="utf-8")
    document: dict[str, list[dict[str, Any]]] = yaml.safe_load(text)

    def rules(kind: str) -> Iterator[VariableRule]:
        for row in document[kind]:
            values: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value for key, value in row.items()
            }
            for variable in values.pop("variables", None) or (values.pop("variable"),):
                yield VariableRule(variable, **values)

    return {kind: tuple(rules(kind)) for kind in ("choices", "conflicts", "formats")}


# Conditions: what the rules of profiles/environment.yaml ask about a run. Values only; nothing is read here.

CONSUMER = re.compile(r"\b(RTX|GTX|TITAN)\b", re.IGNORECASE)
WORKSTATION = re.compile(r"\b(A\d{3,4}|RTX \d{4} Ada|Quadro|PRO)\b", re.IGNORECASE)
HAS_CONNECTOR = re.compile(r"\b(2080|3090|TITAN RTX)\b", re.IGNORECASE)
"""Consumer cards that can carry an NVLink bridge: the RTX 2080, 2080 Super, 2080 Ti, 3090, 3090 Ti."""
TURING = (7, 5)
"""GeForce cards before it have peer access over PCIe in their driver; those from it on have it over NVLink alone."""

NCCL_SEGMENT_BYTES = 9_637_888
"""One shared-memory segment of NCCL as its own messages name it (github.com/NVIDIA/nccl/issues/342 and 290)."""
NCCL_CHANNELS = 2
"""Channels between cards that have no NVLink, as NCCL logs them ("Channel 00/02")."""
NCCL_PEERS = 2
"""Neighbours of a process in a ring."""


def conditions_of(plan: Plan) -> dict[str, bool | None]:
    """Each condition is yes, no, or None where it is not known; a rule that asks for what is not known does not hold.

    Batch and loading are resolved before.
    """
    machine, devices = plan.machine, plan.devices
    on_gpu = devices.device == "cuda"
    several = on_gpu and devices.processes > 1 and bool(devices.gpus)
    consumer = bool(devices.gpus) and all(is_consumer(gpu) for gpu in devices.gpus)
    nvlink = _nvlink(devices.gpus) if several else None
    since_turing = all(gpu.capability is not None and gpu.capability >= TURING for gpu in devices.gpus)
    shared = machine.shared_memory_bytes
    return {
        # NVIDIA cards compute, several of one machine with a process each; all of them are GeForce or TITAN.
        "on_gpu": on_gpu,
        "several_processes": devices.world_size > 1,
        "several_on_node": several,
        "several_nodes": devices.nodes > 1,
        "consumer": consumer,
        "nvlink": nvlink,
        # No where the driver has no direct path between the cards; not known where nothing says so.
        "peer_access": False if consumer and nvlink is False and since_turing else None,
        # The traffic between cards of one machine goes, or may go, through host memory.
        "through_host": several and nvlink is not True,
        "wsl": machine.wsl,
        # Smaller than what NCCL and the loader put into /dev/shm.
        "small_shared_memory": None if shared is None else shared < shared_memory_needed(plan),
        "infiniband": None if machine.infiniband is None else bool(machine.infiniband),
        "interface_known": bool(machine.network_interfaces) and not machine.hypothetical,
        "has_workers": bool(plan.get("data.workers")),
        # So little RAM that what each process holds of it decides.
        "low_memory": 0 < machine.ram_total_bytes < LOW_MEMORY_BYTES,
    }


def condition_words(plan: Plan) -> dict[str, str]:
    """What the texts and values of the rules may name."""
    machine, gpus = plan.machine, plan.devices.gpus
    card = (gpus[0].name or "") if gpus else ""
    return {
        "cards": card.removeprefix("NVIDIA ").removeprefix("GeForce "),
        "shared_memory": gib(machine.shared_memory_bytes or 0),
        "needed": gib(shared_memory_needed(plan)),
        "interface": machine.network_interfaces[0] if machine.network_interfaces else "",
    }


def shared_memory_needed(plan: Plan) -> int:
    """Bytes of /dev/shm: NCCL's buffers between cards without NVLink, and the batches that loader workers hand over."""
    devices, get = plan.devices, plan.get
    through_host = devices.device == "cuda" and devices.processes > 1 and _nvlink(devices.gpus) is not True
    nccl = devices.processes * NCCL_CHANNELS * NCCL_PEERS * NCCL_SEGMENT_BYTES if through_host else 0
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
    return False if all(is_consumer(gpu) and not HAS_CONNECTOR.search(gpu.name or "") for gpu in gpus) else None


# How several processes talk to each other: the environment variables of a run, and how long it waits.

DEFAULT_TIMEOUT_S = 1800
"""What transformers gives every process group."""


def resolve_communication(plan: Plan) -> None:
    """The variables of the rules that hold here (of two for one variable the first), and how long a process waits."""
    conditions, words = conditions_of(plan), condition_words(plan)
    if plan.devices.world_size > 1:
        # Longer than a step may last: a process that runs ahead waits for the slowest at its end.
        step_high_s = plan.pace.step.high if plan.pace is not None else 0.0
        timeout, why = DEFAULT_TIMEOUT_S, tr("half an hour: a save or an evaluation may be slow")
        if 3 * step_high_s > DEFAULT_TIMEOUT_S:
            timeout = -(-int(3 * step_high_s) // 600) * 600
            why = tr("three times the longest expected step ({step_high_s} s)", step_high_s=f"{step_high_s:,.0f}")
        plan.resolve("engine.process_timeout_s", timeout, why)
    done = set(plan.config.engine.environment)
    for rule in load_variable_rules()["choices"]:
        if rule.variable not in done and rule.holds(conditions):
            done.add(rule.variable)
            plan.put(f"{ENVIRONMENT}.{rule.variable}", rule.value.format(**words), tr(rule.text, **words))


# Environment variables of somebody's that do not go with what the run has, and shared memory that is too small.

ALLOCATOR, OLD_ALLOCATOR = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
INTERFACE_VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
EMPTY_IS_UNSET = ("NCCL_", "GLOO_")
"""What NCCL, gloo and torch's way to it do (src/misc/param.cc and src/misc/socket.cc of NCCL ask for a length above 0)."""
LONGEST_SHOWN = 60
SHM_SIZE = mark("start the container with more: docker run --shm-size=1g (or --ipc=host)")


def environment_findings(plan: Plan) -> Iterator[Finding]:
    conditions, own = conditions_of(plan), own_variables(plan)
    for name, value in own.items():
        yield from _own(plan, conditions, name, value)
    if ALLOCATOR in own and OLD_ALLOCATOR in own and own[ALLOCATOR] != own[OLD_ALLOCATOR]:
        message = tr(
            "{old} and {new} set torch's allocator differently; they are two names of the same setting.",
            old=OLD_ALLOCATOR,
            new=ALLOCATOR,
        )
        yield _finding(plan, "environment_conflict", "warning", OLD_ALLOCATOR, message, _left_out(plan, OLD_ALLOCATOR))
    yield from _interfaces(plan, own)
    if conditions["small_shared_memory"] and (conditions["through_host"] or conditions["has_workers"]):
        message = tr(
            "/dev/shm has {there}, but about {needed} is needed: the processes exchange batches and gradients there.",
            there=gib(plan.machine.shared_memory_bytes or 0),
            needed=gib(shared_memory_needed(plan)),
        )
        no_workers = [(tr("no data loader workers"), {"data.workers": 0})] if conditions["has_workers"] else []
        yield plan.warning("shared_memory", "hardware", message, Remedy(tr(SHM_SIZE)), *no_workers)


def _own(plan: Plan, conditions: dict[str, bool | None], name: str, value: str) -> Iterator[Finding]:
    """What somebody set, against the rules."""
    if name.startswith("NCCL_") and plan.devices.world_size == 1 and name != "NCCL_DEBUG":
        message = tr("{name} has no effect: NCCL connects several processes, and this run has one.", name=name)
        yield _finding(plan, "environment_unused", "note", name, message)
    if name.startswith(EMPTY_IS_UNSET) and not value.strip():
        message = tr(
            "{name} is empty, which its library treats as unset; the plan does not choose a value either.", name=name
        )
        yield _finding(plan, "environment_empty", "warning", name, message, _left_out(plan, name))
        return

    words = condition_words(plan)
    choices, conflicts, unreadable = (
        [rule for rule in rules if rule.variable == name and rule.holds(conditions)]
        for rules in load_variable_rules().values()
    )
    if any(rule.means(value) for rule in unreadable):
        yield _conflict(plan, unreadable[0], value)
        return
    for rule in choices[:1]:
        wanted = rule.value.format(**words)
        said = {"name": name, "value": _shown(value), "wanted": wanted, "reason": tr(rule.text, **words)}
        message = tr("{name} is {value}, but {wanted} is recommended for this machine: {reason}.", **said)
        if wanted != value:
            yield _finding(plan, "environment_contradicted", rule.severity, name, message, _set(name, wanted))
    yield from (_conflict(plan, rule, value) for rule in conflicts if rule.means(value))


def own_variables(plan: Plan) -> dict[str, str]:
    """Those that were not chosen by the plan."""
    environment, origins = plan.config.engine.environment, plan.config.origins
    solved = {key.removeprefix(f"{ENVIRONMENT}.") for key, origin in origins.items() if origin.origin == "solved"}
    return {name: value for name, value in environment.items() if name not in solved}


Words = tuple[str, Mapping[str, Any]]
"""Of a remedy, with its changes."""


def _finding(plan: Plan, code: str, severity: Severity, name: str, message: str, *remedies: Words) -> Finding:
    return plan.finding(code, severity, f"{ENVIRONMENT}.{name}", message, *remedies)


def _set(name: str, value: str) -> Words:
    return tr("set {name}={value}", name=name, value=value), {f"{ENVIRONMENT}.{name}": value}


def _left_out(plan: Plan, name: str) -> Words:
    return tr("remove {name}", name=name), {ENVIRONMENT: _without(plan, name)}


def _without(plan: Plan, name: str) -> dict[str, str]:
    return {other: value for other, value in own_variables(plan).items() if other != name}


def _conflict(plan: Plan, rule: VariableRule, value: str) -> Finding:
    name, remedy = rule.variable, _left_out(plan, rule.variable)
    message = tr("{name}={value}: {reason}.", name=name, value=_shown(value), reason=tr(rule.text))
    if rule.instead is not None:
        remedy = _set(name, rule.instead)
    elif rule.renamed is not None:
        words, _ = _set(rule.renamed, _shown(value))
        remedy = words, {ENVIRONMENT: {**_without(plan, name), rule.renamed: value}}
    return _finding(plan, "environment_conflict", rule.severity, name, message, remedy)


def _interfaces(plan: Plan, own: Mapping[str, str]) -> Iterator[Finding]:
    """A network interface that is not here: the processes would not find each other."""
    here = plan.machine.network_interfaces
    if plan.machine.hypothetical or not here or plan.devices.world_size == 1:
        return
    for name in INTERFACE_VARIABLES:
        value = own.get(name, "").strip()
        if not value or value.startswith("^") or value.removeprefix("=") == "lo":
            continue
        exact = value.startswith("=") or name.startswith("GLOO")
        wanted = [word.strip() for word in value.removeprefix("=").split(",") if word.strip()]
        if any(word == there or (not exact and there.startswith(word)) for word in wanted for there in here):
            continue
        message = tr(
            "{name} is {value}, but this machine has no such interface up; available: {interfaces}.",
            name=name,
            value=_shown(value),
            interfaces=", ".join(plain_text(interface) for interface in here),
        )
        yield _finding(plan, "unknown_interface", "error", name, message, _set(name, here[0]))


def _shown(value: str) -> str:
    return plain_text(value, LONGEST_SHOWN)
