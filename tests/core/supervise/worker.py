"""A stand-in for the training: what the keeper can see of one, without torch.

Environment: STEPS, STEP_S, FAIL_AT (step of an exception), FAIL_WITH (its text), FAIL_ONCE, IGNORE_STOP, EXTRA (start children that hold to nothing),
PREPARE_S (seconds before the training begins), SAID_STEP_S (step_s of its lines), SAVE_S (seconds of the save of a stop).
"""

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
import zipfile
from pathlib import Path

from trainwiz.core.run.folder import write_json_atomic
from trainwiz.core.supervise.ties import hold_to_parent

RANK = int(os.environ.get("RANK", "0"))
stop_asked = False


def on_stop(number: int, frame: object) -> None:
    global stop_asked
    if stop_asked:
        os._exit(1)
    stop_asked = True


def save(step: int) -> None:
    """A whole checkpoint, its record last, as the Trainer writes it."""
    folder = Path(f"checkpoint-{step}")
    folder.mkdir()
    ready = time.monotonic() + (float(os.environ.get("SAVE_S", "0")) if stop_asked else 0.0)
    with (folder / "growing").open("wb", 0) as file:
        while time.monotonic() < ready:
            file.write(b"0" * 1000)
            time.sleep(0.05)
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 8)
    (folder / "config.json").write_text("{}")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("data.pkl", str(step))
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))


def train(first: int, steps: int) -> None:
    for step in range(first + 1, steps + 1):
        if step == int(os.environ.get("FAIL_AT", "-1")) and not (os.environ.get("FAIL_ONCE") and Path("once").exists()):
            Path("once").touch()
            raise RuntimeError(os.environ.get("FAIL_WITH", "CUDA out of memory. Tried to allocate 2.00 GiB"))
        time.sleep(float(os.environ.get("STEP_S", "0.05")))
        if RANK == 0:
            row = {"time_s": time.time(), "step": step, "loss": 3.0 - step / steps}
            if said := os.environ.get("SAID_STEP_S"):
                row |= {"step_s": float(said), "tokens": 100 * step}
            with open("metrics.jsonl", "a") as file:
                file.write(json.dumps(row) + "\n")
            if step % 10 == 0:
                save(step)
        if stop_asked:
            print(f"rank {RANK} stops", flush=True)
            end("stopped", step, steps)
            return
    end("finished", steps, steps)


def end(outcome: str, step: int, steps: int) -> None:
    if RANK == 0:
        if not Path(f"checkpoint-{step}").exists():
            save(step)
        document = {"outcome": outcome, "step": step, "max_steps": steps, "first_loss": 3.0, "last_loss": 2.0}
        write_json_atomic(Path("outcome.json"), document)


def main() -> int:
    if os.environ.get("EXTRA"):
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True).start()
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--resume")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if os.environ.get("IGNORE_STOP") else on_stop)
    first = 0
    if arguments.resume:
        first = json.loads((Path(arguments.resume) / "trainer_state.json").read_text())["global_step"]
    print(f"rank {RANK} prepares", flush=True)
    ready = time.monotonic() + float(os.environ.get("PREPARE_S", "0"))
    while time.monotonic() < ready:
        time.sleep(0.1)
    if RANK == 0:
        world = int(os.environ.get("WORLD_SIZE", "1"))
        engine = {"actual": "single", "device": "cpu", "precision": "fp32", "world_size": world}
        write_json_atomic(Path("engine.json"), engine)
    print(f"rank {RANK} trains from {first}", flush=True)
    try:
        train(first, int(os.environ.get("STEPS", "100000")))
    except Exception as error:
        document = {
            "type": type(error).__name__,
            "message": str(error),
            "traceback": traceback.format_exc(),
            "time_s": time.time(),
            "step": int(os.environ.get("FAIL_AT", "-1")),
            "rank": RANK,
        }
        write_json_atomic(Path(f"failure-rank{RANK}.json"), document)
        raise
    return 0


if __name__ == "__main__":
    hold_to_parent()
    sys.exit(main())
