"""LogScan: one pass over the lines of a log; what it keeps is bounded."""

from __future__ import annotations

import json
import re
import signal
from collections import deque
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from trainwiz.core.diagnosis.cause import Cause, Confidence, Hit, Line, LogFacts
from trainwiz.core.diagnosis.patterns import PATTERNS, Pattern
from trainwiz.core.text import plain_text

# What a line of a log is apart from a cause: progress, metrics, an end, a signal, the place of a frame.

TELLING = re.compile(
    r"rror|xception|nterrupt|fail|kill|memory|oom|space|time|lost|bus|xid|mismatch|support|requires|bf16|flash"
    r"|module|nan|loss is|inf|shared|shm|errno|quota|signal|worker|file|cancel|closed|reset|refused|died|unhandled"
    r"|abort|NCCL|ancdata|alloc|pos|duplicate|argument|strategy|cannot|can't|couldn't|incorrect|terminated|pipe"
    r"|exclusive|exited|detected|resource|did not co|not be reached|unreachable|[\u4e00-\u9fff]",
    re.IGNORECASE,
)
"""Without any of these words no pattern fits: asking is cheaper than trying them all."""

FINISHED = re.compile(
    r"^Training completed\b|^(?!.*['\"]loss['\"]:).*['\"]train_runtime['\"]:|\btrain_runtime\s+=\s"
    r"|^finished at step \d+ of \d+|^`?Trainer\.fit`? stopped: `max_(?:epochs|steps)=",
)
"""A Trainer that counts its tokens says its runtime beside each loss, too."""
ROOT_CAUSE = re.compile(r"^\s*Root Cause \(first observed failure\):")

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

_EXIT_CODE = re.compile(r"exit ?code\s*[:=]\s*(-\d+)|exits with return code = (-\d+)", re.IGNORECASE)
_DIED = re.compile(r"died with <Signals\.(\w+)|(?:Signal \d+ \(|terminated with signal )(SIG\w+)\b")
_SHELL_STATUS = re.compile(r"(?:non-zero exit status|exit(?:ed with)? (?:code|status))[: ]+(1[23]\d)\b", re.IGNORECASE)
_GOT = re.compile(r"got signal: (\d+)\b")
_WORDS = {
    "SIGKILL": re.compile(r"^(?:\S+: line \d+:\s+)?(?:\[\d+\]\s+)?(?:\d+ )?(?:Killed|已杀死)\b(?!:)(?: {2,}.*)?$"),
    "SIGSEGV": re.compile(
        r"^Fatal Python error: Segmentation fault|Segmentation fault \(core dumped\)|^Segmentation fault$"
    ),
    "SIGBUS": re.compile(r"^Fatal Python error: Bus error|^Bus error\b"),
}
_FRAMES = {
    "evaluation": re.compile(r"\bin (?:\w+\.)?(?:evaluation_loop|prediction_step|prediction_loop|evaluate|_evaluate|_maybe_log_save_evaluate_eval)\b"),
    "saving": re.compile(r"\bin (?:\w+\.)?(?:_save_checkpoint|save_model|save_pretrained|_save_optimizer_and_scheduler|save_checkpoint|save_state)\b"),
    "loading": re.compile(r"\bin (?:\w+\.)?(?:_load_from_checkpoint|load_checkpoint|_load_optimizer_and_scheduler|load_state)\b"),
}  # fmt: skip


def signal_named(text: str) -> str | None:
    """The signal that ended a process, as launchers and shells say it."""
    if found := _EXIT_CODE.search(text):
        return signal_name(-int(found[1] or found[2]))
    if found := _DIED.search(text):
        return found[1] or found[2]
    if found := _GOT.search(text):
        return signal_name(int(found[1]))
    if found := _SHELL_STATUS.search(text):
        return signal_name(int(found[1]) - 128)
    return next((name for name, pattern in _WORDS.items() if pattern.search(text)), None)


