"""Entry of the process that looks at rows as the model will read them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from trainwiz.core.config import RunConfig
from trainwiz.core.data.chats import messages_of
from trainwiz.core.data.lengths import trains_on_chats
from trainwiz.core.data.rows import SourceTally, read_rows
from trainwiz.core.data.sources import all_sources, find_files
from trainwiz.core.errors import TrainwizError
from trainwiz.core.language import tr
from trainwiz.core.processes import heavy_imports
from trainwiz.core.tracing.chats import ChatLook, Doubt, ShownChat
from trainwiz.core.training.process import begin_answering

if TYPE_CHECKING:
    from trainwiz.core.training.chats import ChatEncoder, WholeChat
    from trainwiz.core.training.tokens import CausalEncoder

# What is doubtful of rows, counted, each with the place of its first.

READ, ENCODED = 20_000, 2_000
"""Rows of a source that are compared with each other, and those that are written in the template: some 2,000 a second."""
THOUGHT = "<think>"


class Look:
    """Reads the rows of a run and notes what is to be said of them."""

    def __init__(self, config: RunConfig, folder: Path, tokenizer: Any, show: list[int]) -> None:
        self._config, self._folder, self._tokenizer, self._show = config, folder, tokenizer, show
        self._doubts: dict[str, Doubt] = {}
        self._looked: list[list[tuple[int, int, int]]] = []
        """Of each source: tokens of each row, how many are learnt, the end of the last of them."""
        self._shown: list[ShownChat] = []
        added = tokenizer.added_tokens_decoder
        self._marks = {token for token in tokenizer.all_special_tokens if len(token) > 3}
        self._marks |= {str(token) for token in added.values() if token.special}
        self._ends = {*tokenizer.all_special_ids, *added}

    def _result(self, marks: str, family: str) -> ChatLook:
        lengths, learnt, ends = (tuple(tuple(row[n] for row in source) for source in self._looked) for n in range(3))
        return ChatLook(marks, family, lengths, learnt, ends, tuple(self._doubts.values()), tuple(self._shown))

    def _doubt(self, code: str, place: str, detail: str = "") -> None:
        before = self._doubts.get(code, Doubt(code, 0, place, detail))
        self._doubts[code] = replace(before, rows=before.rows + 1)

    def _note(self, place: str, tokens: np.ndarray, learnt: np.ndarray) -> None:
        places, begin = learnt.nonzero()[0], self._tokenizer.bos_token_id
        self._looked[-1].append((len(tokens), len(places), int(places[-1]) + 1 if len(places) else 0))
        if begin is not None and tokens[:2].tolist() == [begin, begin]:
            self._doubt("bos_twice", place)

    def _rows(self, key: str, source: Any, limit: int) -> Iterator[tuple[str, str, str | None]]:
        """(place, text, target) of rows from all over a source. Raises TrainwizError."""
        task = self._config.task
        files = find_files(source, key, self._folder, task=task, ask=False)
        for kept in read_rows(files, SourceTally(), task, limit=limit):
            texts = kept.texts.to_pylist()
            targets = [None] * len(texts) if kept.targets is None else kept.targets.to_pylist()
            for row, (text, target) in enumerate(zip(texts, targets, strict=True)):
                yield kept.place(row), text, target

    def at_texts(self, encoder: CausalEncoder) -> ChatLook:
        """Of rows that are texts, or prompts with their responses. Raises TrainwizError."""
        self._looked.append([])
        rows = (row for key, source in all_sources(self._config)[0] for row in self._rows(key, source, ENCODED))
        for number, (place, text, target) in enumerate(rows):
            ((tokens, unlabelled),) = encoder.whole([text], None if target is None else [target])
            learnt = np.arange(len(tokens)) >= (0 if encoder.learns_all else unlabelled)
            self._note(place, tokens, learnt)
            if number in self._show:
                pieces = tuple(self._tokenizer.decode([token]) for token in tokens)
                end = ("text" if target is None else "response", len(tokens))
                turns = (end,) if target is None else (("prompt", unlabelled), end)
                self._shown.append(ShownChat(place, pieces, tuple(learnt.tolist()), turns))
        return self._result("", "")

    def at_chats(self, encoder: ChatEncoder) -> ChatLook:
        train, held = all_sources(self._config)
        seen: set[int] = set()
        number = 0
        for key, source in train:
            self._looked.append([])
            rows = [(place, chat) for place, chat, _ in self._rows(key, source, READ)]
            for place, chat in rows[:: max(1, len(rows) // ENCODED)]:
                self._note_chat(encoder, chat, place)
            chosen = [row - number for row in self._show if number <= row < number + len(rows)]
            self._shown += [_shown(encoder, *rows[row]) for row in chosen]
            for place, chat in rows:
                if hash(chat) in seen:
                    self._doubt("duplicates", place)
                seen.add(hash(chat))
            number += len(rows)
        for key, source in held:
            for place, chat, _ in self._rows(key, source, READ):
                if hash(chat) in seen:
                    self._doubt("held_out_is_trained", place)
        return self._result(encoder.template.marks, encoder.template.family)

    def _note_chat(self, encoder: ChatEncoder, chat: str, place: str) -> None:
        from trainwiz.core.training.chats import ChatError

        turns, _ = messages_of(chat)
        try:
            whole = encoder.whole(chat)
        except ChatError as error:
            self._doubt(error.code, place, str(error))
            self._note(place, np.zeros(1, np.int64), np.zeros(1, bool))
            return
        self._note(place, whole.tokens, whole.learnt)
        for code in self._doubtful(turns, whole, everything=encoder.train_on == "everything"):
            self._doubt(code, place)

    def _doubtful(self, turns: list[dict[str, Any]], whole: WholeChat, *, everything: bool) -> Iterator[str]:
        text = self._tokenizer.decode(whole.tokens)
        if not whole.learnt.any():
            yield "no_label"
        elif not everything and not self._learns_to_end(whole):
            yield "end_not_learnt"
        roles = [turn["role"] for turn in turns if turn["role"] in ("user", "assistant") and not turn.get("tool_calls")]
        uses_tools = any(turn["role"] == "tool" for turn in turns)
        if not uses_tools and any(role == after for role, after in pairwise(roles)):
            yield "roles_repeat"
        if any(turn["role"] == "system" and turn["content"].strip() not in text for turn in turns):
            yield "system_dropped"
        thoughts = [
            turn.get("reasoning_content") or turn["content"].partition(THOUGHT)[2].partition("</think>")[0]
            for turn in turns
        ]
        if any(thought.strip() and thought.strip() not in text for thought in thoughts):
            yield "thoughts_dropped"
        if any(mark in turn["content"] for turn in turns for mark in self._marks):
            yield "marks_in_text"

    def _learns_to_end(self, whole: WholeChat) -> bool:
        """Whether each answer that is learnt ends in a token that ends a turn; blanks may follow it."""
        ends = self._ends
        for start, end in whole.answers:
            tokens = whole.tokens[start:end][whole.learnt[start:end]].tolist()
            while tokens and tokens[-1] not in ends and not self._tokenizer.decode([tokens[-1]]).strip():
                tokens.pop()
            if tokens and tokens[-1] not in ends:
                return False
        return True


def _shown(encoder: ChatEncoder, place: str, chat: str) -> ShownChat:
    from trainwiz.core.training.chats import ChatError

    try:
        whole = encoder.whole(chat)
        pieces, turns = encoder.pieces(chat)
    except ChatError as error:
        return ShownChat(place, (str(error),), (False,), ())
    return ShownChat(place, tuple(pieces), tuple(whole.learnt.tolist()), tuple(turns))


def answer(asked: dict[str, Any]) -> ChatLook:
    """Raises nothing that a config or its files can bring about."""
    config, folder = RunConfig.model_validate(asked["config"]), Path(asked["folder"])
    with heavy_imports():
        from trainwiz.core.training.chats import ChatEncoder, set_template
        from trainwiz.core.training.tokenizer import named_tokenizer
        from trainwiz.core.training.tokens import CausalEncoder

    if config.task != "causal-lm":
        return ChatLook.nothing(tr("rows for {task} cannot be shown yet", task=config.task))
    try:
        tokenizer = named_tokenizer(config, folder)
        if tokenizer is None:
            return ChatLook.nothing(tr("the tokenizer is not on this machine yet"))
        look, length = Look(config, folder, tokenizer, asked["show"]), config.batch.sequence_length
        if not trains_on_chats(config):
            return look.at_texts(CausalEncoder(tokenizer, length, learns_all=config.training.train_on == "everything"))
        template = set_template(tokenizer, config, folder)
        return look.at_chats(ChatEncoder(tokenizer, template, length, config.training.train_on))
    except TrainwizError as error:
        return ChatLook.nothing(" ".join(finding.message for finding in error.findings))


def main() -> None:
    with begin_answering("look") as out:
        out.write(json.dumps(answer(json.load(sys.stdin)).to_json()).encode())


if __name__ == "__main__":
    main()
