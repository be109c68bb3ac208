"""What this version, the model, the card or the installed libraries cannot do: refused in the plan, never ignored."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from trainwiz.core.catalog.gpus import BY_HAND, is_rate_uncertain
from trainwiz.core.catalog.model_config import LIGER, has_attention, has_checkpointing, known_targets, unknown_targets
from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import BLEU_METRIC, DEFAULT_METRIC, known_metrics, ranking_metric
from trainwiz.core.config.values import CLASSIFIES, WRITE_TEXT
from trainwiz.core.data.lengths import longest_generation, trains_on_chats
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
from trainwiz.core.plan.quantized import base_findings, base_refusals
from trainwiz.core.plan.result import Plan, Refusal, WayOut
from trainwiz.core.plan.words import aside, counted, gib
from trainwiz.core.text import plain_text

PRECISION, ATTENTION, GPUS, COMPILE = "engine.precision", "engine.attention", "engine.gpus", "engine.compile"


def refusals(plan: Plan) -> Iterator[Finding]:
    """What a change of a plan must not meet anew."""
    for table in (
        _scope,
        _sharing,
        _reporters,
        _task,
        _generation,
        _best,
        _libraries,
        _of_the_model,
        _liger,
        base_refusals,
    ):
        yield from (plan.error(code, key, text, *ways) for due, code, key, text, ways in table(plan) if due)
    for judge in (_warnings, _liger_note, _compile, _precision, _attention, _rate, base_findings):
        yield from judge(plan)


# What RunConfig can say and this version cannot train.


def _scope(plan: Plan) -> Iterator[Refusal]:
    config, devices, work, names = plan.config, plan.devices, plan.work, plan.config.engine.gpus or []
    message = tr(
        "This version trains all weights of ESM-2 models; {method} adapters it does not.", method=config.peft.method
    )
    adapts = config.peft.method != "none" and config.row_kind == "proteins" and (work or plan.unknown_architecture)
    yield adapts, "peft_not_supported", "peft.method", message, ((tr("train all weights"), {"peft.method": "none"}),)
    key = "training.loss_chunk"
    sliced = slicing_problem(work.architecture.model_type) if work is not None and config.training.loss_chunk else None
    yield sliced, "loss_not_sliceable", key, sliced or "", ((tr("compute the loss at once"), {key: None}),)
    message = tr(
        "GPU {wanted} is asked for (engine.gpus), and this run would compute on the CPU.", wanted=", ".join(names)
    )
    on_cpu = names and devices.device == "cpu"
    yield on_cpu, "missing_hardware", GPUS, message, ((tr("use the CPU"), {GPUS: None}),)
    named = [name for name in names if not name.isdecimal()]
    # The other machines would see no GPU at all.
    message = tr(
        "GPU {names} is a card of one machine (engine.gpus), and {n} machines train; numbers hold on each of them.",
        names=plain_text(", ".join(named), 200),
        n=devices.nodes,
    )
    sliced_cards = any(gpu.parent_uuid is not None for gpu in devices.gpus)
    numbers = None if sliced_cards else [str(gpu.index) for gpu in devices.gpus] or None
    by_number = tr("name them by number"), {GPUS: numbers}
    yield devices.nodes > 1 and named, "gpus_of_one_machine", GPUS, message, (by_number,)
    key = "model.trust_remote_code"
    # A profile is data that people pass on: it must not decide that code is run.
    message = tr(
        "The profile wants to run Python code that comes with the model ({key}); that is for you to "
        "allow: --set {key}=true.",
        key=key,
    )
    unasked = config.model.trust_remote_code and config.origin(key).origin != "you"
    yield unasked, "remote_code", key, message, ((tr("run no code of the model"), {key: False}),)


def _reporters(plan: Plan) -> Iterator[Refusal]:
    where, names, here = "logging.report_to", plan.config.logging.report_to, plan.machine
    fallback, code = (tr("report to TensorBoard"), {where: ["tensorboard"]}), "reporter_not_supported"
    beside = ", ".join(name for name in names if name != "none")
    message = tr("{where} holds none beside {names}; leave one out.", where=where, names=beside)
    yield "none" in names and beside, code, where, message, (fallback,)
    unknown = [name for name in names if name not in REPORTERS and name != "none"]
    message = tr(
        "This version reports to {known} or none, not to {unknown} ({where}).",
        known=", ".join(REPORTERS),
        unknown=", ".join(unknown),
        where=where,
    )
    yield unknown, code, where, message, (fallback,)
    libraries = [REPORTERS[name] for name in names if name in REPORTERS and name != "tensorboard"]
    missing = [library for library in libraries if not (here.hypothetical or here.libraries.has(library))]
    message = trn(
        "{where} names {libraries}, which is not installed here.",
        "{where} names {libraries}, which are not installed here.",
        len(missing),
        where=where,
        libraries=", ".join(missing),
    )
    install = Remedy(tr("install it"), f"pip install {' '.join(missing)}")
    yield missing, "reporter_missing", where, message, (install, fallback)


# Engines that share weights out among processes: what they cannot do here, or together with another choice.


def _sharing(plan: Plan) -> Iterator[Refusal]:
    """FSDP as accelerate starts it: on several GPUs, whole or not at all in host RAM, with an optimizer of torch."""
    engine, device = plan.config.engine, plan.devices.device
    fsdp, cuda = engine.strategy == "fsdp", engine.strategy == "fsdp" and device == "cuda"
    one_gpu, zero3 = tr("train on the one GPU"), (tr("shard with ZeRO-3"), {STRATEGY: "zero3"})
    message = tr("DeepSpeed does not train on an Apple GPU (engine.strategy).")
    single = one_gpu, {STRATEGY: "single", OFFLOAD: "none"}
    on_apple = str(engine.strategy).startswith("zero") and device == "mps"
    yield on_apple, "deepspeed_needs_cuda", STRATEGY, message, (single,)
    message = tr("FSDP needs several GPUs of NVIDIA, and an Apple computer has one GPU (engine.strategy).")
    yield fsdp and device == "mps", "fsdp_needs_gpus", STRATEGY, message, ((one_gpu, {STRATEGY: "single"}),)
    message = tr(
        "FSDP needs GPUs: on a CPU accelerate trains with DistributedDataParallel in its place and says nothing "
        "(engine.strategy). ZeRO-3 shares a model out on a CPU too."
    )
    yield fsdp and device == "cpu", "fsdp_needs_gpus", STRATEGY, message, (zero3,)
    message = tr("FSDP shares a model out among several GPUs, and this run has one (engine.strategy).")
    offloaded = {STRATEGY: "zero2", OFFLOAD: "optimizer"}
    without = tr("train without it"), {STRATEGY: "single"} if engine.offload == "none" else offloaded
    yield cuda and plan.devices.world_size == 1, "fsdp_needs_gpus", STRATEGY, message, (without,)
    # accelerate 1.15 puts the table into the group of the head alone; torch 2.13 finds it in the root's as well.
    message = tr(
        "FSDP as accelerate starts it cannot share out a model whose encoder and decoder read one table of tokens, "
        "as those of seq2seq do (engine.strategy); ZeRO-3 can."
    )
    yield cuda and plan.config.task == "seq2seq", "shared_table", STRATEGY, message, (zero3,)
    message = tr("FSDP keeps all states in host RAM or none (engine.offload); the optimizer alone ZeRO can keep there.")
    all_of_it = tr("keep all in host RAM"), {OFFLOAD: "all"}
    yield cuda and engine.offload == "optimizer", "offload_not_supported", OFFLOAD, message, (zero3, all_of_it)
    # github.com/bitsandbytes-foundation/bitsandbytes/issues/1633
    message = tr(
        "engine.optimizer {optimizer} does not work on the weights of FSDP 2: bitsandbytes reads beyond its part.",
        optimizer=engine.optimizer,
    )
    own = tr("use torch's AdamW"), {OPTIMIZER: "adamw_torch_fused"}
    yield cuda and engine.optimizer in BITSANDBYTES_OPTIMIZERS, "optimizer_not_shared", OPTIMIZER, message, (own,)


# What contradicts the model and its task.

LEAST_PASSES = 10
"""Of an overfit run over its batches."""


def _task(plan: Plan) -> Iterator[Refusal]:
    config, work, name = plan.config, plan.work, plan.config.model.name
    message = tr(
        "{name} has an encoder and a decoder; {task} trains models that have one of them.", name=name, task=config.task
    )
    both = work is not None and work.architecture.kind == "encoder-decoder" and config.task in CLASSIFIES
    yield both, "model_not_supported", "model.name", message, ()
    if work is not None and config.peft.method == "lora":
        # peft says nothing as long as it finds another.
        missing = unknown_targets(work.architecture, config.peft.targets)
        message = tr(
            "{name} has no module {missing} for LoRA (peft.targets); it has {names}.",
            name=name,
            missing=", ".join(missing),
            names=", ".join(known_targets(work.architecture)),
        )
        every = tr("adapt every linear layer"), {"peft.targets": list(ALL_LINEAR)}
        yield missing, "unknown_lora_target", "peft.targets", message, (every,)
    key, joins = "data.concatenate", config.data.concatenate
    message = tr("data.concatenate is for causal language models; each row of this task stays a sample.")
    apart = tr("keep each row a sample")
    yield joins and config.task != "causal-lm", "nothing_to_join", key, message, ((apart, {key: None}),)
    # Joining throws the border between a prompt and its response, or the turns of a chat, away.
    message = tr("data.concatenate joins whole texts, of which every token is learnt; these rows have answers.")
    targets = config.task == "causal-lm" and _has_targets(config)
    yield joins and targets, "joined_targets", key, message, ((apart, {key: False}),)


def _warnings(plan: Plan) -> Iterator[Finding]:
    """What is cut, assumed or too little."""
    config = plan.config
    asked, longest = config.evaluation.generation_length or 0, longest_generation(config)
    if config.evaluation.generate and asked > longest:
        message = tr(
            "Generated answers end at {longest} tokens, not at {asked}: the prompt needs the other half "
            "of {sequence_length} tokens (batch.sequence_length).",
            **counted(longest=longest, asked=asked, sequence_length=config.batch.sequence_length),
        )
        whole = tr("take the whole answer"), {"batch.sequence_length": 2 * asked}
        yield plan.warning("generation_cut", "evaluation.generation_length", message, whole)
    yield from _overfit(plan)
    of_steps = config.training.max_steps is not None and plan.chosen_by_hand("training.max_steps")
    if plan.data is None and plan.counted is not None and config.mode.kind == "train" and not of_steps:
        message = tr(
            "The rows are not here to count: {rows} are taken, as many as max_rows of the sources let through.",
            **counted(rows=plan.counted.rows),
        )
        yield plan.note("rows_assumed", "data.sources", message)


def _generation(plan: Plan) -> Iterator[Refusal]:
    config, key, code = plan.config, "evaluation.generate", "nothing_to_generate"
    off, silent = (tr("do not generate"), {key: False}), config.task not in WRITE_TEXT
    message = tr("evaluation.generate is for tasks that write text; {task} writes none.", task=config.task)
    yield config.evaluation.generate and silent, code, key, message, (off,)
    message = tr("evaluation.generate compares with a target or an answer, and the rows of this run have none.")
    yield config.evaluation.generate and not (silent or _has_targets(config)), code, key, message, (off,)


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
        message = tr("{key} goes by the score on held-out rows, and none are held out.", key=key)
        away = (tr("leave it off"), {key: off})
        yield holds and no_rows, "nothing_held_out", key, message, (away,)
    message = tr(
        "This run measures no {metric} (evaluation.metric); it measures {known}.",
        metric=metric,
        known=", ".join(known),
    )
    remedies: list[WayOut] = [(tr("choose by {metric}", metric=DEFAULT_METRIC), {where: DEFAULT_METRIC})]
    if metric == BLEU_METRIC and _has_targets(config):
        remedies.insert(0, (tr("generate, for BLEU"), {"evaluation.generate": True}))
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
    """Whether torch.compile works on these cards with what is installed, and for this base."""
    if plan.devices.device != "cuda" or _card(plan)[1] is None or _is_before(plan, TRITON):
        return False
    if plan.config.engine.base_precision in ("nf4", "int8"):
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
    code, message = f"{precision}_unsupported", ""
    no_tf32 = _sentence(tr("{card} has no TF32: it needs sm 8.0.", card=card))
    if old and precision in ("bf16", "bf16-true"):
        code = "bf16_unsupported"
        message = tr("{card} has no bf16: it needs sm 8.0. fp16 is what this card computes fast.", card=card)
    elif old and precision == "tf32":
        message = no_tf32
    elif device == "mps" and precision == "fp16":
        message = tr("{precision} training does not work on an Apple GPU; fp32 does.", precision=precision)
    elif device == "cpu" and precision in ("fp16", "tf32"):
        message = tr("{precision} training does not work on a CPU; fp32 does.", precision=precision)
    elif device == "cpu" and precision == "bf16" and str(engine.strategy).startswith("zero"):
        # transformers takes bf16 on a CPU with use_cpu alone, which would leave DeepSpeed aside.
        message = tr("bf16 does not work with DeepSpeed on a CPU; fp32 does.")
    if message:
        fp16 = tr("compute in fp16"), {PRECISION: "fp16"}
        fp32 = tr("compute in fp32"), {PRECISION: "fp32"}
        yield plan.error(code, PRECISION, _sentence(message), fp16 if device == "cuda" else fp32)
    if old and engine.tf32:
        yield plan.error("tf32_unsupported", "engine.tf32", no_tf32, (tr("leave TF32 off"), {"engine.tf32": False}))


def _attention(plan: Plan) -> Iterator[Finding]:
    engine, (card, _), reason = plan.config.engine, _card(plan), ""
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
    other = tr("use sdpa, which has its own flash kernel"), {ATTENTION: "sdpa"}
    if not has_attention(plan.model_type, "sdpa"):
        other = tr("use eager attention"), {ATTENTION: "eager"}
    if reason:
        yield plan.error("flash_attention_missing", ATTENTION, reason, other)


def _of_the_model(plan: Plan) -> Iterator[Refusal]:
    """What transformers refuses for this type of model, before the first step."""
    kind, engine, key = plan.model_type, plan.config.engine, "engine.checkpointing"
    other = "sdpa" if has_attention(kind, "sdpa") else "eager"
    message = tr(
        "transformers has no {attention} attention for {kind} models (engine.attention).",
        attention=engine.attention,
        kind=kind,
    )
    instead = tr("use {other} attention", other=other), {ATTENTION: other}
    lacks = engine.attention and not has_attention(kind, engine.attention)
    yield lacks, "attention_unsupported", ATTENTION, message, (instead,)
    message = tr("transformers has no checkpointing for {kind} models (engine.checkpointing).", kind=kind)
    lacks = engine.checkpointing and not has_checkpointing(kind)
    yield lacks, "checkpointing_unsupported", key, message, ((tr("leave it off"), {key: False}),)


def _liger(plan: Plan) -> Iterator[Refusal]:
    engine, key = plan.config.engine, "engine.liger"
    if not engine.liger:
        return
    off = tr("leave it off"), {key: False}
    message = tr("Liger kernels need an NVIDIA GPU ({key}).", key=key)
    yield plan.devices.device != "cuda", "liger_unsupported", key, message, (off,)
    message = tr("liger-kernel has no kernels for {kind} models ({key}).", kind=plan.model_type, key=key)
    yield plan.model_type is not None and plan.model_type not in LIGER, "liger_unsupported", key, message, (off,)
    message = tr(
        "Liger kernels were not tried with {strategy} or torch.compile ({key}).", strategy=engine.strategy, key=key
    )
    yield engine.strategy not in ("single", "ddp") or engine.compile, "liger_untried", key, message, (off,)
    install, missing = (
        Remedy(tr("install it"), "pip install liger-kernel"),
        not plan.machine.libraries.has("liger_kernel"),
    )
    message = tr("{key} needs liger-kernel, which is not installed here.", key=key)
    yield missing and not plan.machine.hypothetical, "liger_missing", key, message, (install, off)


def _liger_note(plan: Plan) -> Iterator[Finding]:
    if plan.config.engine.liger:
        message = tr(
            "Norms, rotary positions and gated layers are computed by liger-kernel. What that saves is not in the memory and "
            "the time shown here, and its numbers were not compared on a GPU by trainwiz."
        )
        yield plan.note("liger", "engine.liger", message)


def _libraries(plan: Plan) -> Iterator[Refusal]:
    """What is not installed here, and a torch without the GPU: the run would train on the CPU without a word."""
    engine, machine, has = plan.config.engine, plan.machine, plan.machine.libraries.has
    if machine.hypothetical:
        return
    uses_deepspeed = str(engine.strategy).startswith("zero") or engine.deepspeed_file is not None
    message = tr("engine.strategy {strategy} needs DeepSpeed, which is not installed here.", strategy=engine.strategy)
    install = Remedy(tr("install it after torch"), INSTALL_DEEPSPEED)
    yield uses_deepspeed and not has("deepspeed"), "deepspeed_missing", STRATEGY, message, (install,)
    message = tr(
        "engine.optimizer {optimizer} needs bitsandbytes, which is not installed here.", optimizer=engine.optimizer
    )
    install = Remedy(tr("install it"), "pip install bitsandbytes")
    own, missing = (tr("use torch's AdamW"), {OPTIMIZER: "adamw_torch"}), not has("bitsandbytes")
    in_8_bits = engine.optimizer in BITSANDBYTES_OPTIMIZERS
    yield in_8_bits and missing, "bitsandbytes_missing", OPTIMIZER, message, (install, own)
    message = tr(
        "The torch that is installed cannot use {device}{why}.",
        device=plan.devices.label,
        why=aside(machine.unavailable.get("torch_cuda")),
    )
    install, on_cpu = Remedy(tr("install the CUDA build"), INSTALL_CUDA_TORCH), {"engine.device": "cpu"}
    without = plan.devices.device == "cuda" and torch_misses_gpu(machine)
    yield without, "torch_without_cuda", "engine.device", message, (install, (tr("train on the CPU"), on_cpu))


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
