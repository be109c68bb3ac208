"""Probe: a few real steps of a plan on this machine. Nothing is left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainwiz.core.data.summary import DataSummary
from trainwiz.core.diagnosis.cause import Evidence
from trainwiz.core.diagnosis.diagnose import diagnose
from trainwiz.core.diagnosis.sources import kernel_oom_kills, killed_since, read_failures, read_log
from trainwiz.core.errors import CannotRunError, Finding, UsageError, os_reason, usage_error
from trainwiz.core.export.launch_script import export_files, launch_command
from trainwiz.core.hardware.install import need
from trainwiz.core.language import tr
from trainwiz.core.launch.prepare import relative_to_folder, run_yaml_text
from trainwiz.core.launch.probe_order import (
    ANSWERS_JSONL,
    ON_THE_LONGEST,
    TURN,
    ProbeResult,
    probe_config,
    probe_order,
    probe_result,
)
from trainwiz.core.launch.start import own_launcher, training_variables
from trainwiz.core.lines import JsonLinesTail
from trainwiz.core.plan.gather import planned_fields
from trainwiz.core.plan.result import Plan
from trainwiz.core.run.folder import RUN_YAML, RunFolder, write_atomic
from trainwiz.core.supervise.attempt import training_environment
from trainwiz.core.supervise.ties import kill_marked, marked_processes, send

# `python -m trainwiz.core.launch.probe FOLDER MARK`: clears up after a probe, however it ended.
#
# It waits for the end of its stdin, which only the command that probes holds open: a killed command closes
# it too. Then every process of the probe is ended, and its folder removed.

GENTLE_S = 1.0
PATIENCE_S = 10.0


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder, mark = sys.argv[1:3]
    while os.read(0, 4096):
        pass
    clear_up(folder, mark)


def clear_up(folder: str, mark: str) -> None:
    """SIGTERM, a moment, SIGKILL; then the folder goes."""
    for pid in marked_processes(mark):
        send(pid, signal.SIGTERM)
    deadline = time.monotonic() + GENTLE_S
    while time.monotonic() < deadline and marked_processes(mark):
        time.sleep(0.05)
    kill_marked(mark, (), PATIENCE_S)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()


# What forbids a probe: it runs on this machine, and it takes the RAM and the GPU that the plan says.

NOT_OF_A_STEP = frozenset(
    {
        "adapters_on_random_weights", "disk", "empty_data", "evaluation_does_not_fit", "gated_model", "missing_data",
        "missing_model", "missing_tokenizer", "mixed_formats", "nothing_held_out",
        "nothing_to_compare", "nothing_to_generate", "reporter_missing",
        "several_targets", "unknown_language", "unknown_lengths", "unknown_metric",
        "unreadable_data",
    }
)  # fmt: skip
"""Errors of a plan that a few steps with random weights do not meet."""
FOUND_OUT_ON_A_GPU = frozenset({"does_not_fit"})
"""A GPU that runs out of memory says so and nothing else is lost; a computer without RAM takes other programs down."""


def check_probe(plan: Plan) -> None:
    """Raises UsageError for what can be no probe here, CannotRunError for what this machine or the plan forbids."""
    config = plan.config
    if plan.machine.hypothetical:
        message = tr("A probe measures this machine, but the plan is for another one: remove --gpu and its options.")
        raise usage_error("no_probe", "machine", message)
    if config.engine.nodes > 1:
        message = tr("A probe measures one machine, but the plan has {n}: set engine.nodes=1.", n=config.engine.nodes)
        raise usage_error("no_probe", "engine.nodes", message)
    if plan.work is None or not plan.work.model_config:
        message = tr("The architecture of the model {name} is unknown.", name=config.model.name)
        reasons = [error for error in plan.errors if error.where.startswith("model")]
        raise UsageError([Finding("no_probe", "error", "model.name", message), *reasons])
    need(machine=plan.machine)
    allowed = NOT_OF_A_STEP if config.engine.device == "cpu" else NOT_OF_A_STEP | FOUND_OUT_ON_A_GPU
    forbidding = tuple(one for one in plan.errors if one.code not in allowed)
    if forbidding and not config.forced:
        raise CannotRunError(forbidding)


# Probe: a few real steps of a plan on this machine, in processes of their own. Nothing is left behind.

LONGEST_S = 60.0
CLOSING_S = 4.0
"""Of the time: what the processes get to end by themselves."""
LOOK_EVERY_S = 0.1
LOG = "probe.log"

Listener = Callable[[Mapping[str, Any]], None]


class Probe:
    """Context manager: the processes of one probe, of which no process and no file is left at its end.

    It is meant for the main thread of a command: an exception in it (Ctrl-C) ends the probe too.
    """

    def __init__(
        self,
        plan: Plan,
        data: DataSummary | None,
        limit_s: float = LONGEST_S,
        *,
        search: bool = True,
        in_turns: bool = False,
    ) -> None:
        """`plan` is for this machine and has a known model. `search`: for the largest micro-batch, with the last of the
        seconds. `in_turns`: no step is done before `allow`, and nothing is searched."""
        self._plan, self._limit_s = plan, limit_s
        self._config = probe_config(plan)
        self._order = probe_order(plan, data, max(1.0, limit_s - CLOSING_S), search=search, in_turns=in_turns)
        self._started_s = time.monotonic()
        self._lines: list[dict[str, Any]] = []
        self._allowed = 0
        self._mark = uuid.uuid4().hex
        self._folder = Path()
        self._oom_kills = kernel_oom_kills()
        self._guard: subprocess.Popen[bytes] | None = None
        self._launcher: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Probe:
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="trainwiz-bench-"))
            self._answers = JsonLinesTail(self._folder / ANSWERS_JSONL)
            self._guard = subprocess.Popen(
                [sys.executable, "-P", "-m", "trainwiz.core.launch.probe", str(self._folder), self._mark],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._launcher = self._start()
        except BaseException as error:
            self._end()
            if not isinstance(error, OSError):
                raise
            message = tr(
                "The probe could not be started in {path}: {reason}; specify another folder with TMPDIR.",
                path=tempfile.gettempdir(),
                reason=os_reason(error),
            )
            raise CannotRunError(Finding("probe_not_started", "error", tempfile.gettempdir(), message)) from error
        return self

    def __exit__(self, *error: object) -> None:
        # A second Ctrl-C must not leave half of it behind.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._end()
        finally:
            signal.signal(signal.SIGINT, before)

    def _end(self) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            if self._guard.wait() != 0:
                # It was killed itself.
                clear_up(str(self._folder), self._mark)
        if self._launcher is not None:
            self._launcher.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        folder, config = self._folder, self._config
        moved = relative_to_folder(config, folder)
        for name, text in {**export_files(config), RUN_YAML: run_yaml_text(moved)}.items():
            (folder / name).write_text(text, encoding="utf-8")
        self._order.write(folder)
        # torchrun's and multiprocessing's own folders go with this one.
        scratch = folder / "tmp"
        scratch.mkdir()
        variables = {**training_variables(config, os.environ), "TMPDIR": str(scratch)}
        with (folder / LOG).open("wb") as log:
            return subprocess.Popen(
                [*own_launcher(launch_command(config)), "--probe"],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=training_environment(self._mark, variables),
                start_new_session=True,
            )

    def run(self, listener: Listener = lambda line: None) -> ProbeResult:
        """Blocks until the probe has ended, its seconds at most. `listener` gets each line as it comes.

        Raises CannotRunError where nothing could be measured, with the reason.
        """
        told, event = 0, None
        while event != "end":
            # Asked first: what a process wrote before it ended is there then.
            over = self._exit_code() is not None or time.monotonic() > self._started_s + self._limit_s
            for line in self.look()[told:]:
                listener(line)
                event, told = line["event"], told + 1
            if over:
                break
            time.sleep(LOOK_EVERY_S)
        result = self.result()
        if result.measurement is None:
            raise CannotRunError(self._failure(result.problem))
        return result

    def allow(self, steps: int) -> None:
        """Up to `steps` in all may be done. Raises OSError."""
        write_atomic(self._folder / TURN, str(steps))

    def take(self, steps: int) -> float:
        """In turns: seconds of the next steps, those on the longest batch left out.

        Raises TimeoutError when the time is up, CannotRunError with the reason where the processes ended.
        """
        self._allowed += steps
        self.allow(self._allowed)
        while True:
            # Asked first: what a process wrote before it ended is there then.
            problem = self.problem
            # The last step of an epoch is short: all do it, on the same rows.
            done = [line["seconds"] for line in self.look() if line["event"] in ("step", "short")]
            if len(done) >= self._allowed - ON_THE_LONGEST:
                return float(sum(done[-steps:]))
            if problem:
                raise CannotRunError(self._failure(problem))
            if time.monotonic() > self._started_s + self._limit_s:
                raise TimeoutError
            time.sleep(0.01)

    def look(self) -> list[dict[str, Any]]:
        """All lines so far."""
        self._lines += self._answers.read_new()
        return self._lines

    def _exit_code(self) -> int | None:
        return self._launcher.poll() if self._launcher is not None else None

    @property
    def problem(self) -> str:
        """Why the processes ended, in a sentence; "" where they did not, or ended well."""
        code = self._exit_code()
        if not code:
            return ""
        evidence = Evidence(
            run="bench",
            exit_code=code,
            failures=read_failures(RunFolder(self._folder)),
            log=read_log(self._folder / LOG),
            oom_kills=killed_since(self._oom_kills) or 0,
        )
        return diagnose(evidence).message

    def result(self) -> ProbeResult:
        """What the lines so far say."""
        planned = planned_fields(self._plan) or {}
        return probe_result(self._order, planned, self._lines, self._started_s, self.problem)

    def _failure(self, problem: str) -> Finding:
        if problem:
            return Finding("probe_failed", "error", "bench", tr("The probe failed: {reason}", reason=problem))
        message = tr(
            "Nothing was measured in {seconds} s; allow more time (--seconds), or use a smaller micro-batch "
            "(--micro-batch 1) or a shorter length (--length).",
            seconds=f"{self._limit_s:.0f}",
        )
        return Finding("probe_too_slow", "error", "batch.micro_batch_size", message)
