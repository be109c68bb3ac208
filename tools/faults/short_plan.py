"""The few faults of the test suite: one of each kind, within three minutes."""

from __future__ import annotations

from tools.faults.fault import Fault, Moment


def short_plan() -> list[Fault]:
    return [
        Fault(1, "signal", "esm-two", "rank1", "SIGKILL", Moment("saving", 3.0)),
        Fault(2, "signal", "esm", "supervisor", "SIGKILL", Moment("step", 7.0)),
        Fault(3, "training", "esm", "training", "oom@7:above=3", Moment("step", 7.0)),
        Fault(4, "file", "esm", "{checkpoint}/model.safetensors", "cut", Moment("rest")),
        Fault(5, "signal", "esm", "front", "SIGTERM", Moment("step", 5.0)),
        Fault(6, "disk", "esm", "disk", "filled", Moment("saving", 6.0)),
    ]
