"""What this version, the model, the card or the installed libraries cannot do: refused in the plan, never ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from trainwiz.core.catalog.gpus import BY_HAND, is_rate_uncertain
from trainwiz.core.catalog.model_config import has_attention, has_checkpointing, known_targets, unknown_targets
from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import BLEU_METRIC, DEFAULT_METRIC, known_metrics, ranking_metric
from trainwiz.core.data.lengths import longest_generation
from trainwiz.core.errors import Finding, Remedy, after
from trainwiz.core.estimate.activations import slicing_problem
from trainwiz.core.estimate.architecture import ALL_LINEAR
from trainwiz.core.estimate.time import COMPILED_START, COMPILING_HOST_BYTES
from trainwiz.core.hardware.machine import REPORTERS, gpu_label
from trainwiz.core.hardware.visible import AMPERE, weakest_gpu
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.plan.engine import (
    BITSANDBYTES_OPTIMIZERS,
    INSTALL_CUDA_TORCH,
    INSTALL_DEEPSPEED,
    OFFLOAD,
    OPTIMIZER,
    STRATEGY,
    torch_misses_gpu,
)
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.tasks import PLANNED_ONLY
from trainwiz.core.plan.words import aside, counted, gib
from trainwiz.core.text import plain_text

PRECISION, ATTENTION, GPUS, COMPILE = "engine.precision", "engine.attention", "engine.gpus", "engine.compile"


def refusals(plan: Plan) -> Iterator[Finding]:
    """What a change of a plan must not meet anew."""
    for judge in (scope_findings, task_findings, hardware_findings):
        yield from judge(plan)


# What RunConfig can say and this version cannot train.


def scope_findings(plan: Plan) -> Iterator[Finding]:
    config, devices, work = plan.config, plan.devices, plan.work
    if config.peft.method != "none" and config.task == "masked-lm" and (work is not None or plan.unknown_architecture):
        message = tr(
            "This version trains all weights of masked-LM models; {method} adapters it does not.",
            method=config.peft.method,
        )
        all_weights = tr("train all weights"), {"peft.method": "none"}
        yield plan.error("peft_not_supported", "peft.method", message, all_weights)
    if config.task in PLANNED_ONLY:
        message = tr(
            "{task} is planned, not trained: this version trains masked, causal and sequence-to-sequence language models.",
            task=config.task,
        )
        own = plan.spec.task if plan.spec is not None and plan.spec.task not in PLANNED_ONLY else None
        other = [(tr("train it for {own}", own=own), {"task": own})] if own else []
        yield plan.error("task_not_trained", "task", message, *other)
    key = "training.loss_chunk"
    sliced = slicing_problem(work.architecture.model_type) if work is not None and config.training.loss_chunk else None
    if sliced:
        yield plan.error("loss_not_sliceable", key, sliced, (tr("compute the loss at once"), {key: None}))
    if config.engine.gpus and devices.device == "cpu":
        message = tr(
            "GPU {wanted} is asked for (engine.gpus), and this run would compute on the CPU.",
            wanted=", ".join(config.engine.gpus),
        )
        yield plan.error("missing_hardware", GPUS, message, (tr("use the CPU"), {GPUS: None}))
    names = [name for name in config.engine.gpus or () if not name.isdecimal()]
    if devices.nodes > 1 and names:
        # The other machines would see no GPU at all.
        message = tr(
            "GPU {names} is a card of one machine (engine.gpus), and {n} machines train; numbers hold on each of them.",
            names=plain_text(", ".join(names), 200),
            n=devices.nodes,
        )
        sliced_cards = any(gpu.parent_uuid is not None for gpu in devices.gpus)
        numbers = None if sliced_cards else [str(gpu.index) for gpu in devices.gpus] or None
        yield plan.error("gpus_of_one_machine", GPUS, message, (tr("name them by number"), {GPUS: numbers}))
    yield from _sharing(plan)
    key = "model.trust_remote_code"
    if config.model.trust_remote_code and config.origin(key).origin != "you":
        # A profile is data that people pass on: it must not decide that code is run.
        message = tr(
            "The profile wants to run Python code that comes with the model ({key}); that is for you to "
            "allow: --set {key}=true.",
            key=key,
        )
        yield plan.error("remote_code", key, message, (tr("run no code of the model"), {key: False}))
    yield from _reporters(plan)


def _reporters(plan: Plan) -> Iterator[Finding]:
    where, names = "logging.report_to", plan.config.logging.report_to
    fallback = tr("report to TensorBoard"), {where: ["tensorboard"]}
    if "none" in names and len(names) > 1:
        beside = ", ".join(name for name in names if name != "none")
        message = tr("{where} holds none beside {names}; leave one out.", where=where, names=beside)
        yield plan.error("reporter_not_supported", where, message, fallback)
    unknown = [name for name in names if name not in REPORTERS and name != "none"]
    if unknown:
        message = tr(
            "This version reports to {known} or none, not to {unknown} ({where}).",
            known=", ".join(REPORTERS),
            unknown=", ".join(unknown),
            where=where,
        )
        yield plan.error("reporter_not_supported", where, message, fallback)
    here = plan.machine.libraries
    others = [name for name in names if name in REPORTERS and name != "tensorboard"]
    missing = [REPORTERS[name] for name in others if not (plan.machine.hypothetical or here.has(name))]
    if missing:
        message = trn(
            "{where} names {libraries}, which is not installed here.",
            "{where} names {libraries}, which are not installed here.",
            len(missing),
            where=where,
            libraries=", ".join(missing),
        )
        install = Remedy(tr("install it"), f"pip install {' '.join(missing)}")
        yield plan.error("reporter_missing", where, message, install, fallback)


# Engines that share weights out among processes: what they cannot do here, or together with another choice.


def _sharing(plan: Plan) -> Iterator[Finding]:
    """FSDP as accelerate starts it: on several GPUs, whole or not at all in host RAM, with an optimizer of torch."""
    engine, device = plan.config.engine, plan.devices.device
    one_gpu = tr("train on the one GPU")
    zero3 = tr("shard with ZeRO-3"), {STRATEGY: "zero3"}
    if str(engine.strategy).startswith("zero") and device == "mps":
        message = tr("DeepSpeed does not train on an Apple GPU (engine.strategy).")
        single = one_gpu, {STRATEGY: "single", OFFLOAD: "none"}
        yield plan.error("deepspeed_needs_cuda", STRATEGY, message, single)
    if engine.strategy != "fsdp":
        return
    if device == "mps":
        message = tr("FSDP needs several GPUs of NVIDIA, and an Apple computer has one GPU (engine.strategy).")
        yield plan.error("fsdp_needs_gpus", STRATEGY, message, (one_gpu, {STRATEGY: "single"}))
    if device == "cpu":
        message = tr(
            "FSDP needs GPUs: on a CPU accelerate trains with DistributedDataParallel in its place and says nothing "
            "(engine.strategy). ZeRO-3 shares a model out on a CPU too."
        )
        yield plan.error("fsdp_needs_gpus", STRATEGY, message, zero3)
    if device != "cuda":
        return
    if plan.devices.world_size == 1:
        message = tr("FSDP shares a model out among several GPUs, and this run has one (engine.strategy).")
        offloaded = {STRATEGY: "zero2", OFFLOAD: "optimizer"}
        changes = {STRATEGY: "single"} if engine.offload == "none" else offloaded
        yield plan.error("fsdp_needs_gpus", STRATEGY, message, (tr("train without it"), changes))
    if plan.config.task == "seq2seq":
        # accelerate 1.15 puts the table into the group of the head alone; torch 2.13 finds it in the root's as well.
        message = tr(
            "FSDP as accelerate starts it cannot share out a model whose encoder and decoder read one table of tokens, "
            "as those of seq2seq do (engine.strategy); ZeRO-3 can."
        )
        yield plan.error("shared_table", STRATEGY, message, zero3)
    if engine.offload == "optimizer":
        message = tr(
            "FSDP keeps all states in host RAM or none (engine.offload); the optimizer alone ZeRO can keep there."
        )
        yield plan.error(
            "offload_not_supported", OFFLOAD, message, zero3, (tr("keep all in host RAM"), {OFFLOAD: "all"})
        )
    if engine.optimizer in BITSANDBYTES_OPTIMIZERS:
        # github.com/bitsandbytes-foundation/bitsandbytes/issues/1633
        message = tr(
            "engine.optimizer {optimizer} does not work on the weights of FSDP 2: bitsandbytes reads beyond its part.",
            optimizer=engine.optimizer,
        )
        own = tr("use torch's AdamW"), {OPTIMIZER: "adamw_torch_fused"}
        yield plan.error("optimizer_not_shared", OPTIMIZER, message, own)


# What contradicts the model and its task.

LEAST_PASSES = 10
"""Of an overfit run over its batches."""


def task_findings(plan: Plan) -> Iterator[Finding]:
    config, work = plan.config, plan.work
    kind = (config.model.architecture or {}).get("model_type")
    if config.task == "masked-lm" and kind not in (None, "esm"):
        message = tr(
            "This version trains masked-lm on ESM-2 models, and {name} is a {kind} model.",
            name=config.model.name,
            kind=kind,
        )
        yield plan.error("model_not_supported", "model.name", message, (tr("take an ESM-2"), {"model.name": "esm2-8m"}))
    targets = config.peft.targets if config.peft.method == "lora" and work is not None else []
    missing = unknown_targets(work.architecture, targets) if work is not None and targets else ()
    if work is not None and missing:
        # peft says nothing as long as it finds another.
        message = tr(
            "{name} has no module {missing} for LoRA (peft.targets); it has {names}.",
            name=config.model.name,
            missing=", ".join(missing),
            names=", ".join(known_targets(work.architecture)),
        )
        every = tr("adapt every linear layer"), {"peft.targets": list(ALL_LINEAR)}
        yield plan.error("unknown_lora_target", "peft.targets", message, every)
    yield from _generation(plan)
    yield from _best(plan)
    key = "data.concatenate"
    if config.data.concatenate and config.task != "causal-lm":
        message = tr("data.concatenate is for causal language models; each row of this task stays a sample.")
        yield plan.error("nothing_to_join", key, message, (tr("keep each row a sample"), {key: None}))
    elif config.data.concatenate and any(source.target_column is not None for source in config.data.sources):
        # Joining throws the border between a prompt and its response away.
        message = tr("data.concatenate joins whole texts: a target_column would be lost in them.")
        yield plan.error("joined_targets", key, message, (tr("keep each row a sample"), {key: False}))
    yield from _overfit(plan)
    of_steps = config.training.max_steps is not None and plan.chosen_by_hand("training.max_steps")
    if plan.data is None and plan.counted is not None and config.mode.kind == "train" and not of_steps:
        message = tr(
            "The rows are not here to count: {rows} are taken, as many as max_rows of the sources let through.",
            **counted(rows=plan.counted.rows),
        )
        yield plan.note("rows_assumed", "data.sources", message)


def _generation(plan: Plan) -> Iterator[Finding]:
    config, key = plan.config, "evaluation.generate"
    if not config.evaluation.generate:
        return
    off, nothing = (tr("do not generate"), {key: False}), "nothing_to_generate"
    if config.task == "masked-lm":
        message = tr("evaluation.generate is for tasks that write text; a masked language model writes none.")
        yield plan.error(nothing, key, message, off)
    elif not _has_targets(config):
        message = tr("evaluation.generate compares with a target, and no source of this run has a target_column.")
        yield plan.error(nothing, key, message, off)
    asked, longest = config.evaluation.generation_length, longest_generation(config)
    if asked is not None and asked > longest:
        message = tr(
            "Generated answers end at {longest} tokens, not at {asked}: the prompt needs the other half "
            "of {sequence_length} tokens (batch.sequence_length).",
            **counted(longest=longest, asked=asked, sequence_length=config.batch.sequence_length),
        )
        whole = tr("take the whole answer"), {"batch.sequence_length": 2 * asked}
        yield plan.warning("generation_cut", "evaluation.generation_length", message, whole)


def _best(plan: Plan) -> Iterator[Finding]:
    """What core/training/disk_guard.py would refuse at the start."""
    config, key = plan.config, "checkpoint.keep_best"
    if not config.checkpoint.keep_best:
        return
    metric, known = ranking_metric(config), known_metrics(config)
    if config.data.validation_rows == 0 and not config.data.validation_sources:
        message = tr("checkpoint.keep_best chooses by the score on held-out rows, and none are held out.")
        yield plan.error("nothing_held_out", key, message, (tr("keep the newest"), {key: False}))
    elif metric not in known:
        key = "evaluation.metric"
        message = tr(
            "This run measures no {metric} (evaluation.metric); it measures {known}.",
            metric=metric,
            known=", ".join(known),
        )
        remedies: list[tuple[str, Mapping[str, Any]]] = []
        if metric == BLEU_METRIC and _has_targets(config):
            remedies.append((tr("generate, for BLEU"), {"evaluation.generate": True}))
        remedies.append((tr("choose by {metric}", metric=DEFAULT_METRIC), {key: DEFAULT_METRIC}))
        yield plan.error("unknown_metric", key, message, *remedies)


def _has_targets(config: RunConfig) -> bool:
    """Whether there is something to compare a generated text with."""
    named = any(source.target_column is not None for source in config.data.sources)
    return config.task == "seq2seq" or (config.task == "causal-lm" and named)


def _overfit(plan: Plan) -> Iterator[Finding]:
    """Batches that come too seldom to be known by heart: the loss would say nothing about the model."""
    mode, batch, steps = plan.config.mode, plan.batch, plan.steps
    if mode.kind != "overfit" or not mode.overfit_batches or steps is None:
        return
    batches = float(mode.overfit_batches)
    if plan.data is not None:
        batches = min(batches, max(1.0, plan.data.rows / (batch.micro_batch * batch.world_size)))
    passes, enough = steps * batch.accumulation / batches, ceil(LEAST_PASSES * batches / batch.accumulation)
    if passes < LEAST_PASSES:
        message = tr(
            "{steps} steps see each of the {count} batches {passes} times: too seldom to know them by heart.",
            **counted(steps=steps, count=batches),
            passes=f"{passes:.2g}",
        )
        longer = tr("train {steps} steps", **counted(steps=enough)), {"training.max_steps": enough}
        yield plan.warning("overfit_too_seldom", "mode.overfit_batches", message, longer)


# What the card, the processor and the installed libraries cannot do, for any model and for this type of it.

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


def hardware_findings(plan: Plan) -> Iterator[Finding]:
    for judge in (_compile, _precision, _attention, _of_the_model, _libraries, _rate):
        yield from judge(plan)


def _card(plan: Plan) -> tuple[str, tuple[int, int] | None]:
    gpu = min(plan.devices.gpus, key=lambda gpu: gpu.capability or (0, 0), default=None) or weakest_gpu(plan.machine)
    if gpu is None:
        return tr("this machine"), None
    return tr("the {gpu} (sm {capability})", gpu=gpu_label(gpu), capability=gpu.compute_capability), gpu.capability


def _is_before(plan: Plan, least: tuple[int, int]) -> bool:
    """Whether an NVIDIA card computes that is older."""
    _, capability = _card(plan)
    return plan.devices.device == "cuda" and capability is not None and capability < least


def can_compile(plan: Plan) -> bool:
    """Whether torch.compile works on these cards with what is installed."""
    if plan.devices.device != "cuda" or _card(plan)[1] is None or _is_before(plan, TRITON):
        return False
    return plan.machine.hypothetical or plan.machine.libraries.has("triton")


def _compile(plan: Plan) -> Iterator[Finding]:
    if not plan.config.engine.compile:
        return
    off, device = (tr("leave it off"), {COMPILE: False}), plan.devices.device
    if _is_before(plan, TRITON):
        card, _ = _card(plan)
        message = _sentence(tr("{card} is too old for torch.compile: its compiler needs sm 7.0.", card=card))
        yield plan.error("compile_unsupported", COMPILE, message, off)
        return
    if device == "cuda" and not can_compile(plan):
        message = tr("torch.compile makes its kernels with Triton, which is not installed here.")
        yield plan.error("triton_missing", COMPILE, message, Remedy(tr("install it"), "pip install triton"), off)
        return
    message = tr(COMPILE_WORDS.get(device, COMPILE_WORDS["cuda"]))
    if not plan.config.data.concatenate:
        message = tr("{compiling}; rows of other lengths compile again", compiling=message)
    planned = tr(
        "Planned: {low} to {high} s more at the start, the least with the cache of an earlier run, and up to {size} more "
        "host RAM for each process (measured on 4 CPU cores with torch 2.13; {high} s is assumed). --benchmark N with "
        "and without it measures both here.",
        low=f"{COMPILED_START.low:.0f}",
        high=f"{COMPILED_START.high:.0f}",
        size=gib(COMPILING_HOST_BYTES),
    )
    yield plan.note("compile_takes_time", COMPILE, tr("{sentence}.", sentence=message) + after(planned), off)


def _precision(plan: Plan) -> Iterator[Finding]:
    """What the device does not compute in, and what it does."""
    engine, device, (card, _) = plan.config.engine, plan.devices.device, _card(plan)
    precision, old = engine.precision, _is_before(plan, AMPERE)
    instead = tr("compute in fp16") if device == "cuda" else tr("compute in fp32")
    remedy = instead, {PRECISION: "fp16" if device == "cuda" else "fp32"}
    no_tf32 = _sentence(tr("{card} has no TF32: it needs sm 8.0.", card=card))
    if old and precision in ("bf16", "bf16-true"):
        message = tr("{card} has no bf16: it needs sm 8.0. fp16 is what this card computes fast.", card=card)
        yield plan.error("bf16_unsupported", PRECISION, _sentence(message), remedy)
    elif old and precision == "tf32":
        yield plan.error("tf32_unsupported", PRECISION, no_tf32, remedy)
    elif device == "mps" and precision == "fp16":
        message = tr("{precision} training does not work on an Apple GPU; fp32 does.", precision=precision)
        yield plan.error("fp16_unsupported", PRECISION, message, remedy)
    elif device == "cpu" and precision in ("fp16", "tf32"):
        message = tr("{precision} training does not work on a CPU; fp32 does.", precision=precision)
        yield plan.error(f"{precision}_unsupported", PRECISION, message, remedy)
    elif device == "cpu" and precision == "bf16" and str(engine.strategy).startswith("zero"):
        # transformers takes bf16 on a CPU with use_cpu alone, which would leave DeepSpeed aside.
        message = tr("bf16 does not work with DeepSpeed on a CPU; fp32 does.")
        yield plan.error("bf16_unsupported", PRECISION, message, remedy)
    if old and engine.tf32:
        yield plan.error("tf32_unsupported", "engine.tf32", no_tf32, (tr("leave TF32 off"), {"engine.tf32": False}))


def _attention(plan: Plan) -> Iterator[Finding]:
    engine, (card, _) = plan.config.engine, _card(plan)
    if engine.attention != "flash_attention_2":
        return
    if plan.devices.device != "cuda":
        reason = tr("FlashAttention-2 needs an NVIDIA GPU.")
    elif _is_before(plan, AMPERE):
        reason = _sentence(tr("{card} is too old for FlashAttention-2: it needs sm 8.0.", card=card))
    elif engine.precision in ("fp32", "tf32"):
        reason = tr("FlashAttention-2 computes in half precision only, and engine.precision is fp32.")
    elif not plan.machine.hypothetical and not plan.machine.libraries.has("flash_attn"):
        reason = tr("flash-attn is not installed here.")
    else:
        return
    other = tr("use sdpa, which has its own flash kernel"), {ATTENTION: "sdpa"}
    if not has_attention(plan.model_type, "sdpa"):
        other = tr("use eager attention"), {ATTENTION: "eager"}
    yield plan.error("flash_attention_missing", ATTENTION, reason, other)


def _of_the_model(plan: Plan) -> Iterator[Finding]:
    """What transformers refuses for this type of model, before the first step."""
    kind, engine, key = plan.model_type, plan.config.engine, "engine.checkpointing"
    if engine.attention and not has_attention(kind, engine.attention):
        other = "sdpa" if has_attention(kind, "sdpa") else "eager"
        message = tr(
            "transformers has no {attention} attention for {kind} models (engine.attention).",
            attention=engine.attention,
            kind=kind,
        )
        remedy = tr("use {other} attention", other=other), {ATTENTION: other}
        yield plan.error("attention_unsupported", ATTENTION, message, remedy)
    if engine.checkpointing and not has_checkpointing(kind):
        message = tr("transformers has no checkpointing for {kind} models (engine.checkpointing).", kind=kind)
        yield plan.error("checkpointing_unsupported", key, message, (tr("leave it off"), {key: False}))


def _libraries(plan: Plan) -> Iterator[Finding]:
    """What is not installed here, and a torch without the GPU: the run would train on the CPU without a word."""
    engine, machine, here = plan.config.engine, plan.machine, plan.machine.libraries
    if machine.hypothetical:
        return
    uses_deepspeed = str(engine.strategy).startswith("zero") or engine.deepspeed_file is not None
    if uses_deepspeed and not here.has("deepspeed"):
        message = tr(
            "engine.strategy {strategy} needs DeepSpeed, which is not installed here.", strategy=engine.strategy
        )
        install = Remedy(tr("install it after torch"), INSTALL_DEEPSPEED)
        yield plan.error("deepspeed_missing", STRATEGY, message, install)
    if engine.optimizer in BITSANDBYTES_OPTIMIZERS and not here.has("bitsandbytes"):
        message = tr(
            "engine.optimizer {optimizer} needs bitsandbytes, which is not installed here.", optimizer=engine.optimizer
        )
        install = Remedy(tr("install it"), "pip install bitsandbytes")
        own = tr("use torch's AdamW"), {OPTIMIZER: "adamw_torch"}
        yield plan.error("bitsandbytes_missing", OPTIMIZER, message, install, own)
    if plan.devices.device == "cuda" and torch_misses_gpu(machine):
        message = tr(
            "The torch that is installed cannot use {device}{why}.",
            device=plan.devices.label,
            why=aside(machine.unavailable.get("torch_cuda")),
        )
        install = Remedy(tr("install the CUDA build"), INSTALL_CUDA_TORCH)
        on_cpu = tr("train on the CPU"), {"engine.device": "cpu"}
        yield plan.error("torch_without_cuda", "engine.device", message, install, on_cpu)


def _rate(plan: Plan) -> Iterator[Finding]:
    spec, precision = plan.devices.spec, str(plan.config.engine.precision)
    if plan.devices.device != "cuda":
        return
    if spec is None:
        message = tr(
            "The GPU catalogue does not know {names}, so there is no estimate of the time; memory is not affected.",
            names=", ".join(gpu_label(gpu) for gpu in plan.devices.gpus),
        )
        yield plan.note("unknown_gpu_rate", "time", message)
    elif is_rate_uncertain(spec, precision):
        by_hand = mark(
            "The {precision} rate of the {card} and its bandwidth are derived from the rate given by hand; "
            "the times rest on it."
        )
        catalogue = mark(
            "The {precision} rate of the {card} in the GPU catalogue is derived or from one source alone; "
            "the times rest on it."
        )
        message = tr(by_hand if spec.source == BY_HAND else catalogue, precision=precision, card=spec.name)
        yield plan.note("uncertain_rate", "time", message)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
