"""`trainwiz model chat|fill|translate`: a finished model speaks, in a terminal or in a pipe."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED, TrainwizError, usage_error
from trainwiz.core.hardware.install import need
from trainwiz.core.language import mark, tr
from trainwiz.core.model.found import FoundModel, find_model
from trainwiz.core.processes import heavy_imports, wait_briefly
from trainwiz.core.text import plain_text
from trainwiz.tui.output import is_terminal, paint, say, say_findings, say_json, say_rows
from trainwiz.tui.text import percent

if TYPE_CHECKING:
    from trainwiz.core.training.model_loading import Speaker

NEW, LEAVE = "/new", ("/exit", "/quit", "/bye")


@dataclass(frozen=True, slots=True)
class SpeechOptions:
    prompts: Sequence[str] = ()
    compare: bool = False
    plain: bool = False
    system: str | None = None
    max_tokens: int = 512
    temperature: float | None = None
    seed: int | None = None
    bits: int | None = None
    base: str | None = None
    source_language: str | None = None
    target_language: str | None = None
    cpu: bool = False
    as_json: bool = False


def run_speech(word: str, path: str, **given: Any) -> int:
    options = SpeechOptions(**given)
    model = find_model(path, options.base)
    _check(word, path, model, options)
    if not options.as_json and is_terminal(sys.stderr):
        say(tr("Loading {name}…", name=plain_text(model.name)), sys.stderr)
    load_libraries()
    from trainwiz.core.training.model_loading import load
    from trainwiz.core.training.speak import in_words

    languages = {"model.source_language": options.source_language, "model.target_language": options.target_language}
    values = {key: value for key, value in languages.items() if value}
    with in_words(), contextlib.redirect_stdout(sys.stderr):
        speaker = load(model, options.bits, cpu=options.cpu, compare=options.compare, values=values)
    talk = Conversation(word, speaker, options)
    talk.introduce()
    return talk.run()


ENVIRONMENT = {
    # All that is loaded lies on this machine.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
}


def load_libraries() -> None:
    """torch and transformers, quiet, in this process: a command that speaks with a model draws nothing beside it. Raises
    CannotRunError where they are not installed."""
    need()
    os.environ.update(ENVIRONMENT)
    wait_briefly(os.environ)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    with heavy_imports(), contextlib.redirect_stdout(sys.stderr):
        importlib.import_module("trainwiz.core.training.speak")
    logging.disable(logging.NOTSET)


run_chat, run_fill, run_translate = (partial(run_speech, word) for word in ("chat", "fill", "translate"))


def _check(word: str, text: str, model: FoundModel, options: SpeechOptions) -> None:
    names = {"name": model.name, "task": model.task}
    right = f"trainwiz model {model.speech} {text}"
    templated = word == "chat" and model.has_template and not options.plain
    refusals = (
        (
            model.speech is None,
            "PATH",
            tr("{name} is a {task} model, which chat, fill and translate don't support.", **names),
        ),
        (model.speech != word, "PATH", tr("{name} is a {task} model. Use: {command}", command=right, **names)),
        (options.bits not in (None, 4, 8, 16), "--bits", tr("--bits must be 4, 8 or 16.")),
        (
            options.bits is not None and model.kind == "whole",
            "--bits",
            tr("--bits is for the base model of an adapter; {path} is a full model.", path=model.path),
        ),
        (
            bool(options.system) and not templated,
            "--system",
            tr("--system only works with a chat template, and none is used here."),
        ),
        (
            options.compare and model.base is None,
            "--compare",
            tr("Nothing to compare with: the run was trained from scratch, or its base model is not on this machine."),
        ),
    )
    for wrong, where, message in refusals:
        if wrong:
            raise usage_error("bad_choice", where, message)


class Conversation:
    def __init__(self, word: str, speaker: Speaker, options: SpeechOptions) -> None:
        model = speaker.model
        self._word, self._speaker, self._model, self._options = word, speaker, model, options
        self._chats = word == "chat" and model.has_template and not options.plain
        self._sides = ("base", "tuned") if options.compare else ("tuned",)
        self._said: dict[str, list[dict[str, str]]] = {}
        self._begin()

    def _begin(self) -> None:
        first = [{"role": "system", "content": self._options.system}] if self._options.system else []
        self._said = {side: list(first) for side in self._sides}

    def introduce(self) -> None:
        if self._options.as_json:
            return
        model, options, speaker = self._model, self._options, self._speaker
        bits = options.bits or model.bits
        held = tr("{bits}-bit", bits=bits) if bits < 16 else str(speaker.main.dtype).removeprefix("torch.")
        lines = [
            tr("{name} on {device}, {dtype}.", name=plain_text(model.name), device=speaker.device.upper(), dtype=held)
        ]
        lines.append(plain_text(model.taken))
        if model.kind == "adapter":
            lines.append(tr("Adapter on {base}.", base=plain_text(model.base_name or "")))
        if self._word == "chat":
            lines += self._how_it_is_asked()
            lines.append(_sampling(speaker.sampling, options.temperature))
        if self._word == "fill":
            lines.append(tr("Write {mask} where a token should be filled in.", mask=speaker.tokenizer.mask_token))
        if self._asks:
            lines.append(tr("ctrl-c stops an answer, ctrl-d exits, {new} starts over.", new=NEW))
        for line in lines:
            self._note(line)

    @staticmethod
    def _note(line: str) -> None:
        """On stderr in a pipe, where stdout is for answers."""
        out = sys.stdout if is_terminal(sys.stdout) else sys.stderr
        if line:
            say(paint(line, "quiet", out), out)

    def _how_it_is_asked(self) -> list[str]:
        if not self._chats:
            why = tr("as requested") if self._options.plain else tr("the model has no chat template")
            return [
                tr("Plain completion ({why}): each line is continued on its own, without the earlier ones.", why=why)
            ]
        from trainwiz.core.data.lengths import trains_on_chats

        if self._model.config is None or trains_on_chats(self._model.config):
            return []
        return [tr("The run was trained on plain text, not on chats. Use --plain to prompt it as it was trained.")]

    @property
    def _asks(self) -> bool:
        return not self._options.prompts and is_terminal(sys.stdin) and is_terminal(sys.stdout)

    def run(self) -> int:
        for prompt in self._prompts():
            if prompt.strip() == NEW and self._asks:
                self._begin()
                say(paint(tr("New chat."), "quiet"))
                continue
            try:
                if not self._turn(prompt) and not self._asks:
                    return EXIT_STOPPED
            except TrainwizError as error:
                if not self._asks:
                    raise
                # Of one turn: it is taken back, and the next one may be right.
                say_findings(error.findings, sys.stderr)
        return EXIT_FINISHED

    def _prompts(self) -> Iterator[str]:
        if self._options.prompts or not self._asks:
            if isinstance(sys.stdin, TextIOWrapper):
                sys.stdin.reconfigure(errors="replace")
            lines = iter(self._options.prompts or sys.stdin)
            texts = (line.rstrip("\r\n").encode(errors="replace").decode() for line in lines)
            yield from (text for text in texts if text.strip())
            return
        with contextlib.suppress(ImportError):
            # Editing, history and letters of two cells in the line that is typed.
            import readline  # noqa: F401
        while True:
            try:
                text = input("> ")
            except (EOFError, KeyboardInterrupt):
                say()
                return
            if text.strip() in LEAVE:
                return
            if text.strip():
                yield text

    def _turn(self, prompt: str) -> bool:
        """Whether all answers came to their end, and none was stopped."""
        answers: dict[str, str] = {}
        results: dict[str, dict[str, Any]] = {}
        shows = not self._options.as_json and self._word != "fill"
        for side in self._sides:
            if shows and len(self._sides) == 2:
                say(paint(f"{_side(side)}:", "strong"))
            answers[side], results[side] = self._asked(side, prompt, shows=shows)
        for side, answer in answers.items():
            self._said[side] += [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
        if self._options.as_json:
            texts = {side: {} if self._word == "fill" else {"text": answers[side]} for side in self._sides}
            say_json(
                {"prompt": prompt, **{side: {**texts[side], **results[side]} for side in self._sides}}, compact=True
            )
        elif self._word == "fill":
            _say_fills(results)
        return all(result.get("ended") != "stopped" for result in results.values())

    def _asked(self, side: str, prompt: str, *, shows: bool) -> tuple[str, dict[str, Any]]:
        """(the answer, what is to be said of it); `shows` it while it is written. An interrupt (SIGINT) stops it."""
        from trainwiz.core.training.speak import answer, fill, in_words

        pieces: list[str] = []
        stop = threading.Event()

        def write(piece: str) -> None:
            pieces.append(piece)
            if shows:
                sys.stdout.write(harmless(piece))
                sys.stdout.flush()

        options = self._options
        asked: dict[str, Any] = {name: getattr(options, name) for name in ("max_tokens", "temperature", "seed")}
        asked |= {"chat": [*self._said[side], {"role": "user", "content": prompt}]} if self._chats else {"text": prompt}
        before = signal.signal(signal.SIGINT, lambda *_: stop.set())
        try:
            with in_words():
                if self._word == "fill":
                    return "", fill(self._speaker, side, prompt)
                result = answer(self._speaker, side, asked, write, stop.is_set)
        finally:
            signal.signal(signal.SIGINT, before)
        if shows:
            say()
            self._note(self._ended(result))
        return "".join(pieces), result

    def _ended(self, result: dict[str, Any]) -> str:
        """What is to be said where the model did not come to an end of its own."""
        if result.get("ended") != "length":
            return tr("(stopped)") if result.get("ended") == "stopped" else ""
        asked, limit = mark("(truncated after {n} tokens: --max-tokens)"), mark("(truncated: the model's limit)")
        return tr(asked if result["tokens"] >= self._options.max_tokens else limit, n=result["tokens"])


def _sampling(own: dict[str, Any], temperature: float | None) -> str:
    if temperature is not None:
        return ""
    if not own:
        return tr("Greedy decoding: the most likely token each time (--temperature enables sampling).")
    values = ", ".join(f"{name} {value:g}" for name, value in own.items() if value is not None)
    return tr("Sampling with the model's own settings: {values} (--temperature 0: greedy).", values=values)


def harmless(text: str) -> str:
    return "\n".join(map(plain_text, text.split("\n")))


def _side(side: str) -> str:
    return tr("base") if side == "base" else tr("tuned")


def _say_fills(results: dict[str, dict[str, Any]]) -> None:
    for side, result in results.items():
        if len(results) == 2:
            say(paint(f"{_side(side)}:", "strong"))
        say(harmless(result["filled"]))
        for number, row in enumerate(result["masks"], start=1):
            tokens = "   ".join(f"{plain_text(one['token'])} {percent(one['probability'])}" for one in row)
            say_rows([(tr("Mask {n}", n=number), tokens)])
