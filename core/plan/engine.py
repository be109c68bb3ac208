"""What a run computes on, and how the step is computed: devices, precision, attention, strategy, optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from trainwiz.core.catalog.gpus import GpuSpec, spec_of
from trainwiz.core.catalog.model_config import has_attention, has_checkpointing
from trainwiz.core.config import RunConfig
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.estimate.memory import estimate_memory
from trainwiz.core.estimate.states import base_bytes
from trainwiz.core.estimate.workload import HALF, SINGLE, Workload
from trainwiz.core.hardware.install import torch_line
from trainwiz.core.hardware.machine import Gpu, Machine, describe_gpus, gpu_label
from trainwiz.core.hardware.visible import choose_attention, choose_precision, choose_tf32
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.sizes import CHECKPOINTING, MICRO
from trainwiz.core.plan.tasks import INIT, learnt_words
from trainwiz.core.plan.words import aside, gib
from trainwiz.core.plan.workload import workload_of

# Devices: which part of the machine a run uses, how many processes that is, and how much memory each has.

Device = Literal["cuda", "mps", "cpu"]


@dataclass(frozen=True, slots=True)
class Devices:
    """What one run computes on."""

    device: Device
    gpus: tuple[Gpu, ...]
    """The chosen ones; empty on a CPU."""
    processes: int
    """On each node."""
    nodes: int
    capacity_bytes: int | None
    """Memory that is free now on the fullest of them; None where it cannot be read."""
    label: str
    spec: GpuSpec | None
    """Rates of the slowest card; None where it is not in the catalogue."""

    @property
    def world_size(self) -> int:
        return self.processes * self.nodes

    @property
    def sharing(self) -> int:
        """How many processes compute in the same memory: on a CPU all of the machine share its RAM."""
        return self.processes if self.device == "cpu" else 1

    @property
    def share_bytes(self) -> int | None:
        """Memory that one process may use. None where it is not known."""
        return None if self.capacity_bytes is None else self.capacity_bytes // self.sharing


HOST_RAM = mark("host RAM")
"""The label of the memory of a CPU run: code compares it, screens translate it."""
SMOKE_PROCESSES = 2
"""Of a smoke run on a CPU, for a profile with several GPUs: enough for the engine to be the same."""


def torch_misses_gpu(machine: Machine) -> bool:
    """A CPU build of torch beside an NVIDIA GPU."""
    return machine.trains and machine.accelerator == "cuda" and machine.torch_cuda is None


def choose_devices(
    machine: Machine, config: RunConfig, *, any_device: bool = False, cpu_processes: int = 1
) -> tuple[Devices, tuple[Finding, ...]]:
    """The devices of a run, with errors for GPUs that are asked for and not there.

    A run that is made for `any_device` takes the CPU, with a warning, where the torch that is
    installed cannot use the GPU. On a CPU there are `cpu_processes` where the config leaves it open.
    """
    engine, where = config.engine, "engine.device"
    idle_gpu = any_device and engine.device is None and engine.gpus is None and torch_misses_gpu(machine)
    device: Device = "cpu" if idle_gpu else engine.device or machine.accelerator
    if device == "cpu" or not machine.visible_gpus:
        count = engine.processes or (1 if engine.strategy == "single" else cpu_processes)
        devices = Devices("cpu", (), count, engine.nodes, machine.ram_available_bytes or None, HOST_RAM, None)
        if idle_gpu:
            why = aside(machine.unavailable.get("torch_cuda"))
            message = tr("The GPU stays idle: the installed torch cannot use it{why}.", why=why)
            install = Remedy(tr("install the CUDA build"), torch_line(machine))
            return devices, (Finding("torch_without_cuda", "warning", where, message, (install,)),)
        if device == "cpu":
            return devices, ()
        message = tr(
            "engine.device is {device}, but this machine has no such device{why}.",
            device=device,
            why=aside(no_gpu_reason(machine)),
        )
        return devices, (Finding("missing_hardware", "error", where, message),)
    gpus, findings = _selected(machine, engine.gpus)
    if engine.strategy == "single" and engine.processes is None:
        gpus = gpus[:1]
    processes = engine.processes or len(gpus)
    if processes > len(gpus):
        message = trn(
            "engine.processes is {processes}, but there is {n} GPU: one process uses one GPU.",
            "engine.processes is {processes}, but there are {n} GPUs: one process uses one GPU.",
            len(gpus),
            processes=processes,
        )
        findings += (Finding("too_many_processes", "error", "engine.processes", message),)
    gpus = gpus[:processes]
    free = [gpu.memory_free_bytes for gpu in gpus]
    known = [size for size in free if size is not None]
    specs = [spec for gpu in gpus if (spec := spec_of(gpu)) is not None]
    slowest = min(specs, key=lambda spec: spec.fp16_flops or spec.fp32_flops) if len(specs) == len(gpus) else None
    label = f"GPU {gpus[0].index} · {gpu_label(gpus[0])}" if len(gpus) == 1 else describe_gpus(gpus)
    capacity = min(known) if len(known) == len(free) else None
    return Devices(device, gpus, processes, engine.nodes, capacity, label, slowest), findings


def no_gpu_reason(machine: Machine) -> str:
    """Why no GPU was found, as far as the driver says; else empty."""
    reasons = machine.unavailable.items()
    return next((reason for key, reason in reasons if any(word in key for word in ("gpu", "nvml", "driver"))), "")


def _selected(machine: Machine, wanted: list[str] | None) -> tuple[tuple[Gpu, ...], tuple[Finding, ...]]:
    visible, where = machine.visible_gpus, "engine.gpus"
    if wanted is None:
        return visible, ()
    named = {str(gpu.index): gpu for gpu in reversed(visible)}
    named |= {gpu.uuid: gpu for gpu in (*visible, *other_slices(machine)) if gpu.uuid is not None}
    missing = [name for name in wanted if name not in named]
    found = [named[name] for name in wanted if name in named]
    chosen = tuple(gpu for at, gpu in enumerate(found) if gpu not in found[:at])
    if len(chosen) > 1 and any(gpu.parent_uuid is not None for gpu in chosen):
        message = tr("A program sees one MIG slice and no other GPU; specify only one of them (engine.gpus).")
        alone = Remedy(tr("use {gpu}", gpu=gpu_label(chosen[0])), changes={where: [chosen[0].uuid]})
        return chosen[:1], (Finding("unknown_gpu", "error", where, message, (alone,)),)
    if not missing:
        return chosen, ()
    there = ", ".join(f"{gpu.index} ({gpu_label(gpu)})" for gpu in visible)
    words = mark("No GPU {missing} on this machine; available: {there}.")
    message = tr(words, missing=", ".join(missing), there=there)
    kept = [name for name in wanted if name in named]
    rest = Remedy(tr("continue with the available GPUs"), changes={where: kept or None})
    return chosen or visible[:1], (Finding("unknown_gpu", "error", where, message, (rest,)),)


def other_slices(machine: Machine) -> tuple[Gpu, ...]:
    """MIG slices that a run can be given by name: CUDA shows a program one, which CUDA_VISIBLE_DEVICES decides.

    Where that variable is set already, it stands for what the user or the batch system allows.
    """
    if machine.cuda_visible_devices is not None:
        return ()
    slices = (gpu for gpu in machine.gpus if gpu.parent_uuid is not None and gpu.uuid is not None and not gpu.visible)
    return tuple(replace(gpu, visible=True, cuda_index=0) for gpu in slices if "gpu" not in gpu.unavailable)


# How the step is computed: precision, attention, strategy, optimizer.

STRATEGY, OFFLOAD, OPTIMIZER = "engine.strategy", "engine.offload", "engine.optimizer"
BASE, METHOD, COMPILE = "engine.base_precision", "peft.method", "engine.compile"
ALONE = ("single", "ddp")
"""Strategies in which each process holds its own base."""
TASKS = ("causal-lm", "seq2seq")
"""That train on a base in fewer bits."""
BITSANDBYTES_OPTIMIZERS = ("adamw_bnb_8bit", "paged_adamw_8bit")


def resolve_engine(plan: Plan) -> None:
    """Device, precision, attention, checkpointing where there is none, processes and their threads."""
    machine, devices, on_cpu = plan.machine, plan.devices, plan.devices.device == "cpu"
    seen, kind = as_seen(machine, devices), plan.model_type
    plan.resolve(
        "engine.device",
        devices.device,
        tr("no GPU is used: training on the CPU") if on_cpu else devices.label,
        "detected",
    )
    plan.resolve("engine.precision", *choose_precision(seen), "detected")
    plan.resolve("engine.tf32", *choose_tf32(seen), "detected")
    attention, why = choose_attention(seen)
    if attention == "flash_attention_2" and plan.get("engine.precision") in ("fp32", "tf32"):
        attention, why = "sdpa", tr("FlashAttention-2 supports half precision only")
    if attention == "flash_attention_2" and not has_attention(kind, attention):
        attention, why = "sdpa", tr("transformers has no FlashAttention-2 for {model_type} models", model_type=kind)
    if attention == "sdpa" and not has_attention(kind, attention):
        attention, why = "eager", tr("transformers has no other attention for {model_type} models", model_type=kind)
    plan.resolve("engine.attention", attention, why, "detected")
    if not has_checkpointing(kind):
        reason = tr("off: transformers has no gradient checkpointing for {kind} models", kind=kind)
        plan.resolve("engine.checkpointing", False, reason, "detected")
    one, several = mark("one GPU"), mark("one per GPU")
    if on_cpu:
        one, several = mark("one process uses all cores"), mark("several processes, as on several GPUs, but small")
    plan.resolve("engine.processes", devices.processes, tr(several if devices.processes > 1 else one), "detected")
    threads = max(1, machine.cpu_cores // max(1, devices.processes))
    plan.resolve("engine.cpu_threads", threads, cores_shared(machine, devices))


def cores_shared(machine: Machine, devices: Devices) -> str:
    """ "12 cores for one process"."""
    cores = trn("{n} core", "{n} cores", machine.cpu_cores)
    return trn("{cores} for one process", "{cores} for {n} processes", devices.processes, cores=cores)


def as_seen(machine: Machine, devices: Devices) -> Machine:
    """The machine with only what the run uses, so that an unused old card decides nothing."""
    on_cpu = devices.device == "cpu"
    return replace(machine, gpus=devices.gpus, accelerator="cpu" if on_cpu else machine.accelerator)


def resolve_strategy(plan: Plan) -> None:
    """How processes share the work, and the optimizer that goes with it; findings say what a smoke run leaves out."""
    devices, smoke = plan.devices, plan.config.mode.kind == "smoke"
    found = [*_smoke_engine(plan)] if smoke else []
    each_whole = tr("{world_size} processes, each with the full model", world_size=devices.world_size)
    if plan.get(STRATEGY) == "ddp" and devices.world_size == 1:
        # DistributedDataParallel begins with two processes; one alone trains without it.
        alone = tr("one process: nothing to shard")
        plan.put(STRATEGY, "single", alone)
        if smoke:
            found.append(_not_exercised(plan, STRATEGY, "ddp", "single", alone))
    if plan.get(STRATEGY) == "single" and devices.world_size > 1 and plan.is_open("engine.deepspeed_file"):
        # Several processes are asked for beside "single", as a profile of one device says.
        plan.put(STRATEGY, "ddp", each_whole)
    if plan.get(OFFLOAD) != "none":
        plan.resolve(STRATEGY, "zero2", tr("the engine that can offload the optimizer to RAM"))
        plan.resolve(OPTIMIZER, "adamw_torch", tr("replaced by DeepSpeed's AdamW on the CPU"))
    elif devices.world_size > 1:
        plan.resolve(STRATEGY, "ddp", each_whole)
    else:
        plan.resolve(STRATEGY, "single", tr("one device"))
    if devices.device == "cuda":
        plan.resolve(OPTIMIZER, "adamw_torch_fused", tr("one kernel, no temporary copy of the weights"))
    else:
        plan.resolve(OPTIMIZER, "adamw_torch", tr("works on every device"))
    plan.findings += tuple(found)
    _resolve_sharding(plan)


def _smoke_engine(plan: Plan) -> Iterator[Finding]:
    """A smoke run goes on without the engine or the optimizer that is missing here, and says that it was not exercised."""
    on_gpu, may_have = plan.devices.device == "cuda", plan.machine.may_have
    strategy = plan.get(STRATEGY) or ("zero2" if plan.get(OFFLOAD) != "none" else None)
    no_deepspeed = str(strategy).startswith("zero") and not may_have("deepspeed")
    if no_deepspeed or (strategy == "fsdp" and not on_gpu):
        instead = "single" if no_deepspeed and plan.get("engine.processes") == 1 else "ddp"
        why = tr("DeepSpeed is not installed on this machine") if no_deepspeed else tr("FSDP needs GPUs")
        plan.put(OFFLOAD, "none", tr("smoke run: {why}", why=why))
        yield _not_exercised(plan, STRATEGY, strategy, instead, why)
    optimizer = plan.get(OPTIMIZER)
    if optimizer in BITSANDBYTES_OPTIMIZERS and not (
        plan.machine.hypothetical or (on_gpu and may_have("bitsandbytes"))
    ):
        why = tr("8-bit optimizers need an NVIDIA GPU and bitsandbytes")
        yield _not_exercised(plan, OPTIMIZER, optimizer, "adamw_torch", why)


def _not_exercised(plan: Plan, key: str, asked: Any, instead: str, why: str) -> Finding:
    plan.put(key, instead, tr("smoke run: {why}", why=why))
    message = tr("This smoke run does not test {key} {asked}: {why}.", key=key, asked=asked, why=why)
    return plan.warning("engine_not_exercised", key, message)


def _resolve_sharding(plan: Plan) -> None:
    """Shards gradients and optimizer states where several GPUs do not hold them whole, one sequence at a time."""
    devices, machine, work = plan.devices, plan.machine, workload_of(plan)
    if work is None or devices.capacity_bytes is None or devices.device != "cuda" or devices.world_size == 1:
        return
    can_shard = machine.may_have("deepspeed")
    if STRATEGY not in plan.reasons or plan.get(STRATEGY) != "ddp" or not can_shard:
        return
    checkpointing = bool(plan.get("engine.checkpointing")) or plan.is_open("engine.checkpointing")
    whole = replace(work.with_micro_batch(work.micro_batch, 2), checkpointing=checkpointing)
    sharded = replace(whole, strategy="zero2")
    needed, less = (estimate_memory(each, plan.evidence).needed_bytes for each in (whole, sharded))
    if needed > devices.capacity_bytes >= less:
        reason = tr(
            "unsharded, each process would need {needed} of {capacity}; sharded it needs {less}",
            needed=gib(needed),
            capacity=gib(devices.capacity_bytes),
            less=gib(less),
        )
        plan.put(STRATEGY, "zero2", reason)


# LoRA, and a frozen base in 4 or 8 bits: chosen where nothing else fits, refused where it does not work.


def resolve_method(plan: Plan) -> None:
    """LoRA where nobody said how to train a pretrained model whose weights and gradients alone are more than the cards
    have: no optimizer would help."""
    config, devices, architecture = plan.config, plan.devices, plan.architecture
    if plan.based_on is not None:
        # A profile is a recipe, which says so where it trains adapters.
        return
    asked = METHOD in config.origins or plan.get(STRATEGY) not in (None, *ALONE) or plan.get(OFFLOAD) != "none"
    asked = asked or plan.get("engine.deepspeed_file") is not None or config.mode.kind == "smoke"
    if asked or plan.get("task") not in TASKS or plan.get(INIT) != "pretrained" or architecture is None:
        return
    if devices.device != "cuda" or devices.capacity_bytes is None:
        return
    element = HALF if plan.get("engine.precision") == "bf16-true" else SINGLE
    needed = 2 * element * architecture.trainable_parameters
    if needed <= devices.capacity_bytes * devices.world_size:
        return
    reason = tr(
        "training all weights needs {needed}; only {capacity} is available",
        needed=gib(needed),
        capacity=gib(devices.capacity_bytes * devices.world_size),
    )
    plan.put(METHOD, "lora", reason)
    if config.origin(INIT).reason == learnt_words(config, plan.spec):
        plan.reasons[INIT] = config.origin(INIT).origin, learnt_words(plan.view(), plan.spec)


def resolve_base(plan: Plan) -> None:
    """The base of adapters in 4 bits where the run does not fit with it as it computes, and fits then."""
    if plan.get(METHOD) != "lora" or not plan.is_open(BASE):
        return
    work, share, precision = workload_of(plan), plan.share_bytes, plan.get("engine.precision")
    if work is None or share is None:
        plan.put(BASE, "none", tr("in {precision}: its memory use is unknown", precision=precision))
        return
    whole, packed = (_smallest(plan, replace(work, base_precision=kind)) for kind in ("none", "nf4"))
    now, then = (estimate_memory(each, plan.evidence) for each in (whole, packed))
    usable = plan.get(INIT) == "pretrained" and plan.get("task") in TASKS and plan.devices.device == "cuda"
    alone = plan.get(STRATEGY) in ALONE and plan.get(OFFLOAD) == "none" and not plan.get(COMPILE)
    if now.verdict(share) == "fits":
        reason = tr("{size} of weights in {precision} fit", size=gib(base_bytes(whole)), precision=precision)
    elif not (usable and alone):
        reason = tr("4 bits is for pretrained models on NVIDIA GPUs, each with a full copy of the base")
    elif not plan.machine.may_have("bitsandbytes"):
        reason = tr("4 bits needs bitsandbytes, which is not installed on this machine")
    elif then.verdict(share) == "does_not_fit":
        reason = tr("it would not fit even in 4 bits")
    else:
        reason = tr(
            "in {precision} it needs {whole}, in 4 bits {packed}; {capacity} is available",
            precision=precision,
            whole=gib(now.safe_bytes),
            packed=gib(then.safe_bytes),
            capacity=gib(share),
        )
        plan.put(BASE, "nf4", reason)
        return
    plan.put(BASE, "none", reason)


def _smallest(plan: Plan, work: Workload) -> Workload:
    """One sequence at once and checkpointing, where nobody chose otherwise."""
    micro = int(plan.get(MICRO) or 1)
    again = bool(plan.get(CHECKPOINTING)) if not plan.is_open(CHECKPOINTING) else has_checkpointing(plan.model_type)
    return replace(work.with_micro_batch(micro, 2), checkpointing=again)
