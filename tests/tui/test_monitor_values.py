"""What the panels of the monitor say of a look, as values: no terminal, no screen."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from textual.content import Content
from trainwiz.core.language import use_language
from trainwiz.core.launch.actions import StopCost
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.telemetry.snapshot import Answer, GpuProcess, Planned, ProcessReading, PromptAnswers, Snapshot
from trainwiz.core.telemetry.target import Target, open_source
from trainwiz.tui.keys import KEYS
from trainwiz.tui.run_words import now_words, with_checkpoint_words
from trainwiz.tui.text import cells
from trainwiz.tui.theme import ascii_text
from trainwiz.tui.widgets.machine_panels import DevicePanel, HostPanel, cards_line, gpus_words, host_parts
from trainwiz.tui.widgets.monitor_panel import AdvicePanel, MonitorPanel, prompt_lines
from trainwiz.tui.widgets.run_header import MonitorSummary, PacePanel, RunHeader, origin_words

from tests.core.telemetry.test_advice import CARD
from tests.core.telemetry.written_run import GIB, NOW_S, write_json, write_run
from tests.each import each
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


def header_of(snapshot: Snapshot) -> str:
    header = RunHeader(snapshot.name)
    header.snapshot = snapshot
    return "\n".join(line.plain for line in header.lines_at(118))


def summary_of(snapshot: Snapshot) -> list[str]:
    return [line.plain for line in MonitorSummary().lines(snapshot, 58, 4)]


def test_a_disk_that_fills_says_when(tmp_path: Path) -> None:
    """What else a running run says is in its pictures."""
    snapshot = look_at(write_run(tmp_path / "run"))
    filling = replace(snapshot, host=replace(snapshot.host, disk_lasts_s=41 * 3600.0))
    assert "disk full in 41 h at this rate" in text_of(HostPanel, filling)
    assert host_parts(filling)[-1].plain == "disk full in 41 h at this rate"


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
    assert device.startswith("at the end  GPU 0") and host.startswith("at the end  RAM")
    stopping = header_of(look_at(write_run(tmp_path / "stops", status="stopping")))
    assert "● stopping · step 1,600" in stopping and "finishes" not in stopping


def test_slices_are_no_cards_of_their_own() -> None:
    whole = replace(CARD, mig="enabled", memory_used_bytes=20 * GIB, utilization_percent=None)
    parts = [replace(CARD, mig="1g.10gb", uuid=f"{size}", memory_used_bytes=size * GIB) for size in (4, 6)]
    assert (
        gpus_words((whole, *parts)) == "1 GPU, 2 MIG slices" and gpus_words((CARD, replace(CARD, index=1))) == "2 GPUs"
    )
    assert "4.0 to 6.0 GiB" in cards_line((whole, *parts)).plain


def test_cards_of_a_process_and_what_fails_in_them(tmp_path: Path) -> None:
    """What the driver says of them is read in tests/core/telemetry/test_gpu.py."""
    mine, other = GpuProcess(4711, "python", 5 * GIB, mine=True), GpuProcess(1, None, 13 * GIB, mine=False)
    full = replace(
        CARD, memory_used_bytes=20 * GIB, temperature_c=70.0, fan_percent=30, clock_mhz=1400.0,
        clock_limit_mhz=1980.0, processes=(mine, other), job_memory_bytes=5 * GIB, mig="disabled",
    )  # fmt: skip
    snapshot = look_at(target_of("process", tmp_path))
    one = replace(snapshot, gpus=(full,))
    text = text_of(DevicePanel, one, 66)
    for words in ("20.0 of 24.0 GiB", "this job 5.0   others 13.0   driver 2.0", "300 of 350 W", "70 °C"):
        assert words in text
    assert "1,400 of 1,980 MHz   fan 30%" in text and "MIG" not in title_of(DevicePanel, one)
    alone = DevicePanel("")
    alone.add_class("-maximized")
    page = [line.plain for line in alone.lines(one, 100, 30)]
    assert any("4711" in line and "this job" in line and "5.0 GiB" in line for line in page)
    assert any(" 1 " in line and "other" in line and "13.0 GiB" in line for line in page)
    assert "process" in header_of(one).splitlines()[2]
    slowed = replace(
        full, mig="1g.10gb", throttle_reasons=("power limit",),
        processes=(mine, replace(other, name="[bold]game", kind="graphics")),
    )  # fmt: skip
    two = replace(snapshot, gpus=(slowed,))
    assert "clock    1,400 of 1,980 MHz   throttled: power limit" in text_of(DevicePanel, two)
    assert title_of(DevicePanel, two).endswith(" · MIG 1g.10gb")
    assert any("[bold]game" in line.plain for line in alone.lines(two, 100, 30))
    lost = replace(CARD, index=1, problem="the GPU is lost", memory_used_bytes=None, memory_total_bytes=None)
    three = replace(snapshot, gpus=(CARD, lost, replace(CARD, index=2)))
    first, second, third = lines_of(DevicePanel, three)
    assert [line.split()[0] for line in (first, second, third)] == ["0", "1", "2"]
    assert "8.0 of 24.0 GiB" in first and "8.0 of 24.0 GiB" in third and "GiB" not in second and "!" in second


def test_an_old_output_folder_of_a_trainer(tmp_path: Path) -> None:
    snapshot = look_at(target_of("quiet", tmp_path))
    text = header_of(snapshot)
    assert "◌ quiet · step 1,200 of 3,000 · epoch 1.2" in text
    assert "Trainer output" in text and "Quiet: last written" in text and " 2026-11-2" in text
    # Nothing of this machine is shown for a job that is not seen on it.
    assert title_of(DevicePanel, snapshot) == "device"
    assert snapshot.unavailable["machine"] in text_of(DevicePanel, snapshot).replace("\n", " ")
    assert "Its processes, RAM and disk are unknown" in text_of(HostPanel, snapshot, 56, 3)
    assert "No tokens/s" in text_of(PacePanel, snapshot)
    assert "unknown" in summary_of(snapshot)[1]


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
            drawn: list[tuple[int, list[Content]]] = []
            for width in (20, 38, 100):
                for height in (2, 5, 12):
                    for kind in PANELS:
                        lines = kind("").lines(snapshot, width, height)
                        drawn.append((width, [line.truncate(width) for line in lines[:height]]))
                header = RunHeader(snapshot.name)
                header.snapshot = snapshot
                drawn.append((width, header.lines_at(width)))
            for width, lines in drawn:
                for line in lines:
                    assert line.cell_length <= width, (state, width, line.plain)
                    assert len(ascii_text(line.plain)) == line.cell_length
            assert origin_words(snapshot).isprintable()
    finally:
        use_language("en")


@pytest.mark.usefixtures("chinese")
def test_chinese_keys_and_sentences() -> None:
    for row in KEYS:
        assert not row.words.isascii() and cells(row.words) <= 18 and row.sentence.endswith("。"), row.id
        assert "{" not in row.words + row.sentence, row.id
    # Sentences stand side by side without spaces.
    cost = StopCost(60.0, "checkpoint-100", 12, 600.0)
    assert "。 " not in with_checkpoint_words(cost)
    assert "12 步" in now_words(cost) and "checkpoint-100" in now_words(cost)


LONG = "Let it cool down and empty it, and do not use it again. " * 3
PROMPT = PromptAnswers(
    "What now?\x1b]0;title\x07",
    "Unplug it.",
    (Answer(0, "kettle kettle", False), Answer(40, "?", True), Answer(80, LONG, True)),
)


def shown(back: int, width: int, height: int) -> list[str]:
    return [line.plain for line in prompt_lines(PROMPT, back, width, height)]


def test_the_chosen_answer_stands_over_the_first_one_and_takes_what_room_is_left() -> None:
    lines = shown(0, 60, 8)
    assert [line[:12].strip() for line in lines if line[:12].strip()] == ["prompt", "step 80", "before", "data"]
    assert lines[-2].endswith("kettle kettle …") and len(lines) == 7
    cramped = shown(0, 60, 4)
    assert len(cramped) == 4 and cramped[1].endswith("…") and "\x1b" not in "".join(cramped)
    assert all(len(line) <= 60 for line in (*lines, *cramped))

    assert shown(1, 60, 9)[1].split() == ["step", "40", "?"]
    first = shown(2, 60, 9)
    assert [line[:12].strip() for line in first] == ["prompt", "before", "data"] and shown(9, 60, 9) == first
