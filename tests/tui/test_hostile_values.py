"""Numbers that no training has, in every place where a foreign file can hold one: no traceback, and nothing endless."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import starmap
from pathlib import Path

import pytest
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.telemetry.discovery import recognise
from trainwiz.core.telemetry.run_source import RunSource
from trainwiz.core.telemetry.snapshot import Snapshot
from trainwiz.core.telemetry.target import Target, open_files_source
from trainwiz.core.text import finite
from trainwiz.tui.cli import main
from trainwiz.tui.commands.monitor import plain_line, summary_rows
from trainwiz.tui.output import labelled
from trainwiz.tui.widgets.drawing import BRAILLE, PlotData, draw_plot

from tests.each import each

HEX = "0x" + "f" * 5000
NUMBERS = ["1e308", "5e-324", "NaN", "-Infinity", "9" * 5000, "-" + "9" * 400, str(2**63), "1e16"]
OTHERS = ['"NaN"', f'"{HEX}"', "true", "null", "[]", "0.1"]
LONGEST_DIGITS = re.compile(r"\d[\d,]{70}")
"""A foreign value inside a sentence has 60 characters at most."""

Write = Callable[[Path, str], Path]


def row(place: str, value: str, **others: str) -> str:
    return "{" + ", ".join(f'"{name}": {text}' for name, text in {**others, place: value}.items()) + "}"


def of_run(place: str) -> Write:
    def write(folder: Path, value: str) -> Path:
        lines = [row(place, value, step="10", loss="1.5", epoch="0.5", time_s="1700000000.0")] * 2
        (folder / "run.yaml").write_text("{}\n")
        (folder / "metrics.jsonl").write_text("\n".join([*lines, '{"step": 20, "loss": 1.0}', *lines]) + "\n")
        return folder

    return write


def of_state(place: str) -> Write:
    def write(folder: Path, value: str) -> Path:
        end = {"train_runtime": "60.0", "train_steps_per_second": "0.5", "train_samples_per_second": "8.0"}
        rows = [row(place, value, step="10", loss="1.5"), row(place, value, step="20", train_loss="1.5", **end)]
        own = {"global_step": "20", "max_steps": "30", "epoch": "1.0", "train_batch_size": "4"}
        text = row(place, value, **own, log_history=f"[{', '.join(rows)}]")
        (folder / "trainer_state.json").write_text(text)
        return folder

    return write


def of_csv(folder: Path, value: str) -> Path:
    (folder / "metrics.csv").write_text(f"step,epoch,loss\n0,0,1.0\n{value},{value},{value}\n")
    return folder


def of_log(folder: Path, value: str) -> Path:
    (folder / "train.log").write_text(
        f"Num Epochs = {value}\nTotal optimization steps = {value}\n"
        f"{{'loss': {value}, 'step': {value}}}\n{{'loss': 1.0, 'epoch': {value}}}\n"
        f" 10%|█    | {value}/{value} [{value}:00<00:10, {value}it/s]\n{{'loss': 1.0, 'epoch': 0.5}}\n"
    )
    return folder / "train.log"


OF_A_RUN = "step epoch loss time_s step_s tokens_per_s resumed_from data_wait_s"
OF_A_STATE = (
    "step loss train_runtime train_steps_per_second train_samples_per_second train_loss "
    "global_step max_steps epoch train_batch_size logging_steps best_metric"
)
WRITERS: dict[str, Write] = {
    **{f"metrics.jsonl {place}": of_run(place) for place in OF_A_RUN.split()},
    **{f"trainer_state.json {place}": of_state(place) for place in OF_A_STATE.split()},
    "metrics.csv": of_csv,
    "train.log": of_log,
}


@each("name", WRITERS)
def test_no_number_ends_a_look_or_is_written_out(name: str, tmp_path: Path) -> None:
    for number, value in enumerate(NUMBERS + OTHERS):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = WRITERS[name](folder, value)
        for snapshot in looks(path):
            json.dumps(finite(snapshot.to_json()), allow_nan=False)
            text = "\n".join([*starmap(labelled, summary_rows(snapshot)), plain_line(snapshot), *drawn(snapshot)])
            assert not LONGEST_DIGITS.search(text), (value[:20], text)


def looks(path: Path) -> Iterator[Snapshot]:
    found = recognise(path)
    if isinstance(found, str):
        assert "\n" not in found
        return
    source = RunSource(RunFolder(path)) if found.kind == "run" else open_files_source(Target(found.kind, path, "x"))
    names = source.read_all().metrics
    yield source.read_all(names)
    source.close()


def drawn(snapshot: Snapshot) -> Iterator[str]:
    for curve in snapshot.curves.values():
        for logarithmic in (False, True):
            rows, _ = draw_plot(PlotData(curve, logarithmic=logarithmic), 60, 8, BRAILLE)
            yield from ("".join(text for text, _ in cells) for cells in rows)


TRAINER = "from transformers import TrainingArguments\nTrainingArguments(output_dir='x', seed={value})"


@each(
    ("name", "text"),
    [
        ("args.py", TRAINER),
        ("args.yaml", "output_dir: x\nlogging_steps: {value}\nlearning_rate: {value}\n"),
        ("accelerate.yaml", "compute_environment: LOCAL_MACHINE\nnum_processes: {value}\nmain_process_port: {value}\n"),
        ("args.sh", "accelerate launch --num_processes {value} train.py --output_dir x --learning_rate {value}\n"),
    ],
)
@each("value", [HEX, "1e299", "9" * 300, "-1e308"])
def test_no_number_ends_an_import(
    name: str, text: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text.format(value=value))
    assert main(["import", str(tmp_path / name)]) in (0, 2)
    said = capsys.readouterr()
    assert "Error:" not in said.out + said.err
    assert not LONGEST_DIGITS.search(said.out + said.err)
