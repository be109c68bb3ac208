"""The tracer's own server and children, with a fixed answer instead of a trace: no torch. FIXED_BYTES is the peak."""

from __future__ import annotations

import os
import sys
from typing import Any

from trainwiz.core.estimate.trace import server as children
from trainwiz.core.estimate.trace.server import Server
from trainwiz.core.estimate.workload import Moment
from trainwiz.core.processes import private_stdout
from trainwiz.core.supervise.ties import hold_to
from trainwiz.core.tracing.request import TraceResult

PEAK = "the backward pass, as set in a test"


def fixed(values: dict[str, Any]) -> dict[str, Any]:
    moment = Moment(PEAK, {"activations": int(os.environ["FIXED_BYTES"])})
    return {"result": TraceResult((moment,), (), 1, 1).to_json()}


if __name__ == "__main__":
    hold_to(int(sys.argv[1]))
    children.answer = fixed  # type: ignore[attr-defined]
    Server(private_stdout()).run()
