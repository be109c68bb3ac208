"""`trainwiz model ...`: a finished model speaks, in a terminal or in a pipe; it is merged, described, exported, published."""

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
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED, TrainwizError, usage_error
from trainwiz.core.hardware.install import need
from trainwiz.core.language import mark, tr
from trainwiz.core.model.export import (
    Target,
    check_exportable,
    command_for,
    merged_folder,
    modelfile,
    own_stops,
    whole_model,
)
from trainwiz.core.model.found import FoundModel, find_model
from trainwiz.core.model.publish import check_account, model_card, plan_upload, push
from trainwiz.core.processes import heavy_imports, wait_briefly
from trainwiz.core.text import plain_text
from trainwiz.tui.choices import checked
from trainwiz.tui.commands.exchange import check_free, write_new
from trainwiz.tui.output import (
    Waiting,
    agreed,
    handling,
    is_terminal,
    paint,
    say,
    say_findings,
    say_json,
    say_rows,
    under,
)
from trainwiz.tui.text import percent, size

if TYPE_CHECKING:
    from trainwiz.core.training.model_loading import Speaker

NEW = "/new"


@dataclass(frozen=True, slots=True)
class SpeechOptions:
    prompts: Sequence[str]
    compare: bool
    plain: bool
    system: str | None
    max_tokens: int
    temperature: float | None
    seed: int | None
    bits: int | None
    base: str | None
    source_language: str | None
    target_language: str | None
    cpu: bool
    as_json: bool


def run_speech(word: str, path: str, **given: Any) -> int:
    options = SpeechOptions(**given)
    model = find_model(path, options.base)
    _check(word, path, model, options)
    languages = {"model.source_language": options.source_language, "model.target_language": options.target_language}
    values = {key: value for key, value in languages.items() if value}
    with Waiting(tr("Loading {name}…", name=model.name)):
        load_libraries()
        from trainwiz.core.training.model_loading import load
        from trainwiz.core.training.speak import in_words

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
    right = f"trainwiz model {model.speech} {text}"
    templated = word == "chat" and model.has_template and not options.plain
    refusals = (
        ("PATH", model.speech is None, mark("{name} is a {task} model, which chat, fill and translate don't support.")),
        ("PATH", model.speech != word, mark("{name} is a {task} model. Use: {command}")),
        ("--bits", options.bits not in (None, 4, 8, 16), mark("--bits must be 4, 8 or 16.")),
        (
            "--bits",
            options.bits is not None and model.kind == "whole",
            mark("--bits is for the base model of an adapter; {path} is a full model."),
        ),
        (
            "--system",
            bool(options.system) and not templated,
            mark("--system only works with a chat template, and none is used here."),
        ),
        (
            "--compare",
            options.compare and model.base is None,
            mark(
                "Nothing to compare with: the run was trained from scratch, or its base model is not on this machine."
            ),
        ),
    )
    for where, is_wrong, sentence in refusals:
        if is_wrong:
            said = tr(sentence, name=model.name, task=model.task, command=right, path=model.path)
            raise usage_error("bad_choice", where, said)


