"""Entry of the tracer. The ties to its parent and the pipe for answers come before the heavy imports."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path

from trainwiz.core.language import chosen_language, use_language
from trainwiz.core.processes import private_stdout
from trainwiz.core.supervise.ties import hold_to


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="trainwiz.core.estimate.trace", description="Trace training steps: JSON lines in, JSON lines out."
    )
    parser.add_argument("--parent", type=int, default=None, help="process to end with")
    parser.add_argument("--no-fork", action="store_true", help="a new process for each trace")
    choices = parser.parse_args()
    use_language(chosen_language(None, os.environ))
    if choices.parent is not None:
        hold_to(choices.parent)
    answers = private_stdout()
    # Where memory runs out, Linux shall end a preview before anything else (proc_pid_oom_score_adj(5)).
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("900", encoding="ascii")
    from trainwiz.core.estimate.trace import server

    if sys.platform != "linux" or choices.no_fork:
        server.Server(answers, forks=False).run()
    else:
        server.import_all(answers)
        server.Server(answers, idle=server.first_traces()).run()


if __name__ == "__main__":
    main()
