"""The monitor on a live process with GPUs: the real nvidia-ml-py over a fake driver that fails in the ways real ones do."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from textual.pilot import Pilot
from trainwiz.core.telemetry.discovery import find_target
from trainwiz.tui.screens.monitor import MonitorScreen
from trainwiz.tui.widgets.device_panel import DevicePanel

from tests.fakes.nvml import GIB, FakeGpu, FakeNvml
from tests.fakes.nvml.fixtures import fake_nvml, fake_nvml_library  # noqa: F401 - fixtures
from tests.tui.test_monitor import looked, until
from tests.tui.test_monitor_foreign import app_of
from tests.tui.test_monitor_panels import text_of

WIDE = (140, 40)


@pytest.fixture
def job() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    time.sleep(0.3)
    yield process
    process.kill()
    process.wait()


def card(number: int, **changes: object) -> FakeGpu:
    values = {
        "name": "NVIDIA GeForce RTX 3090",
        "uuid": f"GPU-{number}",
        "memory_total": 24 * GIB,
        "memory_used": (6 + number) * GIB,
        "utilization": 90 + number,
        "temperature": 70 + number,
        "power": 300.0,
        "power_limit": 350.0,
    }
    return FakeGpu(**{**values, **changes})  # type: ignore[arg-type]


async def panel_of(pilot: Pilot, cards: int) -> DevicePanel:
    screen = await looked(pilot)
    await until(pilot, lambda: screen.snapshot is not None and len(screen.snapshot.gpus) == cards)
    await pilot.pause(0.1)
    return screen.query_one(DevicePanel)


async def test_memory_of_this_job_apart_from_others(
    job: subprocess.Popen[bytes],
    fake_nvml: FakeNvml,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_nvml.write([card(0, memory_used=20 * GIB, processes={job.pid: 5 * GIB, 1: 13 * GIB})])
    fake_nvml.load_here(monkeypatch)
    async with app_of(find_target(str(job.pid))).run_test(size=WIDE) as pilot:
        panel = await panel_of(pilot, 1)
        text = panel.content().plain
        assert "20.0 of 24.0 GiB" in text
        assert "this job 5.0   others 13.0   driver 2.0" in text
        assert "300 of 350 W" in text and "70 °C" in text
        assert "1,400 of 1,980 MHz   fan 30 %" in text
        await pilot.press("3", "enter")
        await pilot.pause(0.2)
        lines = [line for line in text_of(pilot).splitlines() if "GiB  " in line]
        assert any(str(job.pid) in line and "this job" in line and "5.0 GiB" in line for line in lines)
        assert any(" 1 " in line and "other" in line and "13.0 GiB" in line for line in lines)


async def test_failures_of_one_card_hide_no_other_and_pass(
    job: subprocess.Popen[bytes],
    fake_nvml: FakeNvml,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cards = [card(0, processes={job.pid: 5 * GIB}), card(1, unsupported=["fan"]), card(2)]
    fake_nvml.write(cards)
    fake_nvml.load_here(monkeypatch)
    async with app_of(find_target(str(job.pid))).run_test(size=WIDE) as pilot:
        panel = await panel_of(pilot, 3)
        assert [line.split()[0] for line in panel.content().plain.splitlines()] == ["0", "1", "2"]
        fake_nvml.write([cards[0], card(1, lost=True), cards[2]])
        await until(pilot, lambda: "!" in panel.content().plain.splitlines()[1])
        first, second, third = panel.content().plain.splitlines()
        assert "6.0 of 24.0 GiB" in first and "8.0 of 24.0 GiB" in third
        assert "GiB" not in second
        fake_nvml.write(cards)
        await until(pilot, lambda: all("GiB" in line for line in panel.content().plain.splitlines()))


async def test_a_card_without_a_fan_says_why(
    job: subprocess.Popen[bytes],
    fake_nvml: FakeNvml,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_nvml.write([card(0, unsupported=["fan", "power"], processes={job.pid: 5 * GIB})])
    fake_nvml.load_here(monkeypatch)
    async with app_of(find_target(str(job.pid))).run_test(size=WIDE) as pilot:
        panel = await panel_of(pilot, 1)
        assert "power" in panel.content().plain and "not readable" in panel.content().plain
        await pilot.press("3", "enter")
        await pilot.pause(0.2)
        text = text_of(pilot)
        assert "fan: " in text and "power: " in text


async def test_eight_cards_at_every_size(
    job: subprocess.Popen[bytes],
    fake_nvml: FakeNvml,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_nvml.write([card(number, processes={job.pid: 5 * GIB}) for number in range(8)])
    fake_nvml.load_here(monkeypatch)
    async with app_of(find_target(str(job.pid))).run_test(size=WIDE) as pilot:
        panel = await panel_of(pilot, 8)
        screen = pilot.app.screen
        assert isinstance(screen, MonitorScreen)
        for size in ((60, 20), (80, 24), (120, 40)):
            await pilot.resize_terminal(*size)
            await pilot.press("3")
            await pilot.pause(0.1)
            rows = panel.content().plain.splitlines()
            assert [row[0] for row in rows] == list("01234567")
            assert all(f"{6 + number}.0 of 24.0 GiB" in row for number, row in enumerate(rows))
            await pilot.press("escape")
        await pilot.resize_terminal(80, 24)
        await pilot.pause(0.1)
        # Without a line for each, a cell for each: its number apart from the figures, which the title names.
        assert "busy, GiB" in str(panel.border_title)
        assert "0: 90%  6.0 1: 91%  7.0 2:" in panel.content().plain
        await pilot.resize_terminal(*WIDE)
        await pilot.pause(0.1)
        assert "busy, GiB" not in str(panel.border_title)


async def test_a_card_that_is_used_whole_says_nothing_of_slices(
    job: subprocess.Popen[bytes],
    fake_nvml: FakeNvml,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_nvml.write([card(0, mig=False, processes={job.pid: 5 * GIB})])
    fake_nvml.load_here(monkeypatch)
    async with app_of(find_target(str(job.pid))).run_test(size=WIDE) as pilot:
        panel = await panel_of(pilot, 1)
        assert "MIG" not in str(panel.border_title)


def test_slices_are_no_cards_of_their_own() -> None:
    from dataclasses import replace

    from trainwiz.tui.widgets.device_panel import _cards_line, _gpus

    from tests.core.telemetry.test_advice import CARD

    card = replace(CARD, mig="enabled", memory_used_bytes=20 * GIB, utilization_percent=None)
    parts = [
        replace(CARD, mig="1g.10gb", uuid=name, memory_used_bytes=size * GIB) for name, size in (("a", 4), ("b", 6))
    ]
    assert _gpus((card, *parts)) == "1 GPU, 2 MIG slices"
    assert _gpus((CARD, replace(CARD, index=1))) == "2 GPUs"
    assert "4.0 to 6.0 GiB" in _cards_line((card, *parts), "").plain
