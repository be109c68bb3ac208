"""Entry of the process that looks at rows as the model will read them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

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

with heavy_imports():
    from trainwiz.core.training.chats import ChatEncoder, ChatError, WholeChat, set_template
    from trainwiz.core.training.tokenizer import named_tokenizer
    from trainwiz.core.training.tokens import CausalEncoder

# What is doubtful of rows, counted, each with the place of its first.

READ, ENCODED = 20_000, 2_000
"""Rows of a source that are compared with each other, and those that are written in the template: some 2,000 a second."""
THOUGHT = "<think>"


@dataclass
class Look:
    """Reads the rows of a run and notes what is to be said of them."""

    config: RunConfig
    folder: Path
    tokenizer: Any
    encoder: Any
    """A ChatEncoder where the run trains on chats, else a CausalEncoder."""
    doubts: dict[str, Doubt] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chats = trains_on_chats(self.config)
        added = self.tokenizer.added_tokens_decoder
        self.marks = {token for token in self.tokenizer.all_special_tokens if len(token) > 3}
        self.marks |= {str(token) for token in added.values() if token.special}
        self.ends = {*self.tokenizer.all_special_ids, *added}

    def look(self, show: list[int]) -> ChatLook:
        """At some rows of each source, and at those with the numbers to `show`. Raises TrainwizError."""
        train, held = all_sources(self.config)
        looked, shown, seen, number = list[Any](), list[ShownChat](), set[int](), 0
        for key, source in train:
            rows = list(self._rows(key, source))
            noted = [self._noted(*row) for row in rows[:: max(1, len(rows) // ENCODED)]]
            looked.append(_columns(noted))
            shown += [self._shown(*rows[row - number]) for row in show if number <= row < number + len(rows)]
            number += len(rows)
            for place, text, _ in rows if self.chats else ():
                if hash(text) in seen:
                    self._doubt("duplicates", place)
                seen.add(hash(text))
        for place, text, _ in (row for key, source in held if self.chats for row in self._rows(key, source)):
            if hash(text) in seen:
                self._doubt("held_out_is_trained", place)
        template = self.encoder.template if self.chats else None
        marks, family = ("", "") if template is None else (template.marks, template.family)
        lengths, learnt, ends = _columns(looked)
        return ChatLook(marks, family, lengths, learnt, ends, tuple(self.doubts.values()), tuple(shown))

    def _doubt(self, code: str, place: str, detail: str = "") -> None:
        before = self.doubts.get(code, Doubt(code, 0, place, detail))
        self.doubts[code] = replace(before, rows=before.rows + 1)

    def _rows(self, key: str, source: Any) -> Iterator[tuple[str, str, str | None]]:
        """(place, text, target) of rows from all over a source. Raises TrainwizError."""
        task, limit = self.config.task, READ if self.chats else ENCODED
        files = find_files(source, key, self.folder, task=task, ask=False)
        for kept in read_rows(files, SourceTally(), task, limit=limit):
            texts = kept.texts.to_pylist()
            targets = [None] * len(texts) if kept.targets is None else kept.targets.to_pylist()
            for row, (text, target) in enumerate(zip(texts, targets, strict=True)):
                yield kept.place(row), text, target

    def _whole(self, text: str, target: str | None) -> WholeChat:
        """Of any row. Raises ChatError."""
        if self.chats:
            whole: WholeChat = self.encoder.whole(text)
            return whole
        ((tokens, unlabelled),) = self.encoder.whole([text], None if target is None else [target])
        learnt = np.arange(len(tokens)) >= (0 if self.encoder.learns_all else unlabelled)
        return WholeChat(tokens, learnt, [[unlabelled, len(tokens)]])

    def _noted(self, place: str, text: str, target: str | None) -> tuple[int, int, int]:
        """Tokens of a row, how many are learnt, and the end of the last of them; what is doubtful is counted."""
        try:
            whole = self._whole(text, target)
        except ChatError as error:
            self._doubt(error.code, place, str(error))
            return 1, 0, 0
        begin = self.tokenizer.bos_token_id
        if begin is not None and whole.tokens[:2].tolist() == [begin, begin]:
            self._doubt("bos_twice", place)
        for code in self._doubtful(messages_of(text)[0], whole) if self.chats else ():
            self._doubt(code, place)
        places = whole.learnt.nonzero()[0].tolist()
        return len(whole.tokens), len(places), places[-1] + 1 if places else 0

    def _shown(self, place: str, text: str, target: str | None) -> ShownChat:
        try:
            whole = self._whole(text, target)
            if self.chats:
                pieces, turns = self.encoder.pieces(text)
            else:
                pieces = [self.tokenizer.decode([token]) for token in whole.tokens]
                ((prompt, end),) = whole.answers
                turns = [("text", end)] if target is None else [("prompt", prompt), ("response", end)]
        except ChatError as error:
            return ShownChat(place, (str(error),), (False,), ())
        return ShownChat(place, tuple(pieces), tuple(whole.learnt.tolist()), tuple(turns))

    def _doubtful(self, turns: list[dict[str, Any]], whole: WholeChat) -> Iterator[str]:
        text = self.tokenizer.decode(whole.tokens)
        if not whole.learnt.any():
            yield "no_label"
        elif not all(self._learns_to_end(whole, answer) for answer in whole.answers):
            yield "end_not_learnt"
        roles = [turn["role"] for turn in turns if turn["role"] in ("user", "assistant") and not turn.get("tool_calls")]
        uses_tools = any(turn["role"] == "tool" for turn in turns)
        if not uses_tools and any(role == after for role, after in pairwise(roles)):
            yield "roles_repeat"
        if any(turn["role"] == "system" and turn["content"].strip() not in text for turn in turns):
            yield "system_dropped"
        for turn in turns:
            thought = turn.get("reasoning_content") or turn["content"].partition(THOUGHT)[2].partition("</think>")[0]
            if thought.strip() not in text:
                yield "thoughts_dropped"
                break
        if any(mark in turn["content"] for turn in turns for mark in self.marks):
            yield "marks_in_text"

    def _learns_to_end(self, whole: WholeChat, answer: Sequence[int]) -> bool:
        """Whether an answer that is learnt ends in a token that ends a turn; blanks may follow it."""
        part = slice(*answer)
        tokens = whole.tokens[part][whole.learnt[part]].tolist()
        while tokens and tokens[-1] not in self.ends and not self.tokenizer.decode([tokens[-1]]).strip():
            tokens.pop()
        return not tokens or tokens[-1] in self.ends


def _columns(rows: list[Any]) -> tuple[Any, ...]:
    return tuple(zip(*rows, strict=True)) or ((), (), ())


def answer(asked: dict[str, Any]) -> ChatLook:
    """Raises nothing that a config or its files can bring about."""
    config, folder = RunConfig.model_validate(asked["config"]), Path(asked["folder"])
    if config.task != "causal-lm":
        return ChatLook.nothing(tr("rows for {task} cannot be shown yet", task=config.task))
    try:
        tokenizer = named_tokenizer(config, folder)
        if tokenizer is None:
            return ChatLook.nothing(tr("the tokenizer is not on this machine yet"))
        length, train_on = config.batch.sequence_length, config.training.train_on
        encoder: Any = CausalEncoder(tokenizer, length, learns_all=train_on == "everything")
        if trains_on_chats(config):
            encoder = ChatEncoder(tokenizer, set_template(tokenizer, config, folder), length, train_on)
        return Look(config, folder, tokenizer, encoder).look(asked["show"])
    except TrainwizError as error:
        return ChatLook.nothing(" ".join(finding.message for finding in error.findings))


def main() -> None:
    with begin_answering("look") as out:
        out.write(json.dumps(answer(json.load(sys.stdin)).to_json()).encode())


if __name__ == "__main__":
    main()
