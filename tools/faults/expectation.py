"""Which ends of a run are right after which fault."""

from __future__ import annotations

from collections.abc import Mapping

from tools.faults.fault import Fault

Causes = frozenset[str | None]
FINISHED: Mapping[str, Causes] = {"finished": frozenset({None})}
STOPPED: Mapping[str, Causes] = {"stopped": frozenset({"user_stop"})}
NOT_BEGUN: Mapping[str, Causes] = {"none": frozenset({None}), "prepared": frozenset({None})}
"""The command was hit before it had started anything."""


def failed(*causes: str) -> Mapping[str, Causes]:
    return {"failed": frozenset(causes)}


def right_ends(fault: Fault) -> Mapping[str, Causes]:
    """Status -> causes. The tensors decide whether a run that finished was undisturbed."""
    match fault.family:
        case "signal":
            return _after_signal(fault.target, fault.how, fault.front)
        case "stop":
            return {**FINISHED, **STOPPED, **NOT_BEGUN}
        case "disk":
            return {**FINISHED, **failed("disk_full")}
        case "training":
            return _after_training_fault(fault.how)
        case "data":
            return {**NOT_BEGUN, **FINISHED, **failed("config_mismatch", "missing_file")}
        case "file" if fault.moment.kind == "rest":
            # Settings that are nonsense are refused, or the launcher fails of them.
            return {
                **FINISHED,
                **failed("config_mismatch", "python_error", "unknown", "missing_file", "deepspeed_mismatch"),
            }
        case _:
            return FINISHED


def right_causes_on_the_way(fault: Fault) -> Causes:
    """Causes for which trainwiz may have made another attempt."""
    if fault.family == "training":
        return frozenset({_TRAINING[_kind(fault.how)]})
    if fault.family == "disk":
        return frozenset({"disk_full"})
    return frozenset({"dataloader_worker_killed"}) if fault.target == "worker" else frozenset({"unknown"})


def names_the_signal(fault: Fault) -> bool:
    """Whether the sentence about the end has to name it."""
    return fault.family == "signal" and (fault.target == "launcher" or fault.target.startswith("rank"))


def _after_signal(target: str, how: str, front: str) -> Mapping[str, Causes]:
    if target == "front":
        # The full-screen wizard leaves the run alone; the headless command answers for its run.
        return {**FINISHED, **NOT_BEGUN} if front == "screen" else {**FINISHED, **STOPPED, **NOT_BEGUN}
    if target == "supervisor":
        # Hit before it had taken over, it has begun nothing, and the folder says so.
        ended = {"lost": frozenset({"unknown"})} if how == "SIGKILL" else STOPPED
        return {**ended, **FINISHED, **NOT_BEGUN}
    if target == "guard":
        return FINISHED
    if target == "worker":
        return {**FINISHED, **failed("dataloader_worker_killed")} if how in ("SIGKILL", "SIGHUP") else FINISHED
    return {**FINISHED, **failed("unknown"), **({} if how == "SIGKILL" else STOPPED)}


_TRAINING = {
    "oom": "cuda_oom", "host_oom": "host_oom", "nan": "nan_loss", "nccl": "nccl_error", "error": "python_error",
    "worker": "dataloader_worker_killed", "kill": "unknown", "slow": None, "disk": "disk_full",
}  # fmt: skip


def _kind(how: str) -> str:
    return how.partition("@")[0]


def _after_training_fault(how: str) -> Mapping[str, Causes]:
    kind = _kind(how)
    cause = _TRAINING[kind]
    if kind in ("oom", "slow"):
        # A smaller micro-batch at the same effective batch gets through: anything else is a defect.
        return FINISHED
    if kind in ("nccl", "worker"):
        return FINISHED
    if kind in ("error", "nan"):
        return failed(str(cause))
    return {**FINISHED, **failed(str(cause))}
