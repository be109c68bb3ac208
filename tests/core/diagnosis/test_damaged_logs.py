"""Damaged, mixed and random bytes: always an answer or a refusal, never an exception, never a control character."""

from __future__ import annotations

import io
import random
import unicodedata

import pytest
from trainwiz.core.diagnosis.cause import Evidence, Failure, KernelFacts
from trainwiz.core.diagnosis.diagnose import diagnose
from trainwiz.core.diagnosis.log_file import NotALogError, scan_stream

from tests.core.diagnosis.sayings import HARMLESS, SAYINGS
from tests.each import each

TEXTS = [*(text for _, text in SAYINGS.values()), *HARMLESS.values()]


def damaged(dice: random.Random) -> bytes:
    log = bytearray("\n".join(dice.sample(TEXTS, dice.randint(1, 6))).encode())
    for _ in range(dice.randint(0, 40)):
        place = dice.randrange(len(log))
        log[place : place + dice.randint(0, 4)] = dice.randbytes(dice.randint(0, 4))
    return bytes(log)


@each("seed", range(150))
def test_a_damaged_log_gets_an_answer(seed: int) -> None:
    dice = random.Random(seed)
    data = damaged(dice)
    try:
        facts = scan_stream(io.BytesIO(data), "x.log")
    except NotALogError:
        return
    failure = Failure(0, "E", data[:200].decode("utf-8", "replace"), "", 1.0, None)
    evidence = Evidence(
        dice.choice([None, "r"]),
        dice.choice([None, 0, 1, -9, -77, 137]),
        (failure,) if dice.random() < 0.3 else (),
        facts,
        KernelFacts(True, dice.randint(0, 1)),
    )
    found = diagnose(evidence)
    for text in (found.message, *(proof.text for proof in found.evidence)):
        assert not [letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Cs")], text
    lines = data.count(b"\n") + 1
    assert all(proof.line is None or 1 <= proof.line <= lines for proof in found.evidence)


def test_noise_is_no_text() -> None:
    for seed in range(20):
        with pytest.raises(NotALogError):
            scan_stream(io.BytesIO(random.Random(seed).randbytes(50_000)), "x")


def test_a_log_with_a_hole_at_its_front_is_read() -> None:
    """What copytruncate leaves of a log that goes on."""
    text = b"\0" * 300_000 + SAYINGS["ENOSPC"][1].encode()
    assert diagnose(Evidence(log=scan_stream(io.BytesIO(text), "x"))).cause == "disk_full"


def test_chinese_of_an_older_system_is_read() -> None:
    text = ("开始训练\n" * 50 + "OSError: [WinError 1455] 页面文件太小，无法完成操作。\n").encode("gb18030")
    found = diagnose(Evidence(log=scan_stream(io.BytesIO(text), "x")))
    assert found.cause == "host_oom"
    assert "页面文件太小" in found.evidence[0].text
