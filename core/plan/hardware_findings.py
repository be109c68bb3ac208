"""What the card, the processor, the libraries and shared engines cannot do."""

from __future__ import annotations

from collections.abc import Iterator

from trainwiz.core.catalog.gpus import BY_HAND, is_rate_uncertain
from trainwiz.core.catalog.model_config import has_attention, has_checkpointing
from trainwiz.core.errors import Finding, Remedy, after
from trainwiz.core.estimate.time import COMPILED_START, COMPILING_HOST_BYTES
from trainwiz.core.hardware.machine import Machine, gpu_label
from trainwiz.core.hardware.visible import AMPERE, weakest_gpu
from trainwiz.core.language import mark, tr
from trainwiz.core.plan.devices import INSTALL_CUDA_TORCH, Devices, torch_misses_gpu
from trainwiz.core.plan.draft import Draft, Facts
from trainwiz.core.plan.engine import INSTALL_DEEPSPEED
from trainwiz.core.plan.words import aside, gib

# What the card, the processor and the installed libraries cannot do, for any model and for this type of it.

BITSANDBYTES_OPTIMIZERS = ("adamw_bnb_8bit", "paged_adamw_8bit")


COMPILE_WORDS = {
    "cuda": mark("torch.compile builds kernels in the first steps: they take minutes, later ones less"),
    "cpu": mark(
        "torch.compile builds kernels in the first steps with a C++ compiler: they take minutes, later ones less"
    ),
    "mps": mark(
        "torch.compile builds kernels in the first steps, which is young on an Apple GPU: they take minutes, "
        "later ones less"
    ),
}
TRITON = (7, 0)
"""First capability that Triton, the compiler behind torch.compile, makes kernels for."""


def hardware_findings(facts: Facts) -> list[Finding]:
    return [
        *_compile(facts),
        *_precision(facts),
        *_tf32(facts),
        *_attention(facts),
        *_of_the_model(facts),
        *_libraries(facts),
        *_torch(facts),
        *_rate(facts),
    ]


def can_compile(facts: Facts) -> bool:
    """Whether torch.compile works on these cards with what is installed."""
    _, capability = _card(facts)
    if facts.devices.device != "cuda" or capability is None or capability < TRITON:
        return False
    return facts.machine.hypothetical or facts.machine.libraries.has("triton")


def _compile(facts: Facts) -> list[Finding]:
    key = "engine.compile"
    if not facts.config.engine.compile:
        return []
    off = facts.remedy(tr("leave it off"), {key: False})
    card, capability = _card(facts)
    if facts.devices.device == "cuda" and capability is not None and capability < TRITON:
        message = _sentence(tr("{card} is too old for torch.compile: its compiler needs sm 7.0.", card=card))
        return [Finding("compile_unsupported", "error", key, message, (off,))]
    if facts.devices.device == "cuda" and not can_compile(facts):
        message = tr("torch.compile makes its kernels with Triton, which is not installed here.")
        return [Finding("triton_missing", "error", key, message, (Remedy(tr("install it"), "pip install triton"), off))]
    message = tr(COMPILE_WORDS.get(facts.devices.device, COMPILE_WORDS["cuda"]))
    if not facts.config.data.concatenate:
        message = tr("{compiling}; rows of other lengths compile again", compiling=message)
    message = tr("{sentence}.", sentence=message)
    message += after(
        tr(
            "Planned: {low} to {high} s more at the start, the least with the cache of an earlier run, and up to {size} more "
            "host RAM for each process (measured on 4 CPU cores with torch 2.13; {high} s is assumed). --benchmark N with "
            "and without it measures both here.",
            low=f"{COMPILED_START.low:.0f}",
            high=f"{COMPILED_START.high:.0f}",
            size=gib(COMPILING_HOST_BYTES),
        )
    )
    return [Finding("compile_takes_time", "note", key, message, (off,))]


