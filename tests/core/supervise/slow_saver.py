"""A stand-in for a training whose steps and saves are long: it says a step time, and saves slowly when it is stopped.

Environment: SAID_STEP_S (step_s of its lines), SAVE_S (the save grows for so long), SAVE_HANGS (nothing more is written).
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from trainwiz.core.run.folder import write_json_atomic
from trainwiz.core.supervise.ties import hold_to_parent

stopped = False


def on_stop(number: int, frame: object) -> None:
    global stopped
    stopped = True


def save(step: int) -> None:
    folder = Path(f"checkpoint-{step}")
    folder.mkdir()
    (folder / "progress.json").write_text("{}")
    with (folder / "optimizer.pt").open("wb", 0) as file:
        ready = time.monotonic() + float(os.environ.get("SAVE_S", "0"))
        while time.monotonic() < ready:
            if not os.environ.get("SAVE_HANGS"):
                file.write(b"0" * 1000)
            time.sleep(0.05)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))


if __name__ == "__main__":
    hold_to_parent()
    signal.signal(signal.SIGTERM, on_stop)
    write_json_atomic(Path("engine.json"), {"actual": "single", "world_size": int(os.environ.get("WORLD", "1"))})
    step = 0
    while not stopped:
        step += 1
        line = {"time_s": time.time(), "step": step, "loss": 3.0, "step_s": float(os.environ["SAID_STEP_S"])}
        with Path("metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        time.sleep(0.1)
    save(step)
    write_json_atomic(Path("outcome.json"), {"outcome": "stopped", "step": step, "max_steps": 9})
