"""Environment variables: the rules, what they ask about a run, and what does not go together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import ENVIRONMENT
from trainwiz.core.errors import Finding, Remedy, Severity
from trainwiz.core.estimate.host import LOW_MEMORY_BYTES, batch_bytes
from trainwiz.core.hardware.machine import UNKNOWN_LINK, Gpu, Machine
from trainwiz.core.language import mark, tr
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.draft import Draft, Facts
from trainwiz.core.plan.words import gib
from trainwiz.core.text import plain_text

# The rules of profiles/environment.yaml: which environment variables a run gets or should not have, and why.

RULES_FILE = "environment.yaml"


@dataclass(frozen=True, slots=True)
class VariableChoice:
    """A value that a run gets where the conditions hold and nobody set another one."""

    variable: str
    value: str
    """May hold {interface} and other words of the situation."""
    when: Mapping[str, bool]
    """Condition (a field of a Conditions) -> what it must be."""
    contradicted: Severity
    """Of the finding where somebody set another value."""
    text: str
    """The reason, without its full stop; in English, for `tr`, with the words of the situation in braces."""
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VariableConflict:
    """A value of somebody's that does not go with what the run has."""

    variable: str
    when: Mapping[str, bool]
    severity: Severity
    text: str
    sources: tuple[str, ...]
    values: tuple[str, ...] = field(default=())
    """The values that are meant, in lower case; () for any."""
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


@dataclass(frozen=True, slots=True)
class VariableRules:
    choices: tuple[VariableChoice, ...]
    conflicts: tuple[VariableConflict, ...]
    formats: tuple[VariableConflict, ...]
    """Values that the library does not understand."""


@cache
def load_variable_rules() -> VariableRules:
    """All rules, in the order of the file."""
    import yaml  # plans need it, and what only reads a run does not

    text = resources.files("trainwiz.profiles").joinpath(RULES_FILE).read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    return VariableRules(
        tuple(VariableChoice(**_row(row)) for row in document["choices"]),
        tuple(VariableConflict(**_row(row)) for row in document["conflicts"]),
        tuple(one for row in document["formats"] for one in _formats(row)),
    )


def _formats(row: Mapping[str, Any]) -> Iterator[VariableConflict]:
    """One rule for each of the `variables` that are read alike."""
    shared = {key: value for key, value in row.items() if key != "variables"}
    for variable in row["variables"]:
        yield VariableConflict(variable, **_row(shared))


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


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


@dataclass(frozen=True, slots=True)
class Conditions:
    """Each condition is yes, no, or None where it is not known; a rule that asks for what is not known does not hold."""

    on_gpu: bool
    """NVIDIA cards compute."""
    several_processes: bool
    several_on_node: bool
    """Several NVIDIA cards of one machine, a process each."""
    several_nodes: bool
    consumer: bool
    """All cards are GeForce or TITAN."""
    nvlink: bool | None
    peer_access: bool | None
    """False where the driver has no direct path between the cards; None where nothing says so."""
    through_host: bool
    """Several cards on one machine whose traffic goes, or may go, through host memory."""
    wsl: bool
    small_shared_memory: bool | None
    """/dev/shm is smaller than what NCCL and the loader put there."""
    infiniband: bool | None
    interface_known: bool
    has_workers: bool
    low_memory: bool
    """So little RAM that what each process holds of it decides."""

    def holds(self, when: Mapping[str, bool]) -> bool:
        return all(getattr(self, name) is wanted for name, wanted in when.items())


CONDITIONS = frozenset(one.name for one in fields(Conditions))
"""What a rule may ask for."""


