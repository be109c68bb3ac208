"""Probe: a few real steps of a plan on this machine, in processes of their own. Nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from trainwiz.core.data.summary import DataSummary
from trainwiz.core.diagnosis.diagnose import diagnose
from trainwiz.core.diagnosis.evidence import Evidence, KernelFacts
from trainwiz.core.diagnosis.facts import LogFacts
from trainwiz.core.diagnosis.kernel import kernel_oom_kills
from trainwiz.core.diagnosis.log_file import read_log
from trainwiz.core.diagnosis.of_attempt import read_failures
from trainwiz.core.errors import CannotRunError, os_reason
from trainwiz.core.export.files import export_files
from trainwiz.core.export.launch_script import TRAINING_MODULE, launch_command
from trainwiz.core.findings import Finding
from trainwiz.core.history.planned import planned_fields
from trainwiz.core.json_text import parse_json
from trainwiz.core.language import tr
from trainwiz.core.launch.portable import relative_to_folder
from trainwiz.core.launch.prepare import run_yaml_text
from trainwiz.core.launch.probe_config import in_turns, measured_accumulation, probe_config, probe_order
from trainwiz.core.launch.probe_guard import clear_up
from trainwiz.core.launch.probe_order import ANSWERS_JSONL, PROBE_MODULE, TURN, ProbeOrder
from trainwiz.core.launch.probe_result import ProbeResult, probe_result
from trainwiz.core.launch.start import own_launcher, training_variables
from trainwiz.core.plan.result import Plan
from trainwiz.core.run.folder import RUN_MARK_VARIABLE, RunFolder
from trainwiz.core.run.processid import this_process
from trainwiz.core.small_file import open_file
from trainwiz.core.supervise.lifeline import KEEPER_VARIABLE, keeper_value

LONGEST_S = 60.0
CLOSING_S = 4.0
"""Of the time: what the processes get to end by themselves."""
LOOK_EVERY_S = 0.1
LOG = "probe.log"

Listener = Callable[[Mapping[str, Any]], None]


class Probe:
    """Context manager around one probe: `run` in it, and at its end no process and no file of it is left.

    It is meant for the main thread of a command: an exception in `run` (Ctrl-C) ends the probe too.
    """

    def __init__(
        self, plan: Plan, data: DataSummary | None, *, limit_s: float = LONGEST_S, search: bool = True
    ) -> None:
        """`plan` is for this machine and has a known model (see core/launch/probe_refusal.py)."""
        self._plan = plan
        self._data = data
        self._limit_s = limit_s
        self._search = search
        self._config = probe_config(plan)
        self._order: ProbeOrder | None = None
        self._started_s = 0.0
        self._offset = 0
        self._lines: list[dict[str, Any]] = []
        self._mark = uuid.uuid4().hex
        self._folder = Path()
        self._guard: subprocess.Popen[bytes] | None = None
        self._launcher: subprocess.Popen[bytes] | None = None
        self._oom_kills = kernel_oom_kills()

    def __enter__(self) -> Probe:
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="trainwiz-bench-"))
            self._guard = subprocess.Popen(
                [sys.executable, "-P", "-m", "trainwiz.core.launch.probe_guard", str(self._folder), self._mark],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise CannotRunError(_not_writable(error)) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A second Ctrl-C must not leave half of it behind.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            if self._guard is not None and self._guard.stdin is not None:
                self._guard.stdin.close()
                self._guard.wait()
                if self._guard.returncode != 0:
                    # It was killed itself.
                    clear_up(str(self._folder), self._mark)
                if self._launcher is not None:
                    self._launcher.wait()
        finally:
            signal.signal(signal.SIGINT, before)

    def run(self, listener: Listener = lambda line: None) -> ProbeResult:
        """Blocks until the probe has ended, `limit_s` at most. `listener` gets each line as it comes.

        Raises CannotRunError where nothing could be measured, with the reason.
        """
        self._begin(
            probe_order(
                self._plan,
                self._data,
                ends_s=time.monotonic() + self._limit_s - CLOSING_S,
                limit_s=self._limit_s,
                search=self._search,
            )
        )
        self._follow(self._started_s + self._limit_s, listener)
        result = self.result()
        if result.measurement is None:
            raise CannotRunError(self._failure(self._lines, result.problem))
        return result

    def begin_in_turns(self, ends_s: float) -> None:
        """Starts the processes, which do no step before `allow`; `ends_s` on the monotonic clock.

        Raises CannotRunError where they cannot be started.
        """
        self._config = in_turns(self._config)
        left = ends_s - time.monotonic()
        order = probe_order(self._plan, self._data, ends_s=ends_s, limit_s=max(1.0, left), search=False)
        self._begin(replace(order, in_turns=True))

    def allow(self, steps: int) -> None:
        """Up to `steps` in all may be done. Raises OSError."""
        temporary = self._folder / f".{TURN}"
        temporary.write_text(str(steps), encoding="utf-8")
        temporary.replace(self._folder / TURN)

    def look(self) -> list[dict[str, Any]]:
        """All lines so far."""
        new, self._offset = _read(self._folder / ANSWERS_JSONL, self._offset)
        self._lines += new
        return self._lines

    @property
    def problem(self) -> str:
        """Why the processes ended, in a sentence; "" where they did not, or ended well."""
        failed = self._launcher is not None and self._launcher.poll() not in (None, 0)
        return self._diagnosis() if failed else ""

    def result(self) -> ProbeResult:
        """What the lines so far say."""
        assert self._order is not None
        planned = planned_fields(self._plan) or {}
        return probe_result(self._order, planned, self._lines, self._started_s, time.monotonic(), self.problem)

    def _begin(self, order: ProbeOrder) -> None:
        self._order, self._started_s = order, time.monotonic()
        try:
            self._write(order)
            self._launcher = self._start()
        except OSError as error:
            raise CannotRunError(_not_writable(error)) from error

    def _write(self, order: ProbeOrder) -> None:
        config = self._config
        for name, text in export_files(config).items():
            (self._folder / name).write_text(text, encoding="utf-8")
        order.write(self._folder)
        RunFolder(self._folder).run_yaml.write_text(
            run_yaml_text(relative_to_folder(config, self._folder)), encoding="utf-8"
        )

    def _start(self) -> subprocess.Popen[bytes]:
        config = self._config
        command = [PROBE_MODULE if word == TRAINING_MODULE else word for word in own_launcher(launch_command(config))]
        environment = {**os.environ, **training_variables(config, os.environ)}
        environment["PYTHONUNBUFFERED"] = environment["PYTHONFAULTHANDLER"] = "1"
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
        environment[RUN_MARK_VARIABLE] = self._mark
        environment[KEEPER_VARIABLE] = keeper_value(this_process())
        # torchrun's and multiprocessing's own folders go with this one.
        scratch = self._folder / "tmp"
        scratch.mkdir()
        environment["TMPDIR"] = str(scratch)
        with (self._folder / LOG).open("wb") as log:
            return subprocess.Popen(
                command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def _follow(self, ends_s: float, listener: Listener) -> None:
        """Until the launcher has ended, the last word was said, or the time is up."""
        assert self._launcher is not None
        while True:
            ended, seen = self._launcher.poll() is not None, len(self._lines)
            new = self.look()[seen:]
            for line in new:
                listener(line)
            if ended or time.monotonic() > ends_s or any(line.get("event") == "end" for line in new):
                return
            time.sleep(LOOK_EVERY_S)

    def _failure(self, lines: list[dict[str, Any]], problem: str) -> Finding:
        if not problem:
            seconds = f"{self._limit_s:.0f}"
            message = tr(
                "Nothing was measured in {seconds} s: it was still loading; give it longer (--seconds).",
                seconds=seconds,
            )
            if any(line.get("event") == "ready" for line in lines):
                message = tr(
                    "Nothing was measured in {seconds} s: its first step was not done ({steps} micro-batches "
                    "of {rows}); give it longer (--seconds), a smaller micro-batch "
                    "(--micro-batch 1) or a shorter length (--length).",
                    seconds=seconds,
                    steps=measured_accumulation(self._plan),
                    rows=self._plan.batch.micro_batch,
                )
            return Finding("probe_too_slow", "error", "batch.micro_batch_size", message)
        return Finding("probe_failed", "error", "bench", tr("The probe failed: {reason}", reason=problem))

    def _diagnosis(self) -> str:
        """Why the launcher ended with an error, in a sentence."""
        assert self._launcher is not None
        diagnosis = diagnose(
            Evidence(
                run="bench",
                exit_code=self._launcher.poll(),
                failures=read_failures(RunFolder(self._folder)),
                log=_log_facts(self._folder / LOG),
                kernel=KernelFacts(told=True, oom_kills=kernel_oom_kills() - self._oom_kills),
            )
        )
        return diagnosis.message


def _not_writable(error: OSError) -> Finding:
    place = tempfile.gettempdir()
    message = tr(
        "The probe could not be started in {path}: {reason}; name another folder in TMPDIR.",
        path=place,
        reason=os_reason(error),
    )
    return Finding("probe_not_started", "error", place, message)


def _read(path: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """Whole lines from `offset` on, and where the next one begins."""
    try:
        with open_file(path) as file:
            file.seek(offset)
            text = file.read()
    except OSError:
        return [], offset
    whole = text[: text.rfind(b"\n") + 1]
    documents = [parse_json(line) for line in whole.splitlines() if line]
    return [line for line in documents if isinstance(line, dict)], offset + len(whole)


def _log_facts(path: Path) -> LogFacts:
    try:
        return read_log(path)
    except OSError:
        return LogFacts()
