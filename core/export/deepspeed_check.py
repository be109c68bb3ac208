"""What a DeepSpeed document says against itself, and against a run."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from trainwiz.core.config.run import RunConfig
from trainwiz.core.errors import Finding, Severity
from trainwiz.core.export.training_arguments import mixed_precision, processes, solved
from trainwiz.core.language import mark, tr


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names that DeepSpeed knows, and where transformers and accelerate fill in an "auto".

MISPLACED = _words("fp16 bf16 optimizer scheduler gradient_clipping activation_checkpointing")
"""Sections of their own that are found inside `zero_optimization`, where DeepSpeed refuses them."""

FILLED_IN = _words(
    "train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps gradient_clipping fp16.enabled "
    "bf16.enabled optimizer.params.lr optimizer.params.betas optimizer.params.eps optimizer.params.weight_decay "
    "scheduler.params.warmup_min_lr scheduler.params.warmup_max_lr scheduler.params.warmup_num_steps "
    "scheduler.params.total_num_steps zero_optimization.reduce_bucket_size "
    "zero_optimization.stage3_prefetch_bucket_size zero_optimization.stage3_param_persistence_threshold "
    "zero_optimization.stage3_gather_16bit_weights_on_model_save zero_optimization.stage "
    "zero_optimization.offload_optimizer.device zero_optimization.offload_param.device "
    "zero_optimization.offload_optimizer.nvme_path zero_optimization.offload_param.nvme_path"
)
"""Where transformers (integrations/deepspeed.py) or accelerate (DeepSpeedPlugin) put a number in place of "auto"."""

KNOWN_VERSION = "0.19"

SECTION_KEYS: dict[str, frozenset[str]] = {
    "zero_optimization": _words(
        "allgather_bucket_size allgather_partitions allgather_sequential compute_grad_norm contiguous_gradients "
        "cpu_offload cpu_offload_param cpu_offload_use_pin_memory elastic_checkpoint enable_sanity_checks "
        "gather_16bit_weights_on_model_save ignore_unused_parameters leaf_module legacy_stage1 load_from_fp32_weights "
        "log_trace_cache_warnings max_live_parameters max_reuse_distance memory_efficient_linear "
        "model_persistence_threshold module_granularity_threshold offload_optimizer offload_param overlap_comm "
        "override_module_apply param_persistence_threshold parameter_alignment pipeline_loading_checkpoint "
        "prefetch_bucket_size reduce_bucket_size reduce_scatter round_robin_gradients "
        "save_muon_momentum_buffer_in_memory stage stage3_allgather_sequential "
        "stage3_gather_16bit_weights_on_model_save stage3_gather_fp16_weights_on_model_save stage3_max_live_parameters "
        "stage3_max_reuse_distance stage3_model_persistence_threshold stage3_module_granularity_threshold "
        "stage3_param_persistence_threshold stage3_prefetch_bucket_size stage3_use_all_reduce_for_fetch_params "
        "sub_group_size use_all_reduce_for_fetch_params use_multi_rank_bucket_allreduce zenflow "
        "zero_hpz_partition_size zero_quantized_gradients zero_quantized_nontrainable_weights zero_quantized_weights"
    ),
    "zero_optimization.offload_optimizer": _words(
        "buffer_count cpuadam_cores_perc device fast_init nvme_path pin_memory pipeline_read pipeline_write ratio "
        "super_offload"
    ),
    "zero_optimization.offload_param": _words("buffer_count buffer_size device max_in_cpu nvme_path pin_memory"),
    "compile": _words(
        "autoep_non_moe debug_log deepcompile double_buffer free_activation free_activation_threshold "
        "keep_all_input_tensors keep_int_input_tensors offload_activation offload_activation_pin_memory "
        "offload_opt_states offload_parameters passes symmetric_memory sync_after_allgather sync_after_reduce "
        "sync_before_allgather sync_before_reduce"
    ),
    "fp16": _words(
        "auto_cast consecutive_hysteresis enabled fp16_master_weights_and_grads hysteresis initial_scale_power "
        "loss_scale loss_scale_window min_loss_scale"
    ),
    "bf16": _words(
        "bf16_master_weights_and_grads bf16_optimizer_states check_grad_overflow enabled immediate_grad_update"
    ),
}
"""Sections of DeepSpeed's JSON that refuse a key that they do not know, with the keys and old names that they take."""