def signal_name(number: int) -> str | None:
    """ "SIGKILL" for 9; None for what is no signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def place_of_frame(text: str) -> str | None:
    """What the training was doing in this frame of a traceback: evaluation, saving, loading; None tells nothing."""
    return next((place for place, pattern in _FRAMES.items() if pattern.search(text)), None)


# A line of a log without what loggers, launchers and terminals put before it.

LONGEST = 4_000
"""Characters of a line that are looked at."""
TELLING_KEYS = (
    "message", "msg", "text", "log", "event", "error", "exception", "exc_info", "traceback", "stack_trace", "output",
)  # fmt: skip
"""Of a line of JSON: the keys under which loggers keep what people read."""

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


@dataclass(frozen=True, slots=True)
class LineText:
    """`text` as it counts; `is_error`: an exception, or a line that its logger calls an error."""

    text: str
    rank: int | None = None
    is_error: bool = False


def lines_in(raw: str) -> list[LineText]:
    """What one physical line holds: one line, or those of a message in JSON. Versions of a progress bar count apart."""
    parts = raw.split("\r") if "\r" in raw else [raw]
    found = [line for part in parts[-64:] if part.strip() for line in _of_part(part[:LONGEST])]
    return found or [LineText("")]


def _of_part(part: str) -> list[LineText]:
    if "\x1b" in part:
        part = _ESCAPES.sub("", part)
    if part.lstrip().startswith("{") and part.rstrip().endswith("}"):
        message = _message_of(part)
        if message is not None:
            text, rank, level = message
            return [line_text(one, rank, level) for one in text.splitlines() if one.strip()]
    return [line_text(part)]


def line_text(part: str, rank: int | None = None, is_error: bool = False) -> LineText:
    """The line without its prefixes. Indents stay: those of a traceback mean something."""
    text = part.rstrip()
    is_error = is_error or bool(_LEVEL.search(text[:120]))
    for _ in range(8):
        found = _RANK.match(text)
        if found:
            rank = int(found[1] or found[2])
        else:
            found = _BEFORE.match(text)
        if not found or not found.end():
            break
        text = text[found.end() :]
    return LineText(text, rank, (is_error or bool(_ERROR.search(text))) and not _WARNING.search(text))


def _message_of(part: str) -> tuple[str, int | None, bool] | None:
    """(what people read, rank, whether it is an error) of a line of JSON; None for metrics and what is no JSON."""
    try:
        document = json.loads(part)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    texts = [value for key in TELLING_KEYS if isinstance(value := document.get(key), str) and value]
    if not texts:
        return None
    rank = next((value for key in ("rank", "local_rank") if isinstance(value := document.get(key), int)), None)
    level = str(document.get("level") or document.get("levelname") or document.get("severity") or "")
    return "\n".join(texts), rank, level.lower() in ("error", "critical", "fatal")


# LogScan: one pass over the lines of a log; what it keeps is bounded, however long the log.

TRACEBACK = "Traceback (most recent call last)"
MOST_HITS = 200
KEPT_TAIL = 5
LONGEST_PROOF = 300
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
_SOURCE_LINE = re.compile(r"^\s{4,}\S|^(?:-+>)?\s*\d+ ")
_TABLE_RANK = re.compile(r"^\s*rank\s*:\s*(\d+)")


@dataclass(slots=True)
class _Traceback:
    """What is known of the traceback that one rank prints."""

    open: bool = False
    ignored: bool = False
    aside: bool = False
    """Of a thread that dies with its process."""
    chain: int = 0
    chained: bool = False
    during: str | None = None


class LogScan:
    """Feed it `(number, line)` in order; `facts` says what was found so far."""

    def __init__(self, source: str = "log") -> None:
        self._source = source
        self._lines = 0
        self._chain = 0
        self._progress = 0
        self._hits: deque[tuple[int, Hit]] = deque()
        self._signals: deque[tuple[int, tuple[str, Line]]] = deque(maxlen=MOST_HITS)
        self._tracebacks: dict[int | None, _Traceback] = {}
        self._in_table = False
        self._root: tuple[int | None, Line | None] = (None, None)
        self._finished: Line | None = None
        self._metrics: tuple[int, str] | None = None
        self._bar: tuple[int, int] | None = None
        self._step: int | None = None
        self._tail: deque[Line] = deque(maxlen=KEPT_TAIL)
        self._goes_on = False
        """The newest hit is an exception that says nothing on its own line."""

    def feed(self, number: int, line: LineText) -> None:
        """Take the line with this number; one physical line may come as several."""
        self._lines = max(self._lines, number)
        text = line.text
        if not text.strip():
            return
        self._tail.append(Line(number, text, line.rank))
        if self._goes_on and self._hits:
            progress, hit = self._hits[-1]
            said = plain_text(f"{hit.line.text} {text.strip()}", LONGEST_PROOF)
            self._hits[-1] = progress, replace(hit, line=replace(hit.line, text=said))
        self._goes_on = False
        text = self._see_bar(text)
        if not text:
            return
        line = replace(line, text=text)
        if self._see_end(number, text) or self._see_metrics(number, text):
            return
        if not self._see_traceback(line):
            return
        here = _shown(Line(number, text, line.rank))
        self._see_launcher(here, text)
        state = self._tracebacks[line.rank]
        if text[:1] not in "{'\"" and (pattern := _pattern_of(text, line.is_error)) is not None:
            self._add(state, pattern.cause, pattern.confidence, here, pattern.consequence)
        elif _is_python_error(text, state.open):
            self._add(state, "python_error", "high", here, False)
            self._goes_on = here.text.endswith(":")
        if state.open and not text[:1].isspace():
            # An exception at the start of a line ends its traceback.
            state.open = state.ignored = state.aside = False

    def facts(self) -> LogFacts:
        """What the lines so far say."""
        not_finite = None
        if self._metrics is not None and NO_NUMBER.search(self._metrics[1]):
            not_finite = _shown(Line(*self._metrics))
        return LogFacts(
            source=self._source,
            lines=self._lines,
            hits=tuple(hit for _, hit in self._hits),
            signals=tuple(ended for _, ended in self._signals),
            root_rank=self._root[0],
            root_line=self._root[1],
            finished=self._finished,
            not_finite=not_finite,
            step=self._step,
            tail=tuple(map(_shown, self._tail)),
        )

    def _see_bar(self, text: str) -> str:
        """What was printed behind the progress bar of a training, which has no name before it; all where there is none."""
        found = _BAR.match(text) if "%|" in text else None
        if found is None:
            return text
        bar = int(found[1]), int(found[2])
        # A bar is drawn again when it is closed: only one that moved is progress.
        if bar != self._bar:
            self._bar, self._step = bar, bar[0]
            self._note_progress()
        return text[found.end() :].strip()

    def _see_metrics(self, number: int, text: str) -> bool:
        """Whether the line reports the loss of a training: nothing else is looked for in it."""
        if "oss" not in text or not _METRICS.search(text):
            return False
        self._metrics = (number, text)
        if (step := _STEP.search(text)) is not None:
            self._step = int(step[1].replace(",", ""))
        self._note_progress()
        return True

    def _note_progress(self) -> None:
        self._progress += 1
        failures: tuple[deque[Any], ...] = (self._hits, self._signals)
        for found in failures:
            while found and self._progress - found[0][0] >= SURVIVED_AFTER:
                found.popleft()
        if self._root[1] is not None and not self._hits and not self._signals:
            self._root = (None, None)
        self._finished = None

    def _see_traceback(self, line: LineText) -> bool:
        """False for the lines inside a traceback: the source that it shows may hold any words."""
        text, state = line.text, self._tracebacks.setdefault(line.rank, _Traceback())
        if text.startswith("Exception ignored in"):
            state.ignored = True
            return False
        if text.startswith("Exception in thread"):
            state.aside = True
        if _CHAINED.match(text):
            state.chained = True
            return False
        if TRACEBACK in text:
            state.open = True
            state.during = None if not state.chained else state.during
            if not state.chained:
                self._chain += 1
                state.chain = self._chain
            state.chained = False
            return False
        if state.open and (text.lstrip().startswith(("File ", "Cell In")) or _SOURCE_LINE.match(text)):
            state.during = state.during or place_of_frame(text)
            return False
        return True

    def _add(self, state: _Traceback, cause: Cause, confidence: Confidence, here: Line, consequence: bool) -> None:
        if state.ignored or len(self._hits) >= MOST_HITS:
            return
        if not state.open:
            self._chain += 1
        consequence = consequence or (state.open and state.aside)
        during, chain = (state.during, state.chain) if state.open else (None, self._chain)
        self._hits.append((self._progress, Hit(cause, confidence, here, consequence, during, chain)))

    def _see_end(self, number: int, text: str) -> bool:
        """Whether the line says that the training finished: what came before it did not hinder it."""
        if not FINISHED.search(text):
            return False
        self._finished = _shown(Line(number, text))
        self._hits.clear()
        self._signals.clear()
        self._root = (None, None)
        return True

    def _see_launcher(self, here: Line, text: str) -> None:
        """Signals that ended processes, and torchrun's table with the rank that failed first."""
        name = signal_named(text)
        if name is not None:
            self._signals.append((self._progress, (name, here)))
        if ROOT_CAUSE.search(text):
            self._in_table = True
            return
        rank = _TABLE_RANK.match(text) if self._in_table else None
        if rank:
            self._root = (int(rank[1]), here)
            self._in_table = False


def _shown(line: Line) -> Line:
    """As a proof shows it."""
    return replace(line, text=plain_text(line.text.strip(), LONGEST_PROOF))


@lru_cache(maxsize=4096)
def _pattern_of(text: str, is_error: bool) -> Pattern | None:
    """The pattern of most trust that the line fits."""
    if not TELLING.search(text):
        return None
    fitting = (known for known in PATTERNS if (is_error or not known.errors_only) and known.expression.search(text))
    return next(fitting, None)


def _is_python_error(text: str, in_traceback: bool) -> bool:
    found = (_RAISED if in_traceback else _EXCEPTION).match(text)
    return found is not None and found[1].rpartition(".")[2] not in _LAUNCHERS
