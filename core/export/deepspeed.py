"""DeepSpeed's JSON: of a RunConfig, or a file of the user's own, which is read, judged and copied byte for byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainwiz.core.config.run import RunConfig
from trainwiz.core.config.values import Offload, Strategy
from trainwiz.core.errors import Finding, Severity, UsageError, os_reason, usage_error
from trainwiz.core.export.training_arguments import (
    ZERO_STAGES,
    given,
    mixed_precision,
    processes,
    runs_on_cpu,
    solved,
    zero_stage,
)
from trainwiz.core.files import at_home, read_small
from trainwiz.core.language import tr
from trainwiz.core.text import parse_json

# RunConfig -> the JSON of DeepSpeed.

BUCKET_ELEMENTS = 50_000_000
"""Elements of the gradient and of the gather bucket. DeepSpeed's own 5e8 takes a gigabyte in half precision for each."""

KEY = "engine.deepspeed_file"
ADAMW = frozenset({"adamw_torch", "adamw_torch_fused"})


def deepspeed_config(config: RunConfig) -> dict[str, Any] | None:
    """The document, or None where DeepSpeed is not used.

    Every key that TrainingArguments also sets is "auto": transformers fills it in, so the two cannot disagree.
    """
    stage, offload = zero_stage(config), config.engine.offload
    if stage is None:
        return None
    pinned = {"device": "cpu", "pin_memory": not runs_on_cpu(config)}
    zero = {
        "stage": stage,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "reduce_bucket_size": BUCKET_ELEMENTS,
        "allgather_bucket_size": BUCKET_ELEMENTS if stage != 3 else None,
        "stage3_gather_16bit_weights_on_model_save": True if stage == 3 else None,
        "offload_optimizer": pinned if offload != "none" else None,
        "offload_param": pinned if offload == "all" and stage == 3 else None,
    }
    in_half = solved(config.engine.precision, "engine.precision") not in ("fp32", "tf32")
    document = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        # loss_scale 0 is dynamic scaling.
        "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
        "bf16": {"enabled": "auto"},
        "zero_optimization": given(zero),
        **_optimizer(config),
        "wall_clock_breakdown": False,
        # Gradients of one window would otherwise add up in the parameters' own 16 bits.
        "data_types": {"grad_accum_dtype": "fp32"} if in_half else None,
    }
    return given(document)


def _optimizer(config: RunConfig) -> dict[str, Any]:
    """DeepSpeed's own AdamW (on the CPU where it is offloaded), or the Trainer's optimizer as it is."""
    offloaded = config.engine.offload != "none"
    if solved(config.engine.optimizer, "engine.optimizer") not in ADAMW:
        return {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False if offloaded else None}
    # torch's AdamW needs no compiler; DeepSpeed's fused one is built on first use.
    own = {} if offloaded else {"torch_adam": True}
    auto = dict.fromkeys(("lr", "betas", "eps", "weight_decay"), "auto")
    return {"optimizer": {"type": "AdamW", "params": {**auto, **own}}}


# A file of the user's own.


def read_deepspeed_file(path: Path) -> dict[str, Any]:
    """The document. Raises UsageError with one sentence when it cannot be read or has no ZeRO section."""
    try:
        document = parse_json(_text(path))
    except ValueError as error:
        message = tr(
            "The DeepSpeed file {path} is not valid JSON ({reason}). DeepSpeed does not accept comments.",
            path=path,
            reason=error,
        )
        raise usage_error("broken_file", KEY, message) from None
    if not isinstance(document, dict) or not isinstance(document.get("zero_optimization"), dict):
        message = tr(
            "The DeepSpeed file {path} has no `zero_optimization` section, which accelerate requires.", path=path
        )
        raise usage_error("broken_file", KEY, message)
    return document


