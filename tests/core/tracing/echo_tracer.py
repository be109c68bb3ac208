"""The tracer's own server and children, with a trace that does as its task says instead of tracing: no torch."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from trainwiz.core.estimate.trace import server as children
from trainwiz.core.estimate.trace.server import Server
from trainwiz.core.estimate.workload import Moment
from trainwiz.core.processes import private_stdout
from trainwiz.core.supervise.ties import hold_to
from trainwiz.core.tracing.request import TraceResult


def echo(values: dict[str, Any]) -> dict[str, Any]:
    task, _, argument = values["task"].partition(" ")
    if task == "sleep":
        time.sleep(float(argument))
    elif task == "print":
        print("a library says hello", flush=True)
        os.write(1, b"in its own way, too\n")
    elif task == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif task == "pids":
        Path(argument).write_text(f"{os.getppid()} {os.getpid()}")
        time.sleep(600)
    moment = Moment("forward", {"activations": values["micro_batch"]})
    return {"result": TraceResult((moment,), (), 1, 1).to_json()}


if __name__ == "__main__":
    hold_to(int(sys.argv[1]))
    children.answer = echo  # type: ignore[attr-defined]
    Server(private_stdout()).run()
