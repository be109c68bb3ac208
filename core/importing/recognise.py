"""Which reader a text is for."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from trainwiz.core.importing.document import Document, looks_like_json, read_document
from trainwiz.core.importing.report import Imported, NotImportable, refusal
from trainwiz.core.importing.words import TELLTALES as DEEPSPEED_TELLTALES
from trainwiz.core.language import mark, tr

LAUNCHERS = re.compile(
    r"(?:^|[\s;&|(/'\"`])(?:accelerate(?:-launch|\s+launch)|torchrun|deepspeed|llamafactory-cli|lmf|trl|swift|axolotl|fairseq(?:-hydra)?-train|torch\.distributed\.(?:launch|run)"
    r"|python[\d.]*)(?=\s|$)"
)
"""Programs that start a training, as a word of a command."""

ACCELERATE_TELLTALES = frozenset(
    {"compute_environment", "distributed_type", "machine_rank", "main_training_function", "num_machines",
     "num_processes", "rdzv_backend", "same_network", "tpu_use_cluster", "fsdp_config", "downcast_bf16",
     "deepspeed_config", "mixed_precision", "use_cpu", "ec2_instance_type"}
)  # fmt: skip

TRAINER_TELLTALES = frozenset(
    {"output_dir", "learning_rate", "num_train_epochs", "max_steps", "per_device_train_batch_size",
     "per_gpu_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "weight_decay",
     "warmup_ratio", "warmup_steps", "lr_scheduler_type", "save_steps", "save_strategy", "eval_steps", "eval_strategy",
     "evaluation_strategy", "logging_steps", "optim", "max_grad_norm", "adam_beta1", "save_total_limit", "do_train",
     "gradient_checkpointing", "report_to", "seed", "bf16", "fp16", "model_name_or_path", "run_name",
     "overwrite_output_dir", "label_smoothing_factor", "predict_with_generate", "dataloader_num_workers"}
)  # fmt: skip

OTHERS: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset({"log_history", "global_step"}),
        mark("{file} is the log of a training that ran, not its settings; look at it with: trainwiz monitor FILE"),
    ),
    (
        frozenset({"architectures", "model_type"}),
        mark("{file} describes a model, not a training; give it to a plan with: trainwiz plan --model FILE"),
    ),
    (
        frozenset({"schema_version", "origins"}),
        mark("{file} is the record of a run of trainwiz; go on with it by: trainwiz runs resume RUN"),
    ),
    (
        frozenset({"name", "values"}),
        mark("{file} is a profile of trainwiz already; use it with: trainwiz plan --profile FILE"),
    ),
    (
        frozenset({"base_model", "datasets"}),
        mark(
            "{file} is a config of axolotl, which is none of the kinds that can be imported: arguments of the Trainer, "
            "an accelerate file, a DeepSpeed JSON or a launch command."
        ),
    ),
)
"""All of these keys -> what the file is instead."""

OF_TOOLS = (".toml", ".cfg", ".ini", ".lock", ".csv", ".tsv", ".ipynb", ".html", ".tex")
"""Ends of the names of files that hold none of the kinds, though they name programs that train."""

KINDS = mark(
    "{file} is none of the kinds that can be imported: arguments of the Trainer (Python, YAML, JSON), an accelerate "
    "file, a DeepSpeed JSON, or a launch command."
)

MEANT_AS_PYTHON = re.compile(r"^\s*(?:from\s+[\w.]+\s+import\s|import\s+\w)|\w(?:Arguments|Config)\s*\(", re.MULTILINE)
"""Lines that only Python has; a text with one that does not parse was cut off, or has a mistake."""

HOLDS_OTHERS = re.compile(r"(?:.*/)?(?:(?:GNU)?makefile|[^/]*\.(?:mk|md|rst))", re.IGNORECASE)
FENCE = re.compile(r"^[ \t>]*(?:`{3}|~{3})", re.MULTILINE)

Reader = Callable[[str, str], Imported]


def read(text: str, file: str) -> Imported:
    """The import of a text, whatever kind it is. Raises NotImportable with one sentence."""
    return reader_of(text, file)(text, file)


def reader_of(text: str, file: str) -> Reader:
    """The reader for a text. Raises NotImportable for what is none of the kinds."""
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise refusal(file, tr("{file} is empty.", file=file))
    if file.endswith(".py") and not looks_like_json(text):
        return _python
    document, broken = _document(text, file)
    if document is not None:
        return _of_document(document, file)
    if _is_python(text):
        return _python
    if file.lower().endswith(OF_TOOLS):
        raise refusal(file, tr(KINDS, file=file))
    if HOLDS_OTHERS.fullmatch(file) or FENCE.search(text):
        message = tr(
            "{file} holds commands among other text: paste the one command, or the settings, alone.", file=file
        )
        raise refusal(file, message)
    if is_command(text):
        return _command
    if broken is not None and (looks_like_json(text) or file.endswith((".yaml", ".yml", ".json", ".jsonc"))):
        raise broken
    if MEANT_AS_PYTHON.search(text):
        return _python
    raise refusal(file, tr(KINDS, file=file))


def is_command(text: str) -> bool:
    """One line of it starts a training, or a program that may."""
    return LAUNCHERS.search(text) is not None


def _document(text: str, file: str) -> tuple[Document | None, NotImportable | None]:
    try:
        return read_document(text, file), None
    except NotImportable as error:
        return None, error


def _of_document(document: Document, file: str) -> Reader:
    names = frozenset(document.values)
    for telling, sentence in OTHERS:
        if telling <= names:
            raise refusal(file, tr(sentence, file=file))
    if "distributed_type" in names or len(ACCELERATE_TELLTALES & names) >= 2:
        return _accelerate
    if "zero_optimization" in names or "train_micro_batch_size_per_gpu" in names:
        return _deepspeed
    trainer = len(TRAINER_TELLTALES & names)
    if _half_as_section(document.values) or len(DEEPSPEED_TELLTALES & names) > trainer:
        return _deepspeed
    if trainer or _nested_trainer(document.values):
        return _arguments
    if len(ACCELERATE_TELLTALES & names) == 1:
        return _accelerate
    raise refusal(file, tr(KINDS, file=file))


def _half_as_section(values: Mapping[str, Any]) -> bool:
    """`fp16: {enabled: ...}` is DeepSpeed's; the Trainer's fp16 is yes or no."""
    return any(isinstance(values.get(name), Mapping) for name in ("fp16", "bf16", "bfloat16"))


def _nested_trainer(values: Mapping[str, Any]) -> bool:
    """A section of a file that holds arguments of the Trainer among others (`training: {...}`)."""
    sections = [section for section in values.values() if isinstance(section, Mapping)]
    return any(len(TRAINER_TELLTALES & {str(key) for key in section}) >= 2 for section in sections)


def _is_python(text: str) -> bool:
    """It parses as Python and calls or imports something: a line of YAML can be an annotation."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.Import | ast.ImportFrom | ast.Call) for node in ast.walk(tree))


def _accelerate(text: str, file: str) -> Imported:
    from trainwiz.core.importing import accelerate

    return accelerate.read(text, file)


def _deepspeed(text: str, file: str) -> Imported:
    from trainwiz.core.importing import deepspeed

    return deepspeed.read(text, file)


def _arguments(text: str, file: str) -> Imported:
    from trainwiz.core.importing import training_arguments

    return training_arguments.read(text, file)


def _python(text: str, file: str) -> Imported:
    from trainwiz.core.importing import python_source

    return python_source.read(text, file)


def _command(text: str, file: str) -> Imported:
    from trainwiz.core.importing import command_line

    return command_line.read(text, file)
