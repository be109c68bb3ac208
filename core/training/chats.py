"""Chats as tokens: the template that writes them, and which of their tokens are learnt."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jinja2 import TemplateError
from trainwiz.core.config import RunConfig
from trainwiz.core.data.chats import messages_of
from trainwiz.core.errors import os_reason, usage_error
from trainwiz.core.files import at_home, read_small
from trainwiz.core.hardware.install import find_installer, install_line
from trainwiz.core.language import tr
from trainwiz.core.training.batches import IGNORED
from trainwiz.core.training.process import first_line
from trainwiz.core.training.tokens import TokenRow, next_tokens
from transformers import PreTrainedTokenizerBase

# The template of a run. Where it marks what the assistant says, transformers tells which tokens these are.

CHATML_END = "<|im_end|>"
CHATML = (
    "{%% for message in messages %%}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + %(end)r + '\\n' }}"
    "{%% endfor %%}{%% if add_generation_prompt %%}{{ '<|im_start|>assistant\\n' }}{%% endif %%}"
)
"""For a tokenizer without a template. A turn ends with the token that ends texts, unless the tokenizer knows ChatML's."""
GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
TODAY = re.compile(r"""strftime_now\(\s*(["'])(.*?)\1\s*\)""")
DATE = datetime(2024, 7, 26)
"""The day that templates write which write today's (Llama 3.2, gpt-oss): rows must not change from one day of a run to the
next. It is the one that Llama 3.1 writes by itself."""
LONGEST_REASON = 200
MOST_NAMED = 5
"""Chats that are left out, of a process; the plan counts them."""

TrainOn = Literal["answers", "last_answer", "everything"]
Marks = Literal["own", "training", "prefixes"]
"""How answers are found: by the template's own marks, by those of a training template that TRL ships for its family, or by
rendering the turns before each answer."""


class ChatError(ValueError):
    """A chat that the template does not take, or writes in a way in which its answers cannot be found."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@cache
def training_templates() -> dict[str, tuple[str, str]]:
    """The template of a family -> its name, and the same with marks around what the assistant says. Empty without TRL.

    The files are read as they lie in the package: importing TRL takes seconds.
    """
    found = importlib.util.find_spec("trl")
    folders = [] if found is None else list(found.submodule_search_locations or [])
    pairs: dict[str, tuple[str, str]] = {}
    for marked in (path for folder in folders for path in Path(folder, "chat_templates").glob("*_training.jinja")):
        name = marked.name.removesuffix("_training.jinja")
        plain = marked.with_name(f"{name}.jinja")
        if plain.is_file():
            pairs[read_small(plain).decode()] = name, read_small(marked).decode()
    return pairs


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """How chats are written while training."""

    text: str
    marks: Marks
    family: str = ""
    """TRL's name of a training template."""


def set_template(tokenizer: PreTrainedTokenizerBase, config: RunConfig, folder: Path) -> ChatTemplate:
    """Gives the tokenizer the template of the run, with which it is saved. Relative paths are from `folder`.

    Raises UsageError for a tokenizer that has none while the run wants its own, and for a file that cannot be read.
    """
    choice = config.model.chat_template or "own"
    if choice == "chatml":
        known = tokenizer.get_vocab()
        end = CHATML_END if CHATML_END in known else str(tokenizer.eos_token)
        tokenizer.chat_template = CHATML % {"end": end}
    elif choice != "own":
        path = folder / at_home(Path(choice))
        try:
            tokenizer.chat_template = read_small(path).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = os_reason(error) if isinstance(error, OSError) else tr("the text is not UTF-8")
            message = tr("the chat template {path} cannot be read: {reason}.", path=path, reason=reason)
            raise usage_error("missing_template", "model.chat_template", message) from None
    template = tokenizer.chat_template
    text = template.get("default") if isinstance(template, dict) else template
    if not isinstance(text, str):
        message = tr(
            "the tokenizer of {name} has no chat template; choose one: --chat-template chatml, or a file with a "
            "Jinja template.",
            name=tokenizer.name_or_path,
        )
        raise usage_error("no_chat_template", "model.chat_template", message)
    if GENERATION.search(text):
        return ChatTemplate(_of_one_day(text), "own")
    family, marked = training_templates().get(text, ("", ""))
    return (
        ChatTemplate(_of_one_day(marked), "training", family) if marked else ChatTemplate(_of_one_day(text), "prefixes")
    )


