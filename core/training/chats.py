"""Chats as tokens: the template that writes them, and which of their tokens are learnt."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import zip_longest
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
from trainwiz.core.training.tokens import TokenRow, next_tokens, uncut_tokens
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

Spans = Sequence[Sequence[int]]
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
    pairs: dict[str, tuple[str, str]] = {}
    if found is not None and found.origin is not None:
        for marked in Path(found.origin).parent.glob("chat_templates/*_training.jinja"):
            plain = marked.with_name(marked.name.replace("_training", ""))
            if plain.is_file():
                pairs[read_small(plain).decode()] = plain.stem, read_small(marked).decode()
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
        end = CHATML_END if CHATML_END in tokenizer.get_vocab() else str(tokenizer.eos_token)
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
    marks: Marks = "own" if GENERATION.search(text) else "prefixes"
    family, marked = training_templates().get(text, ("", text))
    of_one_day = TODAY.sub(lambda found: repr(DATE.strftime(found.group(2))), marked)
    return ChatTemplate(of_one_day, "training" if family else marks, family)


# Chats as tokens.


@dataclass(frozen=True, slots=True)
class WholeChat:
    """A chat uncut."""

    tokens: np.ndarray
    """(n,) int64."""
    learnt: np.ndarray
    """(n,) bool: tokens that have a label."""
    answers: Spans
    """First token and end of each answer that the run trains on, except where it trains on everything."""


def place_of_last_answer(turns: list[Any]) -> int:
    """Behind all turns where the assistant says nothing."""
    return max((place for place, turn in enumerate(turns) if turn["role"] == "assistant"), default=len(turns))


@dataclass
class ChatEncoder:
    """Rows that are chats, as core/data/chats.py keeps them."""

    tokenizer: Any
    template: ChatTemplate
    length: int
    """Most tokens of a sequence; what is beyond is cut."""
    train_on: TrainOn
    left_out: int = 0

    def row(self, chat: str, target: None = None) -> TokenRow:
        """(tokens, labels), labels moved one place to the left: position t predicts token t + 1.

        A chat that the template does not take is a row without a label, and is named: a run does not end for it.
        """
        try:
            whole = self.whole(chat)
        except ChatError as error:
            self.left_out += 1
            if self.left_out <= MOST_NAMED:
                print(tr("a chat is skipped: {reason}.", reason=error), flush=True)
            return np.array([self.tokenizer.eos_token_id], np.int64), np.array([IGNORED], np.int64)
        tokens = whole.tokens[: self.length]
        return tokens, next_tokens(tokens, whole.learnt[: self.length])

    def lengths(self, chats: list[str], targets: None = None) -> list[int]:
        """Tokens of each chat uncut; 1 of one that the template does not take."""
        texts = [""] * len(chats)
        for number, chat in enumerate(chats):
            with suppress(ChatError):
                texts[number] = self._text(*messages_of(chat))
        return [max(1, len(tokens)) for tokens in uncut_tokens(self.tokenizer, texts, special=False)]

    def prompt(self, chat: str, room: int) -> list[int]:
        """The tokens that the last answer is generated from, at most `room`, the last ones."""
        turns, tools = messages_of(chat)
        try:
            text = self._text(turns[: place_of_last_answer(turns)], tools, asks=True)
        except ChatError:
            return [self.tokenizer.eos_token_id]
        return uncut_tokens(self.tokenizer, [text], special=False)[0][-room:]

    def whole(self, chat: str) -> WholeChat:
        """Raises ChatError."""
        turns, tools = messages_of(chat)
        places = [place for place, turn in enumerate(turns) if turn["role"] == "assistant"]
        trained = {"answers": places, "last_answer": places[-1:], "everything": []}[self.train_on]
        marked = self._by_marks(turns, tools) if trained and self.template.marks != "prefixes" else None
        if marked is not None and len(marked[1]) == len(places):
            tokens, answers = marked[0], marked[1][-len(trained) :]
        else:
            # Without marks, or with those of a template that marks a turn in pieces.
            tokens, answers = self._by_prefixes(turns, tools, trained)
        learnt = np.full(len(tokens), self.train_on == "everything")
        for place, (start, end) in zip(trained, answers, strict=True):
            learnt[start:end] = turns[place].get("learn", True)
        return WholeChat(tokens, learnt, answers)

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
            # Some templates want a user's turn first.
            with suppress(ChatError):
                through = self._text(turns[:place], tools)
                if not text.startswith(through):
                    return pieces, []
                ends.append((turn["role"], int(np.searchsorted(offsets[:, 0], len(through)))))
        return pieces, ends

    def _by_marks(self, turns: list[Any], tools: Any) -> tuple[np.ndarray, Spans]:
        """(tokens, answers) as transformers finds them by the marks of the template."""
        said = self._applied(turns, tools, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        edges = np.flatnonzero(np.diff([0, *said["assistant_masks"], 0])).reshape(-1, 2)
        return np.array(said["input_ids"], np.int64), edges.tolist()

    def _by_prefixes(self, turns: list[Any], tools: Any, places: Sequence[int]) -> tuple[np.ndarray, Spans]:
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
        return tokens, np.searchsorted(offsets[:, 0], np.array(spans, np.int64).reshape(-1, 2)).tolist()

    def _cut(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """(tokens (n,), beginning and end of each in the text (n, 2)), int64."""
        cut = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return np.array(cut["input_ids"], np.int64), np.array(cut["offset_mapping"], np.int64).reshape(-1, 2)

    def _text(self, turns: list[Any], tools: Any, *, asks: bool = False) -> str:
        """`asks`: with the words after which the assistant answers."""
        return str(self._applied(turns, tools, tokenize=False, add_generation_prompt=asks))

    def _applied(self, turns: list[Any], tools: Any, **how: Any) -> Any:
        plain = [{key: value for key, value in turn.items() if key != "learn"} for turn in turns]
        how |= {"tools": tools, "chat_template": self.template.text, "date_string": DATE.strftime("%d %b %Y")}
        try:
            return self.tokenizer.apply_chat_template(plain, **how)
        except (TemplateError, TypeError, ValueError, KeyError, IndexError) as error:
            reason = tr("the template reports: {reason}", reason=first_line(error)[:LONGEST_REASON])
            raise ChatError("template_refuses", reason) from error


# A finished model's template taken apart: the texts that it puts around what is said, where it is made of such texts alone.

CHATS = 50
"""Conversations on which the parts must give what the tokenizer renders, to the letter."""
WORDS = ["fox", "狐狸", "sees", "3", "stones", "<b>", "{{x}}", 'a "quoted" word', "two\nlines", "été", "&", "%s", "\\n"]
USERS, ANSWERS, SYSTEM = ["QxUa", "QxUb"], ["QxAa"], "QxSy"
"""What stands for the turns while a template is taken apart: words that no template has of its own."""


def render(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], *, asks: bool = True) -> str:
    taken = as_the_template_takes(tokenizer, messages)
    return str(tokenizer.apply_chat_template(taken, add_generation_prompt=asks, tokenize=False))


def as_the_template_takes(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> list[Any]:
    """Turns whose contents are texts, or lists of parts where the template wants these (models that also see)."""
    # A template raises whatever it likes.
    with suppress(Exception):
        if SYSTEM in str(tokenizer.apply_chat_template([{"role": "user", "content": SYSTEM}], tokenize=False)):
            return list(messages)
    return [{**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in messages]


def rounds(users: Sequence[str], answers: Sequence[str], system: str | None = None) -> list[dict[str, str]]:
    """The turns of a conversation; with one answer fewer than there are users it ends with a question."""
    turns = [] if system is None else [{"role": "system", "content": system}]
    for user, answer in zip_longest(users, answers):
        turns.append({"role": "user", "content": user})
        turns += [] if answer is None else [{"role": "assistant", "content": answer}]
    return turns


def end_of_turn(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The special token that ends an answer in the template; None without a template or such a token."""
    behind = ""
    # A template raises whatever it likes, and so does a tokenizer without one.
    with suppress(Exception):
        behind = render(tokenizer, rounds(USERS[:1], ANSWERS), asks=False).rpartition(ANSWERS[0])[2].lstrip()
    first = tokenizer(behind, add_special_tokens=False, verbose=False)["input_ids"][:1] if behind else []
    special: set[Any] = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    return int(first[0]) if special.issuperset(first) and first else None


