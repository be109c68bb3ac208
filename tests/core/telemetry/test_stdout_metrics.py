"""Logs of a Trainer's standard output: dicts of numbers or strings, with and without progress bars."""

from __future__ import annotations

import math
import time
from pathlib import Path

from trainwiz.core.telemetry.trainer_log import StdoutMetrics, find_log, prints_metrics

from tests.each import each

BAR = "\r  {percent}%|███       | {at}/200 [00:10<00:90,  {rate}]"


def points(path: Path, logging_steps: int | None = None) -> list[tuple[str, int, float]]:
    return [(name, step, value) for name, step, value, _ in StdoutMetrics(path, logging_steps).read_new()]


def log(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "train.log"
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_numbers_and_strings_are_values(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        "{'loss': 1.5, 'learning_rate': 4.9e-06, 'epoch': 0.1, 'step': 10}\n"
        "{'loss': '-2.5', 'grad_norm': 'nan', 'epoch': '0.2', 'step': 20}\n"
        "{'loss': nan, 'grad_norm': inf, 'epoch': 0.3, 'step': 30}\n"
        '{"loss": 1e3, "epoch": 0.4, "step": 40}\n',
    )
    found = points(path)
    assert found[:3] == [("loss", 10, 1.5), ("learning_rate", 10, 4.9e-06), ("loss", 20, -2.5)]
    assert math.isnan(found[3][2])
    assert math.isnan(found[4][2])
    assert found[5:] == [("grad_norm", 30, math.inf), ("loss", 40, 1000.0)]


def test_the_bar_after_a_dict_is_its_step_and_gives_the_pace(tmp_path: Path) -> None:
    text = "Map: 100%|██████████| 1000/1000 [00:00<00:00, 9.9it/s]\n"
    for at in (10, 20):
        # The bar before a dict may lag behind: tqdm draws it ten times a second at most.
        text += BAR.format(percent=at // 2, at=at - 3, rate="2.0s/it")
        text += "\r          \r{'loss': '1.0', 'epoch': '0.1'}\n" + BAR.format(percent=at // 2, at=at, rate="2.0s/it")
    text += "\r 50%|█████     | 1/2 [00:00<00:00, 9.0it/s]\r      \r{'eval_loss': '0.9', 'epoch': '0.2'}\n"
    path = log(tmp_path, text + BAR.format(percent=10, at=20, rate="4.0it/s") + "\n")
    metrics = StdoutMetrics(path)
    found = [(name, step) for name, step, _, _ in metrics.read_new()]
    assert found == [("loss", 10), ("loss", 20), ("eval_loss", 20)]
    assert (metrics.step, metrics.max_steps) == (20, 200)
    assert not metrics.counted


def test_without_a_bar_the_epoch_and_the_announced_steps_tell(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        "[INFO|trainer.py:1] >>   Num Epochs = 4\n[INFO|trainer.py:2] >>   Total optimization steps = 1,000\n"
        "{'loss': 1.0, 'epoch': 0.1}\n{'eval_loss': 1.0, 'epoch': 2.0}\n",
    )
    assert points(path) == [("loss", 25, 1.0), ("eval_loss", 500, 1.0)]


def test_without_any_step_logging_steps_tell_else_dicts_are_counted(tmp_path: Path) -> None:
    path = log(tmp_path, "{'loss': 3.0, 'epoch': 0.1}\n{'loss': 2.0, 'epoch': 0.2}\n{'eval_loss': 1.0, 'epoch': 0.2}\n")
    assert points(path, logging_steps=50) == [("loss", 50, 3.0), ("loss", 100, 2.0), ("eval_loss", 100, 1.0)]
    metrics = StdoutMetrics(path)
    assert [step for _, step, _, _ in metrics.read_new()] == [1, 2, 2]
    assert metrics.counted
    assert metrics.step is None


def test_a_dict_that_is_half_written_waits(tmp_path: Path) -> None:
    path = log(tmp_path, "")
    metrics = StdoutMetrics(path)
    found = []
    line = "[rank0]: {'loss': 1.25, 'epoch': 0.5, 'step': 7}\n"
    with path.open("a") as file:
        for character in line * 3:
            file.write(character)
            file.flush()
            found += metrics.read_new()
    assert [scalar[:3] for scalar in found] == [("loss", 7, 1.25)] * 3


def test_a_log_that_begins_anew_is_read_anew(tmp_path: Path) -> None:
    path = log(tmp_path, "{'loss': 1.0, 'epoch': 0.1, 'step': 100}\n" * 3)
    metrics = StdoutMetrics(path)
    metrics.read_new()
    path.write_text("{'loss': 2.0, 'epoch': 0.1, 'step': 5}\n")
    assert [scalar[:3] for scalar in metrics.read_new()] == [("loss", 5, 2.0)]
    assert (metrics.rows, metrics.step) == (1, 5)


def test_real_logs(shared_data: Path) -> None:
    logs = shared_data / "wild" / "logs"
    assert points(logs / "disk_full_checkpoint_save.txt") == [("loss", 1, 1.2207), ("learning_rate", 1, 4.93e-06)]
    for name in ("save_eval_strategy_mismatch.txt", "oom_single_gpu_sft_lora.txt", "nccl_watchdog_timeout.txt"):
        assert not prints_metrics(logs / name), name


@each("name", ["train.log", "nohup.out", "train.txt", "slurm-12.out", "job.err"])
def test_the_log_of_a_folder_is_the_one_with_metrics(tmp_path: Path, name: str) -> None:
    (tmp_path / "requirements.txt").write_text("torch\n")
    assert find_log(tmp_path) is None
    (tmp_path / name).write_text("{'loss': 1.0, 'epoch': 0.1}\n")
    assert find_log(tmp_path) == tmp_path / name


@each(
    "line",
    [
        "Total optimization steps = ,",
        "Total optimization steps = " + "9" * 5000,
        "Num Epochs = " + "9" * 5000,
        "\n  5%|5    | " + "9" * 5000 + "/" + "9" * 5000 + " [00:01<00:01, 1.00it/s]",
        "\n  5%|5    | 5/100 [00:01<00:01, 1.2.3it/s]",
        "\n  5%|5    | 5/100 [00:01<00:01, ...it/s]",
    ],
)
def test_numbers_that_are_none_end_nothing(tmp_path: Path, line: str) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"{line}\n{{'loss': 0.5, 'epoch': 1.0}}\n")
    assert [value for name, _, value, _ in StdoutMetrics(log).read_new() if name == "loss"] == [0.5]


def test_blank_lines_cost_as_little_as_others(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(("{'loss': 0.5, 'epoch': 1.0}\n" + "\n" * 4_000) * 60)
    began_s = time.process_time()
    assert len(StdoutMetrics(log).read_new()) == 60
    # Where each blank line is tried as the begin of a bar up to the last one, this takes 4 s.
    assert time.process_time() - began_s < 1.0


def test_the_bar_of_an_evaluation_is_no_step_of_the_training(tmp_path: Path) -> None:
    text = BAR.format(percent=1, at=2, rate="2.0s/it") + BAR.format(percent=10, at=20, rate="2.0s/it")
    text += "\r{'loss': '1.0', 'epoch': '0.1'}\n"
    text += "\r 90%|█████     | 90/99 [00:00<00:00, 9.0it/s]\r{'eval_loss': '0.9', 'epoch': '0.1'}\n"
    metrics = StdoutMetrics(log(tmp_path, text))
    assert [(name, step) for name, step, _, _ in metrics.read_new()] == [("loss", 20), ("eval_loss", 20)]


def test_the_pace_is_that_of_the_clock_of_the_bar(tmp_path: Path) -> None:
    """A training that goes on jumps to step 50, takes that for speed, and says 2 steps a second: it was 1 s a step."""
    bars = [(0, 0), *((50 + second, second) for second in range(1, 51))]
    text = "".join(f"\r {at}%|███    | {at}/100 [00:{second:02}<00:10, 2.00it/s]" for at, second in bars)
    metrics = StdoutMetrics(log(tmp_path, text + "\n"))
    metrics.read_new()
    assert metrics.step_s == 1.0
