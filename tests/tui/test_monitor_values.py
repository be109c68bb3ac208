"""What the panels of the monitor say of a look, as values: no terminal, no screen."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from textual.content import Content
from trainwiz.core.language import use_language
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.telemetry.discovery import find_target
from trainwiz.core.telemetry.snapshot import Planned, ProcessReading, Snapshot
from trainwiz.core.telemetry.target import Target, open_source
from trainwiz.tui.screens.monitor_cards import gpu_page
from trainwiz.tui.theme import UNICODE_MARKS, ascii_text, marks
from trainwiz.tui.widgets.device_panel import DevicePanel, _cards_line, _gpus
from trainwiz.tui.widgets.host_panel import HostPanel, MonitorSummary, PacePanel
from trainwiz.tui.widgets.monitor_panel import AdvicePanel, MonitorPanel
from trainwiz.tui.widgets.run_header import RunHeader, origin_words

from tests.core.telemetry.test_advice import CARD
from tests.core.telemetry.written_run import NOW_S, system_row, write_json, write_lines, write_run
from tests.each import each
from tests.fakes.nvml import GIB, FakeGpu, FakeNvml
from tests.fakes.nvml.fixtures import fake_nvml, fake_nvml_library  # noqa: F401 - fixtures
from tests.tui.monitor_states import STATES, RecordedProcess, target_of

PANELS: tuple[type[MonitorPanel], ...] = (DevicePanel, HostPanel, PacePanel, AdvicePanel)


def look_at(target: Target | Path) -> Snapshot:
    """One whole look, with a frozen clock."""
    target = Target.of_run(RunFolder(target)) if isinstance(target, Path) else target
    source = RecordedProcess(target) if target.kind == "process" else open_source(target, clock=lambda: NOW_S)
    snapshot = source.read_all()
    source.close()
    return snapshot


def lines_of(panel: type[MonitorPanel], snapshot: Snapshot, width: int = 56, height: int = 8, **more: Any) -> list[str]:
    return [line.plain for line in panel("", **more).lines(snapshot, width, height)]


def text_of(panel: type[MonitorPanel], snapshot: Snapshot, width: int = 56, height: int = 8) -> str:
    return "\n".join(lines_of(panel, snapshot, width, height))


def title_of(panel: type[MonitorPanel], snapshot: Snapshot) -> str:
    return panel("RAM and disk").title_of(snapshot)


def header_of(snapshot: Snapshot, width: int = 118) -> str:
    header = RunHeader(snapshot.name)
    header.snapshot = snapshot
    return "\n".join(line.plain for line in header.lines_at(width))


def summary_of(snapshot: Snapshot, width: int = 58) -> list[str]:
    return [line.plain for line in MonitorSummary().lines(snapshot, width, 4)]


def test_a_running_run_at_a_glance(tmp_path: Path) -> None:
    snapshot = look_at(write_run(tmp_path / "uniref-650m-0412", nan_at=(812,), throttled=True))
    header = header_of(snapshot)
    assert "uniref-650m-0412" in header
    assert "● running · step 1,600 of 500,000 · epoch 0.4 · finishes in 12 years" in header
    assert "0.3% · 742 s/step" in header
    device, pace = text_of(DevicePanel, snapshot), text_of(PacePanel, snapshot)
    assert "5.3 of 7.8 GiB" in device and "planned 5.4 GiB" in device and "79 °C, throttled" in device
    assert "trainer 9.8  workers 12 × 0.70  supervisor 0.04" in text_of(HostPanel, snapshot)
    assert "non-pad 1,523 tokens/s   padded 2,695   data wait 2%" in pace
    assert "planned 460 to 1,150 s/step   measured 742   ✓" in pace
    assert "memory planned 5.4 GiB   measured 5.3   ✓" in pace
    assert "per step 3,906 sequences   1,999,872 tokens" in pace
    assert "! GPU 0 throttled by heat" in text_of(AdvicePanel, snapshot)
    assert title_of(DevicePanel, snapshot) == "GPU 0 · RTX 2080 SUPER"
    alone = text_of(HostPanel, snapshot, 118, 30)
    assert "200  trainer         9.8    180%" in alone and alone.count("worker ") == 12


def test_a_run_on_the_cpu_is_not_measured_by_the_gpu_beside_it(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", gpus=1, throttled=True)
    record = json.loads((folder / "state.json").read_text())
    record["engine"] = {"planned": "single", "planned_values": {"device": "cpu"}, "actual": None}
    write_json(folder / "state.json", record)
    without = look_at(write_run(tmp_path / "without", gpus=0))
    assert title_of(DevicePanel, without) == "CPU load of the job · no GPU"
    text = text_of(DevicePanel, without)
    assert "220% CPU" in text and "no GPU: no NVIDIA driver on this machine" in text
    snapshot = look_at(folder)
    assert title_of(DevicePanel, snapshot) == "CPU load of the job · GPU not used"
    assert "420% CPU" in text_of(DevicePanel, snapshot)
    # 18 GiB of processes against a plan of 5.4; the card holds 5.3, as planned.
    codes = {item.code for item in snapshot.advice}
    assert "heat" not in codes and "memory_above_plan" in codes
    # All training processes stand against the plan.
    processes = tuple(ProcessReading(pid, role, GIB, 0.0) for pid, role in enumerate(("trainer", "trainer", "worker")))
    planned = replace(snapshot, processes=processes, planned=Planned(memory_bytes=2 * GIB))
    assert re.search(r"trainers .* 2\.0 of ", text_of(DevicePanel, planned))
    assert re.search(r"RAM .* 3\.0 of ", text_of(DevicePanel, replace(planned, planned=Planned())))


def test_what_an_ended_run_last_saw_is_called_so(tmp_path: Path) -> None:
    exit_ = {"code": 0, "cause": None, "message": "Done."}
    snapshot = look_at(write_run(tmp_path / "run", status="finished", exit_=exit_))
    assert title_of(DevicePanel, snapshot) == "GPU 0 · last reading · RTX 2080 SUPER"
    assert title_of(HostPanel, snapshot) == "RAM and disk · last reading"
    device, host, *_ = summary_of(snapshot)
    assert device.startswith("GPU 0  at the end") and host.startswith("RAM at the end")
    stopping = header_of(look_at(write_run(tmp_path / "stops", status="stopping")))
    assert "● stopping · step 1,600" in stopping and "finishes" not in stopping


def test_eight_gpus_are_all_told_of_wherever_they_stand(tmp_path: Path) -> None:
    snapshot = look_at(write_run(tmp_path / "run", gpus=8))
    rows = lines_of(DevicePanel, snapshot, 58, 16)
    assert [row[0] for row in rows] == list("01234567")
    assert all("GiB" in row and "°C" in row and "W" in row for row in rows)
    cells = text_of(DevicePanel, snapshot, 38, 3).replace("\n", " ")
    assert [number for number in "01234567" if f"{number}:" in cells] == list("01234567")
    assert summary_of(snapshot)[0].startswith("8 GPUs  66 to 96%   5.3 to 6.0 GiB")


def test_clock_fan_partition_and_other_jobs_of_a_card(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    processes = [
        {"pid": 200, "name": "python", "kind": "compute", "memory_used_bytes": 3 * GIB},
        {"pid": 777, "name": "[bold]game", "kind": "graphics", "memory_used_bytes": 2 * GIB},
    ]
    clock = {"fan_percent": 62, "clock_mhz": 1815.0, "clock_limit_mhz": 2100.0, "throttle_reasons": ["power limit"]}
    rows = [system_row(index, 1) for index in range(120)]
    for row in rows:
        row["gpus"][0] |= {"mig": "1g.10gb", "processes": processes, **clock}
    write_lines(folder / "system.jsonl", rows)
    snapshot = look_at(folder)
    text = text_of(DevicePanel, snapshot)
    assert "this job 3.0   others 2.0" in text
    assert "clock    1,815 MHz   throttled: power limit   fan 62%" in text
    assert title_of(DevicePanel, snapshot) == "GPU 0 · RTX 2080 SUPER · MIG 1g.10gb"
    page = [line.plain for line in gpu_page(snapshot, snapshot.gpus[0], 100, UNICODE_MARKS)]
    assert re.search(r"Clock throttled since [-\d :]+: power limit\.", "\n".join(page))
    mine, other = (line for line in page if " GiB  " in line and ("python" in line or "game" in line))
    assert "200" in mine and "3.0 GiB" in mine and "this job" in mine
    assert "777" in other and "2.0 GiB" in other and "other" in other and "[bold]game" in other


def test_slices_are_no_cards_of_their_own() -> None:
    whole = replace(CARD, mig="enabled", memory_used_bytes=20 * GIB, utilization_percent=None)
    parts = [replace(CARD, mig="1g.10gb", uuid=f"{size}", memory_used_bytes=size * GIB) for size in (4, 6)]
    assert _gpus((whole, *parts)) == "1 GPU, 2 MIG slices" and _gpus((CARD, replace(CARD, index=1))) == "2 GPUs"
    assert "4.0 to 6.0 GiB" in _cards_line((whole, *parts), "").plain


# A live process with GPUs: the real nvidia-ml-py over a fake driver that fails in the ways real ones do.


@pytest.fixture
def job() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "--token", "hf_secret"])
    time.sleep(0.3)
    yield process
    process.kill()
    process.wait()


def card(number: int, **changes: Any) -> FakeGpu:
    values = {
        "name": "NVIDIA GeForce RTX 3090",
        "uuid": f"GPU-{number}",
        "memory_total": 24 * GIB,
        "memory_used": (6 + number) * GIB,
        "temperature": 70 + number,
        "power": 300.0,
        "power_limit": 350.0,
        "mig": False,
    }
    return FakeGpu(**values | changes)


def test_cards_of_a_process_and_what_fails_in_them(
    job: subprocess.Popen[bytes],
    fake_nvml: FakeNvml,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cards = [card(0, memory_used=20 * GIB, processes={job.pid: 5 * GIB, 1: 13 * GIB})]
    fake_nvml.write(cards)
    fake_nvml.load_here(monkeypatch)
    source = open_source(find_target(str(job.pid)))

    def looked(cards: list[FakeGpu]) -> Snapshot:
        fake_nvml.write(cards)
        for _ in range(200):
            snapshot = source.read_all()
            if len(snapshot.gpus) == len(cards):
                return snapshot
            time.sleep(0.05)
        raise AssertionError("the cards were not read")

    one = looked(cards)
    text = text_of(DevicePanel, one, 66)
    for words in ("20.0 of 24.0 GiB", "this job 5.0   others 13.0   driver 2.0", "300 of 350 W", "70 °C"):
        assert words in text
    assert "1,400 of 1,980 MHz   fan 30%" in text and "MIG" not in title_of(DevicePanel, one)
    page = [line.plain for line in gpu_page(one, one.gpus[0], 100, UNICODE_MARKS)]
    assert any(str(job.pid) in line and "this job" in line and "5.0 GiB" in line for line in page)
    assert any(" 1 " in line and "other" in line and "13.0 GiB" in line for line in page)
    assert "process" in header_of(one).splitlines()[2] and "hf_secret" not in header_of(one, 400)
    assert str(job.pid) in text_of(HostPanel, one, 100, 30)
    source.close()

    source = open_source(find_target(str(job.pid)))
    three = [card(0, processes={job.pid: 5 * GIB}), card(1, unsupported=["fan", "power"]), card(2)]
    fake_nvml.write(three)
    snapshot = looked(three)
    assert [line.split()[0] for line in lines_of(DevicePanel, snapshot)] == ["0", "1", "2"]
    page = [line.plain for line in gpu_page(snapshot, snapshot.gpus[1], 100, UNICODE_MARKS)]
    assert any(line.startswith("fan: ") for line in page) and any(line.startswith("power: ") for line in page)
    lost = looked([three[0], card(1, lost=True), three[2]])
    deadline = time.monotonic() + 10
    while "!" not in lines_of(DevicePanel, lost)[1] and time.monotonic() < deadline:
        lost = source.read_all()
    first, second, third = lines_of(DevicePanel, lost)
    assert "6.0 of 24.0 GiB" in first and "8.0 of 24.0 GiB" in third and "GiB" not in second
    job.kill()
    job.wait()
    ended = source.read_all()
    source.close()
    assert ended.status != "running" and ended.ending is not None and ended.ending.text in header_of(ended, 400)


def test_an_old_output_folder_of_a_trainer(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    checkpoint = folder / "checkpoint-30"
    checkpoint.mkdir(parents=True)
    history = [{"step": step, "epoch": step / 50, "loss": 3 - step / 30} for step in range(1, 31)]
    state = {"global_step": 30, "max_steps": 100, "epoch": 0.6, "log_history": history}
    (checkpoint / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    for path in folder.rglob("*"):
        os.utime(path, (1.7e9, 1.7e9))
    snapshot = look_at(find_target(str(folder)))
    text = header_of(snapshot)
    assert "◌ quiet · step 30 of 100 · epoch 0.6" in text
    assert "Trainer output · read from checkpoint-30/trainer_state.json" in text
    assert "Quiet at step 30 of 100: " in text and " 2023-11-1" in text
    assert snapshot.metrics["loss"].count == 30
    # Nothing of this machine is shown for a job that is not seen on it.
    assert title_of(DevicePanel, snapshot) == "device"
    assert snapshot.unavailable["machine"] in text_of(DevicePanel, snapshot).replace("\n", " ")
    assert "Its processes, RAM and disk are unknown" in text_of(HostPanel, snapshot, 56, 3)
    assert "No tokens/s" in text_of(PacePanel, snapshot)
    assert "unknown" in summary_of(snapshot)[1]
    for width in (18, 58, 78):
        assert all(len(line) <= width for line in header_of(snapshot, width).splitlines())


@cache
def snapshots() -> dict[str, Snapshot]:
    """A look at each state of the pictures."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return {state: look_at(target_of(state, Path(folder) / state)) for state in STATES}


@each("language", ["en", "zh"])
def test_no_line_is_wider_than_its_room_and_in_ascii_all_is_ascii(language: str) -> None:
    use_language(language)
    try:
        for state, snapshot in snapshots().items():
            for is_ascii in (False, True):
                look = marks(is_ascii)
                drawn: list[tuple[int, list[Content]]] = []
                for width in (20, 38, 100):
                    for height in (2, 5, 12):
                        for kind in PANELS:
                            lines = kind("", marks=look).lines(snapshot, width, height)
                            drawn.append((width, [line.truncate(width) for line in lines[:height]]))
                    header = RunHeader(snapshot.name, marks=look)
                    header.snapshot = snapshot
                    drawn.append((width, header.lines_at(width)))
                for width, lines in drawn:
                    for line in lines:
                        assert line.cell_length <= width, (state, width, line.plain)
                        if is_ascii:
                            assert len(ascii_text(line.plain)) == line.cell_length
            assert origin_words(snapshot, UNICODE_MARKS).isprintable()
    finally:
        use_language("en")
