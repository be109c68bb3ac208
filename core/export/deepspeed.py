"""DeepSpeed's JSON: of a RunConfig, or a file of the user's own, which is read, judged and copied byte for byte."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwiz.core.config.run import RunConfig
from trainwiz.core.config.values import Offload, Strategy
from trainwiz.core.errors import Finding, UsageError, os_reason, usage_error
from trainwiz.core.export.deepspeed_check import KEY, half_precision_sums, mismatches, problems
from trainwiz.core.export.training_arguments import ZERO_STAGES, runs_on_cpu, solved, zero_stage
from trainwiz.core.files import at_home, read_small
from trainwiz.core.language import tr
from trainwiz.core.text import parse_json

# RunConfig -> the JSON of DeepSpeed.

BUCKET_ELEMENTS = 50_000_000
"""Elements of the gradient and of the gather bucket. DeepSpeed's own 5e8 takes a gigabyte in half precision for each."""

ADAMW = frozenset({"adamw_torch", "adamw_torch_fused"})


def deepspeed_config(config: RunConfig) -> dict[str, Any] | None:
    """The document, or None where DeepSpeed is not used.

    Every key that TrainingArguments also sets is "auto": transformers fills it in, so the two cannot disagree.
    """
    stage = zero_stage(config)
    if stage is None:
        return None
    document: dict[str, Any] = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        # loss_scale 0 is dynamic scaling.
        "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
        "bf16": {"enabled": "auto"},
        "zero_optimization": _zero(config, stage),
        **_optimizer(config),
        "wall_clock_breakdown": False,
    }
    if solved(config.engine.precision, "engine.precision") not in ("fp32", "tf32"):
        # Gradients of one window would otherwise add up in the parameters' own 16 bits.
        document["data_types"] = {"grad_accum_dtype": "fp32"}
    return document


def _zero(config: RunConfig, stage: int) -> dict[str, Any]:
    pinned = {"device": "cpu", "pin_memory": not runs_on_cpu(config)}
    zero: dict[str, Any] = {
        "stage": stage,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "reduce_bucket_size": BUCKET_ELEMENTS,
    }
    if stage == 3:
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    else:
        zero["allgather_bucket_size"] = BUCKET_ELEMENTS
    if config.engine.offload != "none":
        zero["offload_optimizer"] = pinned
    if config.engine.offload == "all" and stage == 3:
        zero["offload_param"] = pinned
    return zero


def _optimizer(config: RunConfig) -> dict[str, Any]:
    """DeepSpeed's own AdamW (on the CPU where it is offloaded), or the Trainer's optimizer as it is."""
    offloaded = config.engine.offload != "none"
    if solved(config.engine.optimizer, "engine.optimizer") in ADAMW:
        params: dict[str, Any] = {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}
        if not offloaded:
            # torch's AdamW needs no compiler; DeepSpeed's fused one is built on first use.
            params["torch_adam"] = True
        return {"optimizer": {"type": "AdamW", "params": params}}
    untested: dict[str, Any] = {"zero_allow_untested_optimizer": True}
    return {**untested, "zero_force_ds_cpu_optimizer": False} if offloaded else untested


# A file of the user's own.


def read_deepspeed_file(path: Path) -> dict[str, Any]:
    """The document. Raises UsageError with one sentence when it cannot be read or has no ZeRO section."""
    return _parsed(_text(path), path)


def strategy_of(document: Mapping[str, Any]) -> tuple[Strategy, Offload]:
    """(engine.strategy, engine.offload) that a document of `read_deepspeed_file` stands for.

    A stage that no strategy stands for (`problems` names it) counts as ZeRO-2. ZeRO-3 that keeps only the
    parameters in host RAM counts as "all", the nearest that a plan knows.
    """
    zero = document["zero_optimization"]
    strategy: Strategy = "zero2"
    for name, stage in ZERO_STAGES.items():
        strategy = name if stage == zero.get("stage") else strategy
    optimizer = _device(zero, "offload_optimizer") != "none" or zero.get("cpu_offload") is True
    if strategy == "zero3" and _device(zero, "offload_param") != "none":
        return strategy, "all"
    return strategy, "optimizer" if optimizer else "none"


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
    values: dict[str, Any] = {"engine.strategy": strategy, "engine.offload": offload}
    if config.engine.precision is None:
        halves = [name for name in ("fp16", "bf16") if isinstance(document.get(name), Mapping)]
        for name in halves:
            if document[name].get("enabled") is True:
                values["engine.precision"] = name
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
    return (
        *problems(document, path),
        *_other_strategy(document, config),
        *mismatches(document, config),
        *half_precision_sums(document, path, config),
    )


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


def _text(path: Path) -> str:
    # Bytes, because reading as text would change the ends of the lines.
    try:
        return read_small(path).decode("utf-8")
    except OSError as error:
        message = tr("The DeepSpeed file {path} cannot be read: {reason}.", path=path, reason=os_reason(error))
        raise usage_error("missing_file", KEY, message) from None
    except UnicodeDecodeError:
        message = tr("The DeepSpeed file {path} is not UTF-8 text.", path=path)
        raise usage_error("broken_file", KEY, message) from None


def _parsed(text: str, path: Path) -> dict[str, Any]:
    try:
        document = parse_json(text)
        twice = _repeated_key(text)
    except json.JSONDecodeError as error:
        message = tr(
            "{path}, line {line}, column {column}: not valid JSON ({reason}).",
            path=path,
            line=error.lineno,
            column=error.colno,
            reason=error.msg,
        )
        if {"/", "#"}.intersection(text[max(0, error.pos - 1) : error.pos + 1]):
            message = tr("{message} DeepSpeed does not accept comments: remove them.", message=message)
        raise usage_error("broken_file", KEY, message) from None
    except ValueError as error:
        message = tr("The DeepSpeed file {path} cannot be read: {reason}.", path=path, reason=error)
        raise usage_error("broken_file", KEY, message) from None
    if twice is not None:
        message = tr(
            "The DeepSpeed file {path} has {name} twice in one section, which DeepSpeed rejects; keep one.",
            path=path,
            name=repr(twice),
        )
        raise usage_error("broken_file", KEY, message)
    if not isinstance(document, dict) or not isinstance(document.get("zero_optimization"), dict):
        message = tr(
            "The DeepSpeed file {path} has no `zero_optimization` section, which accelerate requires.", path=path
        )
        raise usage_error("broken_file", KEY, message)
    return document


def _repeated_key(text: str) -> str | None:
    found: list[str] = []

    def collect(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        found.extend(name for name in set(names) if names.count(name) > 1)

    json.loads(text, object_pairs_hook=collect)
    return found[0] if found else None


def _device(zero: Mapping[str, Any], section: str) -> str:
    part = zero.get(section)
    device = part.get("device", "none") if isinstance(part, Mapping) else "none"
    return str(device or "none")


def _other_strategy(document: Mapping[str, Any], config: RunConfig) -> list[Finding]:
    wanted, planned = strategy_of(document), (config.engine.strategy, config.engine.offload)
    if config.engine.strategy is None or wanted == planned:
        return []
    message = tr(
        "The DeepSpeed file uses {wanted}, but the run uses {planned} (engine.strategy and engine.offload). Remove "
        "these settings, or change the file.",
        wanted=_words(*wanted),
        planned=_words(*planned),
    )
    return [Finding("deepspeed_mismatch", "error", KEY, message)]


def _words(strategy: str | None, offload: str) -> str:
    if offload == "none":
        return tr("{strategy} without offload", strategy=strategy)
    return tr("{strategy} with offload {offload}", strategy=strategy, offload=offload)
