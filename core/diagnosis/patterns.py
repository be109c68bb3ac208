"""Causes as data: PATTERNS, the sentences of frameworks and systems that speak for one, and REMEDIES.

Each pattern stands in the words that the library itself uses. A pattern of `ERRORS_ONLY` counts only in a line
that is an error (an exception, or logged as one): warnings and advice use the same words. The order is
that of trust: of the patterns that fit one line the first counts, so the special ones stand first.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from trainwiz.core.diagnosis.cause import Cause, Confidence, Evidence, Remedy, Settings
from trainwiz.core.language import mark, tr


class Pattern:
    """Expressions that speak for a cause. `consequence`: the line may come of the failure of another process."""

    def __init__(
        self,
        cause: Cause,
        *expressions: str,
        confidence: Confidence = "high",
        errors_only: bool = False,
        consequence: bool = False,
    ) -> None:
        self.cause, self.confidence = cause, confidence
        self.errors_only, self.consequence = errors_only, consequence
        self.expression = re.compile("|".join(expressions), re.IGNORECASE)


PARTNER = r"(?:gloo|pair\.cc|socket\.cpp|c10d|ProcessGroup|TCPStore|DistNetworkError|DistBackendError|NCCL|sendBytes|recvBytes)"
"""What a line about the connection between ranks names; a download has none of it."""

PATTERNS: tuple[Pattern, ...] = (
    Pattern(
        "shared_memory",
        r"insufficient shared memory \(shm\)",
        r"workers are out of shared memory",
        r"dataloader worker \(pid\S* [\d, ]+\) is killed by signal: bus error",
        r"/dev/shm\S*.{0,80}(?:no space|cannot allocate)",
        r"no space left on device.{0,40}/dev/shm",
        r"unable to (?:open|allocate|write to|mmap|resize).{0,40}(?:shared memory|file </torch_)",
        r"error while (?:creating|attaching to) shared memory segment",
        r"couldn't allocate shared memory segment",
        r"posix_fallocate failed.{0,80}no space",
    ),
    Pattern(
        "shared_memory",
        r"received 0 items of ancdata",
        r"torch_shm_manager.{0,80}(?:error|failed)",
        r"could not duplicate a shared memory file descriptor",
        confidence="medium",
        errors_only=True,
    ),
    Pattern(
        "disk_full",
        r"no space left on device",
        r"\[errno 28\]",
        r"disk quota exceeded",
        r"\[errno 122\]",
        r"\bStorageFull\b",
        r"not enough space on the disk|磁盘空间不足|设备上没有空间",
        r"not enough disk space\. needed",
        r"database or disk is full",
        r"node was low on resource: ephemeral-storage",
    ),
    Pattern(
        "disk_full",
        r"PytorchStreamWriter failed writing",
        r"unexpected pos \d+ vs \d+",
        confidence="medium",
        errors_only=True,
    ),
    Pattern(
        "host_oom",
        # Ray's exception has the name of torch's.
        r"ray\.exceptions\.OutOfMemoryError|due to the node running low on memory",
        r"node was low on resource: memory",
        r"TERM_MEMLIMIT",
        r"systemd-oomd\S*: Killed .{0,300}due to memory (?:pressure|used)",
    ),
    Pattern(
        "cuda_oom",
        r"(?:CUDA|HIP|XPU|NPU) out of memory\. tried to allocate",
        r"MPS backend out of memory",
        r"CUDA (?:driver )?error: out of memory",
        r"cuda runtime error \(2\) ?: ?out of memory",
        r"cudaErrorMemoryAllocation|hipErrorOutOfMemory",
        r"CU(?:BLAS|SOLVER|DNN)_STATUS_ALLOC_FAILED",
        r"Cuda failure(?: 2)? '?out of memory",
        r"(?:^|\.|\s)OutOfMemoryError\b(?!\s+Traceback)",
        r"Error out of memory at line \d+ in file",
    ),
    Pattern("cuda_oom", r"\bCUDA out of memory\b", errors_only=True),
    Pattern(
        "host_oom",
        r"out of memory: killed process",
        r"\boom-kill:|\boom[-_]kill event|\bOOM Killed\b|\bOOMKilled\b(?!['\"]?\s*[:=]\s*['\"]?false)",
        r"srun: error: \S+: tasks? [\d,\[\]-]+: Out Of Memory",
        r"oom_reaper: reaped process",
        r"exceeded (?:job|step|virtual)? ?memory limit",
        r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|posix_memalign\(.{0,60}== 0\. 12 vs 0",
        r"\[errno 12\] cannot allocate memory",
        r"unable to allocate [\d.]+ [KMGTP]iB for an array",
        r"ArrowMemoryError|_ArrayMemoryError",
        r"\[WinError 1455\]|页面文件太小",
        r"^MemoryError\b|\bOutOfCpuMemoryError\b",
        r"CpuAllocator.{0,60}out of memory",
    ),
    Pattern("host_oom", r"\bMemoryError\b(?!\.)", errors_only=True),
    Pattern("host_oom", r"what\(\):\s+std::bad_alloc|instance of 'std::bad_alloc'", confidence="medium"),
    Pattern(
        "gpu_lost",
        r"\bGPU is lost\b|GPU_IS_LOST",
        r"fallen off the bus",
        r"NVRM: Xid.{0,60}: (?:79|48|94|95|119|120)\b",
        r"uncorrectable ECC error",
        # nvidia-smi says it on a line of its own, as no logger does.
        r"^unable to determine the device handle for GPU",
    ),
    Pattern(
        "gpu_lost",
        r"CUDA error: no CUDA-capable device is detected|cudaErrorNoDevice",
        r"failed to initialize NVML: (?:unknown|GPU)|NVML.{0,40}unknown error",
        confidence="medium",
        errors_only=True,
    ),
    Pattern(
        "node_lost",
        r"^Node \d+ \(.{1,120}\) was lost \(",
        r"^Node [\d, ]+ of \d+ did not (?:come|connect) within \d",
        r"^Node 0 (?:could not be reached|was unreachable) at ",
    ),
    Pattern(
        "port_in_use",
        r"EADDRINUSE",
        r"(?:error|errno|socket|bind|listen|store).{0,160}address already in use",
        r"tried to launch distributed communication on port .{0,20} but another process is utilizing it",
        r"地址已在使用",
    ),
    Pattern(
        "dataloader_worker_killed",
        r"dataloader worker \(pid\S* [\d, ]+\) (?:is killed by signal|exited unexpectedly)",
        r"one of the subprocesses has abruptly died during map operation",
        r"a (?:process in the process pool|worker process managed by the executor) was (?:terminated abruptly|unexpectedly terminated)",
    ),
    Pattern(
        "nan_loss",
        r"\bloss is (?:nan|inf|infinite|not finite|no longer a number)\b",
        r"non-?finite (?:training )?loss|loss (?:became|turned|went to) (?:nan|inf)",
        r"probability tensor contains either `?inf`?, `?nan`?",
        r"returned nan values in its \d+th output",
        r"loss scale already at minimum|minimum loss scale reached",
        r"\b(?:nan|inf) loss (?:encountered|detected|found)",
        r"gradients? (?:norm )?(?:is|are|contains?) (?:nan|non-?finite|inf)\b",
        errors_only=True,
    ),
    Pattern(
        "bf16_unsupported",
        r"setup doesn't support bf16",
        r"bf16 mixed precision (?:requires|with MPS)",
        r"type bf16 is not supported",
        r"(?:bf16|bfloat16) is (?:not|only) supported (?:on|by|for)",
        r"does(?:n't| not) support (?:bf16|bfloat16)",
        r"not implemented for '?BFloat16",
        r"Feature '\.bf16' requires \.target",
        r"bf16/gpu",
        errors_only=True,
    ),
    Pattern("bf16_unsupported", r"Feature '\.bf16' requires \.target"),
    Pattern(
        "flash_attention_missing",
        r"no module named '?flash_attn",
        r"flash_attn\S* .{0,60}undefined symbol|flash_attn\S*\.so: undefined symbol",
        r"packages that were not found in your environment:.{0,80}\bflash_attn\b",
        r"flash.?attention.{0,160}(?:installed|cannot be used|not supported|not available|requires|only supports?|seems? to be not)",
        r"does not support flash.?attention",
        r"flash_attn.{0,80}(?:not installed|seems to be not installed|is not available)",
        errors_only=True,
    ),
    Pattern(
        "deepspeed_mismatch",
        r"correct the following deepspeed config values that mismatch",
        r"train_batch_size is not equal to micro_batch",
        r"check batch related parameters",
        r"cannot specify an? (?:optimizer|scheduler) in the config file and in the code",
        r"cannot create a `Dummy(?:Optim|Scheduler)` without specifying",
        r"found `optimizer` configured in the deepspeed config",
        r"validation errors? for DeepSpeed\w*Config",
        r"using ZeRO-Offload with a client provided optimizer",
        r"incompatible with gradient partitioning logic of ZeRO",
        r"deepspeed.{0,80}(?:does not agree|contradict|\bmismatch)|does not agree.{0,60}deepspeed",
        r"DP world size of \d+ but the current world size is",
        errors_only=True,
    ),
    Pattern(
        "config_mismatch",
        r"size mismatch (?:for|between saved)|error\(s\) in loading state_dict",
        r"loaded state dict (?:contains a parameter group|has a different number)",
        r"requires the sav(?:e|ing) .{0,20}(?:strategy|steps)",
        r"got an unexpected keyword argument",
        r"mutually exclusive",
        r"at most one of fp16 and bf16",
        r"fp16 mixed precision (?:requires|training)",
        r"gradient accumulation steps mismatch",
        r"unrecognized arguments:|arguments are not used by the HfArgumentParser",
        r"unrecognized configuration class",
        r"is not a valid \w+, please select one of",
        r"attempting to unscale FP16 gradients",
        r"no padding token is defined",
        r"max_steps must be set to a positive value",
        r"needs? to be set when .{0,60}(?:strategy|steps)",
        r"checkpoint.{0,60}(?:does not (?:fit|match)|incompatible)",
        errors_only=True,
    ),
    Pattern(
        "config_mismatch",
        r": error: (?:unrecognized arguments|the following arguments are required|argument --?\w)",
    ),
    Pattern(
        "missing_file",
        r"\bFileNotFoundError\b",
        r"no such file or directory",
        r"does not appear to have a file named",
        r"can't load (?:the )?(?:tokenizer|configuration|model|feature extractor|image processor)\b",
        r"not a local folder and is not a valid model identifier",
        r"couldn't find (?:a dataset script|any data file|file at|a module script)",
        r"\b(?:DatasetNotFound|EntryNotFound|RepositoryNotFound|LocalEntryNotFound|RevisionNotFound)Error\b",
        r"incorrect path_or_model_id",
        r"没有那个文件或目录|系统找不到指定的(?:文件|路径)",
        errors_only=True,
    ),
    Pattern(
        "user_stop", r"^KeyboardInterrupt\b", r"slurmstepd: error: .{0,80}CANCELLED AT (?!.* DUE TO )", r"got signal: 2\b"
    ),
    # Slurm, PBS, LSF.
    Pattern("time_limit", r"CANCELLED AT .{0,60}DUE TO TIME LIMIT", r"walltime \d+ exceeded limit", r"\bTERM_RUNLIMIT\b"),
    Pattern(
        "nccl_timeout",
        r"caught collective operation timeout",
        r"milliseconds before timing out",
        r"timeout at NCCL work",
        r"timed out waiting \d+ms for (?:send|recv) operation",
        r"watchdog (?:got stuck|hang|heartbeat).{0,80}(?:seconds|timeout)|heartbeat monitor timed out",
        r"monitoredBarrier, but received errors|monitoredBarrier.{0,200}timed? ?out|timed out in monitoredBarrier",
        r"wait timeout after \d+ ?ms",
        r"RendezvousTimeoutError|DistStoreError.{0,120}time",
        r"client socket has timed out after",
        r"timed out after \d+ seconds waiting for clients",
        r"failed to connect/validate to host .{0,80}timed out",
        consequence=True,
    ),
    Pattern(
        "nccl_error",
        r"ncclRemoteError|NCCL communicator was aborted|remote process exited",
        PARTNER + r".{0,240}(?:connection (?:was )?(?:reset|closed|refused)|broken pipe|socket closed|unexpectedly closed|failed to (?:recv|send)|pair closure)",
        r"pair closure|connection closed by (?:remote )?peer",
        consequence=True,
    ),
    Pattern(
        "nccl_error",
        r"ncclSystemError|ncclInternalError|ncclUnhandledCudaError|ncclInvalidUsage|ncclInvalidArgument",
        r"NCCL error",
        r"unhandled (?:cuda|system) error.{0,20}NCCL",
        r"duplicate GPU detected",
        r"NCCL WARN .{0,80}(?:failure|failed|error)",
    ),
    Pattern("nccl_error", r"^(?:torch\.distributed\.)?Dist(?:Backend|Network)?Error\b", confidence="medium", consequence=True),
)  # fmt: skip


ANY_EXCEPTION = Pattern("python_error")
"""What an exception is that speaks for no cause."""
TELLING = re.compile(
    r"rror|xception|nterrupt|fail|kill|memory|oom|space|time|lost|bus|xid|mismatch|support|requires|bf16|flash"
    r"|module|nan|loss is|inf|shared|shm|errno|quota|signal|worker|file|cancel|closed|reset|refused|died|unhandled"
    r"|abort|NCCL|ancdata|alloc|pos|duplicate|argument|strategy|cannot|can't|couldn't|incorrect|terminated|pipe"
    r"|exclusive|exited|detected|resource|did not co|not be reached|unreachable|[\u4e00-\u9fff]",
    re.IGNORECASE,
)
"""Without any of these words no pattern fits: asking is cheaper than trying them all."""


@lru_cache(maxsize=4096)
def pattern_of(text: str, is_error: bool) -> Pattern | None:
    """The pattern of most trust that the text fits."""
    if not TELLING.search(text):
        return None
    fitting = (known for known in PATTERNS if (is_error or not known.errors_only) and known.expression.search(text))
    return next(fitting, None)


# What can be done about each cause: sentences, with a command of trainwiz where there is one.

SMALLEST_LENGTH = 16
RESUME, AGAIN = "resume", "again"
"""The first word of a remedy's command: to go on with the run, or the same run anew with the words that follow."""
Row = tuple[str, ...]
"""A sentence and the words of its command."""


