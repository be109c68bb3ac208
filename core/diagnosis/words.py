"""The words of a diagnosis: whole sentences, made harmless for a terminal."""

from __future__ import annotations

from trainwiz.core.diagnosis.causes import Cause
from trainwiz.core.diagnosis.sentences import SENTENCES
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text

LONGEST_EVIDENCE = 300
LONGEST_SAID = 160


def clean(text: str, limit: int = LONGEST_EVIDENCE) -> str:
    """Foreign text for one line of a terminal: no control characters, no endless length."""
    return plain_text(text.strip(), limit)


def sentence(text: str) -> str:
    """The text with an end."""
    return text if text.endswith((".", "!", "?", "。", "！", "？")) else tr("{sentence}.", sentence=text)


def of_cause(cause: Cause, said: str = "", step: int | None = None) -> str:
    """The cause in a sentence; `said` is what the framework said, `step` the last one that was made."""
    text, said = tr(SENTENCES[cause]), clean(said, LONGEST_SAID).rstrip(".")
    if step is None:
        return tr("{cause} ({said}).", cause=text, said=said) if said else sentence(text)
    if said:
        return tr("{cause} after step {step} ({said}).", cause=text, step=step, said=said)
    return tr("{cause} after step {step}.", cause=text, step=step)


def of_error(error: str, step: int | None = None) -> str:
    """An exception of the code or the data."""
    if step is None:
        return sentence(tr("The training stopped with {error}", error=clean(error)))
    return sentence(tr("The training stopped after step {step} with {error}", step=step, error=clean(error)))


def of_signal(signal: str, *, launcher: bool = False, kernel_told: bool = False) -> str:
    """A process that a signal ended. `kernel_told`: the kernel was asked, and has not killed it for memory."""
    if launcher:
        return tr(
            "The launcher was ended from outside by {signal}; the training processes ended with it.", signal=signal
        )
    if signal == "SIGKILL" and kernel_told:
        return tr(
            "A training process was ended from outside by SIGKILL; the kernel says that it was not for lack of memory."
        )
    if signal == "SIGKILL":
        return tr("A training process was ended from outside by SIGKILL. Lack of RAM is the usual reason.")
    if signal in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"):
        return tr("A training process crashed in compiled code ({signal}).", signal=signal)
    return tr("A training process was ended from outside by {signal}.", signal=signal)
