import functools
import shlex
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.diagnosis.cause import CAUSES, Diagnosis, Evidence, Failure, LogFacts, Settings, clean
from trainwiz.core.diagnosis.diagnose import diagnose
from trainwiz.core.diagnosis.patterns import remedies_for, smaller_batch
from trainwiz.core.diagnosis.scan import LogScan, line_of
from trainwiz.core.plan.gather import plan_run
from trainwiz.core.telemetry.diagnosed import diagnose_log
from trainwiz.tui import cli
from trainwiz.tui.choices import parse_choices

from tests.each import each

WILD = {
    "address_already_in_use.txt": "port_in_use", "bf16_unsupported.txt": "bf16_unsupported",
    "disk_full_checkpoint_save.txt": "disk_full", "nccl_watchdog_timeout.txt": "nccl_timeout",
    "oom_single_gpu_sft_lora.txt": "cuda_oom", "save_eval_strategy_mismatch.txt": "config_mismatch",
}  # fmt: skip
RESET = "[pair.cc:537] Read error [127.0.0.1]:31130: Connection reset by peer."
KILLED = "api.py:1002] failed (exitcode: -9) local_rank: 0 (pid: 7)\n  exitcode  : -9 (pid: 7)  (SIGKILL)\n"
WORKER = "DataLoader worker (pid 12) is killed by signal: Killed."


def failure(message: str, kind: str = "RuntimeError", rank: int = 0, time_s: float = 1.0) -> Failure:
    return Failure(rank, kind, message, "Traceback ...", time_s, 12)


def log(text: str) -> LogFacts:
    scan = LogScan("train.log")
    for number, line in enumerate(text.splitlines(), start=1):
        scan.feed(line_of(number, line))
    return scan.facts


def found_in(*failures: Failure, **facts: Any) -> Diagnosis:
    """Of a run that ended with code 1."""
    return diagnose(Evidence("r", 1, failures=failures, **facts))


def test_real_logs(shared_data: Path) -> None:
    folder = shared_data / "wild" / "logs"
    if not folder.is_dir():
        pytest.skip("there are no shared logs")
    assert {path.name for path in folder.iterdir()} == set(WILD)
    for name, cause in WILD.items():
        found = diagnose_log(folder / name)
        assert (found.cause, found.confidence) == (cause, "high"), name
        line = found.evidence[0].line
        assert line is not None
        said = (folder / name).read_text(encoding="utf-8").splitlines()[line - 1]
        assert found.evidence[0].text.partition(": ")[2][:30] in said


@each(("message", "kind", "cause"), [
    ("CUDA out of memory. Tried to allocate 2.00 GiB", "OutOfMemoryError", "cuda_oom"),
    ("", "MemoryError", "host_oom"), (RESET, "RuntimeError", "nccl_error"),
    ("index 3 is out of bounds", "IndexError", "python_error"),
    ("The file x has no column 'seq'; it has a, b.", "UsageError", "config_mismatch"),
])  # fmt: skip
def test_failure_files(message: str, kind: str, cause: str) -> None:
    found = found_in(failure(message, kind))
    assert (found.cause, found.step if kind != "UsageError" else 12, found.rank) == (cause, 12, 0)
    assert found.message.endswith((".", "!"))
    assert "\n" not in found.message
    assert found.evidence[0].source == "failure-rank0.json"
    assert found.remedies


def test_the_code_of_an_own_error_is_the_cause() -> None:
    nan = {"type": "NonFiniteLoss", "message": "第 3 步的损失不是数。", "findings": [{"code": "nan_loss"}], "rank": 1}
    found = found_in(Failure.from_json(nan))
    assert (found.cause, found.rank, found.message) == ("nan_loss", 1, "第 3 步的损失不是数。")
    # Data that is gone is a missing file and not a wrong setting.
    gone = {"type": "UsageError", "message": "no data at 'rows.fasta'", "findings": [{"code": "missing_data"}]}
    found = found_in(Failure.from_json(gone))
    assert found.cause == "missing_file" and found.remedies[0].text.startswith("Restore the file")
    # A failure file from a dying process is enough.
    assert found_in(Failure.from_json({"rank": "x", "message": None, "findings": 3})).cause == "python_error"


def test_the_step_stands_beside_what_happened_and_foreign_text_stays_text() -> None:
    assert found_in(failure(WORKER)).message.startswith("A loader worker was killed after step 12 (")
    assert found_in(oom_kills=2).message == "The machine ran out of RAM."
    assert clean("\x1b[31mred\x1b[0m\ttab\x07") == "red tab" and len(clean("x" * 5000)) == 300
    message = found_in(failure("\x1b]0;title\x07boom\nsecond line")).message
    assert "\x1b" not in message and "second" not in message