def _remedy(place: Evidence, text: str, *words: str) -> Remedy:
    """`words`: RESUME; AGAIN and other choices; the words of another command; none."""
    if words == (RESUME,):
        return Remedy(text, f"trainwiz runs resume {place.run}" if place.run else None)
    if words[:1] == (AGAIN,):
        # A plan where the run's own choices are not known.
        again = place.settings.again
        words = (*again, *words[1:], "--yes") if again else ("plan", *words[1:])
    return Remedy(text, shlex.join(["trainwiz", *words]) if words else None)


def remedies_for(cause: Cause, place: Evidence, during: str | None = None, said: str = "") -> tuple[Remedy, ...]:
    """The best first. `place`: the run that they are for; `said`: the sentence of a diagnosis with what was raised."""
    if cause == "cuda_oom" and during == "evaluation":
        text = tr("Evaluate with a smaller batch.")
        return (_remedy(place, text, AGAIN, "--set", "batch.eval_micro_batch_size=1"),)
    rows: list[Row] = [*_OF_SETTINGS[cause](place.settings)] if cause in _OF_SETTINGS else []
    of_error = [row[1:] for row in ERRORS if cause == "python_error" and re.search(row[0], said)]
    rows += [(tr(text), *words) for text, *words in (*of_error, *REMEDIES.get(cause, ()))]
    remedies = [_remedy(place, *row) for row in rows]
    if cause == "node_lost" and place.run:
        remedies.append(Remedy(tr("See the command for each node."), f"trainwiz export {place.run} --script"))
    return tuple(remedies)


