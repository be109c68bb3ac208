"""What the watchers see in a run, and what they must not see in a healthy one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trainwiz.core.run.attempts import Phase, write_phase
from trainwiz.core.telemetry.run_setup import RunSetup
from trainwiz.core.training.callbacks import NonFiniteLoss
from trainwiz.core.training.process import write_failure

from tests.core.supervise.seen import GIB, RUNNING, SeenRun, text_of
from tests.each import each

LOST = "the GPU is lost: it fell off the bus, or it needs a reset or a reboot"


def test_a_healthy_run_of_hours_has_no_advice(tmp_path: Path) -> None:
    seen = SeenRun(tmp_path)
    seen.look_s = 15.0
    for phase in ("preparing", "loading", "tokenising", "compiling"):
        seen.phase(phase)
        seen.host["ram_used_bytes"] += 5 * GIB
        seen.rest(400)
    for turn in range(20):
        seen.phase("training")
        seen.steps_of(12.0 + turn % 3, 40)
        seen.phase("evaluating")
        seen.host["ram_used_bytes"] += GIB * (1 if turn % 2 else -1)
        seen.rest(300)
        seen.phase("saving")
        seen.rest(90)
    assert seen.ever == set()


def test_a_run_that_stands_still_stalls_by_its_own_pace(tmp_path: Path) -> None:
    seen = SeenRun(tmp_path)
    seen.phase("training")
    seen.steps_of(10.0, 10)
    seen.rest(120)
    assert "stalled" not in seen.ever
    seen.rest(30)
    assert text_of(seen.found, "stalled") == "No step was logged for 2 min; usually one comes every 10 s."
    seen.steps_of(1.0, 1)
    assert seen.look() == []


def test_a_slow_pace_is_waited_for(tmp_path: Path) -> None:
    """651 accumulations: a step takes 12 minutes, and 40 of one are no stall yet."""
    seen = SeenRun(tmp_path)
    seen.phase("training")
    seen.steps_of(720.0, 6)
    seen.rest(2_400)
    assert seen.ever == set()
    seen.rest(1_500)
    assert "stalled" in seen.codes


@each("phase", ["tokenising", "compiling", "evaluating", "saving", "generating", "paused", "finishing"])
def test_work_without_steps_is_no_stall(tmp_path: Path, phase: Phase) -> None:
    seen = SeenRun(tmp_path)
    seen.phase("training")
    seen.steps_of(2.0, 30)
    seen.phase(phase)
    seen.look_s = 30.0
    seen.rest(7_200)
    seen.phase("training")
    seen.rest(100)
    assert seen.ever == set()


def test_an_evaluation_that_takes_many_times_its_own_pace_is_one(tmp_path: Path) -> None:
    seen = SeenRun(tmp_path)
    for _ in range(3):
        seen.phase("training")
        seen.steps_of(2.0, 30)
        seen.phase("evaluating")
        seen.rest(60)
    seen.rest(350)
    assert seen.ever == set()
    seen.rest(20)
    assert text_of(seen.found, "stalled").startswith("An evaluation has taken 7 min; the longest before took 60 s.")


def test_a_first_step_that_never_ends_is_one(tmp_path: Path) -> None:
    seen = SeenRun(tmp_path, replace(RUNNING, planned_step_s=30.0))
    seen.phase("training")
    seen.rest(1_800)
    assert seen.ever == set()
    seen.rest(60)
    assert text_of(seen.found, "stalled").startswith("No step was logged in the first 31 min; 30 s were planned")


def test_a_machine_that_slept_has_not_stalled(tmp_path: Path) -> None:
    seen = SeenRun(tmp_path)
    seen.phase("training")
    seen.steps_of(2.0, 30)
    seen.now_s += 30_000
    seen.look()
    seen.rest(100)
    assert seen.ever == set()
    seen.now_s -= 90_000
    seen.look()
    seen.rest(100)
    assert seen.ever == set()


def test_rows_of_an_earlier_attempt_are_not_this_one(tmp_path: Path) -> None:
    seen = SeenRun(tmp_path)
    seen.phase("training")
    seen.steps_of(1.0, 50, loss=float("nan"))
    assert "nan_loss" in seen.codes
    later = SeenRun(tmp_path)
    later.now_s = seen.now_s + 600
    later.observation.began_s = later.observation.now_s = later.observation.awake_s = later.now_s
    later.phase("training")
    later.rest(600)
    assert later.ever == set()


def test_a_loss_that_is_no_number_is_said_at_once(tmp_path: Path) -> None:
    seen = SeenRun(tmp_path)
    seen.phase("training")
    seen.steps_of(2.0, 5)
    seen.steps_of(2.0, 1, loss="NaN")
    assert text_of(seen.look(), "nan_loss") == "The loss is not a number now, first at step 6."


def test_a_training_that_its_guard_has_stopped_says_so_too(tmp_path: Path) -> None:
    """The bad loss itself was never logged."""
    seen = SeenRun(tmp_path)
    seen.phase("training")
    seen.steps_of(2.0, 5)
    write_failure(
        tmp_path, NonFiniteLoss("The loss is not a number at step 6. The last good checkpoint is checkpoint-5.")
    )
    (advice,) = seen.look()
    assert (advice.code, advice.level) == ("nan_loss", "error") and "checkpoint-5" in advice.text
    write_failure(tmp_path, ValueError("another"))
    assert seen.look() == []


def test_a_leak_is_foretold_with_the_time_left(tmp_path: Path) -> None:
    seen = SeenRun(tmp_path)
    seen.phase("training")
    for _ in range(140):
        seen.steps_of(5.0, 1)
        seen.host["ram_used_bytes"] += GIB // 20
    said = text_of(seen.found, "ram_short")
    assert said.startswith(("Host RAM grows: full in 78 min", "Host RAM grows: full in 79 min"))


def test_the_growth_of_a_start_is_no_leak(tmp_path: Path) -> None:
    """Loader workers and buffers fill up over the first two minutes of steps."""
    seen = SeenRun(tmp_path)
    seen.phase("loading")
    for _ in range(30):
        seen.rest(5)
        seen.host["ram_used_bytes"] += GIB
    seen.phase("training")
    for step in range(400):
        seen.steps_of(5.0, 1)
        seen.host["ram_used_bytes"] += GIB // 4 if step < 24 else GIB // 1_000 * (1 if step % 2 else -1)
    assert seen.ever == set()


def test_a_lost_card_and_a_hot_one(tmp_path: Path) -> None:
    seen = SeenRun(tmp_path)
    seen.gpus = [
        {"index": 0, "uuid": "GPU-0", "utilization_percent": 99.0, "throttle_reasons": ["heat (hardware)"]},
        {"index": 1, "uuid": "GPU-1", "utilization_percent": None},
    ]
    seen.unavailable = {"gpus.1": LOST}
    seen.phase("training")
    seen.steps_of(2.0, 5)
    assert seen.codes == {"heat", "gpu_lost"}
    assert next(item.level for item in seen.found if item.code == "gpu_lost") == "error"
    seen.run = replace(RUNNING, on_cpu=True)
    assert seen.look() == [], "a run on the CPU has no cards"


def test_an_idle_or_capped_card_is_no_trouble(tmp_path: Path) -> None:
    seen = SeenRun(tmp_path)
    seen.gpus = [{"index": 0, "uuid": "GPU-0", "utilization_percent": 99.0, "throttle_reasons": ["power limit"]}]
    seen.phase("training")
    seen.steps_of(2.0, 60)
    assert seen.ever == set()


def test_sensors_that_hang_are_told_from_a_quiet_run(tmp_path: Path) -> None:
    seen = SeenRun(tmp_path)
    seen.phase("training")
    seen.steps_of(2.0, 10)
    seen.sampled = False
    seen.steps_of(2.0, 40)
    assert seen.codes == {"sensors_silent"}


def test_a_starved_run_names_the_workers_after_enough_steps(tmp_path: Path) -> None:
    seen = SeenRun(tmp_path)
    seen.phase("training")
    seen.steps_of(10.0, 15, data_wait_s=6.0)
    assert seen.ever == set(), "the first steps warm up"
    seen.steps_of(10.0, 10, data_wait_s=6.0)
    assert seen.found[0].remedy == "6 instead of 2 loader workers would cure it: --set data.workers=6"


def test_a_disk_that_does_not_last_is_foretold(tmp_path: Path) -> None:
    setup = RunSetup(save_every_steps=50, checkpoints_kept=4, max_steps=1_000)
    seen = SeenRun(tmp_path, replace(RUNNING, setup=setup))
    seen.phase("training")
    seen.steps_of(2.0, 60)
    checkpoint = tmp_path / "checkpoint-50"
    checkpoint.mkdir()
    with (checkpoint / "model.safetensors").open("wb") as file:
        file.truncate(10 * GIB)
    seen.observation._sizes._clock = lambda: (checkpoint / "model.safetensors").stat().st_mtime + 3_600
    seen.host["disk_free_bytes"] = 25 * GIB
    seen.observation._sizes._next_look = 0.0
    seen.steps_of(2.0, 60)
    assert "step 250" in text_of(seen.found, "disk_short")
    seen.host["disk_free_bytes"] = 5 * GIB
    assert "checkpoint_does_not_fit" in {item.code for item in (seen.rest(20), seen.found)[1]}


def test_what_an_earlier_attempt_was_at_is_not_this_one(tmp_path: Path) -> None:
    seen = SeenRun(tmp_path)
    write_phase(seen.folder, "evaluating", 7, since_s=seen.now_s - 1.0)
    seen.look()
    assert seen.observation.phase is None
    seen.phase("training")
    seen.look()
    assert seen.observation.phase is not None and seen.observation.longest_s("evaluating") is None
