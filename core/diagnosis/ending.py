"""Why a run ended: exit status, failure files and log tail -> cause, sentence, remedy, evidence.

Pure: everything that it needs is passed in. The table grows downwards from the most specific rule.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text

Cause = Literal[
    "cuda_oom", "host_oom", "disk_full", "nccl_timeout", "nccl_error", "bf16_unsupported",
    "flash_attention_missing", "dataloader_worker_killed", "shared_memory", "deepspeed_mismatch",
    "port_in_use", "nan_loss", "missing_file", "config_mismatch", "gpu_lost", "user_stop",
    "python_error", "unknown",
]  # fmt: skip

DISK_IS_FULL_BELOW_BYTES = 1 << 20
LONGEST_EVIDENCE = 300
OWN_ERRORS = frozenset({"UsageError", "CannotRunError", "TrainwizError"})


@dataclass(frozen=True, slots=True)
class Failure:
    """What failure-rank<N>.json says."""

    rank: int
    type: str
    message: str
    traceback: str
    time_s: float
    step: int | None

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Failure:
        """Takes what is there: the file may come from a process that was dying."""
        rank, time_s, step = document.get("rank"), document.get("time_s"), document.get("step")
        trace = document.get("traceback", "")
        return cls(
            rank=rank if isinstance(rank, int) else 0,
            type=str(document.get("type", "Exception")),
            message=str(document.get("message", "")),
            traceback="".join(map(str, trace)) if isinstance(trace, list) else str(trace),
            time_s=float(time_s) if isinstance(time_s, int | float) else float("inf"),
            step=step if isinstance(step, int) else None,
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known when the training has ended. `run` is the name that commands take."""

    run: str
    exit_code: int | None
    """Of the launcher; negative when a signal ended it."""
    failures: tuple[Failure, ...] = ()
    log_tail: str = ""
    oom_kills: int = 0
    """Processes that the kernel killed for memory in this container while the training ran."""
    disk_free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    cause: Cause
    message: str
    remedy: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A line that proves a cause. {run} in the remedy is the run's name."""

    cause: Cause
    pattern: re.Pattern[str]
    message: str
    remedy: str


def _rule(cause: Cause, pattern: str, message: str, remedy: str) -> Rule:
    return Rule(cause, re.compile(pattern, re.IGNORECASE), message, remedy)


