"""Rates of this machine: measured by a real process on this CPU, kept, and renewed with the libraries."""

import math
from dataclasses import replace
from unittest.mock import Mock

import psutil
import pytest
from trainwiz.core.errors import CannotRunError
from trainwiz.core.estimate.evidence import Evidence
from trainwiz.core.hardware.machine import Libraries, Machine, ProductRate, Rates, product_rate
from trainwiz.core.hardware.read import probe_machine
from trainwiz.core.history import rates as module
from trainwiz.core.history.measurement import device_key, rates_for
from trainwiz.core.history.rates import METHOD, keep_rates, kept_rates, measure_rates, rates_path

from tests.core.history.measurements import HERE
from tests.core.plan.machines import config, machine, plan, real

WITH_TORCH = replace(HERE, libraries=Libraries({"torch": "2.13.0"}))
SOME = Rates(
    device=device_key(HERE, "cpu") or "", threads=8, products=(ProductRate("fp32", 256, 128, 1e11),), attention=(),
    bytes_per_s=2e10, launch_s=4e-6, adam_parameters_per_s=1e9, day="2026-11-26",
    versions={"torch": "2.13.0", "method": METHOD},
)  # fmt: skip


def test_rates_are_loaded_for_their_device_threads_and_libraries_alone() -> None:
    keep_rates(replace(SOME, bytes_per_s=1e9))
    keep_rates(SOME)
    keep_rates(replace(SOME, threads=2))
    newer = replace(WITH_TORCH, libraries=Libraries({"torch": "2.14.0"}))
    others = (newer, replace(WITH_TORCH, hypothetical=True), replace(WITH_TORCH, cpu_cores=9))
    assert kept(WITH_TORCH, 8) == SOME
    assert [kept(WITH_TORCH, 4), *(kept(other, 8) for other in others)] == [None] * 4
    renewed = replace(SOME, day="2026-12-01", versions={"torch": "2.14.0", "method": METHOD})
    keep_rates(renewed)
    assert kept(newer, 8) == renewed and kept(WITH_TORCH, 8) is None


def test_a_broken_file_is_no_file_and_a_broken_part_no_part() -> None:
    keep_rates(SOME)
    whole = rates_path().read_text()
    broken = whole.replace('"launch_s": 4e-06', '"launch_s": "fast"'), whole.replace('"2026-11-26"', '"2026\\u001b"')
    for text in ("", "{", "[]", '{"rates": 3}', whole[:-9], *broken):
        rates_path().write_text(text)
        assert kept(WITH_TORCH, 8) is None, text
    rates_path().write_text(whole.replace('"rates": [', '"rates": [{"device": 1},'))
    assert kept(WITH_TORCH, 8) == SOME


def kept(machine: Machine, threads: int) -> Rates | None:
    return rates_for(kept_rates(machine), machine, "cpu", (), threads)


@pytest.fixture(scope="module")
def here() -> Machine:
    return probe_machine()


def test_this_cpu_is_measured(here: Machine) -> None:
    alone = measure_rates(here, "cpu", (), 2, limit_s=0.5)
    assert (alone.device, alone.threads) == (device_key(here, "cpu"), 2) and alone.versions["torch"]
    for name in ("bytes_per_s", "launch_s", "adam_parameters_per_s"):
        assert 0 < getattr(alone, name) < math.inf
    assert any(one.rows == 128 and one.format == "fp32" for one in alone.attention)
    assert (product_rate(alone.products, "fp32", 1000, 500) or 0) > 1e8
    assert Rates.from_json(alone.to_json()) == alone


def test_a_cancelled_measuring_is_a_sentence_and_leaves_no_process(here: Machine) -> None:
    with pytest.raises(CannotRunError, match="not measured: it was canceled"):
        measure_rates(here, "cpu", (), 1, is_cancelled=Mock(side_effect=[False, False, True]))
    running = [" ".join(process.cmdline()) for process in psutil.Process().children(recursive=True)]
    assert not [words for words in running if "training.rates" in words]


def test_what_cannot_be_measured_is_one_sentence(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CannotRunError, match=r"not installed \(torch\).* pip install 'trainwiz\[train\]'"):
        measure_rates(replace(here, libraries=Libraries({}), installer="pip install"), "cpu", (), 1)
    monkeypatch.setattr(module.sys, "executable", "/bin/false")
    with pytest.raises(CannotRunError, match="the process ended without a result"):
        measure_rates(here, "cpu", (), 1)


def test_a_plan_takes_the_rates_of_its_threads() -> None:
    here = real(machine(gpu=None, cores=8), torch="2.13.0")
    of_here = replace(SOME, device=device_key(here, "cpu") or "")
    of_two = replace(of_here, threads=2)
    known = Evidence(kept_rates=(of_two, of_here))
    for threads, rates in ((None, of_here), (2, of_two), (3, None)):
        assert plan(here, config(engine__cpu_threads=threads), evidence=known).evidence.rates == rates