def test_a_killed_rank_is_the_cause_and_not_the_connection_that_the_others_lost() -> None:
    lost = failure(RESET, rank=1)
    found = found_in(lost, log=log(KILLED))
    assert (found.cause, found.signal) == ("unknown", "SIGKILL")
    assert "was terminated by an external SIGKILL" in found.message
    assert "Connection reset" in found_in(lost).message
    real = failure("CUDA out of memory", "OutOfMemoryError", rank=1)
    assert found_in(real, lost, log=log(KILLED)).cause == "cuda_oom"


HUNG_UP = """\
RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:63616.
W1122 17057 api.py:1028] Sending process 17133 closing signal SIGTERM
E1122 17057 api.py:1002] failed (exitcode: -1) local_rank: 0 (pid: 17132) of binary: /usr/bin/python
  exitcode  : -1 (pid: 17132)  (SIGHUP)
"""


def test_the_earliest_rank_is_the_cause() -> None:
    loud = failure("[pair.cc:1] Connection closed by peer", rank=0, time_s=7.5)
    late = failure("index 3 is out of bounds", "IndexError", rank=2, time_s=7.4)
    first = failure("CUDA out of memory. Tried to allocate 1 GiB", rank=1, time_s=7.0)
    found = found_in(loud, late, first, log=log("Connection closed by peer"))
    assert (found.cause, found.rank) == ("cuda_oom", 1)
    # Its clock may be behind: a lost connection is never the cause where another failure is known.
    early = failure("[pair.cc:1] Connection closed by peer", rank=0, time_s=1.0)
    assert found_in(early, first).cause == "cuda_oom"