RULES: tuple[Rule, ...] = (
    _rule(
        "shared_memory",
        r"insufficient shared memory|/dev/shm.*no space|unable to (open|allocate) shared memory",
        mark("Shared memory (/dev/shm) is too small for the loader processes"),
        mark("Start with --set data.workers=0, or give the container more shared memory (docker run --shm-size 8g)."),
    ),
    _rule(
        "disk_full",
        r"no space left on device|errno 28|disk quota exceeded|errno 122|PytorchStreamWriter failed",
        mark("The disk is full"),
        mark("Free space on the disk of the run folder, then: trainwiz runs resume {run}"),
    ),
    _rule(
        "cuda_oom",
        r"cuda out of memory|CUDA error: out of memory|torch\.(cuda\.)?OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED",
        mark("The GPU ran out of memory"),
        mark("Start again with a smaller --micro-batch, or with --set engine.checkpointing=true."),
    ),
    _rule(
        "host_oom",
        r"out of memory: killed process|oom-kill|defaultcpuallocator: can't allocate|^MemoryError|\bMemoryError\b",
        mark("The machine ran out of RAM"),
        mark(
            "Start again with fewer loader processes (--set data.workers=0) or streamed data (--set data.streaming=true)."
        ),
    ),
    _rule(
        "gpu_lost",
        r"gpu is lost|fallen off the bus|\bXid\b.*\b79\b|NVML.*unknown error",
        mark("A GPU stopped answering"),
        mark("Restart the machine, check power and cooling, then: trainwiz runs resume {run}"),
    ),
    _rule(
        "nccl_timeout",
        r"watchdog caught collective operation timeout|collective operation.*timed? ?out",
        mark("The training processes waited for each other too long"),
        mark("Look at the log of the slowest rank, then: trainwiz runs resume {run}"),
    ),
    _rule(
        "nccl_error",
        r"nccl (error|failure)|ncclSystemError|ncclInternalError|ncclUnhandledCudaError|ncclRemoteError",
        mark("The GPUs could not talk to each other (NCCL)"),
        mark("Start again with NCCL_P2P_DISABLE=1, or on one GPU with --gpus 0."),
    ),
    _rule(
        "bf16_unsupported",
        r"bf16.*(not supported|requires|isn't supported|not valid)|bfloat16.*not (supported|implemented)"
        r"|doesn't support bf16",
        mark("This device cannot compute in bf16"),
        mark("Start again with --precision fp16 (GPU) or --precision fp32."),
    ),
    _rule(
        "flash_attention_missing",
        r"no module named 'flash_attn|flash_?attention.{0,80}(not (be )?(installed|supported|available)|seems? to be not)",
        mark("FlashAttention is asked for and cannot be used here"),
        mark("Start again with --attention sdpa."),
    ),
    _rule(
        "dataloader_worker_killed",
        r"dataloader worker .*(killed by signal|exited unexpectedly)",
        mark("A loader process was killed"),
        mark("Lack of RAM is the usual reason. Start again with --set data.workers=0."),
    ),
    _rule(
        "deepspeed_mismatch",
        r"correct the following deepspeed config values that mismatch|does not agree.*deepspeed|train_batch_size is not equal",
        mark("The DeepSpeed file contradicts the training arguments"),
        mark(
            'Set the named keys of the DeepSpeed file to "auto", or start again without a file of your own (--deepspeed).'
        ),
    ),
    _rule(
        "port_in_use",
        r"EADDRINUSE|address already in use",
        mark("The port for the training processes is taken"),
        mark("Another job uses it. Try again: trainwiz runs resume {run}"),
    ),
    _rule(
        "config_mismatch",
        r"size mismatch for|error\(s\) in loading state_dict",
        mark("The checkpoint or the weights do not fit this model"),
        mark("Start a new run, or name a checkpoint of this model with --resume."),
    ),
    _rule(
        "config_mismatch",
        r"requires the save and eval(uation)? strategy to match|unexpected keyword argument|mutually exclusive",
        mark("Two settings of the training arguments contradict each other"),
        mark("Change the setting that the line names with --set, then start again."),
    ),
    _rule(
        "nan_loss",
        r"loss is (nan|inf)|non-?finite loss|(nan|inf) loss",
        mark("The loss is no longer a number"),
        mark("Start again with a lower --learning-rate or with --precision fp32."),
    ),
    _rule(
        "missing_file",
        r"FileNotFoundError|no such file or directory",
        mark("A file is missing"),
        mark("Put the file back, then: trainwiz runs resume {run}"),
    ),
)


def diagnose_end(evidence: Evidence) -> Diagnosis:
    """The cause of a training that failed: the earliest failure file decides, then the log, then the exit status."""
    lines = [clean(line) for line in evidence.log_tail.splitlines()]
    first = earliest(evidence.failures)
    # A rank that is killed writes nothing; the others then fail of the lost connection.
    killed = _killed_process(lines) if first is not None and PARTNER_LOST.search(first.message) else None
    if first is not None and (killed is None or evidence.exit_code is None or evidence.exit_code < 0):
        return _of_failure(first, evidence)
    if evidence.oom_kills > 0:
        rule = next(rule for rule in RULES if rule.cause == "host_oom")
        return _of_rule(
            rule, None, evidence, (tr("the kernel killed {n} process(es) for memory", n=evidence.oom_kills),)
        )
    if killed is not None:
        return _of_killed_process(killed, evidence)
    for rule in RULES:
        line = next((line for line in lines if rule.pattern.search(line)), None)
        if line is not None:
            return _of_rule(rule, None, evidence, (line,))
    if evidence.disk_free_bytes is not None and evidence.disk_free_bytes < DISK_IS_FULL_BELOW_BYTES:
        rule = next(rule for rule in RULES if rule.cause == "disk_full")
        return _of_rule(rule, None, evidence, (tr("{count} bytes are free", count=f"{evidence.disk_free_bytes:,}"),))
    return _of_exit_status(evidence, lines)