# What a document says against itself, and against a run.

KEY = "engine.deepspeed_file"
ADAMW_NAMES = ("adam", "adamw")
IN_FP32 = ("fp32", "float32", "float", "torch.float32")
"""Names of fp32 in `data_types` (DtypeEnum of DeepSpeed's runtime/config.py)."""
NO_SCHEDULER = mark("a schedule that DeepSpeed does not offer")
NONE, NOTHING = mark("none"), mark("nothing")
MISMATCH: dict[tuple[bool, bool], str] = {
    (True, True): mark(
        'The DeepSpeed file sets {place} to {value}, but the run uses {wanted} ({key}). Write "auto" there, or '
        "change the run."
    ),
    (True, False): mark(
        "The DeepSpeed file sets {place} to {value}, but the run uses {wanted} ({key}). Write the run's value "
        "there, or change the run."
    ),
    (False, True): mark(
        "The DeepSpeed file does not set {place}, which then defaults to {value}, but the run uses {wanted} "
        '({key}). Set it to "auto", or change the run.'
    ),
    (False, False): mark(
        "The DeepSpeed file does not set {place}, which then defaults to {value}, but the run uses {wanted} "
        "({key}). Set it to the run's value, or change the run."
    ),
}
"""(whether the key is there, whether "auto" would be filled in) -> the sentence."""

SCHEDULERS = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")
"""DeepSpeed's schedulers (runtime/lr_schedules.py) that a `training.schedule` can mean."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the run wants at one place of the document."""

    path: str
    value: Any
    key: str
    """The setting of the run that says so."""
    absent: Any = None
    """What counts when the file leaves it out; None where something else then fills it in."""
    absent_is_a_choice: bool = False
    """Leaving it out is a common way to switch it off: worth a warning only."""


def problems(document: Mapping[str, Any], path: Path) -> list[Finding]:
    """What DeepSpeed or accelerate would refuse in any run; keys that they may not know are warnings."""
    refused = [Finding("deepspeed_not_usable", "error", KEY, text) for text in _refused(document, path)]
    severity: Severity = "warning" if _newer_deepspeed() else "error"
    code = "deepspeed_unknown_key" if severity == "warning" else "deepspeed_not_usable"
    return [*refused, *(Finding(code, severity, KEY, text) for text in _unknown_keys(document, path))]


def _refused(document: Mapping[str, Any], path: Path) -> Iterator[str]:
    zero = document["zero_optimization"]
    stage = zero.get("stage", 0)
    if type(stage) is not int or stage not in (1, 2, 3):
        yield tr(
            "The DeepSpeed file {path} has {what} in `zero_optimization`, which shards nothing; set stage 1 or 2, "
            "or remove --deepspeed.",
            path=path,
            what=tr("stage {value}", value=repr(stage)) if "stage" in zero else tr("no stage"),
        )
    for section in ("offload_optimizer", "offload_param"):
        if _at(zero, f"{section}.device") == "nvme":
            yield tr(
                "The DeepSpeed file {path} offloads {section} to NVMe, which trainwiz cannot plan; set the device "
                "to cpu.",
                path=path,
                section=section,
            )
    for name in sorted(MISPLACED & set(zero)):
        yield tr(
            "The DeepSpeed file {path} has `{name}` inside `zero_optimization`, which DeepSpeed rejects; move it up "
            "one level.",
            path=path,
            name=name,
        )
    for place in _autos(document, ""):
        if place not in FILLED_IN:
            yield tr(
                'The DeepSpeed file {path} has "auto" for {place}, but nothing fills it in; set a value or remove it.',
                path=path,
                place=place,
            )
    if document.get("train_batch_size") is None and document.get("train_micro_batch_size_per_gpu") is None:
        yield tr(
            'The DeepSpeed file {path} sets no batch size; DeepSpeed needs "train_micro_batch_size_per_gpu": "auto".',
            path=path,
        )
    kind = _at(document, "scheduler.type")
    if document.get("scheduler") is not None and kind not in SCHEDULERS:
        yield tr(
            "The DeepSpeed file {path} has the scheduler {kind}; a run supports {names}. Use one of these, or "
            "remove `scheduler`.",
            path=path,
            kind=repr(kind),
            names=", ".join(SCHEDULERS),
        )


