"""What a run held on the GPUs, and whether it was given back: a fake libnvidia-ml.so.1 under the real nvidia-ml-py."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import pytest
from trainwiz.core.hardware import nvml as nvml_module
from trainwiz.core.supervise import recorder as gpu_ledger
from trainwiz.core.supervise.ending import GpuLedger, verified_words, verify_gone
from trainwiz.core.telemetry.gpu import GpuSampler

from tests.fakes.nvml import GIB, MIB, FakeGpu, FakeNvml
from tests.fakes.nvml.fixtures import fake_nvml, fake_nvml_library  # noqa: F401

OURS, ANOTHER = 4_000_001, 4_000_002
DESKTOP = 300 * MIB


@pytest.fixture
def nvml(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:  # noqa: F811
    fake_nvml.load_here(monkeypatch)
    return fake_nvml


def card(used: int = DESKTOP, processes: dict[int, int] | None = None, **more: Any) -> FakeGpu:
    return FakeGpu(uuid="GPU-one", memory_used=used, processes=processes or {}, **more)


def noted(nvml: FakeNvml, *cards: FakeGpu, own: tuple[int, ...] = (OURS,)) -> tuple[GpuLedger, GpuSampler]:
    """A ledger that was told of the cards as they were one after the other."""
    ledger, sampler = GpuLedger(), GpuSampler()
    for one in cards:
        nvml.write([one])
        gpus, _ = sampler.sample()
        ledger.note({"gpus": gpus, "processes": [{"pid": pid} for pid in own]})
    return ledger, sampler


def test_memory_that_is_given_back_late_is_waited_for(nvml: FakeNvml) -> None:
    ledger, sampler = noted(nvml, card(), card(7 * GIB + DESKTOP, {OURS: 7 * GIB, ANOTHER: 100 * MIB}))
    assert ledger.held == {"GPU-one": 7 * GIB}
    threading.Timer(0.7, lambda: nvml.write([card(processes={ANOTHER: 100 * MIB})])).start()
    began = time.monotonic()
    found = ledger.check(sampler.sample, patience_s=5.0)
    assert (found.verdict, found.held_bytes) == ("free", 7 * GIB)
    assert 0.5 < time.monotonic() - began < 4.0
    assert verified_words([], found) == "No process of the run is left, and its 7.0 GiB on the GPU are free again."


def test_a_process_that_stays_on_the_card_is_named(nvml: FakeNvml) -> None:
    ledger, sampler = noted(nvml, card(), card(7 * GIB, {OURS: 6 * GIB}))
    found = ledger.check(sampler.sample, patience_s=0.0)
    assert (found.verdict, found.pids_left) == ("held", (OURS,))
    assert f"Process {OURS} is still named on a GPU, with 6.0 GiB" in verified_words([], found)


def test_where_the_driver_names_no_process_of_ours_the_card_is_compared_with_before(nvml: FakeNvml) -> None:
    ledger, sampler = noted(nvml, card(), card(5 * GIB + DESKTOP, {ANOTHER: 5 * GIB}))
    assert ledger.held == {"GPU-one": 5 * GIB}
    found = ledger.check(sampler.sample, patience_s=0.0)
    assert found.verdict == "unclear"
    assert "GPU 0 holds 5.0 GiB more than before the run" in found.reason
    nvml.write([card()])
    found = ledger.check(sampler.sample, patience_s=0.0)
    assert found.verdict == "free"


def test_what_was_held_is_remembered_when_samples_go_on(nvml: FakeNvml) -> None:
    ledger, sampler = noted(nvml, card(), card(7 * GIB, {OURS: 6 * GIB}), card())
    found = ledger.check(sampler.sample, patience_s=0.0)
    assert (found.verdict, found.held_bytes) == ("free", 6 * GIB)


def test_a_lost_card_and_a_driver_without_an_answer_are_no_free_memory(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, sampler = noted(nvml, card(), card(7 * GIB, {OURS: 6 * GIB}))
    nvml.write([card(7 * GIB, lost=True)])
    found = ledger.check(sampler.sample, patience_s=0.0)
    assert found.verdict == "not_checked" and "GPU-one could not be looked at" in found.reason
    monkeypatch.setattr(nvml_module, "_hangs", False)
    monkeypatch.setattr(gpu_ledger, "DRIVER_ANSWERS_WITHIN_S", 0.1)
    found = ledger.check(lambda: (time.sleep(1.0), ([], {}))[1], patience_s=0.0)
    assert found.verdict == "not_checked" and "did not answer in time" in found.reason


def test_a_driver_that_does_not_let_itself_be_closed_holds_up_no_last_word(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, _ = noted(nvml, card(), card(7 * GIB, {OURS: 6 * GIB}))
    nvml.write([card()])
    released = threading.Event()
    monkeypatch.setattr(GpuSampler, "close", lambda self: released.wait(30.0))
    monkeypatch.setattr(nvml_module, "ANSWER_S", 0.1)
    monkeypatch.setattr(nvml_module, "_hangs", False)
    began = time.monotonic()
    found = verify_gone("no such mark", os.getpid(), (), ledger)
    released.set()
    assert found["gpu"]["verdict"] == "free"
    assert time.monotonic() - began < 20.0


def test_a_run_that_held_nothing_on_a_gpu_is_not_looked_for_there(nvml: FakeNvml) -> None:
    ledger, sampler = noted(nvml, card(), card(DESKTOP + 100 * MIB, {ANOTHER: 100 * MIB}))
    assert ledger.check(sampler.sample) is None
    assert verified_words([], None) == "No process of the run is left."


def test_processes_that_hang_in_the_kernel_are_told(nvml: FakeNvml) -> None:
    assert "could not be ended: 12, 13. They go when their driver or disk answers" in verified_words([12, 13], None)