def conditions_of(machine: Machine, devices: Devices, config: RunConfig) -> Conditions:
    """`config` may be a draft's view: batch and loading are resolved."""
    on_gpu = devices.device == "cuda"
    several = on_gpu and devices.processes > 1 and bool(devices.gpus)
    consumer = bool(devices.gpus) and all(is_consumer(gpu) for gpu in devices.gpus)
    nvlink = _nvlink(devices.gpus) if several else None
    shared = machine.shared_memory_bytes
    return Conditions(
        on_gpu=on_gpu,
        several_processes=devices.world_size > 1,
        several_on_node=several,
        several_nodes=devices.nodes > 1,
        consumer=consumer,
        nvlink=nvlink,
        peer_access=False if consumer and nvlink is False and _since_turing(devices.gpus) else None,
        through_host=several and nvlink is not True,
        wsl=machine.wsl,
        small_shared_memory=None if shared is None else shared < shared_memory_needed(devices, config),
        infiniband=None if machine.infiniband is None else bool(machine.infiniband),
        interface_known=bool(machine.network_interfaces) and not machine.hypothetical,
        has_workers=bool(config.data.workers),
        low_memory=0 < machine.ram_total_bytes < LOW_MEMORY_BYTES,
    )


def condition_words(machine: Machine, devices: Devices, config: RunConfig) -> dict[str, str]:
    """What the texts and values of the rules may name."""
    card = (devices.gpus[0].name or "") if devices.gpus else ""
    return {
        "cards": card.removeprefix("NVIDIA ").removeprefix("GeForce "),
        "shared_memory": gib(machine.shared_memory_bytes or 0),
        "needed": gib(shared_memory_needed(devices, config)),
        "interface": machine.network_interfaces[0] if machine.network_interfaces else "",
    }


def shared_memory_needed(devices: Devices, config: RunConfig) -> int:
    """Bytes of /dev/shm: NCCL's buffers between cards without NVLink, and the batches that loader workers hand over."""
    several = devices.device == "cuda" and devices.processes > 1
    through_host = several and _nvlink(devices.gpus) is not True
    nccl = devices.processes * NCCL_CHANNELS * NCCL_PEERS * NCCL_SEGMENT_BYTES if through_host else 0
    data, batch = config.data, config.batch
    waiting = (data.workers or 0) * (data.prefetch or 1)
    one = batch_bytes(batch.micro_batch_size or 1, batch.sequence_length, batch.target_length or 0)
    return nccl + devices.processes * waiting * one


def is_consumer(gpu: Gpu) -> bool:
    name = gpu.name or ""
    return CONSUMER.search(name) is not None and WORKSTATION.search(name) is None


def _since_turing(gpus: tuple[Gpu, ...]) -> bool:
    return all(gpu.capability is not None and gpu.capability >= TURING for gpu in gpus)


def _nvlink(gpus: tuple[Gpu, ...]) -> bool | None:
    """By the links that were read, or because the card has no place for a bridge; None where it is not known."""
    if gpus and all(gpu.links for gpu in gpus):
        links = [link for gpu in gpus for link in gpu.links]
        if any("NVLink" in link for link in links):
            return True
        return None if any(tr(UNKNOWN_LINK) in link for link in links) else False
    return False if all(is_consumer(gpu) and not HAS_CONNECTOR.search(gpu.name or "") for gpu in gpus) else None


# Resolves how several processes talk to each other: the environment variables of a run, and how long it waits.

DEFAULT_TIMEOUT_S = 1800
"""What transformers gives every process group."""


def resolve_communication(draft: Draft, machine: Machine, devices: Devices, step_high_s: float | None) -> None:
    """The variables of the rules that hold here, and how long a process waits for the others."""
    if devices.world_size > 1:
        _timeout(draft, step_high_s)
    _variables(draft, machine, devices)


def _variables(draft: Draft, machine: Machine, devices: Devices) -> None:
    """Set what nobody chose; of two rules for one variable the first that holds."""
    config = draft.view()
    situation = conditions_of(machine, devices, config)
    words = condition_words(machine, devices, config)
    done = set(draft.config.engine.environment)
    for rule in load_variable_rules().choices:
        if rule.variable in done or not situation.holds(rule.when):
            continue
        done.add(rule.variable)
        draft.put(f"{ENVIRONMENT}.{rule.variable}", rule.value.format(**words), tr(rule.text, **words))


