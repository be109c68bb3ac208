"""Every saying is diagnosed as what it means, however a launcher or a file system dresses it up."""

from __future__ import annotations

import io
import json

from trainwiz.core.diagnosis.cause import CAUSES, Diagnosis, Evidence
from trainwiz.core.diagnosis.diagnose import diagnose
from trainwiz.core.diagnosis.log_file import scan_stream

from tests.core.diagnosis.sayings import HARMLESS, SAYINGS
from tests.each import each

HEALTHY = "".join(f"{{'loss': {3 - step / 100:.2f}, 'epoch': {step / 100}}}\n" for step in range(40))
FINISH = "{'train_runtime': 124.1, 'train_loss': 1.9, 'epoch': 1.0}\n"


def of(text: str | bytes) -> Diagnosis:
    data = text.encode() if isinstance(text, str) else text
    return diagnose(Evidence(log=scan_stream(io.BytesIO(data), "x.log")))


def test_each_cause_has_sayings() -> None:
    assert {cause for cause, _ in SAYINGS.values()} == set(CAUSES)
    assert len(SAYINGS) >= 90


@each("name", SAYINGS)
def test_a_saying_means_its_cause(name: str) -> None:
    cause, text = SAYINGS[name]
    found = of(text)
    assert found.cause == cause, found
    assert found.evidence
    assert all(proof.source == "x.log" and proof.line for proof in found.evidence)
    assert found.message.endswith((".", "!"))
    assert found.remedies


@each("name", SAYINGS)
def test_the_same_behind_a_long_healthy_part_and_with_a_line_number(name: str) -> None:
    cause, text = SAYINGS[name]
    found = of(HEALTHY * 20 + text)
    assert found.cause == cause
    assert all(proof.line is not None and proof.line > 800 for proof in found.evidence) or cause == "unknown"


def ranked(text: str) -> str:
    return "".join(f"[rank3]: {line}\n" for line in text.splitlines())


def timed(text: str) -> str:
    return "".join(f"2024-06-18 03:34:24,390 - ERROR - {line}\n" for line in text.splitlines())


def coloured(text: str) -> str:
    return "".join(f"\x1b[31m{line}\x1b[0m\n" for line in text.splitlines())


def as_json(text: str) -> str:
    return json.dumps({"level": "error", "ts": 1.5, "message": text}) + "\n"


def from_windows(text: str) -> bytes:
    return text.replace("\n", "\r\n").encode("utf-16")


DRESSES = (ranked, timed, coloured, as_json, from_windows)
NAKED = (
    "shell",
    "shell, Chinese",
    "nan printed",
    "trainer zero",
    "kubernetes",
    "docker",
    "tensor printed",
    "nothing",
    "argparse",
)
"""What no logger dresses up: lines of shells and of print."""


@each("dress", DRESSES)
@each("name", [name for name in SAYINGS if name not in NAKED])
def test_a_dress_changes_nothing(name: str, dress) -> None:
    cause, text = SAYINGS[name]
    assert of(dress(text)).cause == cause


def test_the_rank_of_a_prefix_is_named() -> None:
    assert of(ranked(SAYINGS["torch 2 OOM"][1])).rank == 3


@each("name", HARMLESS)
def test_harmless_words_are_no_cause(name: str) -> None:
    assert of(HARMLESS[name]).cause == "unknown", of(HARMLESS[name])
    assert of(HARMLESS[name]).confidence == "low"
    assert of(HEALTHY + HARMLESS[name] + HEALTHY + FINISH).cause is None
    assert of(HEALTHY + HARMLESS[name]).cause == "unknown"


@each("name", [name for name, (cause, _) in SAYINGS.items() if cause != "nan_loss"])
def test_what_the_training_survived_is_no_cause(name: str) -> None:
    """A batch size that is searched for, a download that is tried again: the training went on."""
    assert of(HEALTHY + SAYINGS[name][1] + "\n" + HEALTHY + FINISH).cause is None
    assert of(HEALTHY + SAYINGS[name][1] + "\n" + HEALTHY).cause == "unknown"


def test_a_gradient_that_overflowed_once_is_no_nan_loss() -> None:
    assert of(HEALTHY + "{'loss': 2.1, 'grad_norm': nan, 'epoch': 0.5}\n").cause == "unknown"
    assert of(HEALTHY + "{'loss': nan, 'grad_norm': nan, 'epoch': 0.5}\n" + HEALTHY + FINISH).cause is None


def test_a_failure_after_the_end_is_one() -> None:
    assert of(HEALTHY + FINISH + SAYINGS["ENOSPC"][1]).cause == "disk_full"