def _card(facts: Facts) -> tuple[str, tuple[int, int] | None]:
    gpu = min(facts.devices.gpus, key=lambda one: one.capability or (0, 0), default=None) or weakest_gpu(facts.machine)
    return (
        (
            tr(
                "the {gpu} (sm {capability})",
                gpu=gpu_label(gpu),
                capability=gpu.compute_capability,
            ),
            gpu.capability,
        )
        if gpu
        else (tr("this machine"), None)
    )


def _precision(facts: Facts) -> list[Finding]:
    precision = facts.config.engine.precision
    card, capability = _card(facts)
    if facts.devices.device == "cuda":
        if precision in ("bf16", "bf16-true") and capability is not None and capability < AMPERE:
            message = tr("{card} has no bf16: it needs sm 8.0. fp16 is what this card computes fast.", card=card)
            remedy = facts.remedy(tr("compute in fp16"), {"engine.precision": "fp16"})
            return [Finding("bf16_unsupported", "error", "engine.precision", _sentence(message), (remedy,))]
        if precision == "tf32" and capability is not None and capability < AMPERE:
            message = tr("{card} has no TF32: it needs sm 8.0.", card=card)
            remedy = facts.remedy(tr("compute in fp16"), {"engine.precision": "fp16"})
            return [Finding("tf32_unsupported", "error", "engine.precision", _sentence(message), (remedy,))]
    elif precision == "fp16" or (precision == "tf32" and facts.devices.device == "cpu"):
        if facts.devices.device == "mps":
            message = tr("{precision} training does not work on an Apple GPU; fp32 does.", precision=precision)
        else:
            message = tr("{precision} training does not work on a CPU; fp32 does.", precision=precision)
        remedy = facts.remedy(tr("compute in fp32"), {"engine.precision": "fp32"})
        return [Finding(f"{precision}_unsupported", "error", "engine.precision", message, (remedy,))]
    elif precision == "bf16" and facts.devices.device == "cpu" and str(facts.config.engine.strategy).startswith("zero"):
        # transformers takes bf16 on a CPU with use_cpu alone, which would leave DeepSpeed aside.
        message = tr("bf16 does not work with DeepSpeed on a CPU; fp32 does.")
        remedy = facts.remedy(tr("compute in fp32"), {"engine.precision": "fp32"})
        return [Finding("bf16_unsupported", "error", "engine.precision", message, (remedy,))]
    return []


def _tf32(facts: Facts) -> list[Finding]:
    card, capability = _card(facts)
    if not facts.config.engine.tf32 or facts.devices.device != "cuda" or capability is None or capability >= AMPERE:
        return []
    message = _sentence(tr("{card} has no TF32: it needs sm 8.0.", card=card))
    remedy = facts.remedy(tr("leave TF32 off"), {"engine.tf32": False})
    return [Finding("tf32_unsupported", "error", "engine.tf32", message, (remedy,))]


def _attention(facts: Facts) -> list[Finding]:
    if facts.config.engine.attention != "flash_attention_2":
        return []
    card, capability = _card(facts)
    if has_attention(facts.model_type, "sdpa"):
        remedy = facts.remedy(tr("use sdpa, which has its own flash kernel"), {"engine.attention": "sdpa"})
    else:
        remedy = facts.remedy(tr("use eager attention"), {"engine.attention": "eager"})
    reason = ""
    if facts.devices.device != "cuda":
        reason = tr("FlashAttention-2 needs an NVIDIA GPU.")
    elif capability is not None and capability < AMPERE:
        reason = _sentence(tr("{card} is too old for FlashAttention-2: it needs sm 8.0.", card=card))
    elif facts.config.engine.precision in ("fp32", "tf32"):
        reason = tr("FlashAttention-2 computes in half precision only, and engine.precision is fp32.")
    elif not facts.machine.hypothetical and not facts.machine.libraries.has("flash_attn"):
        reason = tr("flash-attn is not installed here.")
    if not reason:
        return []
    return [Finding("flash_attention_missing", "error", "engine.attention", reason, (remedy,))]