def _of_failure(failure: Failure, evidence: Evidence) -> Diagnosis:
    said = _first_line(failure.message)
    proof = clean(f"rank {failure.rank}: {failure.type}: {said}")
    if failure.type in OWN_ERRORS:
        # Our own errors are whole sentences that already name the place and the remedy.
        return Diagnosis(
            "config_mismatch",
            clean(failure.message),
            tr("When that is put right: trainwiz runs resume {run}", run=evidence.run),
            (proof,),
        )
    text = f"{failure.type}: {failure.message}"
    rule = next((rule for rule in RULES if rule.pattern.search(text)), None)
    if rule is not None:
        return _of_rule(rule, failure.step, evidence, (proof,), said)
    error = f"{failure.type}: {said}" if said else failure.type
    message = tr("The training stopped with {error}", error=error)
    if failure.step is not None:
        message = tr("The training stopped at step {step} with {error}", step=failure.step, error=error)
    return Diagnosis(
        "python_error",
        _sentence(clean(message)),
        tr("The traceback is at the end of train.log. To go on: trainwiz runs resume {run}", run=evidence.run),
        (proof,),
    )


def _of_rule(rule: Rule, step: int | None, evidence: Evidence, proof: tuple[str, ...], said: str = "") -> Diagnosis:
    cause, said = tr(rule.message), clean(said)
    if step is None:
        message = tr("{cause} ({said}).", cause=cause, said=said) if said else _sentence(cause)
    elif said:
        message = tr("{cause} at step {step} ({said}).", cause=cause, step=step, said=said)
    else:
        message = tr("{cause} at step {step}.", cause=cause, step=step)
    return Diagnosis(rule.cause, message, tr(rule.remedy, run=evidence.run), proof)


EXCEPTION_LINE = re.compile(r"^(?:\[rank\d+\]: )?((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b)(: .*)?$")
PARTNER_LOST = re.compile(
    r"connection (was )?(reset|closed|refused)|socket closed|remote process exited", re.IGNORECASE
)
SIGNAL_IN_LOG = re.compile(r"exitcode\s*: (-\d+)|died with <Signals\.(\w+)|non-zero exit status (\d+)")


def _of_exit_status(evidence: Evidence, lines: list[str]) -> Diagnosis:
    killed = _signal_name(evidence.exit_code)
    if killed:
        message = tr(
            "The launcher was ended from outside by {signal}; the training processes ended with it.", signal=killed
        )
        return Diagnosis("unknown", message, _resume(evidence))
    process = _killed_process(lines)
    if process is not None:
        return _of_killed_process(process, evidence)
    errors = [line for line in lines if EXCEPTION_LINE.match(line) and "CalledProcessError" not in line]
    if errors:
        return Diagnosis(
            "python_error",
            _sentence(tr("The training stopped with {error}", error=errors[0])),
            _resume(evidence),
            (errors[0],),
        )
    message = tr("The training ended with exit code {code} and left no reason.", code=evidence.exit_code)
    if evidence.exit_code == 0:
        message = tr("The training ended without saying that it finished.")
    last = tuple(line for line in lines[-3:] if line.strip())
    remedy = tr("Read the end of train.log. To go on: trainwiz runs resume {run}", run=evidence.run)
    return Diagnosis("unknown", message, remedy, last)


def _killed_process(lines: list[str]) -> tuple[str, str] | None:
    """The signal that ended a training process, and the line of the log that says so."""
    for line in lines:
        found = SIGNAL_IN_LOG.search(line)
        name = _signal_of_log(found) if found else None
        if name:
            return name, line
    return None


def _of_killed_process(killed: tuple[str, str], evidence: Evidence) -> Diagnosis:
    name, line = killed
    message = tr("A training process was ended from outside by {signal}.", signal=name)
    if name == "SIGKILL":
        message = tr("A training process was ended from outside by SIGKILL. Lack of RAM is the usual reason.")
    return Diagnosis("unknown", message, _resume(evidence), (line,))


def _signal_of_log(found: re.Match[str]) -> str | None:
    if found.group(1):
        return _signal_name(int(found.group(1)))
    return found.group(2)


def _signal_name(exit_code: int | None) -> str | None:
    if exit_code is None or exit_code >= 0:
        return None
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return tr("signal {number}", number=-exit_code)


def _resume(evidence: Evidence) -> str:
    return tr("To go on: trainwiz runs resume {run}", run=evidence.run)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "。", "！", "？")) else tr("{sentence}.", sentence=text)


def clean(text: str) -> str:
    """Foreign text for one line of a terminal: no control characters, no endless length."""
    return plain_text(text.strip(), LONGEST_EVIDENCE)


def earliest(failures: Iterable[Failure]) -> Failure | None:
    """The failure that came first: under several ranks the others only lost their partner."""
    return min(failures, key=lambda failure: failure.time_s, default=None)