DOCTOR = (mark("Check what is missing on this machine."), "doctor")
HARDWARE = (mark("See what the GPUs support."), "hardware")
REMEDIES: Mapping[Cause, tuple[Row, ...]] = {
    "cuda_oom": ((mark("See what else uses GPU memory."), "hardware"),),
    "host_oom": (
        (mark("Stream the data instead of keeping it in RAM."), AGAIN, "--set", "data.streaming=true"),
        (mark("Close other programs that use RAM, then resume."), RESUME),
    ),
    "disk_full": (
        (mark("Free space on the disk of the run folder, then resume."), RESUME),
        (mark("Keep only the newest checkpoint."), AGAIN, "--set", "checkpoint.keep=1"),
    ),
    "nccl_timeout": (
        (mark("Check the log of the rank that reached the collective last, then resume."), RESUME),
        (mark("Check the machine and what is missing."), "doctor"),
    ),
    "nccl_error": (
        (mark("Resume from the newest checkpoint; this error is often temporary."), RESUME),
        (mark("Train on one GPU."), AGAIN, "--gpus", "0"),
        (mark("If it happens again, set NCCL_P2P_DISABLE=1 before the command; NCCL_DEBUG=INFO logs more."),),
    ),
    "bf16_unsupported": (
        (mark("Use fp16 (on a GPU)."), AGAIN, "--precision", "fp16"),
        (mark("Use fp32 (any device)."), AGAIN, "--precision", "fp32"),
        HARDWARE,
    ),
    "flash_attention_missing": (
        (mark("Use PyTorch's SDPA attention instead."), AGAIN, "--attention", "sdpa"),
        DOCTOR,
    ),
    "dataloader_worker_killed": (
        (mark("The usual cause is lack of RAM. Close other programs that use it, then resume."), RESUME),
    ),
    "shared_memory": (
        (mark("Load the data without loader workers."), AGAIN, "--set", "data.workers=0"),
        (mark("Give the container more shared memory (docker run --shm-size 8g), then resume."), RESUME),
    ),
    "deepspeed_mismatch": (
        (mark('Set the named keys in the DeepSpeed file to "auto".'),),
        (mark("Let trainwiz generate the DeepSpeed config."), AGAIN, "--set", "engine.deepspeed_file=null"),
    ),
    "port_in_use": (
        (mark("Another job uses the port. Wait until it ends, or simply resume."), RESUME),
        (mark("See what is training on this machine."), "monitor", "--once"),
    ),
    "nan_loss": (
        (mark("Check the data of that step: empty rows and labels without a token cause such a loss."), RESUME),
    ),
    "missing_file": ((mark("Restore the file named in that line, then resume."), RESUME), DOCTOR),
    "gpu_lost": (
        (mark("Restart the machine, check power and cooling, then resume."), RESUME),
        (mark("Check whether all GPUs respond."), "hardware"),
    ),
    "time_limit": (
        (mark("Resume from the newest checkpoint."), RESUME),
        (mark("Use `trainwiz export RUN --slurm`: the job saves before its time limit, requeues and resumes."),),
    ),
    "node_lost": ((mark("Start all nodes of the run again; it resumes from its newest checkpoint."), RESUME),),
    "python_error": ((mark("Fix the error shown in the traceback, then resume."), RESUME),),
    "user_stop": ((mark("Resume from the newest checkpoint."), RESUME),),
    "unknown": ((mark("Read the end of the log, then resume."), RESUME),),
}
"""Cause -> remedies as (sentence, words of the command); before them stand those that hang on the run's settings."""


