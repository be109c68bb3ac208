"""What a run computes on, and how the step is computed: devices, precision, attention, strategy, optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from trainwiz.core.catalog.gpus import GpuSpec, spec_of
from trainwiz.core.catalog.model_config import has_attention, has_checkpointing
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.estimate.memory import estimate_memory
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


def torch_misses_gpu(machine: Machine) -> bool:
    """A CPU build of torch beside an NVIDIA GPU."""
    return machine.trains and machine.accelerator == "cuda" and machine.torch_cuda is None


def choose_devices(plan: Plan) -> tuple[Devices, tuple[Finding, ...]]:
    """The devices of a run, with errors for GPUs that are asked for and not there.

    A profile that is made for any device takes the CPU, with a warning, where the torch that is installed cannot use the
    GPU. On a CPU the smoke run of one with several GPUs has two processes, enough for the engine to be the same.
    """
    engine, machine, where = plan.config.engine, plan.machine, "engine.device"
    own = plan.based_on.hardware if plan.based_on is not None else None
    idle_gpu = own is not None and own.gpu is None and engine.device is None and engine.gpus is None
    idle_gpu = idle_gpu and torch_misses_gpu(machine)
    several = own is not None and own.num_gpus > 1 and plan.config.mode.kind == "smoke"
    device: Device = "cpu" if idle_gpu else engine.device or machine.accelerator
    if device == "cpu" or not machine.visible_gpus:
        count = engine.processes or (SMOKE_PROCESSES if several and engine.strategy != "single" else 1)
        devices = Devices("cpu", (), count, engine.nodes, machine.ram_available_bytes or None, HOST_RAM, None)
        if idle_gpu:
            why = aside(machine.unavailable.get("torch_cuda"))
            message = tr("The GPU stays idle: the installed torch cannot use it{why}.", why=why)
            install = Remedy(tr("install the CUDA build"), torch_line(machine))
            return devices, (Finding("torch_without_cuda", "warning", where, message, (install,)),)
        message = tr(
            "{where}: this machine has no {device}{why}.", where=where, device=device, why=aside(no_gpu_reason(machine))
        )
        return devices, () if device == "cpu" else (Finding("missing_hardware", "error", where, message),)
    gpus, findings = _selected(machine, engine.gpus)
    if engine.strategy == "single" and engine.processes is None:
        gpus = gpus[:1]
    processes = engine.processes or len(gpus)
    if processes > len(gpus):
        message = tr(
            "engine.processes is {n}, but one process uses one GPU; GPUs: {gpus}.", n=processes, gpus=len(gpus)
        )
        findings += (Finding("too_many_processes", "error", "engine.processes", message),)
    gpus = gpus[:processes]
    free = [gpu.memory_free_bytes or 0 for gpu in gpus]
    specs = [spec_of(gpu) for gpu in gpus]
    known = [spec for spec in specs if spec is not None]
    slowest = min(known, key=lambda spec: spec.fp16_flops or spec.fp32_flops) if len(known) == len(specs) else None
    label = f"GPU {gpus[0].index} · {gpu_label(gpus[0])}" if len(gpus) == 1 else describe_gpus(gpus)
    return Devices(device, gpus, processes, engine.nodes, min(free) or None, label, slowest), findings


def no_gpu_reason(machine: Machine) -> str:
    """Why no GPU was found, as far as the driver says; else empty."""
    reasons = machine.unavailable.items()
    return next((reason for key, reason in reasons if any(word in key for word in ("gpu", "nvml", "driver"))), "")


def _selected(machine: Machine, wanted: list[str] | None) -> tuple[tuple[Gpu, ...], tuple[Finding, ...]]:
    """The GPUs that are named by index or UUID, each once."""
    visible, where = machine.visible_gpus, "engine.gpus"
    if wanted is None:
        return visible, ()
    there = (*visible, *_other_slices(machine))
    chosen = tuple(gpu for gpu in there if gpu.uuid in wanted or (gpu in visible and str(gpu.index) in wanted))
    # A program sees one MIG slice and no other GPU.
    chosen = chosen[:1] if any(gpu.parent_uuid is not None for gpu in chosen) else chosen
    names = {name for gpu in chosen for name in (str(gpu.index), gpu.uuid)}
    missing = [name for name in wanted if name not in names]
    if not missing:
        return chosen, ()
    message = tr(
        "No GPU {missing} on this machine that a run can use with the others named; available: {there}.",
        missing=", ".join(missing),
        there=", ".join(f"{gpu.index} ({gpu_label(gpu)})" for gpu in visible),
    )
    kept = [name for name in wanted if name in names]
    rest = Remedy(tr("continue with the available GPUs"), changes={where: kept or None})
    return chosen or visible[:1], (Finding("unknown_gpu", "error", where, message, (rest,)),)


def _other_slices(machine: Machine) -> tuple[Gpu, ...]:
    """MIG slices that a run can be given by name: CUDA shows a program one, which CUDA_VISIBLE_DEVICES decides. Where that
    variable is set already, it stands for what the user or the batch system allows."""
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
    if not has_attention(kind, attention):
        attention = "sdpa" if has_attention(kind, "sdpa") else "eager"
        why = tr("the fastest that transformers has for {kind} models", kind=kind)
    plan.resolve("engine.attention", attention, why, "detected")
    if not has_checkpointing(kind):
        reason = tr("off: transformers has no gradient checkpointing for {kind} models", kind=kind)
        plan.resolve(CHECKPOINTING, False, reason, "detected")
    words = mark("one for the GPU, or for all cores"), mark("one per GPU; on a CPU small ones")
    plan.resolve("engine.processes", devices.processes, tr(words[devices.processes > 1]), "detected")
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
        found += [_not_exercised(plan, STRATEGY, "ddp", "single", alone)] if smoke else []
        plan.put(STRATEGY, "single", alone)
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
    fused = devices.device == "cuda"
    words = mark("works on every device"), mark("one kernel, no temporary copy of the weights")
    plan.resolve(OPTIMIZER, "adamw_torch_fused" if fused else "adamw_torch", tr(words[fused]))
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
    return plan.finding("engine_not_exercised", "warning", key, message)


def _resolve_sharding(plan: Plan) -> None:
    """Shards gradients and optimizer states where several GPUs do not hold them whole, one sequence at a time."""
    devices, work, capacity = plan.devices, workload_of(plan), plan.devices.capacity_bytes
    solved = STRATEGY in plan.reasons and plan.get(STRATEGY) == "ddp" and plan.machine.may_have("deepspeed")
    if work is None or capacity is None or devices.device != "cuda" or devices.world_size == 1 or not solved:
        return
    checkpointing = bool(plan.get(CHECKPOINTING)) or plan.is_open(CHECKPOINTING)
    whole = replace(work.with_micro_batch(work.micro_batch, 2), checkpointing=checkpointing)
    needed, less = (
        estimate_memory(replace(whole, strategy=kind), plan.evidence).needed_bytes for kind in ("ddp", "zero2")
    )
    if needed > capacity >= less:
        words = mark("unsharded, each process would need {needed} of {capacity}; sharded it needs {less}")
        plan.put(STRATEGY, "zero2", tr(words, needed=gib(needed), capacity=gib(capacity), less=gib(less)))


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
    element = HALF if plan.get("engine.precision") == "bf16-true" else SINGLE
    needed, there = 2 * element * architecture.trainable_parameters, (devices.capacity_bytes or 0) * devices.world_size
    if devices.device != "cuda" or not there or needed <= there:
        return
    words = mark("training all weights needs {needed}; only {capacity} is available")
    plan.put(METHOD, "lora", tr(words, needed=gib(needed), capacity=gib(there)))
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
    usable = usable and plan.get(STRATEGY) in ALONE and plan.get(OFFLOAD) == "none" and not plan.get(COMPILE)
    installed = plan.machine.may_have("bitsandbytes")
    sizes = {
        "whole": gib(now.safe_bytes),
        "packed": gib(then.safe_bytes),
        "capacity": gib(share),
        "precision": precision,
    }
    words = mark("in {precision} it needs {whole}, in 4 bits {packed}; {capacity} is available")
    if now.verdict(share) == "fits" or then.verdict(share) == "does_not_fit":
        plan.put(BASE, "none", tr(words, **sizes))
    elif usable and installed:
        plan.put(BASE, "nf4", tr(words, **sizes))
    else:
        words = mark("4 bits needs bitsandbytes, which is not installed on this machine")
        if not usable:
            words = mark("4 bits is for pretrained models on NVIDIA GPUs, each with a full copy of the base")
        plan.put(BASE, "none", tr(words))


def _smallest(plan: Plan, work: Workload) -> Workload:
    """One sequence at once and checkpointing, where nobody chose otherwise."""
    micro = int(plan.get(MICRO) or 1)
    again = bool(plan.get(CHECKPOINTING)) if not plan.is_open(CHECKPOINTING) else has_checkpointing(plan.model_type)
    return replace(work.with_micro_batch(micro, 2), checkpointing=again)
