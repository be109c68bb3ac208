"""LogScan: one pass over the lines of a log, from which LogFacts come."""

from __future__ import annotations

import re
import signal
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from trainwiz.core.diagnosis.cause import Hit, Line, LogFacts
from trainwiz.core.diagnosis.patterns import ANY_EXCEPTION, pattern_of
from trainwiz.core.text import object_in, parse_json, text_in

# What a line of a log is apart from a cause: progress, metrics, an end, a signal, the place of a frame.

FINISHED = re.compile(
    r"^Training completed\b|^(?!.*['\"]loss['\"]:).*['\"]train_runtime['\"]:|\btrain_runtime\s+=\s"
    r"|^finished at step \d+ of \d+|^`?Trainer\.fit`? stopped: `max_(?:epochs|steps)=",
)
"""A Trainer that counts its tokens says its runtime beside each loss, too."""
ROOT_CAUSE = re.compile(r"^\s*Root Cause \(first observed failure\):")
_TABLE_RANK = re.compile(r"^\s*rank\s*:\s*(\d+)")

_NOT_A_NUMBER = r"(?:nan|NaN|-?inf(?:inity)?|-?Infinity)"
NO_NUMBER = re.compile(
    rf"(?<![\w])['\"]?(?:train_)?loss['\"]?\s*[:=]?\s*['\"]?{_NOT_A_NUMBER}\b"
    # The Trainer leaves a loss that is no number out of the mean: 0.0 beside such a gradient.
    rf"|['\"]loss['\"]: '?0\.0'?,.*['\"]grad_norm['\"]: (?:'|tensor\()?{_NOT_A_NUMBER}\b",
)
_BAR = re.compile(r"^\s*\d{1,3}%\|[^|]*\|\s*(\d+)/(\d+)\s*\[[^\]]*\]?")
_METRICS = re.compile(
    r"^\s*\{.*['\"](?:train_)?loss['\"]\s*:"
    r"|\bsteps?[\s:=\[]+\d[\d,]*.{0,80}\bloss\b|\bloss\b\s*[:=]\s*[-\d.naif]+.{0,200}\b(?:step|iter|epoch)\b"
    r"|\bepochs?[\s:=\[]+[\d./]+.{0,80}\bloss\b\s*[:=]",
    re.IGNORECASE,
)
_STEP = re.compile(r"\b(?:global_)?steps?['\"]?[\s:=\[]+(\d[\d,]*)", re.IGNORECASE)

_ENDED_BY = re.compile(
    r"(?:exit ?code\s*[:=]\s*|exits with return code = )-(\d+)|got signal: (\d+)\b"
    r"|(?:died with <Signals\.|Signal \d+ \(|terminated with signal )(SIG\w+)\b"
    # A shell adds 128.
    r"|(?:non-zero exit status|exit(?:ed with)? (?:code|status))[: ]+(1[23]\d)\b",
    re.IGNORECASE,
)
_WORDS = {
    "SIGKILL": re.compile(r"^(?:\S+: line \d+:\s+)?(?:\[\d+\]\s+)?(?:\d+ )?(?:Killed|已杀死)\b(?!:)(?: {2,}.*)?$"),
    "SIGSEGV": re.compile(
        r"^Fatal Python error: Segmentation fault|Segmentation fault \(core dumped\)|^Segmentation fault$"
    ),
    "SIGBUS": re.compile(r"^Fatal Python error: Bus error|^Bus error\b"),
}
_FRAME = re.compile(
    r"\bin (?:\w+\.)?(?:"
    r"(?P<evaluation>evaluation_loop|prediction_step|prediction_loop|evaluate|_evaluate|_maybe_log_save_evaluate_eval)"
    r"|(?P<saving>_save_checkpoint|save_model|save_pretrained|_save_optimizer_and_scheduler|save_checkpoint|save_state)"
    r"|(?P<loading>_load_from_checkpoint|load_checkpoint|_load_optimizer_and_scheduler|load_state))\b"
)


def signal_named(text: str) -> str | None:
    """The signal that ended a process, as launchers and shells say it."""
    if found := _ENDED_BY.search(text):
        said = found[found.lastindex or 0]
        return signal_name(int(said) % 128) if said.isdecimal() else said
    return next((name for name, pattern in _WORDS.items() if pattern.search(text)), None)


def signal_name(number: int) -> str | None:
    """ "SIGKILL" for 9; None for what is no signal."""
    with suppress(ValueError):
        return signal.Signals(number).name
    return None


def place_of_frame(text: str) -> str | None:
    """What the training was doing in this frame of a traceback: evaluation, saving, loading; None tells nothing."""
    found = _FRAME.search(text)
    return found and found.lastgroup


# A line of a log without what loggers, launchers and terminals put before it.

