"""What a line of a log is apart from a cause: progress, metrics, an end, a signal, the place of a frame."""

from __future__ import annotations

import re
import signal

TELLING = re.compile(
    r"rror|xception|nterrupt|fail|kill|memory|oom|space|time|lost|bus|xid|mismatch|support|requires|bf16|flash"
    r"|module|nan|loss is|inf|shared|shm|errno|quota|signal|worker|file|cancel|closed|reset|refused|died|unhandled"
    r"|abort|NCCL|ancdata|alloc|pos|duplicate|argument|strategy|cannot|can't|couldn't|incorrect|terminated|pipe"
    r"|exclusive|exited|detected|resource|did not come|not be reached|[\u4e00-\u9fff]",
    re.IGNORECASE,
)
"""Without any of these words no pattern fits: asking is cheaper than trying them all."""

FINISHED = re.compile(
    r"^Training completed\b|'train_runtime':|\"train_runtime\":|\btrain_runtime\s+=\s"
    r"|^finished at step \d+ of \d+|^`?Trainer\.fit`? stopped: `max_(?:epochs|steps)=",
)
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


def bar_of(text: str) -> tuple[int, int, str] | None:
    """(step, of how many, what is printed behind it) of the progress bar of a training, which has no name before it."""
    found = _BAR.match(text) if "%|" in text else None
    return (int(found[1]), int(found[2]), text[found.end() :].strip()) if found else None


def is_metrics(text: str) -> bool:
    """Whether the line reports the loss of a training."""
    return "oss" in text and _METRICS.search(text) is not None


def step_named(text: str) -> int | None:
    found = _STEP.search(text)
    return int(found[1].replace(",", "")) if found else None


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
