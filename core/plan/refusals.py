"""What this version, the model, the card or the installed libraries cannot do: refused in the plan, never ignored."""

from __future__ import annotations

from collections.abc import Iterator

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
from trainwiz.core.language import tr, trn
from trainwiz.core.plan.engine import (
    BITSANDBYTES_OPTIMIZERS,
    COMPILE,
    OFFLOAD,
    OPTIMIZER,
    STRATEGY,
    base_findings,
    base_refusals,
    torch_misses_gpu,
)
from trainwiz.core.plan.result import Plan, Refusal, WayOut
from trainwiz.core.plan.rows import SHARED
from trainwiz.core.plan.words import aside, counted, gib

PRECISION, ATTENTION, GPUS = "engine.precision", "engine.attention", "engine.gpus"


def refusals(plan: Plan) -> Iterator[Finding]:
    """What a change of a plan must not meet anew."""
    for table in TABLES:
        yield from (plan.error(code, key, text, *ways) for due, code, key, text, ways in table(plan) if due)
    for judge in (_notes, base_findings):
        yield from judge(plan)


# What RunConfig can say and this version cannot train.


def _scope(plan: Plan) -> Iterator[Refusal]:
    config, devices, work, names = plan.config, plan.devices, plan.work, plan.config.engine.gpus or []
    message = tr(
        "This version trains all weights of ESM-2 models and does not support {method} for them.",
        method=config.peft.method,
    )
    adapts = config.peft.method != "none" and config.row_kind == "proteins" and (work or plan.unknown_architecture)
    yield adapts, "peft_not_supported", "peft.method", message, ((tr("train all weights"), {"peft.method": "none"}),)
    key = "training.loss_chunk"
    sliced = slicing_problem(work.architecture.model_type) if work is not None and config.training.loss_chunk else None
    yield sliced, "loss_not_sliceable", key, sliced or "", ((tr("compute the loss without chunks"), {key: None}),)
    message = tr("engine.gpus selects GPU {wanted}, but this run would compute on the CPU.", wanted=", ".join(names))
    on_cpu = names and devices.device == "cpu"
    yield on_cpu, "missing_hardware", GPUS, message, ((tr("use the CPU"), {GPUS: None}),)
    key = "model.trust_remote_code"
    # A profile is data that people pass on: it must not decide that code is run.
    message = tr(
        "The profile would run Python code that comes with the model ({key}). Only you can allow this: --set "
        "{key}=true.",
        key=key,
    )
    unasked = config.model.trust_remote_code and config.origin(key).origin != "you"
    yield unasked, "remote_code", key, message, ((tr("do not run the model's code"), {key: False}),)


def _reporters(plan: Plan) -> Iterator[Refusal]:
    where, names, here = "logging.report_to", plan.config.logging.report_to, plan.machine
    fallback, code = (tr("report to TensorBoard"), {where: ["tensorboard"]}), "reporter_not_supported"
    unknown = [name for name in names if name not in REPORTERS and name != "none"]
    message = tr(
        "This version can report to {known} or none, but not to {unknown} ({where}).",
        known=", ".join(REPORTERS),
        unknown=", ".join(unknown),
        where=where,
    )
    yield unknown, code, where, message, (fallback,)
    libraries = [REPORTERS[name] for name in names if name in REPORTERS and name != "tensorboard"]
    missing = [library for library in libraries if not (here.hypothetical or here.libraries.has(library))]
    message = trn(
        "{where} includes {libraries}, which is not installed on this machine.",
        "{where} includes {libraries}, which are not installed on this machine.",
        len(missing),
        where=where,
        libraries=", ".join(missing),
    )
    install = Remedy(tr("install it"), install_line(here.installer, *missing))
    yield missing, "reporter_missing", where, message, (install, fallback)


# Engines that share weights out among processes: what they cannot do here, or together with another choice.