def test_in_a_log_the_rank_that_torchrun_names_is_the_cause() -> None:
    said = """\
[rank0]: Traceback (most recent call last):
[rank1]: Traceback (most recent call last):
[rank0]: ValueError: a consequence
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""
    table = "  rank      : 0 (local_rank: 0)\nRoot Cause (first observed failure):\n  rank      : 1 (local_rank: 1)\n"
    found = diagnose(Evidence(log=log(said + table)))
    assert (found.cause, found.rank, found.evidence[0].line) == ("cuda_oom", 1, 4)
    assert (diagnose(Evidence(log=log(said))).cause, diagnose(Evidence(log=log(said))).rank) == ("python_error", 0)


def test_what_hid_another_exception_is_not_the_cause() -> None:
    text = (
        "Traceback (most recent call last):\n  File 'a'\nKeyError: 'x'\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n  File 'b'\n"
    )
    gone = "FileNotFoundError: [Errno 2] No such file or directory: 'y'"
    assert diagnose(Evidence(log=log(text + gone))).cause == "missing_file"
    assert "ValueError: no column y" in diagnose(Evidence(log=log(text + "ValueError: no column y"))).message


def test_the_kernel_tells_host_memory_from_that_of_the_card() -> None:
    # A kill without a witness is a weak clue in a foreign log only.
    foreign = diagnose(Evidence(log=log(KILLED)))
    assert (foreign.cause, foreign.confidence) == ("host_oom", "low")
    assert found_in(log=log(KILLED), oom_kills=0).cause == "unknown"
    found = found_in(log=log(KILLED), oom_kills=1)
    assert (found.cause, found.confidence) == ("host_oom", "high")
    assert found_in(failure(WORKER), oom_kills=1).cause == "host_oom"
    # It is no cause where the training had failed of itself.
    assert found_in(failure("CUDA out of memory. Tried to allocate 1 GiB"), oom_kills=1).cause == "cuda_oom"
    assert diagnose(Evidence(exit_code=-9, log=log(""), oom_kills=1)).cause == "host_oom"
    said = log("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    assert diagnose(Evidence(exit_code=1, log=said, oom_kills=1)).cause == "cuda_oom"


@each(("evidence", "cause", "said"), [
    (Evidence("r", -9), "unknown", "SIGKILL"),
    (Evidence("r", 1, log=log(" exitcode  : -9 (pid: 4)")), "unknown", "The usual cause is lack of RAM"),
    (Evidence("r", 1, log=log("died with <Signals.SIGSEGV: 11>.")), "unknown", "SIGSEGV"),
    (Evidence("r", 1, log=log(HUNG_UP)), "unknown", "SIGHUP"),
    (Evidence("r", 1, disk_free_bytes=0), "disk_full", "disk is full"),
    (Evidence("r", 0), "unknown", "without reporting that it finished"),
    (Evidence("r", 1, log=log("ValueError: bad thing")), "python_error", "ValueError: bad thing"),
    (Evidence("r", 3, log=log("all quiet")), "unknown", "exit code 3"),
])  # fmt: skip
def test_without_a_failure_file(evidence: Evidence, cause: str, said: str) -> None:
    found = diagnose(evidence)
    assert found.cause == cause
    assert said in found.message


def test_a_worker_that_dies_while_it_hands_over_a_tensor_is_named() -> None:
    said = "[Errno 104] Connection reset by peer"
    for frames, cause in (("_try_get_data resource_sharer", "dataloader_worker_killed"), ("requests", "python_error")):
        assert found_in(Failure(0, "ConnectionResetError", said, frames, 1.0, 2)).cause == cause


def test_an_evaluation_that_runs_out_of_memory_is_told_apart() -> None:
    trace = 'Traceback (most recent call last):\n  File "trainer.py", line 4000, in evaluation_loop\n    x\n'
    found = found_in(Failure(0, "OutOfMemoryError", "CUDA out of memory. Tried", trace, 1.0, 5))
    assert (found.cause, found.during) == ("cuda_oom", "evaluation")
    assert diagnose(Evidence(log=log(trace + "torch.OutOfMemoryError: CUDA out of memory"))).during == "evaluation"


# Each command that a remedy offers is one that trainwiz takes: its real parser reads it, up to the values.


KNOWN = Settings(
    micro_batch=6, accumulation=8, workers=8, sequence_length=512, learning_rate=1e-3, precision="bf16",
    checkpointing=False, again=("--profile", "cpu-demo", "--model", "esm2-tiny", "--set", "training.max_steps=40"),
)  # fmt: skip
PLACES = {
    "a run": Evidence("2026-11-22_0303-cpu-demo", settings=KNOWN),
    "a run in a folder with a space": Evidence(shlex.quote("/tmp/my runs/a"), settings=KNOWN),
    "a run of micro-batch 1": Evidence("r", settings=Settings(micro_batch=1, accumulation=3, workers=1)),
    "a log from elsewhere": Evidence(),
}


@functools.cache
def parsed(command: str) -> tuple[str, dict[str, Any]]:
    """(command, values). Raises UsageError for what it does not take."""
    words = shlex.split(command)
    assert words[0] == "trainwiz"
    return cli.parsed(words[1:])


@functools.cache
def take(command: str) -> None:
    name, values = parsed(command)
    if name in ("", "plan"):
        # The values themselves, as the headless run reads them.
        parse_choices({key: value for key, value in values.items() if key != "verbose"})


@each("cause", CAUSES)
def test_every_command_is_taken_and_a_run_can_be_gone_on_with_or_started_anew(cause) -> None:
    for name, place in PLACES.items():
        remedies = (*remedies_for(cause, place), *remedies_for(cause, place, "evaluation"))
        assert remedies and all(remedy.text for remedy in remedies)
        commands = [remedy.command for remedy in remedies if remedy.command is not None]
        for command in commands:
            take(command)
        if name == "a run" and cause != "deepspeed_mismatch":
            assert any(" runs resume " in command or command.endswith("--yes") for command in commands), commands


def test_half_the_micro_batch_is_the_same_batch() -> None:
    halved = {(6, 8): (3, 16), (8, 1): (4, 2), (5, 8): (2, 20), (7, 3): (3, 7), (2, 1): (1, 2)}
    halved |= dict.fromkeys(((1, 8), (None, 8)))
    assert {pair: smaller_batch(Settings(*pair)) for pair in halved} == halved


def test_the_numbers_are_those_of_the_run() -> None:
    remedy = remedies_for("cuda_oom", PLACES["a run"])[0]
    assert remedy.command == (
        "trainwiz --profile cpu-demo --model esm2-tiny --set training.max_steps=40 --micro-batch 3 --accumulation 16 --yes"
    )
    found = Diagnosis("cuda_oom", "high", "", (), (remedy,))
    assert found.remedy == f"{remedy.text} {remedy.command}", "state.json and the end of a run say it with its command"
    _, values = parsed(remedy.command)
    plan = plan_run(parse_choices(values).request)
    assert (plan.batch.micro_batch, plan.batch.accumulation) == (3, 16)
    assert plan.config.value("training.max_steps") == 40