LONGEST = 4_000
"""Characters of a line that are looked at."""
MOST_VERSIONS = 64
"""Of a progress bar in one line: the last ones."""
TELLING_KEYS = (
    "message", "msg", "text", "log", "event", "error", "exception", "exc_info", "traceback", "stack_trace", "output",
)  # fmt: skip
"""Of a line of JSON: the keys under which loggers keep what people read."""
ERROR_LEVELS = ("error", "critical", "fatal")

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\].*?(?:\x07|\x1b\\)|[ -/]*[0-~])")
_RANK = re.compile(r"\s*\[(?:rank|default|Rank )(\d+)\]:?\s?|(?=\d{1,4}: )(\d{1,4}): ")
_BEFORE = re.compile(
    r"\s*(?:"
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?"  # 2024-06-18 03:34:24,390
    r"|\d\d:\d\d:\d\d(?:[.,]\d+)?(?=\s)"
    r"|\[?[IWEF]\d{3,4} \d\d:\d\d:\d\d[.\d]*(?:\s+\d+)? [\w./-]+\.(?:py|cpp|cc|hpp):\d+\]"  # glog of torch
    r"|\[[\w./-]+\.(?:py|cpp|cc):\d+(?::\w+)?\]"
    r"|\[(?:INFO|WARN|WARNING|ERROR|CRITICAL|FATAL|DEBUG)(?:\|[^\]]*)?\](?:\s+\d{4}-\d\d-\d\d [\d:,]+ >>)?"
    r"|(?:INFO|WARN|WARNING|ERROR|CRITICAL|FATAL|DEBUG)(?=[\s:|-])"
    r"|\(\w[\w ]{0,40} pid=\d+(?:, ip=[\d.]+)?\)"  # Ray
    r"|(?:stdout|stderr) F(?=\s)"  # containers
    r")(?:\s*[-|:]+)?\s?"
)
_LEVEL = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b|^\[?[EF]\d{3,4} \d\d:")
_ERROR = re.compile(
    # An exception as it ends a traceback, "error: ..." of a program, a number of the system, C++.
    r"^\s{0,2}(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception|NotFound|Timeout)(?:$|: |\()"
    r"|^(?:[\w./ -]{1,60}: )?(?:fatal )?error: |\[errno \d+\]|\(errno: \d|^\s*what\(\): ",
    re.IGNORECASE,
)
_WARNING = re.compile(r"\b\w*Warning\b|\bwarnings\.warn\b|^warning:|\bWARN(?:ING)?\b", re.IGNORECASE)


def lines_in(number: int, raw: str) -> Iterator[Line]:
    """What one physical line holds: one line, those of a message in JSON, or the versions of a progress bar."""
    for part in raw.split("\r")[-MOST_VERSIONS:]:
        text = _ESCAPES.sub("", part[:LONGEST])
        said = _json_of(text)
        message = "\n".join(filter(None, (text_in(said.get(key)) for key in TELLING_KEYS)))
        # As a logger of lines says it.
        levels = {str(said.get(key)).lower() for key in ("level", "levelname", "severity")}
        level = "" if levels.isdisjoint(ERROR_LEVELS) else "ERROR "
        for one in message.splitlines():
            yield line_of(number, f"{level}{one}")
        if not message:
            yield line_of(number, text)


def _json_of(text: str) -> Mapping[str, Any]:
    with suppress(ValueError):
        return object_in(parse_json(text) if text.lstrip().startswith("{") else None)
    return {}


def line_of(number: int, text: str) -> Line:
    """The line without its prefixes. Indents stay: those of a traceback mean something."""
    text, rank = text.rstrip(), None
    is_error = _LEVEL.search(text[:120]) is not None
    for _ in range(8):
        of_rank = _RANK.match(text)
        found = of_rank or _BEFORE.match(text)
        if found is None:
            break
        if of_rank is not None:
            rank = int(of_rank[1] or of_rank[2])
        text = text[found.end() :]
    return Line(number, text, rank, (is_error or bool(_ERROR.search(text))) and not _WARNING.search(text))


# LogScan: one pass over the lines of a log.

TRACEBACK = "Traceback (most recent call last)"
SURVIVED_AFTER = 5
"""Lines of progress behind a failure after which the training has survived it."""

_EXCEPTION = re.compile(
    r"^((?:[A-Za-z_]\w*\.)*[A-Z_]\w*(?:Error|Exception|Interrupt|Exit|Failure|Timeout|NotFound))(?:: .*|:)?$"
)
_RAISED = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Z_]\w*)(?:: .*|:)?$")
"""Behind the frames of a traceback any name is one of an exception."""
_LAUNCHERS = ("ChildFailedError", "CalledProcessError", "SignalException", "SystemExit", "ProcessExitedException")
"""How a launcher says that a process of it failed: no cause by itself."""
_CHAINED = re.compile(r"^(?:During handling of the above exception|The above exception was the direct cause)")
_SOURCE_LINE = re.compile(r"^\s{4,}\S|^(?:-+>)?\s*\d+ |^\s*(?:File |Cell In)")


@dataclass(slots=True)
class _Traceback:
    """What is known of the traceback that one rank prints."""

    open: bool = False
    ignored: bool = False
    aside: bool = False
    """Of a thread that dies with its process."""
    chained: bool = False
    """What it ends in was raised while another exception was handled."""
    during: str | None = None


