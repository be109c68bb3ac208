"""Two faults with real processes all the way down, to see in minutes that the campaign runs."""

from __future__ import annotations

from tools.faults.fault import Fault, Moment


def short_plan() -> list[Fault]:
    return [
        Fault(1, "signal", "esm-two", "rank1", "SIGKILL", Moment("saving", 3.0)),
        Fault(2, "signal", "esm", "supervisor", "SIGKILL", Moment("step", 7.0)),
    ]