ERRORS: tuple[Row, ...] = (
    (r"no NVIDIA driver|driver on your system is too old|driver version is insufficient",
     mark("Install a newer NVIDIA driver, or a torch built for the driver that is there."), "doctor"),
    (r"no kernel image is available", mark("Install a torch built for this GPU."), "doctor"),
    (r"gated repo|\b40[13] Client Error|GatedRepoError",
     mark("Accept the terms on the model's page on the Hugging Face Hub, then log in with `hf auth login`.")),
    (r"huggingface\.co.*(?:Max retries|timed out)|Max retries.*huggingface\.co|LocalEntryNotFound",
     mark("The Hugging Face Hub cannot be reached: use a model or dataset that is on this machine.")),
    (r"does not recognize this architecture",
     mark("Upgrade transformers: this version does not know the model.")),
    (r"[Ff]ailed to find C compiler", mark("Install a C compiler (gcc): torch.compile and Triton need it.")),
    (r"MissingCUDAException|CUDAMismatchException|CUDA_HOME",
     mark("DeepSpeed compiles its optimizer: install the CUDA toolkit of torch's version, or choose another optimizer."),
     AGAIN, "--optimizer", "adamw_torch"),
    (r"CUDA Setup failed|libbitsandbytes",
     mark("Install a bitsandbytes built for this CUDA; `python -m bitsandbytes` says what is missing.")),
    (r"device-side assert|index out of range in self",
     mark("Usually a token ID beyond the model's vocabulary: check that tokenizer and model belong together.")),
    (r"chat_template is not set", mark("Choose an instruct model, or a template with --chat-template.")),
    (r"mark a variable ready only once", mark("Use gradient checkpointing without re-entry (use_reentrant=False).")),
    (r"No module named '?(?!trainwiz)", mark("Install the missing module in the environment that trains."), "doctor"),
)  # fmt: skip
"""What an exception says -> a remedy as in REMEDIES, which stands before those of python_error."""


