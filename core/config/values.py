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

        validator = BeforeValidator if self._is_first else AfterValidator
        return validator(self._check).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        # What looks at a value first takes a text or a number, whatever it makes of it.
        return {"type": ["string", "integer"]} if self._is_first else handler(schema)


# The environment variables that a run may carry in its own files, and why others may not.

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
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

WRITES_OR_REACHES_OUT = re.compile(
    r"^(?!NCCL_(?:TOPO|GRAPH)_FILE$).*(?:_FILE$|LOGDEST|_DEST$|ENDPOINT|PROXY|_HOST$|_UR[IL])"
)
"""A file that a library writes, and empties first (NCCL_DEBUG_FILE; two of NCCL's are only read), or a host."""

SECRET = re.compile(r"^(?!TOKENIZERS_).*(?:TOKEN|SECRET|PASSWORD|API_KEY|CREDENTIAL)")


def check_variable_name(name: str) -> str:
    """The name itself when a run may set that variable.

    Raises ValueError with the reason otherwise: a profile is data that people pass on, so it must not
    decide which program or library is loaded, and a run folder is no place for a password.
    """
    if not NAME.fullmatch(name):
        words = mark(
            "{name} is not a valid environment variable name: use letters, digits and '_', not starting with a digit"
        )
        raise ValueError(tr(words, name=repr(name[:40])))
    if name in OWN:
        raise ValueError(tr("a run cannot set {name}: {reason}", name=name, reason=tr(OWN[name])))
    if not name.startswith(PREFIXES) or any(kind.search(name) for kind in (LOADS_CODE, WRITES_OR_REACHES_OUT, SECRET)):
        words = mark(
            "a run cannot set {name}: only variables of NCCL, gloo, torch, CUDA, OpenMP, DeepSpeed, Hugging Face and "
            "the reporters are allowed, and none that may hold a secret or name code to load, a file to overwrite or a "
            "host to contact; export it in the shell, and the run inherits it"
        )
        raise ValueError(tr(words, name=name))
    return name


def check_variable_value(value: str) -> str:
    """The value itself when it is one line of printable text. Raises ValueError."""
    if len(value) > LONGEST_VALUE or not value.isprintable():
        most = f"{LONGEST_VALUE:,}"
        raise ValueError(tr("must be one line of printable text of at most {most} characters", most=most))
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
    if "\0" in value or any(len(part.encode(errors="replace")) > LONGEST_FILE_NAME for part in value.split("/")):
        words = mark(
            "no file or model name: a null byte in it, or too long ({count} characters); check the pasted text"
        )
        raise ValueError(tr(words, count=len(value)))
    return value


def _stays_in_its_folder(name: str) -> str:
    if not re.fullmatch(r"\w[\w.-]*", name):
        words = mark("run name {value} is invalid: use letters, digits, '-', '_' and '.', not starting with '.' or '-'")
        raise ValueError(tr(words, value=repr(name)))
    return name


RunName = Annotated[str, Check(_stays_in_its_folder)]
SourceName = Annotated[str, Check(_can_name_a_file)]
"""A catalogue name, hub id or path."""


def _as_context_size(value: Any) -> Any:
    # Profiles are made of this module.
    from trainwiz.core.profile.profile import parse_size

    size = parse_size(value)
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
