"""The engine as it came out: processes, shards, replicas, and what state.json says of it."""

from __future__ import annotations

import fcntl
import math
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from accelerate import PartialState
from peft import PeftModel
from torch.utils.file_baton import FileBaton
from trainwiz.core.config import RunConfig
from trainwiz.core.errors import CannotRunError, Finding
from trainwiz.core.export.training_arguments import processes, runs_on_cpu, training_arguments, uses_deepspeed
from trainwiz.core.hardware.host import count_cores
from trainwiz.core.language import mark, tr
from transformers import Trainer, TrainingArguments, set_seed
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.trainer_utils import SaveStrategy
from transformers.utils.logging import disable_progress_bar

# Locks of C++ extensions that end with the process which holds them.
#
# DeepSpeed builds its optimizers and its CPU communication when they are first needed. torch keeps
# others from the same folder by a file that a killed process leaves behind: every later run would
# wait for it for ever, without a word (torch 2.13, torch/utils/file_baton.py).


class KernelBaton(FileBaton):
    """A kernel's lock on a file beside that one, which no dead process has."""

    fd: int  # type: ignore[assignment]

    def try_acquire(self) -> bool:
        """Whether this process builds; False while another one does."""
        self.fd = os.open(f"{self.lock_file_path}.held", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait(self) -> None:
        """Until the other one is done, or dead: then what it built cannot be loaded, and this process says so."""
        fcntl.flock(self.fd, fcntl.LOCK_SH)
        self.release()

    def release(self) -> None:
        os.close(self.fd)


def use_kernel_locks() -> None:
    """For all C++ extensions that this process builds."""
    # It takes setuptools and a third of a second, which only these runs need.
    from torch.utils import cpp_extension

    cpp_extension.FileBaton = KernelBaton  # type: ignore[attr-defined]


# What DeepSpeed needs before it starts: locks that end, the process group where accelerate makes none; and its end.

TIMEOUT_S = 1800
"""As TrainingArguments has it."""


def begin_process(config: RunConfig) -> TrainingArguments:
    """The first that a training process does with its run, once; what the weights of its model depend on."""
    disable_progress_bar()  # type: ignore[no-untyped-call]
    set_seed(config.training.seed)
    if config.engine.compile:
        # Let torch.compile find out that lengths change: `accelerate launch` exports `dynamic=False`, which compiles anew for
        # each padded length and after eight of them computes uncompiled, with only a warning (torch 2.13, accelerate 1.15).
        os.environ.pop("ACCELERATE_DYNAMO_USE_DYNAMIC", None)
    return TrainingArguments(**(training_arguments(config) | join_processes(config)))


def join_processes(config: RunConfig) -> dict[str, Any]:
    """Arguments of TrainingArguments that take the group made here; none where it makes its own.

    For DeepSpeed accelerate 1.15 asks for a backend only where there is a GPU. Without one it
    starts the group, believes in a single process, and the batch sizes contradict each other.
    """
    if uses_deepspeed(config):
        use_kernel_locks()
        from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
        from deepspeed.runtime.zero.config import ZeroStageEnum
        from deepspeed.utils.tensor_fragment import fragment_address

        # DeepSpeed 0.19 keeps these in the states that it saves; a run reads checkpoints as values, never as code.
        torch.serialization.add_safe_globals([fragment_address, LossScaler, DynamicLossScaler, ZeroStageEnum])
        # DeepSpeed 0.19 calls collectives by names that torch 2.13 replaces: a line in the log for each, in each step.
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
    if not (uses_deepspeed(config) and runs_on_cpu(config) and processes(config) > 1):
        return {}
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    PartialState(backend="gloo", timeout=timedelta(seconds=config.engine.process_timeout_s or TIMEOUT_S))
    return {"accelerator_config": {"use_configured_state": True}}


# Which modules FSDP shares out by themselves: the blocks of the model, by the names of their classes.


def block_classes(model: torch.nn.Module) -> list[str]:
    """Class names of the blocks that transformers recomputes one by one, else those that the model itself calls whole."""
    found = {type(module).__name__ for module in model.modules() if isinstance(module, GradientCheckpointingLayer)}
    own = getattr(model, "_no_split_modules", None) or ()
    return sorted(found or {type(module).__name__ for module in model.modules()}.intersection(own))


def name_blocks(trainer: Trainer) -> None:
    """Tell accelerate's plugin. Left to itself it takes `_no_split_modules`, which for ESM names a class that is not
    there (and refuses to start), and for Marian nothing, so that all of the model would be gathered at once."""
    plugin: Any = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    if plugin is None or trainer.model is None:
        return
    plugin.transformer_cls_names_to_wrap = block_classes(trainer.model) or plugin.transformer_cls_names_to_wrap
    # No language-model loss reaches the contact head of ESM: it never gets a gradient nor a state of the optimizer, and
    # without one torch 2.13 refuses to load the optimizer of a trained weight back.
    head = getattr(getattr(trainer.model, "esm", None), "contact_head", None)
    if head is not None:
        head.requires_grad_(False)


# A model that several processes share out: how large it is, and how to see all of it (ZeRO-3 and FSDP).


def numbers_in(parameter: torch.nn.Parameter) -> int:
    """Numbers of the whole parameter. ZeRO-3 leaves an empty one behind and notes how many it stands for; bitsandbytes
    packs two into a byte and notes their shape."""
    packed = getattr(parameter, "quant_state", None)
    return math.prod(packed.shape) if packed is not None else int(getattr(parameter, "ds_numel", parameter.numel()))


def shared_by_zero3(parameters: Iterable[torch.nn.Parameter]) -> bool:
    """Whether DeepSpeed holds a part of each in this process."""
    return any(hasattr(parameter, "ds_id") for parameter in parameters)


def is_fully_sharded(module: Any) -> bool:
    """Whether torch's `fully_shard` (FSDP 2, which every export asks for) made this module."""
    from torch.distributed.fsdp import FSDPModule

    return isinstance(module, FSDPModule)


def forward_needs_all(model: torch.nn.Module) -> bool:
    """Whether each forward pass is a collective: a process that makes one more than the others waits for ever."""
    return is_fully_sharded(model) or shared_by_zero3(model.parameters())


@contextmanager
def gathered(model: torch.nn.Module) -> Iterator[None]:
    """All weights whole in every process, where ZeRO-3 shares them out; every process must enter it."""
    parameters = list(model.parameters())
    if not shared_by_zero3(parameters):
        yield
        return
    import deepspeed

    with deepspeed.zero.GatheredParameters(parameters, modifier_rank=None):
        yield


# engine.json: which engine really runs, read from the live objects inside the process.

WORDS = {"fsdp": "FSDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3"}
UNSHARED = {"ddp": "DistributedDataParallel", "dp": "DataParallel", "single": mark("one process")}
"""Engines in which each process holds everything."""


def read_engine(trainer: Trainer) -> dict[str, Any]:
    """What trains, after the Trainer has wrapped it.

    `actual` names it in one word as plans do: single, ddp, fsdp[+offload], zero<stage>[+offload].
    """
    args = trainer.args
    outer = trainer.model_wrapped
    wrapped: Any = getattr(outer, "_orig_mod", outer)
    inner = trainer.accelerator.unwrap_model(wrapped, keep_torch_compile=False)
    adapted = isinstance(inner, PeftModel)
    on_gpu = args.device.type == "cuda"
    parameters = list(inner.parameters())
    name, stage, offload = _engine_of(wrapped)
    return {
        "actual": name if offload in (None, "none") else f"{name}+offload",
        "precision": _precision(trainer, wrapped, parameters[0].dtype),
        "device": str(args.device),
        "device_name": torch.cuda.get_device_name() if on_gpu else None,
        "world_size": args.world_size,
        "optimizer": _optimizer(trainer, wrapped),
        "attention": getattr(inner.config, "_attn_implementation", None),
        "wrapper": type(wrapped).__name__,
        # fully_shard makes a class of its own of the model's.
        "model": type(inner.get_base_model() if adapted else inner).__name__.removeprefix("FSDP"),
        "adapter": str(inner.active_peft_config.peft_type.value).lower() if adapted else None,
        "compile": wrapped is not outer or bool(getattr(outer, "_compiled_call_impl", None)),
        "distributed_type": str(trainer.accelerator.distributed_type.value),
        "zero_stage": stage,
        "offload": offload,
        "weights_dtype": str(parameters[0].dtype).removeprefix("torch."),
        "activation_checkpointing": bool(getattr(inner, "is_activation_checkpointing", False)),
        "backend": torch.distributed.get_backend() if torch.distributed.is_initialized() else None,
        "micro_batch_size": args.per_device_train_batch_size,
        "gradient_accumulation_steps": args.gradient_accumulation_steps,
        "max_steps": trainer.state.max_steps,
        "parameters": sum(map(numbers_in, parameters)),
        "trainable_parameters": sum(numbers_in(part) for part in parameters if part.requires_grad),
        "workers": args.dataloader_num_workers,
        "prefetch": args.dataloader_prefetch_factor,
        "pin_memory": args.dataloader_pin_memory and on_gpu,
        "cpu_cores": count_cores(),
        # Of the machine of the first process, whose cores these are.
        "local_world_size": int(os.environ.get("LOCAL_WORLD_SIZE", args.world_size)),
        # As the trainer solved a share of the run.
        "save_every_steps": trainer.state.save_steps if args.save_strategy == SaveStrategy.STEPS else None,
        "torch": torch.__version__,
    }


def refuse_unshared(strategy: str | None, engine: dict[str, Any]) -> None:
    """Raises CannotRunError where the run was to share its weights or states out and each process holds all of them.

    accelerate 1.15 trains with DistributedDataParallel when FSDP is asked for without a GPU, and says nothing: neither
    the memory of the plan nor the name of the engine would be true.
    """
    actual = str(engine["actual"])
    if strategy not in WORDS or actual not in UNSHARED:
        return
    message = tr(
        "{strategy} was planned (engine.strategy), but {actual} would train on the device {device}: the run ends "
        "before its first step. Choose --strategy {word}.",
        strategy=WORDS[strategy],
        actual=tr(UNSHARED[actual]),
        device=engine["device"],
        word="ddp" if actual == "ddp" else "single",
    )
    raise CannotRunError(Finding("engine_not_as_planned", "error", "engine.strategy", message))


def _engine_of(wrapped: Any) -> tuple[str, int | None, str | None]:
    """Its name, the ZeRO stage, and what it keeps in host RAM."""
    if hasattr(wrapped, "zero_optimization_stage"):
        stage = int(wrapped.zero_optimization_stage())
        places = {"optimizer": wrapped.zero_offload_optimizer(), "parameters": wrapped.zero_offload_param()}
        devices = {name: getattr(place, "device", None) for name, place in places.items()}
        kept = [name for name, device in devices.items() if str(getattr(device, "value", device)) in ("cpu", "nvme")]
        return f"zero{stage}", stage, "+".join(kept) or "none"
    if is_fully_sharded(wrapped):
        # With the parameters go their gradients and the optimizer's states.
        states = (module._get_fsdp_state() for module in wrapped.modules() if hasattr(module, "_get_fsdp_state"))
        groups = (group for state in states for group in getattr(state, "_fsdp_param_groups", ()))
        kept_there = any(parameter.offload_to_cpu for group in groups for parameter in group.fsdp_params)
        return "fsdp", None, "parameters" if kept_there else "none"
    if isinstance(wrapped, torch.nn.parallel.DistributedDataParallel):
        return "ddp", None, None
    return "dp" if isinstance(wrapped, torch.nn.DataParallel) else "single", None, None


def _precision(trainer: Trainer, wrapped: Any, held_in: torch.dtype) -> str:
    mixed = str(trainer.accelerator.mixed_precision)
    if hasattr(wrapped, "fp16_enabled"):
        mixed = "fp16" if wrapped.fp16_enabled() else "bf16" if wrapped.bfloat16_enabled() else "no"
    if mixed != "no":
        return mixed
    if held_in == torch.bfloat16:
        return "bf16-true"
    if trainer.args.device.type != "cuda":
        return "fp32"
    # From torch 2.9 on transformers sets `fp32_precision`, and the older `allow_tf32` cannot be read then.
    products = torch.backends.cuda.matmul
    precision = getattr(products, "fp32_precision", None) or ("tf32" if products.allow_tf32 else "ieee")
    return "tf32" if precision == "tf32" else "fp32"


def _optimizer(trainer: Trainer, wrapped: Any) -> str:
    """Class of the innermost optimizer: accelerate and ZeRO wrap it."""
    optimizer: Any = getattr(wrapped, "basic_optimizer", None) or trainer.optimizer
    while getattr(optimizer, "optimizer", None) is not None:
        optimizer = optimizer.optimizer
    return type(optimizer).__name__
