"""Every saying is diagnosed as what it means, however it is dressed up or damaged; what was survived is no cause."""

import io
import json
import random
import unicodedata
from pathlib import Path

import pytest
from trainwiz.core.diagnosis.cause import CAUSES, Diagnosis, Evidence, Failure
from trainwiz.core.diagnosis.diagnose import diagnose
from trainwiz.core.diagnosis.scan import SURVIVED_AFTER, LogScan, lines_in
from trainwiz.core.diagnosis.sources import NotALogError, read_log, scan_stream

from tests.core.diagnosis.sayings import HARMLESS, SAYINGS
from tests.each import each

HEALTHY = "".join(f"{{'loss': {3 - step / 100:.2f}, 'epoch': {step / 100}}}\n" for step in range(40))
FINISH = "{'train_runtime': 124.1, 'train_loss': 1.9, 'epoch': 1.0}\n"


def of(text: str | bytes) -> Diagnosis:
    data = text.encode() if isinstance(text, str) else text
    return diagnose(Evidence(log=scan_stream(io.BytesIO(data), "x.log")))


@each("name", SAYINGS)
def test_a_saying_means_its_cause_also_behind_a_long_healthy_part(name: str) -> None:
    cause, text = SAYINGS[name]
    found = of(text)
    assert found.cause == cause, found
    assert found.evidence
    assert all(proof.source == "x.log" and proof.line for proof in found.evidence)
    assert found.message.endswith((".", "!"))
    assert found.remedies
    found = of(HEALTHY * 3 + text)
    assert found.cause == cause
    assert all(proof.line is not None and proof.line > 120 for proof in found.evidence) or cause == "unknown"


def test_each_cause_has_sayings_and_one_is_found_behind_very_much(tmp_path: Path) -> None:
    assert {cause for cause, _ in SAYINGS.values()} == set(CAUSES)
    assert len(SAYINGS) >= 90
    (tmp_path / "a.log").write_text(HEALTHY * 150 + SAYINGS["torch 2 OOM"][1])
    assert diagnose(Evidence(log=read_log(tmp_path / "a.log"))).evidence[0].line == 150 * 40 + 4
    # Its last bytes tell how it ended.
    assert diagnose(Evidence(log=read_log(tmp_path / "a.log", last_bytes=4_000))).cause == "cuda_oom"


def test_a_runtime_beside_each_loss_is_no_end() -> None:
    """transformers writes it there where the Trainer counts its tokens (include_num_input_tokens_seen)."""
    counted = HEALTHY.replace(
        "}", ", 'num_input_tokens_seen': 900, 'train_runtime': 3.1, 'train_tokens_per_second': 290.0}"
    )
    assert of(counted).cause == "unknown" and of(counted + FINISH).cause is None
    assert of(SAYINGS["torch 2 OOM"][1] + "\n" + counted.splitlines()[0]).cause == "cuda_oom"


def test_an_exception_that_many_meet_has_its_own_remedy() -> None:
    said = {
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).": "driver",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device": "torch built for this GPU",
        "OSError: You are trying to access a gated repo.\n401 Client Error.": "hf auth login",
        "RuntimeError: \n    CUDA Setup failed despite GPU being available.": "python -m bitsandbytes",
        "ModuleNotFoundError: No module named 'peft'": "missing module",
    }
    firsts = {text: of(f"Traceback (most recent call last):\n{text}\n").remedies[0].text for text in said}
    assert {text: words for text, words in said.items() if words not in firsts[text]} == {}, firsts


def each_line(text: str, before: str, after: str = "") -> str:
    return "".join(f"{before}{line}{after}\n" for line in text.splitlines())


def ranked(text: str) -> str:
    return each_line(text, "[rank3]: ")


DRESSES = (
    ranked, lambda text: each_line(text, "2024-06-18 03:34:24,390 - ERROR - "),
    lambda text: each_line(text, "\x1b[31m", "\x1b[0m"),
    lambda text: json.dumps({"level": "error", "ts": 1.5, "message": text}) + "\n",
    # From Windows.
    lambda text: text.replace("\n", "\r\n").encode("utf-16"),
)  # fmt: skip
NAKED = {"shell", "shell, Chinese", "nan printed", "trainer zero", "kubernetes", "docker", "tensor printed"}
"""What no logger dresses up: lines of shells and of print."""
DRESSED = [name for name in SAYINGS if name not in NAKED | {"nothing", "argparse"}]


@each("dress", DRESSES)
@each("name", DRESSED)
def test_a_dress_changes_nothing(name: str, dress) -> None:
    cause, text = SAYINGS[name]
    assert of(dress(text)).cause == cause


