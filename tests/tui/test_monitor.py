"""The monitor screen, driven by keys, on run folders in the real format."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.telemetry.log import LogLine
from trainwiz.core.telemetry.target import Target
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens.log_card import LogCard
from trainwiz.tui.screens.monitor import MonitorScreen
from trainwiz.tui.screens.plan_card import PlanCard
from trainwiz.tui.screens.run_dialogs import StopDialog
from trainwiz.tui.widgets.device_panel import DevicePanel
from trainwiz.tui.widgets.field_row import ActionButton
from trainwiz.tui.widgets.frame import KeyBar, fitting_keys
from trainwiz.tui.widgets.host_panel import HostPanel, MonitorSummary
from trainwiz.tui.widgets.log_view import LogView
from trainwiz.tui.widgets.metric_panel import MetricPanel
from trainwiz.tui.widgets.monitor_panel import MonitorPanel
from trainwiz.tui.widgets.plot import Plot
from trainwiz.tui.widgets.run_header import RunHeader

from tests.core.telemetry.written_run import NOW_S, metric_rows, write_json, write_lines, write_run

WIDE = (120, 40)


def monitor_app(folder: Path, *, readonly: bool = False, interval_s: float = 3600.0) -> TrainwizApp:
    return TrainwizApp(
        lambda: MonitorScreen(Target.of_run(RunFolder(folder)), readonly, interval_s=interval_s, clock=lambda: NOW_S),
        ascii_only=False,
    )


def screen_of(pilot: Pilot) -> MonitorScreen:
    return next(screen for screen in pilot.app.screen_stack if isinstance(screen, MonitorScreen))


async def until(pilot: Pilot, holds: Callable[[], bool], seconds: float = 10.0) -> None:
    for _ in range(int(seconds / 0.05)):
        if holds():
            await pilot.pause()
            return
        await pilot.pause(0.05)
    raise AssertionError("it did not happen in time")


async def looked(pilot: Pilot) -> MonitorScreen:
    screen = screen_of(pilot)
    await until(pilot, lambda: screen.snapshot is not None)
    return screen


def plot_text(screen: MonitorScreen) -> str:
    return "\n".join("".join(text for text, _ in row) for row in screen.query_one(Plot).rows())


def header_text(screen: MonitorScreen, width: int = 118) -> str:
    return screen.query_one(RunHeader).content(width).plain


async def test_a_running_run_at_a_glance(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "uniref-650m-0412", nan_at=(812,), throttled=True)
    async with monitor_app(folder).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        header = header_text(screen)
        assert "uniref-650m-0412" in header
        assert "● running · step 1,600 of 500,000 · epoch 0.4 · finishes in 12 years" in header
        assert "0.3 % · 742 s a step" in header
        assert "× NaN at 812" in plot_text(screen)
        texts = {type(panel).__name__: panel.content().plain for panel in screen.query(MonitorPanel)}
        assert "5.3 of 7.8 GiB" in texts["DevicePanel"] and "planned 5.4 GiB" in texts["DevicePanel"]
        assert "79 °C, throttles" in texts["DevicePanel"]
        assert "trainer 9.8  workers 12 × 0.70  supervisor 0.04" in texts["HostPanel"]
        assert "real 1,523 tokens/s   padded 2,695   data wait 2 %" in texts["PacePanel"]
        assert "planned 460 to 1,150 s a step   measured 742   ✓" in texts["PacePanel"]
        assert "! Heat limits the clock of GPU 0" in texts["AdvicePanel"]
        assert screen.query_one(DevicePanel).title_text == "GPU 0 · RTX 2080 SUPER"


async def test_without_a_gpu_it_says_so_and_shows_the_cpu_of_the_job(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run", gpus=0)).run_test(size=WIDE) as pilot:
        panel = (await looked(pilot)).query_one(DevicePanel)
        assert panel.title_text == "CPU load of the job · no GPU"
        assert "220 % CPU" in panel.content().plain
        assert "no GPU: no NVIDIA driver on this machine" in panel.content().plain


async def test_a_run_on_the_cpu_is_not_measured_by_the_gpu_beside_it(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", gpus=1, throttled=True)
    record = json.loads((folder / "state.json").read_text())
    record["engine"] = {"planned": "single", "planned_values": {"device": "cpu"}, "actual": None}
    write_json(folder / "state.json", record)
    async with monitor_app(folder).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        panel = screen.query_one(DevicePanel)
        assert panel.title_text == "CPU load of the job · GPU not used"
        assert "420 % CPU" in panel.content().plain
        assert screen.snapshot is not None
        advice = {item.code: item.text for item in screen.snapshot.advice}
        assert "heat" not in advice
        # 18 GiB of processes against a plan of 5.4; the card holds 5.3, as planned.
        assert "memory_above_plan" in advice
        assert len(screen.snapshot.to_json()["gpus"]) == 1


async def test_what_an_ended_run_last_saw_is_called_so(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", status="finished", exit_={"code": 0, "cause": None, "message": "Done."})
    async with monitor_app(folder).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        assert screen.query_one(DevicePanel).title_text == "GPU 0 · last reading · RTX 2080 SUPER"
        assert screen.query_one(HostPanel).title_text == "RAM and disk · last reading"
    async with monitor_app(folder).run_test(size=(60, 20)) as pilot:
        screen = await looked(pilot)
        device, host, *_ = str(screen.query_one(MonitorSummary).render()).splitlines()
        assert device.startswith("GPU 0  at the end") and host.startswith("RAM at the end")


async def test_a_run_that_stops_has_no_finish(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run", status="stopping")).run_test(size=WIDE) as pilot:
        header = header_text(await looked(pilot))
        assert "● stopping · step 1,600" in header
        assert "finishes" not in header


async def test_leaving_the_wizard_after_the_end_says_how_it_ended(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", status="finished", exit_={"code": 0, "cause": None, "message": "Done."})
    app = monitor_app(folder)
    app.farewell = "Started  run"
    async with app.run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        assert screen.snapshot is not None and screen.snapshot.ending is not None
        assert app.farewell.startswith(screen.snapshot.ending.text)


async def test_ctrl_c_says_how_to_leave_and_that_the_run_goes_on(tmp_path: Path) -> None:
    app = monitor_app(write_run(tmp_path / "run"))
    async with app.run_test(size=WIDE) as pilot:
        await looked(pilot)
        await pilot.press("ctrl+c")
        assert [note.message for note in app._notifications] == ["ctrl+q leaves; a run that was started goes on."]


async def test_eight_gpus_have_a_row_each(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run", gpus=8)).run_test(size=WIDE) as pilot:
        lines = (await looked(pilot)).query_one(DevicePanel).content().plain.splitlines()
        assert [line[0] for line in lines] == list("01234567")
        assert all("GiB" in line and "°C" in line and "W" in line for line in lines)


async def test_it_follows_the_files(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=10, log_every=1, max_steps=20)
    async with monitor_app(folder, interval_s=0.05).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        with (folder / "metrics.jsonl").open("a") as file:
            file.write('{"step": 11, "loss": 1.25}\n')
        with (folder / "train.log").open("a") as file:
            file.write("a new line\n")
        await until(pilot, lambda: screen.snapshot is not None and screen.snapshot.step == 11)
        assert "step 11 of 20" in header_text(screen)
        assert str(screen.query_one("#values").render()).startswith("1.250 ")
        assert screen.query_one("#log", LogView).shown_lines[-1] == "a new line"


async def test_metric_zoom_and_scale(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run")).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        panel = screen.query_one(MetricPanel)
        whole = plot_text(screen)
        await pilot.press("z")
        assert panel.title_text == "loss · last fifth"
        assert plot_text(screen) != whole
        assert plot_text(screen).splitlines()[-1].split() == ["1,281", "1,400", "1,600"]
        await pilot.press("z", "z", "e")
        assert panel.title_text == "loss · log scale"
        await pilot.press("e", "full_stop")
        await until(pilot, lambda: screen.snapshot is not None and "learning_rate" in screen.snapshot.curves)
        assert panel.title_text == "learning_rate"
        assert "e-4" in plot_text(screen)


async def test_log_card_shows_all_lines_as_text(tmp_path: Path) -> None:
    log = "".join(f"line {n}\n" for n in range(200)) + "\x1b[31m[bold]red[/bold]\x1b[0m\n"
    async with monitor_app(write_run(tmp_path / "run", log=log)).run_test(size=(80, 24)) as pilot:
        screen = await looked(pilot)
        small = screen.query_one("#log", LogView)
        await pilot.pause(0.1)
        assert small.scroll_offset.y == small.max_scroll_y > 0
        await pilot.press("l")
        await pilot.pause(0.1)
        assert isinstance(pilot.app.screen, LogCard)
        view = pilot.app.screen.query_one(LogView)
        assert view.shown_lines[0] == "line 0"
        assert view.shown_lines[-1] == "[bold]red[/bold]"
        assert view.scroll_offset.y == view.max_scroll_y > 0
        await pilot.press("escape")
        assert pilot.app.screen is screen


async def test_a_reader_who_scrolled_up_stays_there(tmp_path: Path) -> None:
    log = "".join(f"line {n}\n" for n in range(200))
    async with monitor_app(write_run(tmp_path / "run", log=log)).run_test(size=(80, 24)) as pilot:
        await looked(pilot)
        await pilot.press("l")
        await pilot.pause(0.1)
        view = pilot.app.screen.query_one(LogView)
        view.scroll_to(y=10, animate=False, immediate=True)
        await pilot.pause()
        view.show((*(LogLine(line) for line in view.shown_lines), LogLine("another")))
        await pilot.pause(0.1)
        assert view.scroll_offset.y == 10


async def test_plan_card(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run")).run_test(size=WIDE) as pilot:
        await looked(pilot)
        await pilot.press("p")
        assert isinstance(pilot.app.screen, PlanCard)
        text = str(pilot.app.screen.query_one("Static").render())
        assert "6 × 651 × 1 = 3,906 sequences" in text
        assert "sm 7.5 has no bf16" in text
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, MonitorScreen)


async def test_stop_asks_and_the_answer_no_changes_nothing(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run")).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        await pilot.press("s")
        dialog = pilot.app.screen
        assert isinstance(dialog, StopDialog)
        assert [button.action for button in dialog.query(ActionButton)] == ["checkpoint", "cancel", "now"]
        await pilot.press("escape")
        assert pilot.app.screen is screen
        await pilot.press("s", "right", "enter")
        assert pilot.app.screen is screen


async def test_a_run_on_another_machine_cannot_be_stopped_and_says_so(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    state = (folder / "state.json").read_text()
    supervisor = {"pid": os.getpid(), "create_time": time.time()}
    write_json(folder / "state.json", {**json.loads(state), "supervisor": supervisor, "heartbeat_s": time.time()})
    async with monitor_app(folder).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        await pilot.press("s", "enter")
        await until(pilot, lambda: bool(pilot.app._notifications))
        assert pilot.app.screen is screen
        assert any("workstation" in notice.message for notice in pilot.app._notifications)


async def test_readonly_has_no_stop(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run"), readonly=True).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        assert "monitor.stop" not in {row.id for row in screen.key_rows()}
        await pilot.press("s")
        assert pilot.app.screen is screen


async def test_an_ended_run_has_no_stop_and_its_end_is_a_sentence(tmp_path: Path) -> None:
    exit_ = {
        "code": 1,
        "cause": "cuda_oom",
        "message": "The GPU ran out of memory.",
        "remedy": "trainwiz runs resume run",
    }
    async with monitor_app(write_run(tmp_path / "run", status="failed", exit_=exit_)).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        assert "✗ failed" in header_text(screen)
        assert "The GPU ran out of memory.\nnext  trainwiz runs resume run   or press r" in header_text(screen)
        assert "monitor.stop" not in {row.id for row in screen.key_rows()}
        await pilot.press("s")
        assert pilot.app.screen is screen


@pytest.mark.parametrize(("size", "fits"), [((120, 40), True), ((80, 24), True), ((60, 20), False)])
async def test_the_command_of_a_failed_run_can_be_pasted(tmp_path: Path, size: tuple[int, int], fits: bool) -> None:
    command = "trainwiz --profile cpu-demo --learning-rate 0.0002 --yes"
    exit_ = {
        "code": 1,
        "cause": "nan_loss",
        "message": "The loss is not a number at step 40. It was 2.7 at the step before. The last good checkpoint is "
        "checkpoint-30.",
        "remedy": f"Start again with a lower learning rate: 0.0002 instead of 0.001. {command}",
    }
    async with monitor_app(write_run(tmp_path / "runs" / "one", status="failed", exit_=exit_)).run_test(
        size=size
    ) as pilot:
        header = (await looked(pilot)).query_one(RunHeader)
        shown = header_text(header.screen, header.content_size.width).splitlines()[: header.size.height]
        assert "not a number at step 40" in shown[2]
        assert "Start again with a lower learning rate" in shown[-2]
        assert shown[-1].strip() == (command if fits else "trainwiz diagnose one")


async def test_quitting_leaves_the_run_alone(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    app = monitor_app(folder)
    async with app.run_test(size=WIDE) as pilot:
        await looked(pilot)
        await pilot.press("q")
    assert app.return_value == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


async def test_help_explains_the_focused_panel(tmp_path: Path) -> None:
    async with monitor_app(write_run(tmp_path / "run")).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        screen.query_one(DevicePanel).focus()
        await pilot.press("f1")
        text = " ".join(str(widget.render()) for widget in pilot.app.screen.query("Static"))
        assert "planned peak" in text


@pytest.mark.parametrize("status", ["prepared", "starting"])
async def test_before_the_first_value_it_says_what_to_expect(tmp_path: Path, status: str) -> None:
    async with monitor_app(write_run(tmp_path / "run", status=status, steps=0)).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        assert status in header_text(screen)
        assert {"prepared": "launch.sh", "starting": "first logged step"}[status] in " ".join(plot_text(screen).split())


async def test_an_empty_folder_is_shown_without_failing(tmp_path: Path) -> None:
    async with monitor_app(tmp_path).run_test(size=(60, 20)) as pilot:
        assert "prepared" in header_text(await looked(pilot))


async def test_hostile_names_and_lines_stay_text(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=5, log="[red]\x1b]0;owned\x07[/red] [@click=app.quit]x[/]\n")
    rows = metric_rows(5, 4, 1.0)
    for row in rows:
        row["[bold]\x1b[31mloss"] = 1.0
        row.pop("loss", None)
    write_lines(folder / "metrics.jsonl", rows)
    async with monitor_app(folder).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        assert screen.query_one("#log", LogView).shown_lines == ["[red][/red] [@click=app.quit]x[/]"]
        panel = screen.query_one(MetricPanel)
        for _ in range(12):
            await pilot.press("full_stop")
            await pilot.pause(0.02)
            assert "\x1b" not in panel.title_text


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (100, 30), (120, 40), (200, 60), (40, 12), (20, 6)])
async def test_every_size_shows_status_and_keys(tmp_path: Path, size: tuple[int, int]) -> None:
    async with monitor_app(write_run(tmp_path / "run", nan_at=(812,))).run_test(size=size) as pilot:
        screen = await looked(pilot)
        assert "running" in header_text(screen, size[0] - 2)
        assert all(len(line) <= size[0] - 2 for line in header_text(screen, size[0] - 2).splitlines())
        bar = screen.query_one(KeyBar)
        assert bar.region.bottom == size[1]
        assert "monitor.stop" in {row.id for row in fitting_keys(screen.key_rows(), size[0] - 2)}


async def test_many_log_lines_do_not_block(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    async with monitor_app(folder, interval_s=0.1).run_test(size=WIDE) as pilot:
        screen = await looked(pilot)
        with (folder / "train.log").open("a") as file:
            file.write("".join(f"line {n}\n" for n in range(50_000)))
        await until(pilot, lambda: screen.query_one("#log", LogView).shown_lines[-1:] == ["line 49999"])
        assert len(screen.query_one("#log", LogView).shown_lines) <= 1_001