def _of_the_model(facts: Facts) -> list[Finding]:
    """What transformers refuses for this type of model, before the first step."""
    kind, engine = facts.model_type, facts.config.engine
    findings = []
    if engine.attention and not has_attention(kind, engine.attention):
        other = "sdpa" if has_attention(kind, "sdpa") else "eager"
        message = tr(
            "transformers has no {attention} attention for {kind} models (engine.attention).",
            attention=engine.attention,
            kind=kind,
        )
        remedy = facts.remedy(tr("use {other} attention", other=other), {"engine.attention": other})
        findings.append(Finding("attention_unsupported", "error", "engine.attention", message, (remedy,)))
    if engine.checkpointing and not has_checkpointing(kind):
        message = tr("transformers has no checkpointing for {kind} models (engine.checkpointing).", kind=kind)
        remedy = facts.remedy(tr("leave it off"), {"engine.checkpointing": False})
        findings.append(Finding("checkpointing_unsupported", "error", "engine.checkpointing", message, (remedy,)))
    return findings


def _libraries(facts: Facts) -> list[Finding]:
    if facts.machine.hypothetical:
        return []
    findings = []
    engine, libraries = facts.config.engine, facts.machine.libraries
    uses_deepspeed = str(engine.strategy).startswith("zero") or engine.deepspeed_file is not None
    if uses_deepspeed and not libraries.has("deepspeed"):
        message = tr(
            "engine.strategy {strategy} needs DeepSpeed, which is not installed here.", strategy=engine.strategy
        )
        findings.append(
            Finding(
                "deepspeed_missing",
                "error",
                "engine.strategy",
                message,
                (Remedy(tr("install it after torch"), INSTALL_DEEPSPEED),),
            )
        )
    if engine.optimizer in BITSANDBYTES_OPTIMIZERS and not libraries.has("bitsandbytes"):
        message = tr(
            "engine.optimizer {optimizer} needs bitsandbytes, which is not installed here.", optimizer=engine.optimizer
        )
        install = Remedy(tr("install it"), "pip install bitsandbytes")
        other = facts.remedy(tr("use torch's AdamW"), {"engine.optimizer": "adamw_torch"})
        findings.append(Finding("bitsandbytes_missing", "error", "engine.optimizer", message, (install, other)))
    return findings


def _torch(facts: Facts) -> list[Finding]:
    """A CPU build of torch beside a GPU: the run would train on the CPU without a word, or not start."""
    machine = facts.machine
    if facts.devices.device != "cuda" or not torch_misses_gpu(machine):
        return []
    why = machine.unavailable.get("torch_cuda")
    message = tr("The torch that is installed cannot use {device}{why}.", device=facts.devices.label, why=aside(why))
    install = Remedy(tr("install the CUDA build"), INSTALL_CUDA_TORCH)
    on_cpu = facts.remedy(tr("train on the CPU"), {"engine.device": "cpu"})
    return [Finding("torch_without_cuda", "error", "engine.device", message, (install, on_cpu))]


def _rate(facts: Facts) -> list[Finding]:
    if facts.devices.device != "cuda":
        return []
    spec, precision = facts.devices.spec, str(facts.config.engine.precision)
    if spec is not None:
        if spec.source == BY_HAND:
            message = tr(
                "The {precision} rate of the {card} and its bandwidth are derived from the rate given by hand; "
                "the times rest on it.",
                precision=precision,
                card=spec.name,
            )
        else:
            message = tr(
                "The {precision} rate of the {card} in the GPU catalogue is derived or from one source alone; "
                "the times rest on it.",
                precision=precision,
                card=spec.name,
            )
        return [Finding("uncertain_rate", "note", "time", message)] if is_rate_uncertain(spec, precision) else []
    names = ", ".join(gpu_label(gpu) for gpu in facts.devices.gpus)
    message = tr(
        "The GPU catalogue does not know {names}, so there is no estimate of the time; memory is not affected.",
        names=names,
    )
    return [Finding("unknown_gpu_rate", "note", "time", message)]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