def _text(path: Path) -> str:
    # Bytes, because reading as text would change the ends of the lines.
    try:
        return read_small(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = os_reason(error) if isinstance(error, OSError) else tr("not UTF-8 text")
        message = tr("The DeepSpeed file {path} cannot be read: {reason}.", path=path, reason=reason)
        raise usage_error("missing_file", KEY, message) from None


def strategy_of(document: Mapping[str, Any]) -> tuple[Strategy, Offload]:
    """(engine.strategy, engine.offload) that a document of `read_deepspeed_file` stands for.

    A stage that no strategy stands for (`_refused` names it) counts as ZeRO-2. ZeRO-3 that keeps only the
    parameters in host RAM counts as "all", the nearest that a plan knows.
    """
    zero = document["zero_optimization"]
    otherwise: Strategy = "zero2"
    strategy = next((name for name, stage in ZERO_STAGES.items() if stage == zero.get("stage")), otherwise)
    if strategy == "zero3" and _at(zero, "offload_param.device") not in (None, "none"):
        return strategy, "all"
    offloads = _at(zero, "offload_optimizer.device") not in (None, "none") or zero.get("cpu_offload") is True
    return strategy, "optimizer" if offloads else "none"


def settled_by_file(config: RunConfig) -> RunConfig:
    """`config` with the strategy, the offload and (where it is open) the precision of its DeepSpeed file.

    What the user chose beside the file stays: `deepspeed_file_findings` names the contradiction. A file that cannot
    be read changes nothing; the same findings say why.
    """
    if config.engine.deepspeed_file is None:
        return config
    try:
        document = read_deepspeed_file(at_home(Path(config.engine.deepspeed_file)))
    except UsageError:
        return config
    strategy, offload = strategy_of(document)
    enabled = [name for name in ("bf16", "fp16") if _at(document, f"{name}.enabled") is True]
    values: dict[str, Any] = {"engine.strategy": strategy, "engine.offload": offload}
    if config.engine.precision is None and enabled:
        values["engine.precision"] = enabled[0]
    values = {key: value for key, value in values.items() if config.origin(key).origin != "you"}
    return config.with_values(values, "solved", dict.fromkeys(values, tr("from your DeepSpeed file")))


def deepspeed_file_findings(config: RunConfig) -> tuple[Finding, ...]:
    """Everything that is to be said about the file of `config`, errors and warnings; () without a file. Never raises.

    `config` must be solved as for an export: the file is compared with the batch, the precision, ...
    """
    if config.engine.deepspeed_file is None:
        return ()
    path = at_home(Path(config.engine.deepspeed_file))
    try:
        document = read_deepspeed_file(path)
    except UsageError as error:
        return error.findings
    refused = (Finding("deepspeed_not_usable", "error", KEY, text) for text in _refused(document, path))
    return (*refused, *_mismatches(document, config), *_half_precision_sums(document, path, config))


def checked_deepspeed_text(config: RunConfig) -> str | None:
    """The text of the user's file for this run, unchanged, or None when there is none.

    Raises UsageError with everything that forbids to use it.
    """
    if config.engine.deepspeed_file is None:
        return None
    errors = [finding for finding in deepspeed_file_findings(config) if finding.severity == "error"]
    if errors:
        raise UsageError(errors)
    return _text(at_home(Path(config.engine.deepspeed_file)))


# What a document says against itself, and against a run.

MISPLACED = {"fp16", "bf16", "optimizer", "scheduler", "gradient_clipping", "activation_checkpointing"}
"""Sections of their own that are found inside `zero_optimization`, where DeepSpeed refuses them."""

IN_FP32 = ("fp32", "float32", "float", "torch.float32")
"""Names of fp32 in `data_types` (DtypeEnum of DeepSpeed's runtime/config.py)."""
Expected = tuple[str, Any, str, Any]
"""Place in the document, what the run wants there, the setting that says so, and what counts where the file leaves it
out; None where something else then fills it in."""


def _refused(document: Mapping[str, Any], path: Path) -> Iterator[str]:
    zero = document["zero_optimization"]
    stage = zero.get("stage", 0)
    if type(stage) is not int or stage not in (1, 2, 3):
        yield tr(
            "The DeepSpeed file {path} has stage {value} in `zero_optimization`, which shards nothing; set stage 1 or 2, "
            "or remove --deepspeed.",
            path=path,
            value=repr(stage),
        )
    if "nvme" in (_at(zero, "offload_optimizer.device"), _at(zero, "offload_param.device")):
        yield tr(
            "The DeepSpeed file {path} offloads to NVMe, which trainwiz cannot plan; set the device to cpu.", path=path
        )
    for name in sorted(MISPLACED & set(zero)):
        yield tr(
            "The DeepSpeed file {path} has `{name}` inside `zero_optimization`, which DeepSpeed rejects; move it up "
            "one level.",
            path=path,
            name=name,
        )
    if document.get("scheduler") is not None:
        yield tr(
            "The DeepSpeed file {path} has the scheduler {kind}, which would replace the run's own schedule; remove "
            "`scheduler`.",
            path=path,
            kind=repr(_at(document, "scheduler.type")),
        )


def _mismatches(document: Mapping[str, Any], config: RunConfig) -> Iterator[Finding]:
    """One finding for each key that says something else than the run, in the document's order of importance.

    The comparisons are those of transformers' HfTrainerDeepSpeedConfig, and those that it leaves out: what counts
    when a key is absent, and the kind of the optimizer.
    """
    wanted, planned = strategy_of(document), (config.engine.strategy, config.engine.offload)
    if config.engine.strategy is not None and wanted != planned:
        words = [
            tr("{strategy} with offload {offload}", strategy=name, offload=kept) for name, kept in (wanted, planned)
        ]
        message = tr(
            "The DeepSpeed file uses {wanted}, but the run uses {planned} (engine.strategy and engine.offload). Remove "
            "these settings, or change the file.",
            wanted=words[0],
            planned=words[1],
        )
        yield Finding("deepspeed_mismatch", "error", KEY, message)
    for place, expected, key, absent in _expectations(document, config):
        stands = _at(document, place)
        value = absent if stands is None else stands
        # To Python 1 equals true.
        is_same = value == expected and isinstance(value, bool) == isinstance(expected, bool)
        if value is None or value == "auto" or is_same:
            continue
        message = tr(
            "In the DeepSpeed file {place} is {words}, but the run uses {wanted} ({key}). Write the run's value there, "
            "or change the run.",
            place=place,
            words=tr("unset, so {value}", value=repr(value)) if stands is None else repr(value),
            wanted=repr(expected),
            key=key,
        )
        # Leaving it out is a common way to switch clipping off.
        severity: Severity = "warning" if stands is None and place == "gradient_clipping" else "error"
        yield Finding("deepspeed_mismatch", severity, KEY, message)


def _half_precision_sums(document: Mapping[str, Any], path: Path, config: RunConfig) -> Iterator[Finding]:
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
    yield "train_micro_batch_size_per_gpu", micro, "batch.micro_batch_size", None
    # accelerate's DeepSpeedPlugin writes 1 where the key is missing.
    yield "gradient_accumulation_steps", accumulation, "batch.gradient_accumulation_steps", 1
    yield "train_batch_size", micro * accumulation * processes(config), tr("the effective batch"), None
    # Without this key DeepSpeed does not clip, and the Trainer leaves clipping to it.
    yield "gradient_clipping", training.max_grad_norm, "training.max_grad_norm", 0.0
    mixed = mixed_precision(config)
    yield "fp16.enabled", mixed == "fp16", "engine.precision", None
    yield "bf16.enabled", mixed == "bf16", "engine.precision", None
    if document.get("optimizer") is None:
        return
    adamw = solved(config.engine.optimizer, "engine.optimizer").startswith("adamw_torch")
    if not adamw or str(_at(document, "optimizer.type")).lower() not in ("adam", "adamw"):
        yield "optimizer.type", "AdamW" if adamw else config.engine.optimizer, "engine.optimizer", None
        return
    betas = [training.adam_beta1, training.adam_beta2]
    both = tr("{first} and {second}", first="training.adam_beta1", second="training.adam_beta2")
    yield "optimizer.params.lr", training.learning_rate, "training.learning_rate", 1e-3
    yield "optimizer.params.betas", betas, both, [0.9, 0.999]
    yield "optimizer.params.eps", training.adam_epsilon, "training.adam_epsilon", 1e-8
    # torch's AdamW decays by 0.01 when it is told nothing, DeepSpeed's own by nothing.
    decay = 0.01 if _at(document, "optimizer.params.torch_adam") is True else 0.0
    yield "optimizer.params.weight_decay", training.weight_decay, "training.weight_decay", decay


def _at(document: Mapping[str, Any], path: str) -> Any:
    node: Any = document
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node