def _unknown_keys(document: Mapping[str, Any], path: Path) -> Iterator[str]:
    for place, known in SECTION_KEYS.items():
        section = _at(document, place)
        unknown = set(section) - known - MISPLACED if isinstance(section, Mapping) else set()
        for name in sorted(map(str, unknown)):
            message = tr(
                "The DeepSpeed file {path} has `{name}` in `{place}`, which DeepSpeed {version} does not support.",
                path=path,
                name=name,
                place=place,
                version=KNOWN_VERSION,
            )
            near = difflib.get_close_matches(name, known, n=1)
            yield tr("{message} Did you mean {guess}?", message=message, guess=near[0]) if near else message


def _newer_deepspeed() -> bool:
    """The DeepSpeed here may know keys that this table does not."""
    try:
        numbers = metadata.version("deepspeed").split(".")[:2]
    except metadata.PackageNotFoundError:
        return False
    return [int(number) for number in numbers if number.isdigit()] > [
        int(number) for number in KNOWN_VERSION.split(".")
    ]


def mismatches(document: Mapping[str, Any], config: RunConfig) -> list[Finding]:
    """One finding for each key that says something else than the run, in the document's order of importance.

    The comparisons are those of transformers' HfTrainerDeepSpeedConfig, and those that it leaves out: what counts
    when a key is absent, the kind of the optimizer, and the shape of a scheduler, which would replace the run's own.
    """
    found: list[Finding] = []
    for expected in _expectations(document, config):
        stands = _at(document, expected.path)
        value = expected.absent if stands is None else stands
        # To Python 1 equals true.
        is_same = value == expected.value and isinstance(value, bool) == isinstance(expected.value, bool)
        if value is None or value == "auto" or is_same:
            continue
        form = MISMATCH[stands is not None, expected.path in FILLED_IN]
        message = tr(form, place=expected.path, value=_shown(value), wanted=_shown(expected.value), key=expected.key)
        severity: Severity = "warning" if stands is None and expected.absent_is_a_choice else "error"
        found.append(Finding("deepspeed_mismatch", severity, KEY, message))
    return found


def half_precision_sums(document: Mapping[str, Any], path: Path, config: RunConfig) -> Iterator[Finding]:
    """A file that lets DeepSpeed add up the gradients of a step in the 16 bits of the weights (runtime/engine.py,
    get_data_types)."""
    precision, steps = config.engine.precision, config.batch.gradient_accumulation_steps or 1
    asked = _at(document, "data_types.grad_accum_dtype")
    if precision in ("fp32", "tf32", None) or steps == 1 or asked in IN_FP32:
        return
    message = tr(
        "The DeepSpeed file {path} accumulates the gradients of {steps} micro-batches in {precision}, so the result "
        "depends on the order of the rows. Add {setting} to it, or use the file that trainwiz writes: "
        "--set engine.deepspeed_file=null.",
        path=path,
        setting='"data_types": {"grad_accum_dtype": "fp32"}',
        steps=steps,
        precision=precision,
    )
    yield Finding("half_precision_accumulation", "warning", KEY, message)


def _expectations(document: Mapping[str, Any], config: RunConfig) -> Iterator[Expected]:
    training = config.training
    micro = solved(config.batch.micro_batch_size, "batch.micro_batch_size")
    accumulation = solved(config.batch.gradient_accumulation_steps, "batch.gradient_accumulation_steps")
    yield Expected("train_micro_batch_size_per_gpu", micro, "batch.micro_batch_size")
    # accelerate's DeepSpeedPlugin writes 1 where the key is missing.
    yield Expected("gradient_accumulation_steps", accumulation, "batch.gradient_accumulation_steps", absent=1)
    yield Expected("train_batch_size", micro * accumulation * processes(config), tr("the effective batch"))
    # DeepSpeed clips nothing by itself, and the Trainer leaves clipping to it.
    yield Expected("gradient_clipping", training.max_grad_norm, "training.max_grad_norm", 0.0, absent_is_a_choice=True)
    mixed = mixed_precision(config)
    yield Expected("fp16.enabled", mixed == "fp16", "engine.precision")
    yield Expected("bf16.enabled", mixed == "bf16", "engine.precision")
    yield Expected("amp.enabled", False, "engine.precision")
    if document.get("optimizer") is not None:
        yield from _optimizer(document, config)
    if document.get("scheduler") is not None:
        yield from _scheduler(document, config)