# What a smoke run takes in the place of what this machine cannot run.

OPTIMIZER = "engine.optimizer"


def smoke_optimizer(draft: Draft, machine: Machine, devices: Devices) -> tuple[Finding, ...]:
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


# Engines that share weights out among processes: what they cannot do here, or together with another choice.

STRATEGY = "engine.strategy"


def sharing_findings(facts: Facts) -> list[Finding]:
    if facts.config.engine.strategy == "fsdp":
        return list(_fsdp(facts))
    if str(facts.config.engine.strategy).startswith("zero") and facts.devices.device == "mps":
        message = tr("DeepSpeed does not train on an Apple GPU (engine.strategy).")
        changes = {STRATEGY: "single", "engine.offload": "none"}
        remedy = facts.remedy(tr("train on the one GPU"), changes)
        return [Finding("deepspeed_needs_cuda", "error", STRATEGY, message, (remedy,))]
    return []


def _fsdp(facts: Facts) -> Iterator[Finding]:
    """FSDP as accelerate starts it: on several GPUs, whole or not at all in host RAM, with an optimizer of torch."""
    engine, devices = facts.config.engine, facts.devices
    if devices.device != "cuda":
        yield _no_gpu(facts)
        return
    if devices.world_size == 1:
        message = tr("FSDP shares a model out among several GPUs, and this run has one (engine.strategy).")
        changes = (
            {STRATEGY: "single"} if engine.offload == "none" else {STRATEGY: "zero2", "engine.offload": "optimizer"}
        )
        yield Finding("fsdp_needs_gpus", "error", STRATEGY, message, (facts.remedy(tr("train without it"), changes),))
    if facts.config.task == "seq2seq":
        # accelerate 1.15 puts the table into the group of the head alone; torch 2.13 finds it in the root's as well.
        message = tr(
            "FSDP as accelerate starts it cannot share out a model whose encoder and decoder read one table of tokens, "
            "as those of seq2seq do (engine.strategy); ZeRO-3 can."
        )
        changes = {STRATEGY: "zero3"}
        yield Finding("shared_table", "error", STRATEGY, message, (facts.remedy(tr("shard with ZeRO-3"), changes),))
    if engine.offload == "optimizer":
        message = tr(
            "FSDP keeps all states in host RAM or none (engine.offload); the optimizer alone ZeRO can keep there."
        )
        remedies = (
            facts.remedy(tr("shard with ZeRO-3"), {STRATEGY: "zero3"}),
            facts.remedy(tr("keep all in host RAM"), {"engine.offload": "all"}),
        )
        yield Finding("offload_not_supported", "error", "engine.offload", message, remedies)
    if engine.optimizer in BITSANDBYTES_OPTIMIZERS:
        # github.com/bitsandbytes-foundation/bitsandbytes/issues/1633
        message = tr(
            "engine.optimizer {optimizer} does not work on the weights of FSDP 2: bitsandbytes reads beyond its part.",
            optimizer=engine.optimizer,
        )
        remedy = facts.remedy(tr("use torch's AdamW"), {"engine.optimizer": "adamw_torch_fused"})
        yield Finding("optimizer_not_shared", "error", "engine.optimizer", message, (remedy,))


def _no_gpu(facts: Facts) -> Finding:
    device = facts.devices.device
    if device == "mps":
        message = tr("FSDP needs several GPUs of NVIDIA, and an Apple computer has one GPU (engine.strategy).")
        remedy = facts.remedy(tr("train on the one GPU"), {STRATEGY: "single"})
    else:
        message = tr(
            "FSDP needs GPUs: on a CPU accelerate trains with DistributedDataParallel in its place and says nothing "
            "(engine.strategy). ZeRO-3 shares a model out on a CPU too."
        )
        remedy = facts.remedy(tr("shard with ZeRO-3"), {STRATEGY: "zero3"})
    return Finding("fsdp_needs_gpus", "error", STRATEGY, message, (remedy,))