def _timeout(draft: Draft, step_high_s: float | None) -> None:
    """Longer than a step may last: a process that runs ahead waits for the slowest at its end."""
    longest = 3 * (step_high_s or 0.0)
    if longest <= DEFAULT_TIMEOUT_S:
        draft.resolve(
            "engine.process_timeout_s", DEFAULT_TIMEOUT_S, tr("half an hour: a save or an evaluation may take long")
        )
        return
    rounded = -(-int(longest) // 600) * 600
    draft.resolve(
        "engine.process_timeout_s",
        rounded,
        tr("a step may take {step_high_s} s; three of them", step_high_s=f"{step_high_s:,.0f}"),
    )


# Environment variables of somebody's that do not go with what the run has, and shared memory that is too small.

ALLOCATOR, OLD_ALLOCATOR = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
INTERFACE_VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
EMPTY_IS_UNSET = ("NCCL_", "GLOO_")
"""What NCCL, gloo and torch's way to it do (src/misc/param.cc and src/misc/socket.cc of NCCL ask for a length above 0)."""
LONGEST_SHOWN = 60
SHM_SIZE = mark("give the container more: docker run --shm-size=1g (or --ipc=host)")


def environment_findings(facts: Facts) -> list[Finding]:
    situation = conditions_of(facts.machine, facts.devices, facts.config)
    return [*_own(facts, situation), *_allocators(facts), *_interfaces(facts), *_shared_memory(facts, situation)]


def _own(facts: Facts, situation: Conditions) -> Iterator[Finding]:
    """What somebody set, against the rules."""
    rules = load_variable_rules()
    words = condition_words(facts.machine, facts.devices, facts.config)
    for name, value in own_variables(facts).items():
        if name.startswith("NCCL_") and facts.devices.world_size == 1 and name != "NCCL_DEBUG":
            message = tr("{name} does nothing here: NCCL joins several processes, and this run has one.", name=name)
            yield Finding("environment_unused", "note", f"{ENVIRONMENT}.{name}", message)
        if name.startswith(EMPTY_IS_UNSET) and not value.strip():
            yield _empty(facts, name)
            continue
        unreadable = [one for one in rules.formats if one.variable == name and situation.holds(one.when)]
        if any(one.means(value) for one in unreadable):
            yield _conflict(facts, unreadable[0], value)
            continue
        choice = next((one for one in rules.choices if one.variable == name and situation.holds(one.when)), None)
        if choice is not None and choice.value.format(**words) != value:
            yield _contradicted(facts, choice, value, words)
        for conflict in rules.conflicts:
            if conflict.variable == name and situation.holds(conflict.when) and conflict.means(value):
                yield _conflict(facts, conflict, value)


def own_variables(facts: Facts) -> dict[str, str]:
    """Those that were not chosen by the plan."""
    origins = facts.config.origins

    def solved(name: str) -> bool:
        origin = origins.get(f"{ENVIRONMENT}.{name}")
        return origin is not None and origin.origin == "solved"

    return {name: value for name, value in facts.config.engine.environment.items() if not solved(name)}


def _empty(facts: Facts, name: str) -> Finding:
    message = tr(
        "{name} is empty, which its library takes as not set; the plan chooses nothing in its place.", name=name
    )
    remedy = facts.remedy(tr("leave {name} out", name=name), {ENVIRONMENT: _without(facts, name)})
    return Finding("environment_empty", "warning", f"{ENVIRONMENT}.{name}", message, (remedy,))


def _contradicted(facts: Facts, choice: VariableChoice, value: str, words: dict[str, str]) -> Finding:
    key, wanted = f"{ENVIRONMENT}.{choice.variable}", choice.value.format(**words)
    message = tr(
        "{name} is {value}, and {wanted} is meant for this machine: {reason}.",
        name=choice.variable,
        value=_shown(value),
        wanted=wanted,
        reason=tr(choice.text, **words),
    )
    remedy = facts.remedy(tr("set {name}={value}", name=choice.variable, value=wanted), {key: wanted})
    return Finding("environment_contradicted", choice.contradicted, key, message, (remedy,))


def _conflict(facts: Facts, conflict: VariableConflict, value: str) -> Finding:
    name = conflict.variable
    message = tr("{name}={value}: {reason}.", name=name, value=_shown(value), reason=tr(conflict.text))
    if conflict.instead is not None:
        words = tr("set {name}={value}", name=name, value=conflict.instead)
        remedy = facts.remedy(words, {f"{ENVIRONMENT}.{name}": conflict.instead})
    elif conflict.renamed is not None:
        words = tr("set {name}={value}", name=conflict.renamed, value=_shown(value))
        remedy = facts.remedy(words, {ENVIRONMENT: {**_without(facts, name), conflict.renamed: value}})
    else:
        remedy = facts.remedy(tr("leave {name} out", name=name), {ENVIRONMENT: _without(facts, name)})
    return Finding("environment_conflict", conflict.severity, f"{ENVIRONMENT}.{name}", message, (remedy,))


def _without(facts: Facts, name: str) -> dict[str, str]:
    return {other: value for other, value in own_variables(facts).items() if other != name}


def _allocators(facts: Facts) -> Iterator[Finding]:
    own = own_variables(facts)
    if ALLOCATOR in own and OLD_ALLOCATOR in own and own[ALLOCATOR] != own[OLD_ALLOCATOR]:
        message = tr(
            "{old} and {new} say different things to torch's allocator; they are two names of one setting.",
            old=OLD_ALLOCATOR,
            new=ALLOCATOR,
        )
        remedy = facts.remedy(tr("leave {name} out", name=OLD_ALLOCATOR), {ENVIRONMENT: _without(facts, OLD_ALLOCATOR)})
        yield Finding("environment_conflict", "warning", f"{ENVIRONMENT}.{OLD_ALLOCATOR}", message, (remedy,))


def _interfaces(facts: Facts) -> Iterator[Finding]:
    """A network interface that is not here: the processes would not find each other."""
    here = facts.machine.network_interfaces
    if facts.machine.hypothetical or not here or facts.devices.world_size == 1:
        return
    own = own_variables(facts)
    for name in INTERFACE_VARIABLES:
        value = own.get(name, "").strip()
        if not value or value.startswith("^") or value.removeprefix("=") == "lo":
            continue
        exact = value.startswith("=") or name.startswith("GLOO")
        wanted = [one.strip() for one in value.removeprefix("=").split(",") if one.strip()]
        if any(one == there or (not exact and there.startswith(one)) for one in wanted for there in here):
            continue
        message = tr(
            "{name} is {value}, and this machine has no such interface up; there are {interfaces}.",
            name=name,
            value=_shown(value),
            interfaces=", ".join(plain_text(one) for one in here),
        )
        key = f"{ENVIRONMENT}.{name}"
        remedy = facts.remedy(tr("set {name}={value}", name=name, value=here[0]), {key: here[0]})
        yield Finding("unknown_interface", "error", key, message, (remedy,))


def _shared_memory(facts: Facts, situation: Conditions) -> Iterator[Finding]:
    if not situation.small_shared_memory or not (situation.through_host or situation.has_workers):
        return
    needed, there = shared_memory_needed(facts.devices, facts.config), facts.machine.shared_memory_bytes or 0
    message = tr(
        "/dev/shm has {there}, and about {needed} of it are needed: the processes hand each other batches and "
        "gradients there.",
        there=gib(there),
        needed=gib(needed),
    )
    remedies = [Remedy(tr(SHM_SIZE))]
    if situation.has_workers:
        remedies.append(facts.remedy(tr("no loader workers"), {"data.workers": 0}))
    yield Finding("shared_memory", "warning", "hardware", message, tuple(remedies))


def _shown(value: str) -> str:
    return plain_text(value, LONGEST_SHOWN)
