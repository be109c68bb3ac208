"""Entry of the process that looks at rows as the model will read them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from trainwiz.core.language import chosen_language, tr, use_language
from trainwiz.core.processes import heavy_imports, private_stdout
from trainwiz.core.supervise.ties import hold_to
from trainwiz.core.tracing.chats import ChatLook, Doubt, ShownChat

if TYPE_CHECKING:
    from trainwiz.core.training.chats import ChatEncoder, WholeChat
    from trainwiz.core.training.tokens import CausalEncoder

# What is doubtful of rows, counted, each with the place of its first.

READ, ENCODED = 20_000, 2_000
"""Rows of a source that are compared with each other, and those that are written in the template: some 2,000 a second."""
THOUGHT = "<think>"


@dataclass
class Doubts:
    found: dict[str, Doubt] = field(default_factory=dict)

    def add(self, code: str, place: str, detail: str = "") -> None:
        before = self.found.get(code)
        if before is None:
            self.found[code] = Doubt(code, 1, place, detail)
        else:
            self.found[code] = Doubt(code, before.rows + 1, before.place, before.detail)


@dataclass
class Looked:
    """One source."""

    lengths: list[int] = field(default_factory=list)
    learnt: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def add(self, tokens: np.ndarray, learnt: np.ndarray) -> None:
        places = learnt.nonzero()[0]
        self.lengths.append(len(tokens))
        self.learnt.append(len(places))
        self.ends.append(int(places[-1]) + 1 if len(places) else 0)


def look_at_texts(config: RunConfig, folder: Path, encoder: CausalEncoder, tokenizer: Any, show: list[int]) -> ChatLook:
    """Of rows that are texts, or prompts with their responses. Raises TrainwizError."""
    doubts, looked, shown = Doubts(), Looked(), []
    number, begin = 0, tokenizer.bos_token_id
    for key, source in all_sources(config)[0]:
        for kept in read_rows(
            find_files(source, key, folder, task=config.task, ask=False), SourceTally(), config.task, limit=ENCODED
        ):
            texts, targets = kept.texts.to_pylist(), None if kept.targets is None else kept.targets.to_pylist()
            for row, (tokens, unlabelled) in enumerate(encoder.whole(texts, targets)):
                learnt = np.arange(len(tokens)) >= (0 if encoder.learns_all else unlabelled)
                looked.add(tokens, learnt)
                if begin is not None and tokens[:2].tolist() == [begin, begin]:
                    doubts.add("bos_twice", kept.place(row))
                if number in show:
                    pieces = tuple(tokenizer.decode([token]) for token in tokens)
                    turns = (
                        (("text", len(tokens)),)
                        if targets is None
                        else (("prompt", unlabelled), ("response", len(tokens)))
                    )
                    shown.append(ShownChat(kept.place(row), pieces, tuple(learnt.tolist()), turns))
                number += 1
    return looked_at("", "", [looked], doubts, shown)


def looked_at(marks: str, family: str, looked: list[Looked], doubts: Doubts, shown: list[ShownChat]) -> ChatLook:
    lengths, learnt, ends = (
        tuple(tuple(getattr(one, name)) for one in looked) for name in ("lengths", "learnt", "ends")
    )
    return ChatLook(marks, family, lengths, learnt, ends, tuple(doubts.found.values()), tuple(shown))


class Look:
    """Reads the chats of a run and notes what is to be said of them."""

    def __init__(self, config: RunConfig, folder: Path, encoder: ChatEncoder, tokenizer: Any) -> None:
        self._config, self._folder, self._encoder, self._tokenizer = config, folder, encoder, tokenizer
        self._doubts = Doubts()
        self._seen: set[int] = set()
        known = [token for token in tokenizer.all_special_tokens if len(token) > 3]
        self._marks = tuple(
            {*known, *(str(token) for token in tokenizer.added_tokens_decoder.values() if token.special)}
        )
        self._ends = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}

    def run(self, show: list[int]) -> ChatLook:
        train, held = all_sources(self._config)
        looked, shown = [], []
        number = 0
        for key, source in train:
            each = Looked()
            rows = list(self._rows(key, source))
            step = max(1, len(rows) // ENCODED)
            for place, chat in rows[::step]:
                self._note(chat, place, each)
            shown += [self._shown(*rows[row - number]) for row in show if number <= row < number + len(rows)]
            for place, chat in rows:
                self._note_again(chat, place)
            number += len(rows)
            looked.append(each)
        for key, source in held:
            for place, chat in self._rows(key, source):
                if hash(chat) in self._seen:
                    self._doubts.add("held_out_is_trained", place)
        return looked_at(self._encoder.template.marks, self._encoder.template.family, looked, self._doubts, shown)

    def _rows(self, key: str, source: Any) -> Iterator[tuple[str, str]]:
        """(place, chat) of rows from all over a source. Raises TrainwizError."""
        files = find_files(source, key, self._folder, task=self._config.task, ask=False)
        for kept in read_rows(files, SourceTally(), self._config.task, limit=READ):
            for row, chat in enumerate(kept.texts.to_pylist()):
                yield kept.place(row), chat

    def _note_again(self, chat: str, place: str) -> None:
        if hash(chat) in self._seen:
            self._doubts.add("duplicates", place)
        self._seen.add(hash(chat))

    def _note(self, chat: str, place: str, looked: Looked) -> None:
        from trainwiz.core.training.chats import ChatError

        turns, _ = messages_of(chat)
        try:
            whole = self._encoder.whole(chat)
        except ChatError as error:
            self._doubts.add(error.code, place, str(error))
            looked.add(np.zeros(1, np.int64), np.zeros(1, bool))
            return
        looked.add(whole.tokens, whole.learnt)
        for code in self._doubtful(chat, turns, whole):
            self._doubts.add(code, place)

    def _doubtful(self, chat: str, turns: list[dict[str, Any]], whole: WholeChat) -> Iterator[str]:
        begin = self._tokenizer.bos_token_id
        text = self._tokenizer.decode(whole.tokens)
        if not whole.learnt.any():
            yield "no_label"
        elif self._encoder.train_on != "everything" and not self._learns_to_end(whole):
            yield "end_not_learnt"
        if begin is not None and whole.tokens[:2].tolist() == [begin, begin]:
            yield "bos_twice"
        roles = [turn["role"] for turn in turns if turn["role"] in ("user", "assistant") and not turn.get("tool_calls")]
        uses_tools = any(turn["role"] == "tool" for turn in turns)
        if not uses_tools and any(role == after for role, after in pairwise(roles)):
            yield "roles_repeat"
        if any(turn["role"] == "system" and turn["content"].strip() not in text for turn in turns):
            yield "system_dropped"
        thoughts = [turn.get("reasoning_content") or _thought_in(turn["content"]) for turn in turns]
        if any(thought.strip() and thought.strip() not in text for thought in thoughts):
            yield "thoughts_dropped"
        if any(mark in turn["content"] for turn in turns for mark in self._marks):
            yield "marks_in_text"

    def _learns_to_end(self, whole: WholeChat) -> bool:
        """Whether each answer that is learnt ends in a token that ends a turn; blanks may follow it."""
        for start, end in whole.answers:
            tokens = whole.tokens[start:end][whole.learnt[start:end]].tolist()
            while tokens and tokens[-1] not in self._ends and not self._tokenizer.decode([tokens[-1]]).strip():
                tokens.pop()
            if tokens and tokens[-1] not in self._ends:
                return False
        return True

    def _shown(self, place: str, chat: str) -> ShownChat:
        from trainwiz.core.training.chats import ChatError

        try:
            whole = self._encoder.whole(chat)
            pieces, turns = self._encoder.pieces(chat)
        except ChatError as error:
            return ShownChat(place, (str(error),), (False,), ())
        return ShownChat(place, tuple(pieces), tuple(whole.learnt.tolist()), tuple(turns))


def _thought_in(content: str) -> str:
    """What stands between the marks of a thought."""
    return content.partition(THOUGHT)[2].partition("</think>")[0]


def answer(asked: dict[str, Any]) -> ChatLook:
    """Raises nothing that a config or its files can bring about."""
    with heavy_imports():
        from trainwiz.core.training.chats import ChatEncoder, set_template
        from trainwiz.core.training.tokenizer import named_tokenizer
        from trainwiz.core.training.tokens import CausalEncoder

    config, folder = RunConfig.model_validate(asked["config"]), Path(asked["folder"])
    if config.task != "causal-lm":
        return ChatLook.nothing(tr("rows for {task} cannot be shown yet", task=config.task))
    try:
        tokenizer = named_tokenizer(config, folder)
        if tokenizer is None:
            return ChatLook.nothing(tr("the tokenizer is not on this machine yet"))
        if not trains_on_chats(config):
            everything = config.training.train_on == "everything"
            plain = CausalEncoder(tokenizer, config.batch.sequence_length, learns_all=everything)
            return look_at_texts(config, folder, plain, tokenizer, asked["show"])
        template = set_template(tokenizer, config, folder)
        encoder = ChatEncoder(tokenizer, template, config.batch.sequence_length, config.training.train_on)
        return Look(config, folder, encoder, tokenizer).run(asked["show"])
    except TrainwizError as error:
        return ChatLook.nothing(" ".join(finding.message for finding in error.findings))


def main() -> None:
    parser = argparse.ArgumentParser(prog="trainwiz.core.training.look")
    parser.add_argument("--parent", type=int, required=True)
    hold_to(parser.parse_args().parent)
    use_language(chosen_language(None, os.environ))
    asked = json.load(sys.stdin)
    answers = private_stdout()
    said = json.dumps(answer(asked).to_json()).encode()
    with os.fdopen(answers, "wb") as out:
        out.write(said)


if __name__ == "__main__":
    main()