@each("name", HARMLESS)
def test_harmless_words_are_no_cause(name: str) -> None:
    assert (of(HARMLESS[name]).cause, of(HARMLESS[name]).confidence) == ("unknown", "low")
    assert of(HEALTHY + HARMLESS[name] + HEALTHY + FINISH).cause is None
    assert of(HEALTHY + HARMLESS[name]).cause == "unknown"


@each("name", [name for name, (cause, _) in SAYINGS.items() if cause != "nan_loss"])
def test_what_the_training_survived_is_no_cause(name: str) -> None:
    """A batch size that is searched for, a download that is tried again: the training went on."""
    assert of(HEALTHY + SAYINGS[name][1] + "\n" + HEALTHY + FINISH).cause is None
    assert of(HEALTHY + SAYINGS[name][1] + "\n" + HEALTHY).cause == "unknown"


@each(("text", "cause"), [
    # A gradient that overflowed once is no NaN loss; a failure after the end is one.
    (HEALTHY + "{'loss': 2.1, 'grad_norm': nan, 'epoch': 0.5}\n", "unknown"),
    (HEALTHY + "{'loss': nan, 'grad_norm': nan, 'epoch': 0.5}\n" + HEALTHY + FINISH, None),
    (HEALTHY + FINISH + SAYINGS["ENOSPC"][1], "disk_full"),
    # What copytruncate leaves of a log that goes on. Chinese of an older system.
    (b"\0" * 300_000 + SAYINGS["ENOSPC"][1].encode(), "disk_full"),
    (("开始训练\n" * 50 + "OSError: [WinError 1455] 页面文件太小，无法完成操作。\n").encode("gb18030"), "host_oom"),
])  # fmt: skip
def test_what_whole_logs_mean(text: str | bytes, cause: str | None) -> None:
    found = of(text)
    assert found.cause == cause
    assert cause != "host_oom" or "页面文件太小" in found.evidence[0].text


NCCL = "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1, unhandled system error"


def causes(*lines: str) -> list[str]:
    scan = LogScan()
    for number, line in enumerate(lines, 1):
        for one in lines_in(number, line):
            scan.feed(one)
    return [hit.cause for hit in scan.facts.hits]


def bar(step: int) -> str:
    return f" {step}%|#    | {step}/100 [00:01<00:19,  4.9it/s]"


@each("after", [SURVIVED_AFTER - 1, SURVIVED_AFTER])
def test_so_many_steps_later_it_is_survived(after: int) -> None:
    expected = [] if after == SURVIVED_AFTER else ["nccl_error"]
    assert causes(bar(7), NCCL, *(bar(8 + step) for step in range(after))) == expected
    assert causes(NCCL, *(f"{{'loss': 2.5, 'epoch': {step}}}" for step in range(after))) == expected
    assert causes(bar(7), NCCL, *[bar(7)] * 20) == ["nccl_error"], "a bar that is drawn again is no step"


def test_the_rank_of_a_prefix_and_the_first_of_the_table_is_named(tmp_path: Path) -> None:
    assert of(ranked(SAYINGS["torch 2 OOM"][1])).rank == 3
    log, earlier = tmp_path / "train.log", "one\ntwo\n"
    log.write_text(f"{earlier}Root Cause (first observed failure):\n  rank      : 1 (local_rank: 1)\n  rank : 0\n")
    facts = read_log(log, len(earlier))
    assert (facts.root.rank, facts.root.number) == (1, 4), "lines count from the beginning of the file"


TEXTS = [*(text for _, text in SAYINGS.values()), *HARMLESS.values()]


def damaged(dice: random.Random) -> bytes:
    log = bytearray("\n".join(dice.sample(TEXTS, dice.randint(1, 6))).encode())
    for _ in range(dice.randint(0, 40)):
        place = dice.randrange(len(log))
        log[place : place + dice.randint(0, 4)] = dice.randbytes(dice.randint(0, 4))
    return bytes(log)


@each("seed", range(60))
def test_a_damaged_log_gets_an_answer(seed: int) -> None:
    with pytest.raises(NotALogError):
        scan_stream(io.BytesIO(random.Random(seed).randbytes(5_000)), "x")
    dice = random.Random(seed)
    data = damaged(dice)
    try:
        facts = scan_stream(io.BytesIO(data), "x.log")
    except NotALogError:
        return
    failure = Failure(0, "E", data[:200].decode("utf-8", "replace"), "", 1.0, None)
    run, code = dice.choice([None, "r"]), dice.choice([None, 0, 1, -9, -77, 137])
    failures = (failure,) if dice.random() < 0.3 else ()
    found = diagnose(Evidence(run, code, failures, facts, dice.randint(0, 1)))
    for text in (found.message, *(proof.text for proof in found.evidence)):
        assert not [letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Cs")], text
    lines = data.count(b"\n") + 1
    assert all(proof.line is None or 1 <= proof.line <= lines for proof in found.evidence)
