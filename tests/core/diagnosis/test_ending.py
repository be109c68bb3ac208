from __future__ import annotations

from pathlib import Path

import pytest
from trainwiz.core.diagnosis.ending import Evidence, Failure, clean, diagnose_end

WILD = {
    "address_already_in_use.txt": "port_in_use",
    "bf16_unsupported.txt": "bf16_unsupported",
    "disk_full_checkpoint_save.txt": "disk_full",
    "nccl_watchdog_timeout.txt": "nccl_timeout",
    "oom_single_gpu_sft_lora.txt": "cuda_oom",
    "save_eval_strategy_mismatch.txt": "config_mismatch",
}


def failure(message: str, kind: str = "RuntimeError", rank: int = 0, time_s: float = 1.0) -> Failure:
    return Failure(rank, kind, message, "Traceback ...", time_s, 12)


@pytest.mark.parametrize("name", WILD)
def test_real_logs(shared_data: Path, name: str) -> None:
    path = shared_data / "wild" / "logs" / name
    if not path.is_file():
        pytest.skip(f"{name} is not among the shared logs")
    found = diagnose_end(Evidence("r", 1, log_tail=path.read_text(errors="replace")))
    assert found.cause == WILD[name]
    assert found.evidence


@pytest.mark.parametrize(
    ("message", "kind", "cause"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB", "OutOfMemoryError", "cuda_oom"),
        ("[Errno 28] No space left on device", "OSError", "disk_full"),
        ("DataLoader worker (pid 12) is killed by signal: Killed.", "RuntimeError", "dataloader_worker_killed"),
        ("[Errno 98] Address already in use", "OSError", "port_in_use"),
        ("", "MemoryError", "host_oom"),
        ("No module named 'flash_attn'", "ModuleNotFoundError", "flash_attention_missing"),
        ("NCCL error in: ProcessGroupNCCL.cpp", "DistBackendError", "nccl_error"),
        ("[Errno 2] No such file or directory: 'x'", "FileNotFoundError", "missing_file"),
        ("index 3 is out of bounds", "IndexError", "python_error"),
        ("The file x has no column 'seq'; it has a, b.", "UsageError", "config_mismatch"),
    ],
)
def test_failure_files(message: str, kind: str, cause: str) -> None:
    found = diagnose_end(Evidence("r", 1, failures=(failure(message, kind),)))
    assert found.cause == cause
    assert found.message.endswith((".", "!"))
    assert "\n" not in found.message
    assert "runs resume r" in found.remedy or "--" in found.remedy or "NCCL" in found.remedy


def test_the_step_stands_beside_what_happened() -> None:
    killed = failure("DataLoader worker (pid 12) is killed by signal: Killed.", "RuntimeError")
    assert diagnose_end(Evidence("r", 1, failures=(killed,))).message.startswith(
        "A loader process was killed at step 12 ("
    )


def test_a_killed_rank_is_the_cause_and_not_the_connection_that_the_others_lost() -> None:
    lost = failure("[pair.cc:537] Read error [127.0.0.1]:31130: Connection reset by peer.", rank=1)
    log = "api.py:1002] failed (exitcode: -9) local_rank: 0 (pid: 7)\n  exitcode  : -9 (pid: 7)  (SIGKILL)\n"
    found = diagnose_end(Evidence("r", 1, failures=(lost,), log_tail=log))
    assert "ended from outside by SIGKILL" in found.message
    assert "Connection reset" in diagnose_end(Evidence("r", 1, failures=(lost,), log_tail="")).message
    real = failure("CUDA out of memory", rank=1)
    assert diagnose_end(Evidence("r", 1, failures=(real,), log_tail=log)).cause == "cuda_oom"


def test_the_earliest_rank_is_the_cause() -> None:
    loud = failure("Connection closed by peer", rank=0, time_s=7.5)
    first = failure("CUDA out of memory", rank=1, time_s=7.0)
    found = diagnose_end(Evidence("r", 1, failures=(loud, first), log_tail="Connection closed by peer"))
    assert found.cause == "cuda_oom"
    assert "rank 1" in found.evidence[0]


def test_a_failure_file_from_a_dying_process_is_enough() -> None:
    found = diagnose_end(Evidence("r", 1, failures=(Failure.from_json({"rank": "x", "message": None}),)))
    assert found.cause == "python_error"


@pytest.mark.parametrize(
    ("evidence", "cause", "said"),
    [
        (Evidence("r", -9), "unknown", "SIGKILL"),
        (Evidence("r", 1, log_tail=" exitcode  : -9 (pid: 4)"), "unknown", "Lack of RAM"),
        (Evidence("r", 1, log_tail="died with <Signals.SIGSEGV: 11>."), "unknown", "SIGSEGV"),
        (Evidence("r", 1, oom_kills=1), "host_oom", "out of RAM"),
        (Evidence("r", 1, disk_free_bytes=0), "disk_full", "disk is full"),
        (Evidence("r", 0), "unknown", "without saying that it finished"),
        (Evidence("r", 1, log_tail="ValueError: bad thing"), "python_error", "ValueError: bad thing"),
        (Evidence("r", 3, log_tail="all quiet"), "unknown", "exit code 3"),
    ],
)
def test_without_a_failure_file(evidence: Evidence, cause: str, said: str) -> None:
    found = diagnose_end(evidence)
    assert found.cause == cause
    assert said in found.message


def test_foreign_text_stays_text() -> None:
    assert clean("\x1b[31mred\x1b[0m\ttab\x07") == "red tab"
    assert len(clean("x" * 5000)) == 300
    found = diagnose_end(Evidence("r", 1, failures=(failure("\x1b]0;title\x07boom\nsecond line"),)))
    assert "\x1b" not in found.message
    assert "second" not in found.message


def test_what_the_machine_says_has_no_step() -> None:
    assert diagnose_end(Evidence("r", 1, oom_kills=2)).message == "The machine ran out of RAM."
    assert diagnose_end(Evidence("r", 1, disk_free_bytes=0)).message == "The disk is full."
    assert diagnose_end(Evidence("r", 1, log_tail="NCCL error")).message.endswith("(NCCL).")
