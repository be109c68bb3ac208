"""Jobs that trainwiz did not start: real processes that look, fork, write and end as trainings do."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from trainwiz.core.telemetry.discovery import find_target
from trainwiz.core.telemetry.processes import ProcessTable
from trainwiz.core.telemetry.snapshot import Snapshot
from trainwiz.core.telemetry.target import open_source

PATIENCE_S = 900.0

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
FAKE = r"""
import ctypes, json, os, pathlib, platform, shutil, struct, time
from trainwiz.core.telemetry.event_file import masked_crc32c

def load_framework():
    # A library that is called like torch's: what loads it looks like a training.
    import _ctypes_test
    library = pathlib.Path(f"libtorch_cpu.so.{os.getpid()}").absolute()
    shutil.copy(_ctypes_test.__file__, library)
    ctypes.CDLL(str(library))

def part(number, content):
    return bytes([number << 3 | 2, len(content)]) + content

class Events:
    # Named and written as tensorboard's writer does it: the file is open for each event only.
    def __init__(self, folder):
        self.path = pathlib.Path(folder, f"events.out.tfevents.{int(time.time())}.{platform.node()}.{os.getpid()}.0")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.add(b"\x1a\x0dbrain.Event:2")
    def add(self, content):
        event = struct.pack("<Bd", 9, time.time()) + content
        length = struct.pack("<Q", len(event))
        checks = [struct.pack("<I", masked_crc32c(data)) for data in (length, event)]
        with self.path.open("ab") as file:
            file.write(length + checks[0] + event + checks[1])
    def scalar(self, tag, step, value):
        varint = bytes([step & 0x7F | 0x80, step >> 7 & 0x7F | 0x80, step >> 14 & 0x7F])
        self.add(b"\x10" + varint + part(5, part(1, part(1, tag.encode()) + struct.pack("<Bf", 0x15, value))))
    def arguments(self, values):
        tensor = b"\x08\x07" + part(8, json.dumps(values).encode())
        self.add(part(5, part(1, part(1, b"args/text_summary") + part(8, tensor))))
"""
FAKE_TRAINER = r"""
import argparse, multiprocessing, os, time
from fake import Events, load_framework
parser = argparse.ArgumentParser()
parser.add_argument("--output_dir")
parser.add_argument("--max_steps", type=int)
parser.add_argument("--report_to", default="tensorboard")
parser.add_argument("--hub_token")
given = parser.parse_args()
load_framework()
while (sign := os.environ.get("WAITS_FOR")) and not os.path.exists(sign):
    time.sleep(0.01)
for _ in range(int(os.environ.get("WORKERS", 0))):
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True).start()
events = Events(given.output_dir + "/runs/now") if given.report_to == "tensorboard" else None
if events:
    events.arguments({"max_steps": given.max_steps})
for step in range(1, given.max_steps + 1):
    if events:
        events.scalar("train/loss", step, float(os.environ.get("LOSS", 1)))
    print("{'loss': 1.0, 'epoch': 0.1}", f"  1%|1   | {step}/{given.max_steps} [00:01<00:09, 9.00it/s]", sep="\n", flush=True)
    sum(range(300_000))
    time.sleep(0.02)
"""


def write_scripts(folder: Path) -> Path:
    """train.py (sleeps, with WORKERS workers), torchrun (starts RANKS of what it is given), train_fake.py (seems to)."""
    folder.mkdir(parents=True, exist_ok=True)
    scripts = {"train.py": TRAIN, "torchrun": LAUNCH, "train_fake.py": FAKE_TRAINER, "fake.py": FAKE}
    for name, text in scripts.items():
        (folder / name).write_text(text)
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


def look(what: object) -> Snapshot:
    """One whole look at a process or path, from the beginning."""
    with contextlib.closing(open_source(find_target(str(what)))) as source:
        return source.read_all(("loss",))


def python(*words: str) -> list[str]:
    return [sys.executable, *words]


def wait_for(what: Callable[[], object], patience_s: float = PATIENCE_S) -> object:
    """The first true answer; fails when there is none in time, which is long: a busy machine is no failure."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if answer := what():
            return answer
        time.sleep(0.05)
    raise AssertionError(f"nothing within {patience_s:g} s")