def _optimizer(document: Mapping[str, Any], config: RunConfig) -> Iterator[Expected]:
    training = config.training
    adamw = solved(config.engine.optimizer, "engine.optimizer").startswith("adamw_torch")
    kind = str(_at(document, "optimizer.type"))
    if not adamw or kind.lower() not in ADAMW_NAMES:
        wanted = "AdamW" if adamw else config.engine.optimizer
        yield Expected("optimizer.type", wanted, "engine.optimizer", absent=NONE)
        return
    torch_adam = _at(document, "optimizer.params.torch_adam") is True
    betas = [training.adam_beta1, training.adam_beta2]
    yield Expected("optimizer.params.lr", training.learning_rate, "training.learning_rate", absent=1e-3)
    both = tr("{first} and {second}", first="training.adam_beta1", second="training.adam_beta2")
    yield Expected("optimizer.params.betas", betas, both, absent=[0.9, 0.999])
    yield Expected("optimizer.params.eps", training.adam_epsilon, "training.adam_epsilon", absent=1e-8)
    # torch's AdamW decays by 0.01 when it is told nothing, DeepSpeed's own by nothing.
    decay = 0.01 if torch_adam else 0.0
    yield Expected("optimizer.params.weight_decay", training.weight_decay, "training.weight_decay", absent=decay)
    yield Expected("optimizer.params.adam_w_mode", True, "engine.optimizer")


def _scheduler(document: Mapping[str, Any], config: RunConfig) -> Iterator[Expected]:
    """The scheduler of the file takes the place of the run's own."""
    training = config.training
    peak, final, steps = training.learning_rate, training.final_learning_rate, training.max_steps
    kind = _at(document, "scheduler.type")
    wanted = scheduler_of(config)
    if kind in SCHEDULERS:
        both = tr("{first} and {second}", first="training.schedule", second="training.final_learning_rate")
        yield Expected("scheduler.type", wanted, both)
    # What transformers compares, whatever the kind; DeepSpeed's defaults matter only where the kind is right.
    right = kind == wanted
    if kind != "WarmupCosineLR":
        yield Expected("scheduler.params.warmup_min_lr", 0, tr("the start of the warmup"))
        yield Expected("scheduler.params.warmup_max_lr", peak, "training.learning_rate")
    warmup = training.warmup if training.warmup >= 1 else None if steps is None else training.warmup * steps
    if warmup is not None:
        count = max(1, math.ceil(warmup))
        yield Expected("scheduler.params.warmup_num_steps", count, "training.warmup", absent=1000 if right else None)
        if count > 1 and right:
            yield Expected("scheduler.params.warmup_type", "linear", tr("the shape of the warmup"), absent="log")
    if steps is not None:
        given = right and kind != "WarmupLR"
        yield Expected(
            "scheduler.params.total_num_steps", steps, "training.max_steps", absent=NOTHING if given else None
        )
    if right and kind == "WarmupCosineLR":
        yield Expected("scheduler.params.cos_min_ratio", final / peak, "training.final_learning_rate", absent=1e-4)


def scheduler_of(config: RunConfig) -> str:
    """The DeepSpeed scheduler that does what the run's schedule does; NO_SCHEDULER where there is none."""
    training = config.training
    schedule, final = training.schedule, training.final_learning_rate
    if schedule == "constant" or final == training.learning_rate:
        return "WarmupLR"
    if schedule == "cosine":
        return "WarmupCosineLR"
    return "WarmupDecayLR" if final == 0 else NO_SCHEDULER


def _shown(value: Any) -> str:
    """As in the file; our own words for what is not there are translated."""
    return tr(value) if value in (NO_SCHEDULER, NONE, NOTHING) else repr(value)


def _autos(node: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, value in node.items():
        if isinstance(value, Mapping):
            yield from _autos(value, f"{prefix}{name}.")
        elif value == "auto":
            yield f"{prefix}{name}"


def _at(document: Mapping[str, Any], path: str) -> Any:
    node: Any = document
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node
