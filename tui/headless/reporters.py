"""How a run is followed: Progress, what its folder says, and the reporters that show it.

A bar for terminals, lines for pipes, JSON lines for programs.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from trainwiz.core.errors import EXIT_CANNOT_RUN, Finding
from trainwiz.core.language import mark, tr
from trainwiz.core.lines import JsonLinesTail
from trainwiz.core.plan.result import Plan
from trainwiz.core.run.attempts import ADVICE_JSONL, Advice, advice_of, phase_words, read_phase
from trainwiz.core.run.folder import MEETING_TOKEN, RunFolder
from trainwiz.core.run.state import RunState, read_state
from trainwiz.core.telemetry.machine import job_memory, pids_of
from trainwiz.core.telemetry.metrics import Metrics
from trainwiz.core.text import number, numbers_finite, objects_in, plain_text, step_of
from trainwiz.tui.commands.plan import plan_rows
from trainwiz.tui.headless.ending import ending_of, ending_rows, shown_path
from trainwiz.tui.output import Colours, is_terminal, labelled, say, say_findings, say_json, say_rows
from trainwiz.tui.run_words import evaluation_parts
from trainwiz.tui.text import cells, count, cut, duration, pad, size

# Progress: what the folder of a run says.

News = Literal["advice", "metrics", "answer"]
"""Advice, a line of metrics.jsonl, and a prompt that was answered."""
METRICS_WINDOW_BYTES = 4 * 1024 * 1024
"""Of a run that goes on this much is passed over row by row, and what is before it at once."""
SYSTEM_WINDOW_BYTES = 64 * 1024


class Progress:
    """A run by its folder, as it was when it was `read` last; a reading costs what is new. Absent numbers are None."""

    def __init__(self, folder: RunFolder, *, resumed: bool = False) -> None:
        self.folder = folder
        self.state = read_state(folder)
        self.phase = ""
        """What is being done now, translated where it is shown: "starting accelerate", "training", "stopping", ..."""
        self.memory_bytes: int | None = None
        """Of the fullest GPU, or of the run's processes where there is none."""
        self.news: list[tuple[News, Mapping[str, Any]]] = []
        """What came with the last reading."""
        self.row: dict[str, Any] = {}
        """The newest value of each metric of this start."""
        self._metrics = JsonLinesTail(folder.metrics_jsonl, METRICS_WINDOW_BYTES)
        self._system = JsonLinesTail(folder.system_jsonl, SYSTEM_WINDOW_BYTES)
        self._advice = JsonLinesTail(folder.file(ADVICE_JSONL))
        self._answers = JsonLinesTail(folder.generations_jsonl, SYSTEM_WINDOW_BYTES)
        self._told: set[tuple[str, str, str]] = set()
        self._logged = Metrics()
        """Of this attempt: the time between two is no pace."""
        self._attempts = 0
        self._phase_began = time.monotonic()
        if resumed:
            # Rows of earlier attempts are history: they say nothing about the pace of this one.
            self._new_rows()
            self._answers.read_new()

    def read(self) -> Progress:
        self.state = read_state(self.folder)
        if len(self.state.attempts) != self._attempts:
            self._attempts, self._logged = len(self.state.attempts), Metrics()
        rows = self._new_rows()
        self._logged.add_rows(rows)
        for row in rows:
            self.row.update({key: value for key, value in row.items() if value is not None})
        for line in self._system.read_new():
            self.memory_bytes = memory_of(line) or self.memory_bytes
        self.news = [("advice", advice.to_json()) for advice in self._untold()]
        self.news += [("metrics", row) for row in rows]
        self.news += [("answer", row) for row in self._answers.read_new() if "prompt" in row]
        phase = self._phase_now()
        if phase != self.phase or rows:
            self.phase, self._phase_began = phase, time.monotonic()
        return self

    @property
    def phase_s(self) -> float:
        """Seconds since this phase began; while training, since the last logged step."""
        return time.monotonic() - self._phase_began

    @property
    def step(self) -> int | None:
        return step_of(self.row.get("step"))

    @property
    def left_s(self) -> float | None:
        """At the pace of this attempt."""
        return self._logged.pace().left_s(self.step, self.state.max_steps)

    @property
    def doing(self) -> str:
        """What is done while no steps are made, as the present attempt says it ("tokenising 12,000 of 80,000 rows")."""
        now, said = read_phase(self.folder), tr(self.phase)
        if now is None or now.phase == "training" or not self.state.is_active or now.since_s < began_s(self.state):
            return said
        words = phase_words(now)
        return tr("{phase}: {detail}", phase=said, detail=words) if self.phase == "stopping" else words

    def _untold(self) -> Iterator[Advice]:
        """Warnings and errors of the present attempt that were not told yet; a figure that changes is not told again."""
        for row in self._advice.read_new():
            key = str(row.get("code") or row.get("text")), str(row.get("where")), str(row.get("severity"))
            if key not in self._told and (numbers_finite(row.get("time_s"), 0.0) or 0.0) >= began_s(self.state):
                self._told.add(key)
                yield from (advice for advice in advice_of([row]) if advice.level in ("error", "warning"))

    def _new_rows(self) -> list[dict[str, Any]]:
        rows = self._metrics.read_new()
        while self._metrics.behind:
            rows += self._metrics.read_new()
        return rows

    def _phase_now(self) -> str:
        if self.state.status == "running":
            return mark("training") if self._logged.of("loss").recent else mark("first step")
        if self.state.status != "starting":
            return self.state.status
        if self.state.workers:
            return mark("loading libraries, model and data")
        waits = self.folder.file(MEETING_TOKEN).exists()
        return mark("waiting for the other nodes") if waits else mark("starting accelerate")


