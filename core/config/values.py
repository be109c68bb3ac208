"""What a setting may be: words, names, sizes, environment variables."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from trainwiz.core.language import mark, tr


class Check:
    """A check of a value as a part of its type. pydantic asks for it by name; nothing is imported before."""

    def __init__(self, check: Callable[[Any], Any], *, is_first: bool = False) -> None:
        """`is_first`: before pydantic looks at the value, which it may turn into one of the type."""
        self._check = check
        self._is_first = is_first

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic import AfterValidator, BeforeValidator

        if self._is_first:
            return BeforeValidator(self._check).__get_pydantic_core_schema__(source, handler)
        return AfterValidator(self._check).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        # What looks at a value first takes a text or a number, whatever it makes of it.
        return {"type": ["string", "integer"]} if self._is_first else handler(schema)


# The environment variables that a run may carry in its own files, and why others may not.

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_NAME = 128
LONGEST_VALUE = 4096

PREFIXES: tuple[str, ...] = (
    "NCCL_", "GLOO_", "UCX_", "FI_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "CUDA_", "CUBLAS_", "CUBLASLT_", "CUDNN_",
    "NVIDIA_", "TRITON_", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "MALLOC_", "DS_", "DEEPSPEED_", "TOKENIZERS_",
    "TRANSFORMERS_", "HF_", "WANDB_", "MLFLOW_", "COMET_", "TENSORBOARD_", "XLA_", "TF_CPP_",
)  # fmt: skip
"""What tunes the libraries that a training uses. Everything else is exported in the shell, from which a run inherits."""

OWN: dict[str, str] = {
    "CUDA_VISIBLE_DEVICES": mark("engine.gpus selects the GPUs of a run"),
    "CUDA_DEVICE_ORDER": mark("trainwiz sets it, so that GPU 0 is the same device in every program"),
    "OMP_NUM_THREADS": mark("engine.cpu_threads sets the threads per process"),
    "TENSORBOARD_LOGGING_DIR": mark("the logs of a run stay in its run folder"),
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": mark("trainwiz sets it, so that stopping a run saves a checkpoint"),
    "DS_ACCELERATOR": mark("engine.device selects the device for DeepSpeed"),
}
"""Variables that a setting or trainwiz itself decides."""

LOADS_CODE = re.compile(
    r"PLUGIN|INJECTION|PRELOAD|_PATH$|_DIR$|_HOME$|_EXEC|LIBRAR|COMMAND|CONF_FILE|_CC$|_CXX$"
    r"|_MANAGER$|MODULES|WEIGHTS_ONLY|TRUST_REMOTE"
)
"""Names by which a library is told a place that it loads code from (TRITON_CACHE_MANAGER is a Python class), or that
it may run what it reads (TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD)."""

WRITES_OR_REACHES_OUT = re.compile(r"_FILE$|LOGDEST|_DEST$|ENDPOINT|PROXY|_HOST$|_UR[IL]")
ONLY_READ: tuple[str, ...] = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE")
"""Names that end like those of a file that a library writes, and empties first: NCCL_DEBUG_FILE."""

SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|API_KEY|CREDENTIAL")
NOT_SECRET_PREFIX = "TOKENIZERS_"


def check_variable_name(name: str) -> str:
    """The name itself when a run may set that variable.

    Raises ValueError with the reason otherwise: a profile is data that people pass on, so it must not
    decide which program or library is loaded, and a run folder is no place for a password.
    """
    sentence = ""
    if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        sentence = mark(
            "{name} is not a valid environment variable name: use letters, digits and '_', not starting with a digit"
        )
        name = repr(name[:40])
    elif name in OWN:
        sentence = mark("a run cannot set {name}: {reason}")
    elif SECRET.search(name) and not name.startswith(NOT_SECRET_PREFIX):
        sentence = mark(
            "a run cannot store {name}: everyone who can read the run folder could read it; export it "
            "in the shell instead"
        )
    elif LOADS_CODE.search(name) or (WRITES_OR_REACHES_OUT.search(name) and name not in ONLY_READ):
        sentence = mark(
            "a run cannot set {name}: it may name code to load, a file to overwrite or a host to contact; export it in "
            "the shell instead"
        )
    elif not name.startswith(PREFIXES):
        sentence = mark(
            "a run cannot set {name}: only variables of NCCL, gloo, torch, CUDA, OpenMP, DeepSpeed, Hugging Face "
            "and the reporters are allowed; export it in the shell, and the run inherits it"
        )
    if sentence:
        raise ValueError(tr(sentence, name=name, reason=tr(OWN.get(name, ""))))
    return name


def check_variable_value(value: str) -> str:
    """The value itself when it is one line of printable text. Raises ValueError."""
    if len(value) > LONGEST_VALUE:
        raise ValueError(tr("must not exceed {most} characters", most=f"{LONGEST_VALUE:,}"))
    if not value.isprintable():
        raise ValueError(tr("must be one line of printable text"))
    return value


def as_text(value: object) -> object:
    """A number of a YAML file as the text that it was: `NCCL_P2P_DISABLE: 1`. Other types stay what they are."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


