"""What this version, the model, the card or the installed libraries cannot do: refused in the plan, never ignored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwiz.core.catalog.model_config import (
    LIGER,
    TRIED,
    has_attention,
    has_checkpointing,
    known_targets,
    unknown_targets,
)
from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import BLEU_METRIC, DEFAULT_METRIC, known_metrics, ranking_metric
from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.data.lengths import joins_texts, longest_generation, trains_on_chats
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.estimate.activations import slicing_problem
from trainwiz.core.estimate.architecture import ALL_LINEAR
from trainwiz.core.estimate.time import COMPILED_START, COMPILING_HOST_BYTES
from trainwiz.core.hardware.install import install_line, torch_line, training_line
from trainwiz.core.hardware.machine import REPORTERS, gpu_label
from trainwiz.core.hardware.visible import AMPERE, weakest_gpu
from trainwiz.core.language import mark, tr
from trainwiz.core.plan.engine import (
    ALONE,
    BASE,
    BITSANDBYTES_OPTIMIZERS,
    COMPILE,
    METHOD,
    OFFLOAD,
    OPTIMIZER,
    STRATEGY,
    torch_misses_gpu,
)
from trainwiz.core.plan.result import Plan, WayOut
from trainwiz.core.plan.rows import SHARED
from trainwiz.core.plan.words import aside, counted, gib

PRECISION, ATTENTION, GPUS = "engine.precision", "engine.attention", "engine.gpus"
CHECKPOINTING, PACKING, GENERATE = "engine.checkpointing", "data.packing", "evaluation.generate"
LIGER_KERNELS = "engine.liger"

Refusal = tuple[str, str, str, tuple[WayOut, ...]]
"""Its code, the key, the sentence with names of `_words` in braces, and ways out."""


def refusals(plan: Plan) -> Iterator[Finding]:
    """What a change of a plan must not meet anew."""
    words = _words(plan)
    for table in TABLES:
        for code, key, text, ways in table(plan):
            made = (way if isinstance(way, Remedy) else (tr(way[0], **words), way[1]) for way in ways)
            yield plan.finding(code, "error", key, tr(text, key=key, **words), *made)
    yield from _notes(plan)


def _words(plan: Plan) -> dict[str, Any]:
    """What the sentences name: every value of the engine, and of the run what it is about."""
    config = plan.config
    return {
        **config.engine.model_dump(),
        "gpus": ", ".join(config.engine.gpus or ()),
        "method": config.peft.method,
        "name": config.model.name,
        "task": config.task,
        "kind": plan.model_type,
    }


def _off(key: str) -> WayOut:
    return mark("turn it off"), {key: False}


# What RunConfig can say and this version cannot train.


def _scope(plan: Plan) -> Iterator[Refusal]:
    config, work, chunk = plan.config, plan.work, "training.loss_chunk"
    if config.peft.method != "none" and config.row_kind == "proteins" and (work or plan.unknown_architecture):
        message = mark("This version trains all weights of ESM-2 models and does not support {method} for them.")
        yield "peft_not_supported", METHOD, message, ((mark("train all weights"), {METHOD: "none"}),)
    sliced = slicing_problem(work.architecture.model_type) if work is not None and config.training.loss_chunk else None
    if sliced:
        yield "loss_not_sliceable", chunk, sliced, ((mark("compute the loss without chunks"), {chunk: None}),)
    if config.engine.gpus and plan.devices.device == "cpu":
        message = mark("engine.gpus selects GPU {gpus}, but this run would compute on the CPU.")
        yield "missing_hardware", GPUS, message, ((mark("use the CPU"), {GPUS: None}),)
    # A profile is data that people pass on: it must not decide that code is run.
    code = "model.trust_remote_code"
    if config.model.trust_remote_code and config.origin(code).origin != "you":
        message = mark(
            "The profile would run Python code that comes with the model ({key}). Only you can allow this: --set "
            "{key}=true."
        )
        yield "remote_code", code, message, ((mark("do not run the model's code"), {code: False}),)


def _reporters(plan: Plan) -> Iterator[Refusal]:
    key, machine = "logging.report_to", plan.machine
    names = [name for name in plan.config.logging.report_to if name not in ("none", "tensorboard")]
    missing = [name for name in names if name not in REPORTERS or not machine.may_have(REPORTERS[name])]
    if missing:
        message = tr(
            "Runs report to {known} or none, each with its library; not known or not installed here: {missing} "
            "(logging.report_to).",
            known=", ".join(REPORTERS),
            missing=", ".join(missing),
        )
        packages = [REPORTERS[name] for name in missing if name in REPORTERS]
        install = [Remedy(tr("install it"), install_line(machine.installer, *packages))] if packages else []
        yield "reporter_missing", key, message, (*install, (mark("report to TensorBoard"), {key: ["tensorboard"]}))


# Engines that share weights out among processes: what they cannot do here, or together with another choice.


def _sharing(plan: Plan) -> Iterator[Refusal]:
    """FSDP as accelerate starts it: on several GPUs, whole or not at all in host RAM, with an optimizer of torch."""
    engine, device = plan.config.engine, plan.devices.device
    if engine.strategy != "fsdp":
        return
    zero3 = mark("shard with ZeRO-3"), {STRATEGY: "zero3"}
    if device == "cpu":
        message = mark(
            "FSDP needs GPUs: on a CPU, accelerate silently trains with DistributedDataParallel instead "
            "(engine.strategy). ZeRO-3 also shards a model on a CPU."
        )
        yield "fsdp_needs_gpus", STRATEGY, message, (zero3,)
    elif plan.devices.world_size == 1:
        message = mark("FSDP shards a model across several GPUs, but this run has one (engine.strategy).")
        offloaded = {STRATEGY: "zero2", OFFLOAD: "optimizer"}
        without = mark("train without it"), {STRATEGY: "single"} if engine.offload == "none" else offloaded
        yield "fsdp_needs_gpus", STRATEGY, message, (without,)
    # accelerate 1.15 puts the table into the group of the head alone; torch 2.13 finds it in the root's as well. bitsandbytes
    # reads beyond its shard (github.com/bitsandbytes-foundation/bitsandbytes/issues/1633).
    apart = (
        plan.config.task == "seq2seq" or engine.offload == "optimizer" or engine.optimizer in BITSANDBYTES_OPTIMIZERS
    )
    if device == "cuda" and apart:
        message = mark(
            "FSDP shards no token embedding that encoder and decoder share, works with torch's AdamW alone, and offloads "
            "all states to RAM or none (here: {task}, {optimizer}, offload {offload}); ZeRO-3 has none of these limits."
        )
        yield "fsdp_not_possible", STRATEGY, message, ((zero3[0], {**zero3[1], OPTIMIZER: "adamw_torch"}),)


# What contradicts the model and its task.


def _task(plan: Plan) -> Iterator[Refusal]:
    config, architecture = plan.config, plan.work.architecture if plan.work is not None else None
    if architecture is not None and architecture.kind == "encoder-decoder" and config.task in CLASSIFIES:
        message = mark("{name} has an encoder and a decoder; {task} trains models with only one of them.")
        yield "model_not_supported", "model.name", message, ()
    # peft says nothing as long as it finds another.
    lora = architecture is not None and config.peft.method == "lora"
    missing = unknown_targets(architecture, config.peft.targets) if architecture is not None and lora else []
    if architecture is not None and missing:
        message = tr(
            "{name} has no module {missing} for LoRA (peft.targets); available: {names}.",
            name=config.model.name,
            missing=", ".join(missing),
            names=", ".join(known_targets(architecture)),
        )
        every = mark("target every linear layer"), {"peft.targets": list(ALL_LINEAR)}
        yield "unknown_lora_target", "peft.targets", message, (every,)
    if config.evaluation.generate and not _has_targets(config):
        message = mark("{key} compares with a target or an answer, but the rows of this run have neither.")
        yield "nothing_to_generate", GENERATE, message, ((mark("do not generate"), {GENERATE: False}),)
    # Joining throws the border between a prompt and its response, or the turns of a chat, away.
    if config.data.concatenate and (config.task != "causal-lm" or _has_targets(config)):
        message = mark(
            "{key} joins whole texts and trains on every token: it is for the plain texts of causal language models."
        )
        apart = mark("keep each row a separate sequence"), {"data.concatenate": False}
        yield "nothing_to_join", "data.concatenate", message, (apart,)


def _has_targets(config: RunConfig) -> bool:
    """Whether there is something to compare a generated text with."""
    named = any(source.target_column is not None for source in config.data.sources)
    return config.task == "seq2seq" or trains_on_chats(config) or (config.task == "causal-lm" and named)


def _packing(plan: Plan) -> Iterator[Refusal]:
    """Why rows may not be laid end to end."""
    engine, kind = plan.config.engine, plan.model_type
    # Masks of models that look both ways do not follow positions (create_bidirectional_mask, transformers 5.23). Eager
    # attention stores the scores of every token with all others, torch.compile recompiles at every step, and what holds a
    # part of the weights was not tried.
    tried = plan.config.task == "causal-lm" and (kind is None or kind in TRIED)
    packs = engine.attention != "eager" and not engine.compile and engine.strategy not in SHARED
    if plan.config.data.packing and not joins_texts(plan.config) and not (tried and packs):
        message = mark(
            "Rows can be packed end to end only for tested types of causal models, with sdpa or flash_attention_2 and "
            "without torch.compile, ZeRO-3 or FSDP (here: {kind}, {attention}, {strategy})."
        )
        yield "packing_not_possible", PACKING, message, ((mark("pad the rows"), {PACKING: False}),)


def _notes(plan: Plan) -> Iterator[Finding]:
    """What is cut, assumed, or was not tried."""
    config = plan.config
    asked, longest = config.evaluation.generation_length or 0, longest_generation(config)
    if config.evaluation.generate and asked > longest:
        message = tr(
            "Generated answers end at {longest} tokens, not {asked}: the prompt needs the other half of the "
            "{sequence_length} tokens (batch.sequence_length).",
            **counted(longest=longest, asked=asked, sequence_length=config.batch.sequence_length),
        )
        whole = tr("fit the whole answer"), {"batch.sequence_length": 2 * asked}
        yield plan.finding("generation_cut", "warning", "evaluation.generation_length", message, whole)
    if plan.devices.device == "cuda" and plan.devices.spec is None:
        message = tr(
            "The GPU catalog does not list {names}, so the time is not estimated; memory is not affected.",
            names=", ".join(gpu_label(gpu) for gpu in plan.devices.gpus),
        )
        yield plan.finding("unknown_gpu_rate", "note", "time", message)
    if config.engine.compile and can_compile(plan):
        message = tr(
            "torch.compile builds kernels in the first steps: {low} to {high} s more at the start, and up to {size} more "
            "RAM per process; other row lengths are compiled again. Run --benchmark N with and without it to measure both.",
            **counted(low=COMPILED_START.low, high=COMPILED_START.high),
            size=gib(COMPILING_HOST_BYTES),
        )
        yield plan.finding("compile_takes_time", "note", COMPILE, message, (tr("turn it off"), {COMPILE: False}))
    if config.engine.liger:
        message = tr(
            "Norms, rotary embeddings and gated layers are computed by liger-kernel. Its savings are not included in "
            "the memory and time shown here, and trainwiz has not compared its numerical results on a GPU."
        )
        yield plan.finding("liger", "note", "engine.liger", message)
    of_steps = config.training.max_steps is not None and plan.chosen_by_hand("training.max_steps")
    if plan.data is None and plan.counted is not None and config.mode.kind == "train" and not of_steps:
        message = tr(
            "The rows are not on this machine and cannot be counted. Assumed: {rows}, the max_rows limit of the "
            "data sources.",
            **counted(rows=plan.counted.rows),
        )
        yield plan.finding("rows_assumed", "note", "data.sources", message)


def _best(plan: Plan) -> Iterator[Refusal]:
    """What core/training/best.py would refuse at the start."""
    config, where, final = plan.config, "evaluation.metric", "checkpoint.final"
    asked: dict[str, Any] = {"checkpoint.keep_best": False} if config.checkpoint.keep_best else {}
    if config.checkpoint.final == "best" and plan.chosen_by_hand(final):
        asked[final] = "last"
    if config.evaluation.patience is not None:
        asked["evaluation.patience"] = None
    if config.data.validation_rows == 0 and not config.data.validation_sources:
        message = mark("{key} depends on the score on held-out rows, but no rows are held out.")
        for key, off in asked.items():
            yield "nothing_held_out", key, message, ((mark("turn it off"), {key: off}),)
        return
    metric, known = ranking_metric(config), known_metrics(config)
    if asked and metric not in known:
        message = tr(
            "This run does not measure {metric} (evaluation.metric); available: {known}.",
            metric=metric,
            known=", ".join(known),
        )
        other = tr("select by {metric}", metric=DEFAULT_METRIC), {where: DEFAULT_METRIC}
        generate = mark("generate text for BLEU"), {GENERATE: True}
        can_generate = metric == BLEU_METRIC and _has_targets(config)
        yield "unknown_metric", where, message, (generate, other) if can_generate else (other,)


# What the card, the processor and the installed libraries cannot do, for any model and for this type of it.

TRITON = (7, 0)
"""First capability that Triton, the compiler behind torch.compile, makes kernels for."""


def _too_old(plan: Plan, least: tuple[int, int]) -> str:
    """The NVIDIA card that computes, where it is older; else empty."""
    gpu = min(plan.devices.gpus, key=lambda gpu: gpu.capability or (0, 0), default=None) or weakest_gpu(plan.machine)
    if plan.devices.device != "cuda" or gpu is None or gpu.capability is None or gpu.capability >= least:
        return ""
    return tr("the {gpu} (compute capability {capability})", gpu=gpu_label(gpu), capability=gpu.compute_capability)


def can_compile(plan: Plan) -> bool:
    """Whether torch.compile works on these cards with what is installed, and for this base."""
    weakest = [gpu.capability for gpu in plan.devices.gpus]
    if plan.devices.device != "cuda" or None in weakest or _too_old(plan, TRITON):
        return False
    return plan.config.engine.base_precision not in ("nf4", "int8") and plan.machine.may_have("triton")


def _old_card(plan: Plan) -> Iterator[Refusal]:
    engine, fp16 = plan.config.engine, (mark("compute in fp16"), {PRECISION: "fp16"})
    for asked, what, least, code, key, way in (
        (engine.compile, "torch.compile", TRITON, "compile_unsupported", COMPILE, _off(COMPILE)),
        (engine.precision in ("bf16", "bf16-true"), "bf16", AMPERE, "bf16_unsupported", PRECISION, fp16),
        (engine.precision == "tf32", "TF32", AMPERE, "tf32_unsupported", PRECISION, fp16),
        (engine.tf32, "TF32", AMPERE, "tf32_unsupported", "engine.tf32", _off("engine.tf32")),
        (_flash(plan), "FlashAttention-2", AMPERE, "flash_attention_missing", ATTENTION, _other_attention(plan)),
    ):
        card = _too_old(plan, least)
        if asked and card:
            number = ".".join(map(str, least))
            message = tr(
                "{what} needs compute capability {least}: {card} is too old.", what=what, least=number, card=card
            )
            yield code, key, message, (way,)


def _flash(plan: Plan) -> bool:
    return plan.config.engine.attention == "flash_attention_2"


def _other_attention(plan: Plan) -> WayOut:
    other = "sdpa" if has_attention(plan.model_type, "sdpa") else "eager"
    return tr("use {other} attention", other=other), {ATTENTION: other}


def _device(plan: Plan) -> Iterator[Refusal]:
    """What a CPU or an Apple GPU does not compute in or with, and what works on NVIDIA cards in half precision alone."""
    engine, device = plan.config.engine, plan.devices.device
    fp32 = mark("compute in fp32"), {PRECISION: "fp32"}
    if device != "cuda" and engine.precision in ("fp16", "tf32"):
        message = mark("{precision} training does not work without an NVIDIA GPU; fp32 does.")
        yield f"{engine.precision}_unsupported", PRECISION, message, (fp32,)
    # transformers takes bf16 on a CPU with use_cpu alone, which would leave DeepSpeed aside.
    if device == "cpu" and engine.precision == "bf16" and str(engine.strategy).startswith("zero"):
        message = mark("bf16 does not work with DeepSpeed on a CPU; fp32 does.")
        yield "bf16_unsupported", PRECISION, message, (fp32,)
    if _flash(plan) and (device != "cuda" or engine.precision in ("fp32", "tf32")):
        message = mark("FlashAttention-2 needs an NVIDIA GPU and supports half precision only (engine.precision).")
        yield "flash_attention_missing", ATTENTION, message, (_other_attention(plan),)


def _model_type(plan: Plan) -> Iterator[Refusal]:
    """What transformers and liger-kernel have not for this type of model."""
    engine, kind = plan.config.engine, plan.model_type
    if engine.attention and not has_attention(kind, engine.attention):
        message = mark("transformers has no {attention} attention for {kind} models (engine.attention).")
        yield "attention_unsupported", ATTENTION, message, (_other_attention(plan),)
    if engine.checkpointing and not has_checkpointing(kind):
        message = mark("transformers has no gradient checkpointing for {kind} models (engine.checkpointing).")
        yield "checkpointing_unsupported", CHECKPOINTING, message, (_off(CHECKPOINTING),)
    if not engine.liger:
        return
    known = plan.devices.device == "cuda" and (kind is None or kind in LIGER)
    if not known or engine.strategy not in ALONE or engine.compile:
        message = mark(
            "Liger kernels need an NVIDIA GPU and a type of model that liger-kernel knows, and were tested without "
            "torch.compile and sharding alone (here: {kind}, {strategy})."
        )
        yield "liger_unsupported", LIGER_KERNELS, message, (_off(LIGER_KERNELS),)


def _libraries(plan: Plan) -> Iterator[Refusal]:
    """What is not installed here, and a torch without the GPU: the run would train on the CPU without a word."""
    engine, machine, cuda = plan.config.engine, plan.machine, plan.devices.device == "cuda"
    zero = str(engine.strategy).startswith("zero") or engine.deepspeed_file is not None
    whole = {OFFLOAD: "none", "engine.deepspeed_file": None}
    for asked, name, code, key, package, instead in (
        (zero, "deepspeed", "deepspeed_missing", STRATEGY, "[deepspeed]", "ddp"),
        (
            engine.optimizer in BITSANDBYTES_OPTIMIZERS,
            "bitsandbytes",
            "bitsandbytes_missing",
            OPTIMIZER,
            "[qlora]",
            None,
        ),
        (engine.base_precision not in (None, "none"), "bitsandbytes", "bitsandbytes_missing", BASE, "[qlora]", "none"),
        (engine.compile and cuda, "triton", "triton_missing", COMPILE, "triton", False),
        (engine.liger, "liger_kernel", "liger_missing", LIGER_KERNELS, "liger-kernel", False),
        (_flash(plan) and cuda, "flash_attn", "flash_attention_missing", ATTENTION, "", None),
    ):
        if asked and not machine.may_have(name):
            message = tr("{key} needs {name}, which is not installed on this machine.", key=key, name=name)
            is_extra = package.startswith("[")
            line = training_line(machine, package) if is_extra else install_line(machine.installer, package)
            install = [Remedy(tr("install it"), line)] if package else []
            without = mark("do without it"), {key: instead, **(whole if key == STRATEGY else {})}
            yield code, key, message, (*install, without)
    if cuda and torch_misses_gpu(machine):
        message = tr(
            "The installed torch cannot use {device}{why}.",
            device=plan.devices.label,
            why=aside(machine.unavailable.get("torch_cuda")),
        )
        on_cpu = mark("train on the CPU"), {"engine.device": "cpu"}
        install = [Remedy(tr("install the CUDA build"), torch_line(machine))]
        yield "torch_without_cuda", "engine.device", message, (*install, on_cpu)


# A base in fewer bits than the run computes in: what bitsandbytes, or what the others make of it, cannot do.


def _base(plan: Plan) -> Iterator[Refusal]:
    engine, apart = plan.config.engine, "ddp" if plan.devices.world_size > 1 else "single"
    if engine.base_precision in (None, "none"):
        return
    whole: WayOut = mark("keep it in the precision of the run"), {BASE: "none"}
    if plan.config.peft.method == "none":
        message = mark("Weights in {base_precision} cannot be trained; they are for the frozen base of LoRA.")
        yield "quantized_without_adapters", BASE, message, ((mark("use LoRA"), {METHOD: "lora"}), whole)
    sharded = engine.strategy not in ALONE or engine.offload != "none" or engine.deepspeed_file is not None
    if sharded or engine.compile or plan.devices.device == "mps":
        message = mark(
            "A base in {base_precision} is held whole in each process, without torch.compile, and on an NVIDIA GPU or a CPU "
            "(here: {strategy})."
        )
        changes = {STRATEGY: apart, OFFLOAD: "none", "engine.deepspeed_file": None, COMPILE: False}
        full: WayOut = mark("keep a full base in each process"), changes
        yield "quantized_not_possible", BASE, message, (whole,) if plan.devices.device == "mps" else (full, whole)


TABLES = (
    _scope,
    _sharing,
    _reporters,
    _task,
    _best,
    _libraries,
    _packing,
    _old_card,
    _device,
    _model_type,
    _base,
)
