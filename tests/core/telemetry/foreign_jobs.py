"""Jobs that trainwiz did not start: real processes that look, fork, write and end as trainings do."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from trainwiz.core.telemetry.processes import ProcessTable

PATIENCE_S = 60.0

TRAIN = """
import multiprocessing, os, sys, time
def work():
    time.sleep(600)
if __name__ == "__main__":
    context = multiprocessing.get_context(os.environ.get("START", "fork"))
    workers = [context.Process(target=work, daemon=True) for _ in range(int(os.environ.get("WORKERS", 0)))]
    for worker in workers:
        worker.start()
    print("ready", flush=True)
    time.sleep(600)
"""
LAUNCH = """
import os, subprocess, sys
ranks = [
    subprocess.Popen([sys.executable, *sys.argv[1:]], env=os.environ | {"LOCAL_RANK": str(rank)})
    for rank in range(int(os.environ.get("RANKS", 1)))
]
for rank in ranks:
    rank.wait()
"""
TRAINER = """
import argparse, torch
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments
parser = argparse.ArgumentParser()
parser.add_argument("--output_dir")
parser.add_argument("--max_steps", type=int)
parser.add_argument("--report_to", default="tensorboard")
parser.add_argument("--hub_token")
given = parser.parse_args()
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4096
    def __getitem__(self, index):
        ids = torch.full((16,), 7)
        return {"input_ids": ids, "labels": ids}
model = BertForMaskedLM(BertConfig(
    vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16))
arguments = TrainingArguments(
    output_dir=given.output_dir, max_steps=given.max_steps, logging_steps=1, report_to=given.report_to, use_cpu=True,
    per_device_train_batch_size=4, dataloader_num_workers=2, save_strategy="no")
Trainer(model, arguments, train_dataset=Rows()).train()
"""


def write_scripts(folder: Path) -> Path:
    """train.py (sleeps, with WORKERS workers), torchrun (starts RANKS of what it is given), trainer.py (really trains)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(TRAIN)
    (folder / "torchrun").write_text(LAUNCH)
    (folder / "train_tiny.py").write_text(TRAINER)
    return folder


@contextlib.contextmanager
def started(
    command: list[str], folder: Path, output: Path | None = None, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a session of its own; in the end all of the session and of the tree is killed.

    torchrun gives each rank a session of its own.
    """
    environment: Mapping[str, str] = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    with (output or Path(os.devnull)).open("ab") as stdout:
        process = subprocess.Popen(
            command, cwd=folder, stdout=stdout, stderr=stdout, env=environment, start_new_session=True
        )
    try:
        # Between the exec that Popen waits for and the new program's first page, the kernel shows no command line.
        wait_for(lambda: process.poll() is not None or Path(f"/proc/{process.pid}/cmdline").read_bytes())
        yield process
    finally:
        below = ProcessTable().tree(process.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for pid in below[1:]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def python(*words: str) -> list[str]:
    return [sys.executable, *words]


def wait_for(what: Callable[[], object], patience_s: float = PATIENCE_S) -> object:
    """The first true answer; fails when there is none in time."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        answer = what()
        if answer:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"nothing within {patience_s:g} s")