class LogScan:
    """Feed it the lines in order; `facts` is what was found so far."""

    def __init__(self, source: str = "log") -> None:
        self.facts = LogFacts(source)
        self._progress: deque[int] = deque(maxlen=SURVIVED_AFTER)
        """Numbers of the newest lines of progress."""
        self._tracebacks: dict[int | None, _Traceback] = {}
        self._in_table = False
        self._bar: tuple[str, ...] = ()
        self._goes_on = False
        """The newest hit is an exception that says nothing on its own line."""

    def feed(self, line: Line) -> None:
        facts = self.facts
        facts.lines = max(facts.lines, line.number)
        if not line.text.strip():
            return
        facts.tail.append(line)
        if self._goes_on:
            hit = facts.hits[-1]
            facts.hits[-1] = replace(hit, line=replace(hit.line, text=f"{hit.line.text} {line.text.strip()}"))
            self._goes_on = False
        line = self._behind_bar(line)
        if not line.text or self._is_end(line) or self._is_metrics(line) or self._is_inside_traceback(line):
            return
        self._see_launcher(line)
        state = self._tracebacks[line.rank]
        if not state.ignored:
            self._see_failure(line, state)
        if state.open and not line.text[:1].isspace():
            # An exception at the start of a line ends its traceback.
            state.open = state.ignored = state.aside = state.chained = False

    def _behind_bar(self, line: Line) -> Line:
        """What was printed behind the progress bar of a training, which has no name before it; all where there is none."""
        found = _BAR.match(line.text) if "%|" in line.text else None
        if found is None:
            return line
        # A bar is drawn again when it is closed: only one that moved is progress.
        if found.groups() != self._bar:
            self._bar = found.groups()
            self._note_progress(line.number, found[1])
        return replace(line, text=line.text[found.end() :].strip())

    def _is_end(self, line: Line) -> bool:
        """Whether the line says that the training finished: what came before it did not hinder it."""
        if not FINISHED.search(line.text):
            return False
        facts = self.facts
        facts.finished, facts.root, facts.hits, facts.signals = line, None, [], []
        return True

    def _is_metrics(self, line: Line) -> bool:
        """Whether the line reports the loss of a training: nothing else is looked for in it."""
        if "oss" not in line.text or not _METRICS.search(line.text):
            return False
        self.facts.not_finite = line if NO_NUMBER.search(line.text) else None
        step = _STEP.search(line.text)
        self._note_progress(line.number, step[1] if step else None)
        return True

    def _note_progress(self, number: int, step: str | None) -> None:
        facts = self.facts
        if step is not None:
            facts.step = int(step.replace(",", ""))
        facts.finished = None
        self._progress.append(number)
        if len(self._progress) == SURVIVED_AFTER:
            survived = self._progress[0]
            facts.hits = [hit for hit in facts.hits if hit.line.number >= survived]
            facts.signals = [ended for ended in facts.signals if ended[1].number >= survived]
        if not facts.hits and not facts.signals:
            facts.root = None

    def _is_inside_traceback(self, line: Line) -> bool:
        """Whether the line belongs to a traceback: the source that it shows may hold any words."""
        text, state = line.text, self._tracebacks.setdefault(line.rank, _Traceback())
        state.aside = state.aside or text.startswith("Exception in thread")
        if text.startswith("Exception ignored in"):
            state.ignored = True
        elif _CHAINED.match(text):
            state.chained = True
        elif TRACEBACK in text:
            state.open = True
            state.during = state.during if state.chained else None
        elif state.open and _SOURCE_LINE.match(text):
            state.during = state.during or place_of_frame(text)
        else:
            return False
        return True

    def _see_failure(self, line: Line, state: _Traceback) -> None:
        """Whether the line speaks for a cause, or is an exception that speaks for none."""
        pattern = None if line.text[:1] in "{'\"" else pattern_of(line.text, line.is_error)
        if pattern is None:
            if not _is_exception(line.text, state.open):
                return
            pattern, self._goes_on = ANY_EXCEPTION, line.text.endswith(":")
        hits, during, aside = self.facts.hits, state.during if state.open else None, state.open and state.aside
        if state.open and state.chained:
            # An exception that names no cause makes way for the one that was raised while it was handled.
            before = next((hit for hit in reversed(hits) if hit.line.rank == line.rank), None)
            if before is not None and before.cause == "python_error":
                hits.remove(before)
        hits.append(Hit(pattern.cause, pattern.confidence, line, pattern.consequence or aside, during))

    def _see_launcher(self, line: Line) -> None:
        """Signals that ended processes, and torchrun's table with the rank that failed first."""
        name = signal_named(line.text)
        if name is not None:
            self.facts.signals.append((name, line))
        if ROOT_CAUSE.search(line.text):
            self._in_table = True
        elif self._in_table and (rank := _TABLE_RANK.match(line.text)):
            self._in_table = False
            self.facts.root = replace(line, rank=int(rank[1]))


def _is_exception(text: str, in_traceback: bool) -> bool:
    found = (_RAISED if in_traceback else _EXCEPTION).match(text)
    return found is not None and found[1].rpartition(".")[2] not in _LAUNCHERS