def began_s(state: RunState) -> float:
    return state.attempts[-1].started_s if state.attempts else 0.0


def memory_of(line: dict[str, Any]) -> int | None:
    """Bytes by a line of system.jsonl: what the run holds of its fullest GPU (all that is in use there where the driver does
    not tell processes apart), else its processes together."""
    processes, gpus = objects_in(line.get("processes")), objects_in(line.get("gpus"))
    pids = pids_of(processes)
    held = [job_memory(gpu, pids) or numbers_finite(gpu.get("memory_used_bytes")) or 0 for gpu in gpus]
    resident = sum(numbers_finite(process.get("rss_bytes")) or 0 for process in processes)
    return int(max(held, default=0) or resident) or None


# Reporters: how a followed run is shown.

WAIT_LINE_EVERY_S = 10.0
LONGEST_ANSWER = 120
"""Characters of a prompt and of its answer."""
QUIET_STEP_S = 5.0
"""After this long without a logged step, the line says since when."""


Form = Literal["json", "lines", "bar"]


def form_of(*, as_json: bool, plain: bool) -> Form:
    Colours.wanted = as_json or not plain
    return "json" if as_json else "lines" if plain or not is_terminal(sys.stdout) else "bar"


class Reporter:
    """What the headless run tells, in order: one JSON object on each line, the last one with the event "end" or "refused";
    one line for each thing that happens, for pipes, logs and screen readers; or these with a live line below them."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self._said = ("", "")
        self._waited_s = 0.0

    def _say_event(self, event: str, **values: Any) -> None:
        say_json({"event": event, **values}, compact=True)

    def plan(self, plan: Plan, findings: tuple[Finding, ...]) -> None:
        if self.form == "json":
            self._say_event("plan", plan=plan.to_json())
            return
        say_rows(plan_rows(plan))
        say_findings(findings)

    def prepared(self, folder: RunFolder, files: list[str]) -> None:
        if self.form == "json":
            self._say_event("prepared", run=str(folder.path), files=files)
            return
        say(labelled(tr("Run"), plain_text(shown_path(folder.path))))
        if files:
            say(labelled(tr("Written"), ", ".join(files)))

    def note(self, text: str) -> None:
        if self.form == "json":
            self._say_event("note", message=text)
            return
        self.close()
        say(plain_text(text))

    def refused(self, findings: tuple[Finding, ...], commands: Mapping[str, str]) -> None:
        if self.form == "json":
            shown = [{"command": command, "text": text} for command, text in commands.items()]
            documents = [finding.to_json() for finding in findings]
            self._say_event("refused", exit_code=EXIT_CANNOT_RUN, findings=documents, commands=shown)
            return
        say(tr("Can't run on this machine. Nothing was written."), sys.stderr)
        say_findings(findings, sys.stderr)
        say(tr("Commands that work on this machine:"), sys.stderr)
        width = max(map(cells, commands), default=0)
        for command, text in commands.items():
            say(plain_text(f"  {pad(command, width)}   {text}"), sys.stderr)

    def progress(self, progress: Progress) -> None:
        now = (progress.state.status, progress.phase)
        is_new, self._said = now != self._said, now
        if self.form == "json":
            if is_new:
                self._say_event("status", status=now[0], phase=now[1])
            for kind, values in progress.news:
                say_json({"event": kind, **values}, compact=True)
            return
        for kind, values in progress.news:
            if (self.form == "lines" or kind != "metrics") and (text := news_text(kind, values, progress)):
                self.close()
                say(text)
        if self.form == "bar":
            self._draw(progress)
        elif is_new:
            self._waited_s = 0.0
            if progress.phase not in ("training", "finished", "failed", "stopped", "lost"):
                say(labelled("", tr(progress.phase)))
        elif progress.phase_s < self._waited_s:
            self._waited_s = 0.0
        elif progress.phase_s - self._waited_s >= WAIT_LINE_EVERY_S and progress.state.is_active:
            self._waited_s = progress.phase_s
            say(labelled("", tr("{what} · {seconds} s", what=progress.doing, seconds=f"{progress.phase_s:.0f}")))

    def _draw(self, progress: Progress) -> None:
        """The live line."""
        if not progress.state.is_active:
            return
        step, steps = progress.step, progress.state.max_steps
        training = "" if step is None or progress.phase != "training" else numbers_text(progress)
        is_quiet = not training or progress.phase_s >= QUIET_STEP_S
        waits = f"{progress.doing} · {duration(progress.phase_s)}" if is_quiet else ""
        columns = shutil.get_terminal_size().columns
        text = cut("   ".join(filter(None, (training, waits))), columns - 6)
        room = columns - 2 - cells(text)
        done = int(room * min(1.0, (step or 0) / steps)) if steps else 0
        sys.stdout.write(f"\r{'━' * done}{'─' * (room - done)} {text}\x1b[K")
        sys.stdout.flush()

    def end(self, folder: RunFolder, state: RunState) -> None:
        if self.form == "json":
            self._say_event("end", **ending_of(folder, state))
            return
        self.close()
        say_rows(ending_rows(folder, state))

    def close(self) -> None:
        """Wipes the live line."""
        if self.form == "bar":
            sys.stdout.write("\r\x1b[K")
            sys.stdout.flush()


def step_text(step: int | None, max_steps: int | None) -> str:
    whole = f"/{count(max_steps)}" if max_steps else ""
    return tr("step {step}", step="-" if step is None else f"{count(step)}{whole}")


def loss_text(loss: float) -> str:
    return tr("loss {value}", value=f"{loss:.3g}" if loss < 0.1 else f"{loss:.2f}")


def numbers_text(progress: Progress) -> str:
    """ "step 71/120   loss 2.71   18,900 tokens/s   0.6 GiB   21 s left"."""
    loss, tokens_per_s = (number(progress.row.get(name)) for name in ("loss", "real_tokens_per_s"))
    parts = [
        step_text(progress.step, progress.state.max_steps),
        "" if loss is None else loss_text(loss),
        "" if tokens_per_s is None else tr("{count} tokens/s", count=count(tokens_per_s)),
        "" if progress.memory_bytes is None else size(progress.memory_bytes),
        "" if progress.left_s is None else tr("{time} left", time=duration(progress.left_s)),
    ]
    return "   ".join(filter(None, parts))


def news_text(kind: News, values: Mapping[str, Any], progress: Progress) -> str:
    """One line; empty for a line of metrics.jsonl that has neither a loss nor an evaluation."""
    if kind == "advice":
        sign = "✗" if values["severity"] == "error" else "!"
        return " ".join(filter(None, (sign, values["text"], values["remedy"])))
    step = step_of(values.get("step"))
    if kind == "answer":
        when = tr("at step {step}", step=count(step)) if step else tr("before step 1")
        asked, said = (plain_text(str(values.get(key) or ""), LONGEST_ANSWER) for key in ("source", "generation"))
        return labelled("", f"{when}   {asked} → {said or tr('(empty)')}{'' if values.get('ended', True) else ' …'}")
    at, measured, loss = step_text(step, progress.state.max_steps), evaluation_parts(values), number(values.get("loss"))
    if measured:
        return labelled("", f"{at}   {tr('evaluation {values}', values=', '.join(measured))}")
    if loss is None:
        return ""
    return labelled("", numbers_text(progress) if step == progress.step else f"{at}   {loss_text(loss)}")