def smaller_batch(settings: Settings) -> tuple[int, int] | None:
    """(micro-batch, accumulation) with at most half the micro-batch and exactly the same product; None where there is none."""
    micro, accumulation = settings.micro_batch, settings.accumulation
    if micro is None or accumulation is None or micro < 2:
        return None
    smaller = max(size for size in range(1, micro // 2 + 1) if micro * accumulation % size == 0)
    return smaller, micro * accumulation // smaller


def _cuda_oom(settings: Settings) -> Iterator[Row]:
    if (smaller := smaller_batch(settings)) is not None:
        micro, accumulation = map(str, smaller)
        text = tr(
            "Use micro-batch {micro} and gradient accumulation {accumulation}: the same effective batch in less "
            "memory.",
            micro=micro,
            accumulation=accumulation,
        )
        yield text, AGAIN, "--micro-batch", micro, "--accumulation", accumulation
    elif settings.micro_batch is None:
        text = tr("Halve the micro-batch (per_device_train_batch_size) and double the gradient accumulation.")
        yield text, AGAIN, "--micro-batch", "1"
    if not settings.checkpointing:
        yield tr("Use gradient checkpointing: less memory, about a third more time."), AGAIN, "--checkpointing"
    length = (settings.sequence_length or 0) // 2
    if length >= SMALLEST_LENGTH:
        yield tr("Reduce the max length to {length} tokens.", length=length), AGAIN, "--length", str(length)


def _fewer_workers(settings: Settings) -> Iterator[Row]:
    workers = (settings.workers or 0) // 2
    text = tr("Use {n} loader workers.", n=workers) if workers else tr("Load the data without loader workers.")
    if settings.workers != 0:
        yield text, AGAIN, "--set", f"data.workers={workers}"


def _nan(settings: Settings) -> Iterator[Row]:
    rate = settings.learning_rate or 0
    lower = (AGAIN, "--learning-rate", f"{rate / 5:.1g}") if rate > 0 else ()
    yield tr("Train again with a lower learning rate, or from a checkpoint saved before this."), *lower
    if settings.precision not in ("fp32", "tf32"):
        yield tr("Use fp32."), AGAIN, "--precision", "fp32"


def _config(settings: Settings) -> Iterator[Row]:
    text = tr("Change the setting named in that line, preview the plan, then start again.")
    yield (text, AGAIN, "--dry-run") if settings.again else (text,)


_OF_SETTINGS: Mapping[Cause, Callable[[Settings], Iterator[Row]]] = {
    "cuda_oom": _cuda_oom,
    "host_oom": _fewer_workers,
    "dataloader_worker_killed": _fewer_workers,
    "nan_loss": _nan,
    "config_mismatch": _config,
}