def _sharing(plan: Plan) -> Iterator[Refusal]:
    """FSDP as accelerate starts it: on several GPUs, whole or not at all in host RAM, with an optimizer of torch."""
    engine, device = plan.config.engine, plan.devices.device
    fsdp, cuda = engine.strategy == "fsdp", engine.strategy == "fsdp" and device == "cuda"
    zero3 = tr("shard with ZeRO-3"), {STRATEGY: "zero3"}
    message = tr(
        "FSDP needs GPUs: on a CPU, accelerate silently trains with DistributedDataParallel instead "
        "(engine.strategy). ZeRO-3 also shards a model on a CPU."
    )
    yield fsdp and device == "cpu", "fsdp_needs_gpus", STRATEGY, message, (zero3,)
    message = tr("FSDP shards a model across several GPUs, but this run has one (engine.strategy).")
    offloaded = {STRATEGY: "zero2", OFFLOAD: "optimizer"}
    without = tr("train without it"), {STRATEGY: "single"} if engine.offload == "none" else offloaded
    alone = fsdp and device != "cpu" and plan.devices.world_size == 1
    yield alone, "fsdp_needs_gpus", STRATEGY, message, (without,)
    # accelerate 1.15 puts the table into the group of the head alone; torch 2.13 finds it in the root's as well.
    message = tr(
        "FSDP as started by accelerate cannot shard a model whose encoder and decoder share one token embedding, as "
        "seq2seq models do (engine.strategy); ZeRO-3 can."
    )
    yield cuda and plan.config.task == "seq2seq", "shared_table", STRATEGY, message, (zero3,)
    message = tr("FSDP offloads all states to RAM or none (engine.offload); ZeRO can offload the optimizer alone.")
    all_of_it = tr("offload everything to RAM"), {OFFLOAD: "all"}
    yield cuda and engine.offload == "optimizer", "offload_not_supported", OFFLOAD, message, (zero3, all_of_it)
    # github.com/bitsandbytes-foundation/bitsandbytes/issues/1633
    message = tr(
        "engine.optimizer {optimizer} does not work with FSDP 2 weights: bitsandbytes reads beyond its shard.",
        optimizer=engine.optimizer,
    )
    own = tr("use torch's AdamW"), {OPTIMIZER: "adamw_torch_fused"}
    yield cuda and engine.optimizer in BITSANDBYTES_OPTIMIZERS, "optimizer_not_shared", OPTIMIZER, message, (own,)


# What contradicts the model and its task.


def _task(plan: Plan) -> Iterator[Refusal]:
    config, work, name = plan.config, plan.work, plan.config.model.name
    message = tr(
        "{name} has an encoder and a decoder; {task} trains models with only one of them.", name=name, task=config.task
    )
    both = work is not None and work.architecture.kind == "encoder-decoder" and config.task in CLASSIFIES
    yield both, "model_not_supported", "model.name", message, ()
    if work is not None and config.peft.method == "lora":
        # peft says nothing as long as it finds another.
        missing = unknown_targets(work.architecture, config.peft.targets)
        message = tr(
            "{name} has no module {missing} for LoRA (peft.targets); available: {names}.",
            name=name,
            missing=", ".join(missing),
            names=", ".join(known_targets(work.architecture)),
        )
        every = tr("target every linear layer"), {"peft.targets": list(ALL_LINEAR)}
        yield missing, "unknown_lora_target", "peft.targets", message, (every,)
    key = "evaluation.generate"
    message = tr("evaluation.generate compares with a target or an answer, but the rows of this run have neither.")
    silent = config.evaluation.generate and not _has_targets(config)
    yield silent, "nothing_to_generate", key, message, ((tr("do not generate"), {key: False}),)
    key = "data.concatenate"
    # Joining throws the border between a prompt and its response, or the turns of a chat, away.
    message = tr(
        "data.concatenate joins whole texts and trains on every token: it is for the plain texts of causal language "
        "models."
    )
    plain = config.task == "causal-lm" and not _has_targets(config)
    apart = tr("keep each row a separate sequence"), {key: False}
    yield config.data.concatenate and not plain, "nothing_to_join", key, message, (apart,)