def conversations(system: bool) -> list[list[dict[str, str]]]:
    """Always the same: of one to six turns of the user, some of them with a system turn where there are any."""
    chats = []
    for number in range(CHATS):
        # Blanks at an end of a turn are another question: some templates strip them, and Ollama's language cannot.
        said = [f"{WORDS[(number + place) % len(WORDS)]} {WORDS[place * number % len(WORDS)]}" for place in range(12)]
        last = 2 * (number % 6)
        chats.append(rounds(said[: last + 1 : 2], said[1:last:2], said[-1] if system and number % 5 == 0 else None))
    return chats


def template_parts(tokenizer: PreTrainedTokenizerBase, own_stops: Sequence[int] = ()) -> dict[str, Any]:
    """`parts`, see `taken_apart`, or None with the `problem`: the tokenizer has no template (`none`), or one that renders
    some of `chats` conversations otherwise (`differs`). `begin`: the token that the tokenizer itself puts before the parts.

    `stops`: all tokens that end an answer, as texts. `unheard`: the end of a turn, where programs that know the end token
    and `own_stops`, those of the generation config, would write on behind it. `dated`: the text has today's date.
    """
    turn, others = end_of_turn(tokenizer), (tokenizer.eos_token_id, *own_stops)
    stops = [str(tokenizer.convert_ids_to_tokens(token)) for token in (turn, *others) if token is not None]
    problem, parts = "differs" if tokenizer.chat_template else "none", None
    # A template raises whatever it likes.
    with suppress(Exception):
        parts = taken_apart(tokenizer)
    begin = ""
    if parts is not None:
        led = parts["system"] or [parts["start"]]
        token = str(tokenizer.bos_token)
        if all(text.startswith(token) for text in (parts["start"], led[0])) and token in _put_first(tokenizer):
            # Whoever reads the text with this tokenizer puts it there again.
            begin, parts["start"], led[0] = token, parts["start"].removeprefix(token), led[0].removeprefix(token)
    return {
        "begin": begin,
        "stops": list(dict.fromkeys(stops)),
        "unheard": stops[0] if turn not in (None, *others) else None,
        "chats": CHATS,
        "parts": parts,
        "problem": problem if parts is None else None,
        "dated": "strftime_now" in str(tokenizer.chat_template),
    }