class Conversation:
    def __init__(self, word: str, speaker: Speaker, options: SpeechOptions) -> None:
        model = speaker.model
        self._word, self._speaker, self._model, self._options = word, speaker, model, options
        self._chats = word == "chat" and model.has_template and not options.plain
        self._asks = not options.prompts and is_terminal(sys.stdin) and is_terminal(sys.stdout)
        self._sides = ("base", "tuned") if options.compare else ("tuned",)
        self._said: dict[str, list[dict[str, str]]] = {}
        self._begin()

    def _begin(self) -> None:
        first = [{"role": "system", "content": self._options.system}] if self._options.system else []
        self._said = {side: list(first) for side in self._sides}

    def introduce(self) -> None:
        model, options, speaker = self._model, self._options, self._speaker
        bits = options.bits or model.bits
        held = tr("{bits}-bit", bits=bits) if bits < 16 else str(speaker.main.dtype).removeprefix("torch.")
        device = speaker.device.upper()
        lines = [tr("{name} on {device}, {dtype}.", name=model.name, device=device, dtype=held), model.taken]
        if model.kind == "adapter":
            lines.append(tr("Adapter on {base}.", base=model.base_name or ""))
        if self._word == "chat":
            lines.append(self._how_it_is_asked())
        if self._word == "fill":
            lines.append(tr("Write {mask} where a token should be filled in.", mask=speaker.tokenizer.mask_token))
        if self._asks:
            lines.append(tr("ctrl-c stops an answer, ctrl-d exits, {new} starts over.", new=NEW))
        for line in lines:
            self._note(plain_text(line))

    def _note(self, line: str) -> None:
        """On stderr in a pipe, where stdout is for answers; nothing beside JSON."""
        out = sys.stdout if is_terminal(sys.stdout) else sys.stderr
        if line and not self._options.as_json:
            say(paint(line, "quiet", out), out)

    def _how_it_is_asked(self) -> str:
        if not self._chats:
            why = tr("as requested") if self._options.plain else tr("the model has no chat template")
            return tr("Plain completion ({why}): each line is continued on its own, without the earlier ones.", why=why)
        from trainwiz.core.data.lengths import trains_on_chats

        if self._model.config is None or trains_on_chats(self._model.config):
            return ""
        return tr("The run was trained on plain text, not on chats. Use --plain to prompt it as it was trained.")

    def run(self) -> int:
        for prompt in self._typed() if self._asks else self._given():
            if prompt.strip() == NEW and self._asks:
                self._begin()
                self._note(tr("New chat."))
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

    def _given(self) -> Iterator[str]:
        """From options or a pipe."""
        if isinstance(sys.stdin, TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        for line in self._options.prompts or sys.stdin:
            text = line.rstrip("\r\n").encode(errors="replace").decode()
            if text.strip():
                yield text

    def _typed(self) -> Iterator[str]:
        with contextlib.suppress(ImportError):
            # Editing, history and letters of two cells in the line that is typed.
            import readline  # noqa: F401
        with contextlib.suppress(EOFError, KeyboardInterrupt):
            while True:
                text = input("> ")
                if text.strip():
                    yield text
        say()

    def _turn(self, prompt: str) -> bool:
        """Whether all answers came to their end, and none was stopped."""
        results: dict[str, dict[str, Any]] = {}
        for side in self._sides:
            if len(self._sides) == 2 and not self._options.as_json:
                say(paint(tr("base:") if side == "base" else tr("tuned:"), "strong"))
            results[side] = self._filled(side, prompt) if self._word == "fill" else self._answered(side, prompt)
        for side, result in results.items():
            told = {"user": prompt, "assistant": result.get("text", "")}
            self._said[side] += [{"role": role, "content": text} for role, text in told.items()]
        if self._options.as_json:
            say_json({"prompt": prompt, **results}, compact=True)
        return all(result.get("ended") != "stopped" for result in results.values())

    def _answered(self, side: str, prompt: str) -> dict[str, Any]:
        """The text, with what is to be said of it. It is shown while it is written; an interrupt (SIGINT) stops it."""
        from trainwiz.core.training.speak import answer, in_words

        options, pieces, stop = self._options, list[str](), threading.Event()

        def write(piece: str) -> None:
            pieces.append(piece)
            if not options.as_json:
                sys.stdout.write(harmless(piece))
                sys.stdout.flush()

        asked = {"max_tokens": options.max_tokens, "temperature": options.temperature, "seed": options.seed}
        turns = [*self._said[side], {"role": "user", "content": prompt}]
        what = {"chat": turns} if self._chats else {"text": prompt}
        with in_words(), handling(lambda *_: stop.set(), signal.SIGINT):
            result = answer(self._speaker, side, {**asked, **what}, write, stop.is_set)
        if not options.as_json:
            say()
        if result["ended"] == "stopped":
            self._note(tr("(stopped)"))
        elif result["ended"] == "length":
            limit = mark("(truncated: the model's limit)")
            if result["tokens"] >= options.max_tokens:
                limit = mark("(truncated after {n} tokens: --max-tokens)")
            self._note(tr(limit, n=result["tokens"]))
        return {"text": "".join(pieces), **result}

    def _filled(self, side: str, prompt: str) -> dict[str, Any]:
        from trainwiz.core.training.speak import fill, in_words

        with in_words():
            result = fill(self._speaker, side, prompt)
        if not self._options.as_json:
            say(harmless(result["filled"]))
            for number, row in enumerate(result["masks"], start=1):
                tokens = "   ".join(f"{plain_text(one['token'])} {percent(one['probability'])}" for one in row)
                say_rows([(tr("Mask {n}", n=number), tokens)])
        return result


def harmless(text: str) -> str:
    return "\n".join(map(plain_text, text.split("\n")))


# What becomes of a finished model: merge, card, export, push.

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def run_merge(path: str, to: str, *, dtype: str | None, base: str | None, as_json: bool) -> None:
    model, place = find_model(path, base), Path(to)
    if model.kind == "whole" or model.base is None:
        message = tr("{path} is already a full model; there is nothing to merge.", path=model.path)
        raise usage_error("nothing_to_merge", "PATH", message)
    dtype = checked("--dtype", dtype or DTYPES.get(model.dtype, "fp32"), tuple(DTYPES.values()))
    check_free(place)

    load_libraries()
    from trainwiz.core.training.model_loading import merge
    from trainwiz.core.training.speak import in_words

    with in_words(), Waiting(model.name) as waiting:
        found = merge(model, place, dtype, waiting.say)
    if as_json:
        say_json({"path": str(place), "base": str(model.base), **found})
        return
    checked_words = tr(
        "merged and unmerged logits differ by at most {merged_difference} on {n} prompts (largest logit "
            "{largest_logit}, in {kind})",
        n=found["prompts"], kind=found["summed_in"], merged_difference=f"{found['merged_difference']:.2g}",
        largest_logit=f"{found['largest_logit']:.2g}",
    )  # fmt: skip
    rows = [
        (tr("Merged"), f"{plain_text(place)} ({found['dtype']})"),
        (tr("Base"), plain_text(model.base_name or "")),
        (tr("Checked"), checked_words),
    ]
    if "trained" in found:
        rows.append((tr("{bits}-bit", bits=model.bits), _against_trained(found["trained"])))
    say_rows([*rows, (tr("Stops at"), plain_text(" ".join(found["stops"])))])


def _against_trained(trained: dict[str, Any] | None) -> str:
    """What the base in few bits, on which the adapter was trained, makes of the difference."""
    if trained is None:
        return tr(
            "the adapter was trained on this quantized base; the difference can't be measured on this machine "
            "(no bitsandbytes)"
        )
    return tr(
        "the adapter was trained on this quantized base: compared with it, logits differ by at most {difference}, "
        "and the most likely next token is the same at {share} of positions",
        difference=f"{trained['difference']:.2g}",
        share=percent(trained["same_next_token"]),
    )


def run_card(path: str, to: str | None) -> None:
    _out(model_card(find_model(path)), to)


def _out(text: str, to: str | None) -> None:
    if to is None:
        sys.stdout.write(harmless(text))
    else:
        write_new(Path(to), text)


def run_model_export(path: str, *, to: str | None, merged: str | None, **targets: bool) -> None:
    model = find_model(path)
    target = check_exportable(model, [cast("Target", name) for name, chosen in targets.items() if chosen])
    place = Path(merged) if merged is not None else merged_folder(model)
    if target == "gguf" and to is not None and Path(to).suffix == ".gguf":
        whole = whole_model(model, place)
        check_free(Path(to))
        load_libraries()
        from trainwiz.core.training.gguf_file import write_gguf
        from trainwiz.core.training.speak import in_words

        with in_words():
            found = write_gguf(whole, Path(to), model.name)
        written = f"{plain_text(to)} ({found['dtype']}, {size(found['bytes'])})"
        say_rows([(tr("Written"), written), (tr("Stops at"), plain_text(" ".join(found["stops"])))])
        return
    load_libraries()
    from trainwiz.core.training.chats import template_parts
    from trainwiz.core.training.model_loading import config_of, load_tokenizer

    known = template_parts(load_tokenizer(model, config_of(model)), own_stops(model))
    _out(modelfile(model, known, place) if target == "ollama" else command_for(target, model, place, known), to)


def run_push(path: str, repo: str, *, public: bool, yes: bool, base: str | None) -> None:
    upload = plan_upload(find_model(path), repo, public=public, base=base)
    seen, account = tr("public") if public else tr("private"), tr("as {name}", name=plain_text(check_account()))
    rows = [
        (tr("To"), f"{plain_text(repo)} · {seen} · {account}"),
        (tr("Files"), plain_text(", ".join([*(file.name for file in upload.files), *upload.written]))),
    ]
    say_rows([*rows, *under(tr("Skipped"), plain_text(", ".join(upload.left)))])
    question = tr("Upload {amount} to {repo}? [y/N] ", amount=size(upload.size), repo=plain_text(upload.repo))
    if not yes and not agreed(question, tr("Uploading needs confirmation; add --yes.")):
        say(tr("Nothing was uploaded."))
        return
    say(tr("Uploaded: {address}", address=plain_text(push(upload))))