def _packing(plan: Plan) -> Iterator[Refusal]:
    """Why rows may not be laid end to end."""
    engine, kind, code, key = plan.config.engine, plan.model_type, "packing_not_possible", "data.packing"
    if not plan.config.data.packing or joins_texts(plan.config):
        return
    causal, off = plan.config.task == "causal-lm", (tr("pad the rows"), {key: False})
    # Masks of models that look both ways do not follow positions (create_bidirectional_mask, transformers 5.23).
    message = tr("Only causal models can pack rows end to end: others would see each other's rows.")
    yield not causal, code, key, message, (off,)
    message = tr("Packed rows were not tested with models of type {kind}.", kind=kind)
    yield causal and kind is not None and kind not in TRIED, code, key, message, (off,)
    message = tr(
        "Eager attention stores the scores of every token with all tokens of its micro-batch: packed rows need "
        "sdpa or flash_attention_2."
    )
    yield engine.attention == "eager", code, key, message, (off, (tr("sdpa attention"), {ATTENTION: "sdpa"}))
    message = tr("With packed rows, torch.compile would recompile at every step.")
    yield engine.compile, code, key, message, (off, (tr("without torch.compile"), {COMPILE: False}))
    # They hold a part of the weights.
    message = tr("Packed rows were not tested with {strategy}.", strategy=engine.strategy)
    yield engine.strategy in SHARED, code, key, message, (off,)


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
        yield plan.warning("generation_cut", "evaluation.generation_length", message, whole)
    if plan.devices.device == "cuda" and plan.devices.spec is None:
        message = tr(
            "The GPU catalog does not list {names}, so the time is not estimated; memory is not affected.",
            names=", ".join(gpu_label(gpu) for gpu in plan.devices.gpus),
        )
        yield plan.note("unknown_gpu_rate", "time", message)
    if config.engine.compile and can_compile(plan):
        message = tr(
            "torch.compile builds kernels in the first steps: {low} to {high} s more at the start, and up to {size} more "
            "RAM per process; other row lengths are compiled again. Run --benchmark N with and without it to measure both.",
            low=f"{COMPILED_START.low:.0f}",
            high=f"{COMPILED_START.high:.0f}",
            size=gib(COMPILING_HOST_BYTES),
        )
        yield plan.note("compile_takes_time", COMPILE, message, (tr("turn it off"), {COMPILE: False}))
    if config.engine.liger:
        message = tr(
            "Norms, rotary embeddings and gated layers are computed by liger-kernel. Its savings are not included in "
            "the memory and time shown here, and trainwiz has not compared its numerical results on a GPU."
        )
        yield plan.note("liger", "engine.liger", message)
    of_steps = config.training.max_steps is not None and plan.chosen_by_hand("training.max_steps")
    if plan.data is None and plan.counted is not None and config.mode.kind == "train" and not of_steps:
        message = tr(
            "The rows are not on this machine and cannot be counted. Assumed: {rows}, the max_rows limit of the "
            "data sources.",
            **counted(rows=plan.counted.rows),
        )
        yield plan.note("rows_assumed", "data.sources", message)


def _best(plan: Plan) -> Iterator[Refusal]:
    """What core/training/best.py would refuse at the start."""
    config, where, metric, known = (
        plan.config,
        "evaluation.metric",
        ranking_metric(plan.config),
        known_metrics(plan.config),
    )
    checkpoint, final = config.checkpoint, "checkpoint.final"
    wants_best = checkpoint.final == "best" and plan.chosen_by_hand(final)
    asked = (
        ("checkpoint.keep_best", checkpoint.keep_best, False),
        (final, wants_best, "last"),
        ("evaluation.patience", config.evaluation.patience is not None, None),
    )
    no_rows = config.data.validation_rows == 0 and not config.data.validation_sources
    for key, holds, off in asked:
        message = tr("{key} depends on the score on held-out rows, but no rows are held out.", key=key)
        away = (tr("turn it off"), {key: off})
        yield holds and no_rows, "nothing_held_out", key, message, (away,)
    message = tr(
        "This run does not measure {metric} (evaluation.metric); available: {known}.",
        metric=metric,
        known=", ".join(known),
    )
    remedies: list[WayOut] = [(tr("select by {metric}", metric=DEFAULT_METRIC), {where: DEFAULT_METRIC})]
    if metric == BLEU_METRIC and _has_targets(config):
        remedies.insert(0, (tr("generate text for BLEU"), {"evaluation.generate": True}))
    yield (
        any(holds for _, holds, _ in asked) and not no_rows and metric not in known,
        "unknown_metric",
        where,
        message,
        tuple(remedies),
    )


def _has_targets(config: RunConfig) -> bool:
    """Whether there is something to compare a generated text with."""
    named = any(source.target_column is not None for source in config.data.sources)
    return config.task == "seq2seq" or trains_on_chats(config) or (config.task == "causal-lm" and named)