def _of_one_day(template: str) -> str:
    return TODAY.sub(lambda found: repr(DATE.strftime(found.group(2))), template)


# Chats as tokens.


@dataclass(frozen=True, slots=True)
class WholeChat:
    """A chat uncut."""

    tokens: np.ndarray
    """(n,) int64."""
    learnt: np.ndarray
    """(n,) bool: tokens that have a label."""
    answers: tuple[tuple[int, int], ...]
    """First token and end of each answer, learnt or not."""


def place_of_last_answer(turns: list[Any]) -> int:
    """Behind all turns where the assistant says nothing."""
    return max((place for place, turn in enumerate(turns) if turn["role"] == "assistant"), default=len(turns))


class ChatEncoder:
    """Rows that are chats, as core/data/chats.py keeps them."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, template: ChatTemplate, length: int, train_on: TrainOn
    ) -> None:
        """`length`: most tokens of a sequence; what is beyond is cut."""
        self.length = length
        self.template = template
        self.train_on = train_on
        self._tokenizer: Any = tokenizer
        self._left_out = 0

    def row(self, chat: str, target: None = None) -> TokenRow:
        """(tokens, labels), labels moved one place to the left: position t predicts token t + 1.

        A chat that the template does not take is a row without a label, and is named: a run does not end for it.
        """
        try:
            whole = self.whole(chat)
        except ChatError as error:
            self._left_out += 1
            if self._left_out <= MOST_NAMED:
                print(tr("a chat is skipped: {reason}.", reason=error), flush=True)
            return np.array([self._tokenizer.eos_token_id], np.int64), np.array([IGNORED], np.int64)
        tokens, learnt = whole.tokens[: self.length], whole.learnt[: self.length]
        return tokens, next_tokens(tokens, learnt)

    def lengths(self, chats: list[str], targets: None = None) -> list[int]:
        """Tokens of each row as `row` gives it."""
        return [min(count, self.length) for count in self.whole_lengths(chats)]

    def whole_lengths(self, chats: list[str], targets: None = None) -> list[int]:
        """Tokens of each chat uncut; 1 of one that the template does not take."""
        texts: dict[int, str] = {}
        for number, chat in enumerate(chats):
            with suppress(ChatError):
                texts[number] = self._text(*messages_of(chat))
        every = (
            self._tokenizer(list(texts.values()), add_special_tokens=False, verbose=False)["input_ids"] if texts else []
        )
        counts = dict(zip(texts, map(len, every), strict=True))
        return [counts.get(number, 1) for number in range(len(chats))]

    def prompt(self, chat: str, room: int) -> list[int]:
        """The tokens that the last answer is generated from, at most `room`, the last ones."""
        turns, tools = messages_of(chat)
        try:
            text = self._text(turns[: place_of_last_answer(turns)], tools, asks=True)
        except ChatError:
            return [self._tokenizer.eos_token_id]
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return tokens[-room:]

    def whole(self, chat: str) -> WholeChat:
        """Raises ChatError."""
        turns, tools = messages_of(chat)
        places = [place for place, turn in enumerate(turns) if turn["role"] == "assistant"]
        if self.template.marks != "prefixes":
            tokens, answers = self._by_marks(turns, tools)
            if len(answers) != len(places):
                # A template that marks a turn in pieces: where turns begin tells which is which.
                tokens, answers = self._by_prefixes(turns, tools, places)
        else:
            if self.train_on == "last_answer":
                places = places[-1:]
            tokens, answers = self._by_prefixes(turns, tools, places if self.train_on != "everything" else [])
        learnt = np.full(len(tokens), self.train_on == "everything")
        chosen = zip(places, answers, strict=True) if self.train_on != "everything" else ()
        for place, (start, end) in list(chosen)[-1 if self.train_on == "last_answer" else 0 :]:
            learnt[start:end] = turns[place].get("learn", True)
        return WholeChat(tokens, learnt, tuple(answers))

    def pieces(self, chat: str) -> tuple[list[str], list[tuple[str, int]]]:
        """The text of each token, "" for one that goes on with the letter of the last; (role, end) of each turn in tokens,
        none where the template writes turns otherwise one by one. Raises ChatError."""
        turns, tools = messages_of(chat)
        text = self._text(turns, tools)
        _, offsets = self._cut(text)
        pieces, done = [], 0
        for start, end in offsets.tolist():
            pieces.append(text[max(start, done) : end])
            done = max(done, end)
        ends: list[tuple[str, int]] = []
        for place, turn in enumerate(turns, 1):
            try:
                through = self._text(turns[:place], tools)
            except ChatError:
                # Some templates want a user's turn first.
                continue
            if not text.startswith(through):
                return pieces, []
            ends.append((turn["role"], int(np.searchsorted(offsets[:, 0], len(through)))))
        return pieces, ends

    def _by_marks(self, turns: list[Any], tools: Any) -> tuple[np.ndarray, list[tuple[int, int]]]:
        """(tokens, answers) as transformers finds them by the marks of the template."""
        said = self._applied(turns, tools, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        marked = np.array([0, *said["assistant_masks"], 0], np.int8)
        edges = np.flatnonzero(np.diff(marked)).reshape(-1, 2)
        return np.array(said["input_ids"], np.int64), [(int(start), int(end)) for start, end in edges]

    def _by_prefixes(
        self, turns: list[Any], tools: Any, places: Sequence[int]
    ) -> tuple[np.ndarray, list[tuple[int, int]]]:
        """(tokens, answers): an answer is what the text has beyond the turns before it and the words that ask for it."""
        text = self._text(turns, tools)
        spans = []
        for place in places:
            before = self._text(turns[:place], tools, asks=True)
            through = self._text(turns[: place + 1], tools)
            if not (through.startswith(before) and text.startswith(through)):
                message = tr(
                    "the template renders turn {place} differently when other turns follow it", place=place + 1
                )
                if not training_templates():
                    command = install_line(find_installer(), "[qlora]")
                    message += f" ({tr('TRL, which marks the answers for many model families, is not installed: {command}', command=command)})"
                raise ChatError("template_changes", message)
            spans.append((len(before), len(through)))
        tokens, offsets = self._cut(text)
        edges = np.searchsorted(offsets[:, 0], np.array(spans, np.int64).reshape(-1, 2))
        return tokens, [(int(start), int(end)) for start, end in edges]

    def _cut(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """(tokens (n,), beginning and end of each in the text (n, 2)), int64."""
        cut = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return np.array(cut["input_ids"], np.int64), np.array(cut["offset_mapping"], np.int64).reshape(-1, 2)

    def _text(self, turns: list[Any], tools: Any, *, asks: bool = False) -> str:
        """`asks`: with the words after which the assistant answers."""
        return str(self._applied(turns, tools, tokenize=False, add_generation_prompt=asks))

    def _applied(self, turns: list[Any], tools: Any, **how: Any) -> Any:
        plain = [{key: value for key, value in turn.items() if key != "learn"} for turn in turns]
        day = DATE.strftime("%d %b %Y")
        try:
            return self._tokenizer.apply_chat_template(
                plain, tools=tools, chat_template=self.template.text, date_string=day, **how
            )
        except (TemplateError, TypeError, ValueError, KeyError, IndexError) as error:
            reason = tr("the template reports: {reason}", reason=first_line(error)[:LONGEST_REASON])
            raise ChatError("template_refuses", reason) from error