def _put_first(tokenizer: Any) -> list[str]:
    """The token before every text."""
    first: list[str] = tokenizer.convert_ids_to_tokens(tokenizer("a", verbose=False)["input_ids"][:1])
    return first


def taken_apart(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any] | None:
    """`start` before the first user without a system turn, `system` [before, behind it], `answer` between a user and the
    answer, `user` between an answer and the next user, `ask` behind the last user. None where there are no such texts.

    `system` is None where the template takes no such turn. Raises what the template raises.
    """
    words, system = [USERS[0], ANSWERS[0], USERS[1]], None
    plain = _around(render(tokenizer, rounds(USERS, ANSWERS)), words)
    if plain is None:
        return None
    with suppress(Exception):
        led = _around(render(tokenizer, rounds(USERS, ANSWERS, SYSTEM)), [SYSTEM, *words])
        system = led[:2] if led is not None and led[2:] == plain[1:] else None
    parts = {**dict(zip(("start", "answer", "user", "ask"), plain, strict=True)), "system": system}
    alike = all(put_together(parts, chat) == render(tokenizer, chat) for chat in conversations(system is not None))
    return parts if alike else None


def _around(text: str, words: list[str]) -> list[str] | None:
    """What stands before, between and behind the words; None where they are not there in this order."""
    found = re.fullmatch("(.*?)".join(["", *words]) + "(.*)", text, re.DOTALL)
    return None if found is None else list(found.groups())


def put_together(parts: dict[str, Any], messages: list[dict[str, str]]) -> str:
    """What the parts make of a conversation that ends with the user."""
    text, before = "", {"user": parts["start"], "assistant": parts["answer"]}
    for turn in messages:
        if turn["role"] == "system":
            text, before["user"] = parts["system"][0] + turn["content"], parts["system"][1]
            continue
        text += before[turn["role"]] + turn["content"]
        before["user"] = parts["user"]
    return str(text + parts["ask"])