# What the card, the processor and the installed libraries cannot do, for any model and for this type of it.

TRITON = (7, 0)
"""First capability that Triton, the compiler behind torch.compile, makes kernels for."""


def _card(plan: Plan) -> tuple[str, tuple[int, int] | None]:
    gpu = min(plan.devices.gpus, key=lambda gpu: gpu.capability or (0, 0), default=None) or weakest_gpu(plan.machine)
    if gpu is None:
        return tr("this machine"), None
    return tr(
        "the {gpu} (compute capability {capability})", gpu=gpu_label(gpu), capability=gpu.compute_capability
    ), gpu.capability


def _is_before(plan: Plan, least: tuple[int, int]) -> bool:
    """Whether an NVIDIA card computes that is older."""
    _, capability = _card(plan)
    return plan.devices.device == "cuda" and capability is not None and capability < least


def can_compile(plan: Plan) -> bool:
    """Whether torch.compile works on these cards with what is installed, and for this base."""
    if plan.devices.device != "cuda" or _card(plan)[1] is None or _is_before(plan, TRITON):
        return False
    if plan.config.engine.base_precision in ("nf4", "int8"):
        return False
    return plan.machine.may_have("triton")


def _compile(plan: Plan) -> Iterator[Refusal]:
    compiles, off = plan.config.engine.compile, (tr("turn it off"), {COMPILE: False})
    old, (card, _) = _is_before(plan, TRITON), _card(plan)
    message = tr("{card} is too old for torch.compile: its compiler needs compute capability 7.0.", card=card)
    yield compiles and old, "compile_unsupported", COMPILE, _sentence(message), (off,)
    message = tr("torch.compile builds its kernels with Triton, which is not installed on this machine.")
    triton = Remedy(tr("install it"), install_line(plan.machine.installer, "triton"))
    missing = plan.devices.device == "cuda" and not old and not plan.machine.may_have("triton")
    yield compiles and missing, "triton_missing", COMPILE, message, (triton, off)


def _precision(plan: Plan) -> Iterator[Refusal]:
    """What the device does not compute in, and what it does."""
    engine, device, (card, _) = plan.config.engine, plan.devices.device, _card(plan)
    precision, old = engine.precision, _is_before(plan, AMPERE)
    fp16, fp32 = (tr("compute in fp16"), {PRECISION: "fp16"}), (tr("compute in fp32"), {PRECISION: "fp32"})
    message = tr("{card} has no bf16: it needs compute capability 8.0. fp16 is fast on this GPU.", card=card)
    yield old and precision in ("bf16", "bf16-true"), "bf16_unsupported", PRECISION, _sentence(message), (fp16,)
    no_tf32 = _sentence(tr("{card} has no TF32: it needs compute capability 8.0.", card=card))
    yield old and precision == "tf32", "tf32_unsupported", PRECISION, no_tf32, (fp16,)
    off = tr("turn TF32 off"), {"engine.tf32": False}
    yield old and engine.tf32, "tf32_unsupported", "engine.tf32", no_tf32, (off,)
    message = tr("{precision} training does not work without an NVIDIA GPU; fp32 does.", precision=precision)
    elsewhere = device != "cuda" and precision in ("fp16", "tf32")
    yield elsewhere, f"{precision}_unsupported", PRECISION, message, (fp32,)
    # transformers takes bf16 on a CPU with use_cpu alone, which would leave DeepSpeed aside.
    sharded = device == "cpu" and precision == "bf16" and str(engine.strategy).startswith("zero")
    message = tr("bf16 does not work with DeepSpeed on a CPU; fp32 does.")
    yield sharded, "bf16_unsupported", PRECISION, message, (fp32,)