# What a setting may be: the words that it knows, names, sizes.

Task = Literal["masked-lm", "causal-lm", "seq2seq", "sequence-classification", "token-classification"]
CLASSIFIES: tuple[Task, ...] = ("sequence-classification", "token-classification")
"""Any body of a model can be trained for them, with a head of its own."""
HAVE_TARGETS: tuple[Task, ...] = ("seq2seq", *CLASSIFIES)
"""Tasks whose rows all have a target: a text, a class, or a class for each word."""
WRITE_TEXT: tuple[Task, ...] = ("causal-lm", "seq2seq")
"""Models that write text."""
RowKind = Literal[Task, "proteins"]
"""How rows are read: as their task has them, or as sequences of ESM-2's alphabet."""
Precision = Literal["fp32", "tf32", "fp16", "bf16", "bf16-true"]
BasePrecision = Literal["none", "nf4", "int8"]
Attention = Literal["sdpa", "eager", "flash_attention_2"]
Strategy = Literal["single", "ddp", "fsdp", "zero1", "zero2", "zero3"]
Offload = Literal["none", "optimizer", "all"]
Schedule = Literal["linear", "cosine", "constant", "polynomial"]
LossMean = Literal["tokens", "micro_batches"]
Optimizer = Literal["adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "adamw_bnb_8bit", "paged_adamw_8bit"]

LONGEST_FILE_NAME = 255
"""Bytes of one part of a path, on every common file system."""


def _can_name_a_file(value: str) -> str:
    if "\0" in value:
        raise ValueError(tr("a name must not contain a null byte"))
    if any(len(part.encode(errors="replace")) > LONGEST_FILE_NAME for part in value.split("/")):
        raise ValueError(
            tr("too long for a file or model name ({count} characters); check the pasted text", count=len(value))
        )
    return value


SourceName = Annotated[str, Check(_can_name_a_file)]
"""A catalogue name, hub id or path."""


def _as_context_size(value: Any) -> Any:
    # Profiles are made of this module.
    from trainwiz.core.profile.profile import parse_size

    size = parse_size(value) if isinstance(value, str | int) else None
    if value is not None and (size is None or not LEAST_CONTEXT_BYTES <= size <= MOST_CONTEXT_BYTES):
        raise ValueError(
            tr(
                "must be a size from 16M to 16G, such as 500M: the GPU memory that nvidia-smi shows for an idle CUDA "
                "process"
            )
        )
    return size


LEAST_CONTEXT_BYTES, MOST_CONTEXT_BYTES = 16 << 20, 16 << 30
ContextSize = Annotated[int, Check(_as_context_size, is_first=True)]
"""Bytes, also as text with a unit."""

VariableName = Annotated[str, Check(check_variable_name)]
VariableValue = Annotated[str, Check(as_text, is_first=True), Check(check_variable_value)]