def _attention(plan: Plan) -> Iterator[Refusal]:
    """What FlashAttention-2 lacks here, and what transformers has for this type of model."""
    kind, attention, (card, _) = plan.model_type, plan.config.engine.attention, _card(plan)
    other = "sdpa" if has_attention(kind, "sdpa") else "eager"
    instead = tr("use {other} attention", other=other), {ATTENTION: other}
    here, reason = plan.machine, ""
    if plan.devices.device != "cuda":
        reason = tr("FlashAttention-2 needs an NVIDIA GPU.")
    elif _is_before(plan, AMPERE):
        reason = _sentence(tr("{card} is too old for FlashAttention-2: it needs compute capability 8.0.", card=card))
    elif plan.config.engine.precision in ("fp32", "tf32"):
        reason = tr("FlashAttention-2 supports half precision only, but engine.precision is fp32.")
    elif not here.hypothetical and not here.libraries.has("flash_attn"):
        reason = tr("flash-attn is not installed on this machine.")
    yield attention == "flash_attention_2" and reason, "flash_attention_missing", ATTENTION, reason, (instead,)
    message = tr(
        "transformers has no {attention} attention for {kind} models (engine.attention).",
        attention=attention,
        kind=kind,
    )
    lacks = attention and not has_attention(kind, attention)
    yield lacks, "attention_unsupported", ATTENTION, message, (instead,)


def _checkpointing(plan: Plan) -> Iterator[Refusal]:
    kind, key = plan.model_type, "engine.checkpointing"
    message = tr("transformers has no gradient checkpointing for {kind} models (engine.checkpointing).", kind=kind)
    lacks = plan.config.engine.checkpointing and not has_checkpointing(kind)
    yield lacks, "checkpointing_unsupported", key, message, ((tr("turn it off"), {key: False}),)


def _liger(plan: Plan) -> Iterator[Refusal]:
    engine, key = plan.config.engine, "engine.liger"
    if not engine.liger:
        return
    off = tr("turn it off"), {key: False}
    message = tr("Liger kernels need an NVIDIA GPU ({key}).", key=key)
    yield plan.devices.device != "cuda", "liger_unsupported", key, message, (off,)
    message = tr("liger-kernel has no kernels for {kind} models ({key}).", kind=plan.model_type, key=key)
    yield plan.model_type is not None and plan.model_type not in LIGER, "liger_unsupported", key, message, (off,)
    message = tr(
        "Liger kernels were not tested with {strategy} or torch.compile ({key}).", strategy=engine.strategy, key=key
    )
    yield engine.strategy not in ("single", "ddp") or engine.compile, "liger_untried", key, message, (off,)
    install = Remedy(tr("install it"), install_line(plan.machine.installer, "liger-kernel"))
    missing = not plan.machine.libraries.has("liger_kernel")
    message = tr("{key} needs liger-kernel, which is not installed on this machine.", key=key)
    yield missing and not plan.machine.hypothetical, "liger_missing", key, message, (install, off)


def _libraries(plan: Plan) -> Iterator[Refusal]:
    """What is not installed here, and a torch without the GPU: the run would train on the CPU without a word."""
    engine, machine, has = plan.config.engine, plan.machine, plan.machine.libraries.has
    if not machine.trains:
        return
    uses_deepspeed = str(engine.strategy).startswith("zero") or engine.deepspeed_file is not None
    message = tr(
        "engine.strategy {strategy} needs DeepSpeed, which is not installed on this machine.", strategy=engine.strategy
    )
    install = Remedy(tr("install it"), training_line(machine, "[deepspeed]"))
    yield uses_deepspeed and not has("deepspeed"), "deepspeed_missing", STRATEGY, message, (install,)
    message = tr(
        "engine.optimizer {optimizer} needs bitsandbytes, which is not installed on this machine.",
        optimizer=engine.optimizer,
    )
    install = Remedy(tr("install it"), training_line(machine, "[qlora]"))
    own, missing = (tr("use torch's AdamW"), {OPTIMIZER: "adamw_torch"}), not has("bitsandbytes")
    in_8_bits = engine.optimizer in BITSANDBYTES_OPTIMIZERS
    yield in_8_bits and missing, "bitsandbytes_missing", OPTIMIZER, message, (install, own)
    message = tr(
        "The installed torch cannot use {device}{why}.",
        device=plan.devices.label,
        why=aside(machine.unavailable.get("torch_cuda")),
    )
    install, on_cpu = Remedy(tr("install the CUDA build"), torch_line(machine)), {"engine.device": "cpu"}
    without = plan.devices.device == "cuda" and torch_misses_gpu(machine)
    yield without, "torch_without_cuda", "engine.device", message, (install, (tr("train on the CPU"), on_cpu))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


TABLES = (
    _scope,
    _sharing,
    _reporters,
    _task,
    _best,
    _libraries,
    _checkpointing,
    _liger,
    _packing,
    _compile,
    _precision,
    _attention,
    base_refusals,
)
