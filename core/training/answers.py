"""What the model says to a few prompts before it trains and at every evaluation; the lines of generations.jsonl."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from trainwiz.core.config import RunConfig
from trainwiz.core.data.chats import last_answer, messages_of
from trainwiz.core.data.prompts import MOST_S, ROWS, answer_length, asks_prompts, names_prompts, read_prompts
from trainwiz.core.data.texts import TextRows
from trainwiz.core.errors import os_reason
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.text import json_line
from trainwiz.core.training.engine import forward_needs_all
from trainwiz.core.training.events import Moment, RunCallback
from trainwiz.core.training.generation import GenerationRequest, Writer, Written
from trainwiz.core.training.metrics import StepMeter
from trainwiz.core.training.process import LastingLines, phases
from transformers import PreTrainedTokenizerBase

LONGEST_BEGINNING = 32
"""First tokens of a plain text that the model continues; at most half of the text."""
LONGEST_MASKED = 64
"""Tokens of a held-out row whose masks are filled."""
LOOKED_AT = 50
"""Held-out rows among which prompts are looked for."""
LONGEST_SHOWN = 4000
"""Characters of a text that are kept."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """`tokens` are what the model reads; of a text with masks, the masks too."""

    shown: str
    """What a person reads of it: of a chat, the turn that is answered."""
    tokens: list[int]
    reference: str | None = None
    """What the data answers."""


Answering = Callable[[Sequence[Prompt], GenerationRequest], list[Written]]


@dataclass(frozen=True, slots=True)
class Questions:
    """What is asked, and how it is answered."""

    prompts: list[Prompt]
    answer: Answering


def questions_of(
    config: RunConfig,
    folder: Path,
    rows: TextRows,
    tokenizer: PreTrainedTokenizerBase,
    encode: Callable[[str], list[int]] | None,
    ends: Sequence[int] = (),
) -> Questions | None:
    """None where the run asks nothing, or nothing is held out to ask.

    `encode` gives the tokens that a source or prompt is answered from; None for a task that fills masks. `ends`: see Writer.
    Raises UsageError for a file of prompts that cannot be used.
    """
    if not asks_prompts(config) or (encode is None and config.task != "masked-lm"):
        return None
    named = names_prompts(config)
    if named:
        texts: list[tuple[str, str | None]] = [(text, None) for text in read_prompts(config, folder)]
    else:
        texts = _unlike(rows)
    if not texts:
        return None
    if encode is None:
        masked = _Masked(tokenizer, config, named=named)
        return Questions([masked.prompt(text) for text, _ in texts], masked.answer)
    length = answer_length(config)
    plain = config.task == "causal-lm" and not named and rows.targets is None
    if rows.are_chats:
        prompts = [_of_chat(text, encode(text)) for text, _ in texts]
    elif plain:
        prompts = [_beginning(encode(text), tokenizer) for text, _ in texts]
    else:
        prompts = [Prompt(text, encode(text), target) for text, target in texts]
    alone = Writer(config, tokenizer, length, ends=ends, most_s=MOST_S)
    together = Writer(config, tokenizer, length, ends=ends)

    def answer(prompts: Sequence[Prompt], request: GenerationRequest) -> list[Written]:
        tokens, shared = [prompt.tokens for prompt in prompts], forward_needs_all(request.model)
        return (together if shared else alone).write(tokens, request, may_stop=not shared)

    return Questions(prompts, answer)


def _unlike(rows: TextRows) -> list[tuple[str, str | None]]:
    """The first held-out rows that do not say the same."""
    found: dict[str, str | None] = {}
    for number in rows.held_out[:LOOKED_AT].tolist():
        found.setdefault(rows.texts[number], None if rows.targets is None else rows.targets[number])
        if len(found) == ROWS:
            break
    return list(found.items())


def _of_chat(chat: str, tokens: list[int]) -> Prompt:
    turns, _ = messages_of(chat)
    last = max((place for place, turn in enumerate(turns) if turn["role"] == "assistant"), default=len(turns))
    asked = next((turn["content"] for turn in reversed(turns[:last]) if turn["role"] != "system"), "")
    return Prompt(asked, tokens, last_answer(chat) or None)


def _beginning(tokens: list[int], tokenizer: Any) -> Prompt:
    """A plain text, which the model continues from its first half."""
    count = max(1, min(LONGEST_BEGINNING, len(tokens) // 2))
    shown, rest = (tokenizer.decode(part, skip_special_tokens=True) for part in (tokens[:count], tokens[count:]))
    return Prompt(shown, tokens[:count], rest.strip())


class _Masked:
    """Texts with masks, which the model fills with its likeliest tokens."""

    SHARE = 0.15
    """Of the tokens of a row that is asked about; BERT's."""

    def __init__(self, tokenizer: Any, config: RunConfig, *, named: bool) -> None:
        self._tokenizer = tokenizer
        self._mask = int(tokenizer.mask_token_id)
        self._length = config.batch.sequence_length
        self._named = named

    def prompt(self, text: str) -> Prompt:
        """A prompt of a file has its masks; of a row every seventh token or so is hidden, the same at every evaluation."""
        most = self._length if self._named else min(self._length, LONGEST_MASKED)
        tokens: list[int] = self._tokenizer(text, truncation=True, max_length=most)["input_ids"]
        if self._named:
            return Prompt(text, tokens)
        special = set(self._tokenizer.all_special_ids)
        own = [place for place, token in enumerate(tokens) if token not in special]
        hidden = own[3 :: round(1 / self.SHARE)] or own[-1:]
        masked = [self._mask if place in set(hidden) else token for place, token in enumerate(tokens)]
        return Prompt(self._shown(masked), masked, self._shown(tokens))

    def answer(self, prompts: Sequence[Prompt], request: GenerationRequest) -> list[Written]:
        written = []
        for prompt in prompts:
            ids = torch.tensor([prompt.tokens], device=request.accelerator.device)
            with torch.no_grad(), request.computing():
                logits = request.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0]
            likeliest = logits.argmax(dim=-1).tolist()
            filled = [
                guess if token == self._mask else token for token, guess in zip(prompt.tokens, likeliest, strict=True)
            ]
            written.append(Written(self._shown(filled), prompt.tokens.count(self._mask), ended=True))
        return written

    def _shown(self, tokens: list[int]) -> str:
        """Letters of a protein without the spaces that its tokenizer writes between them, and a mask as _."""
        special = set(self._tokenizer.all_special_ids) - {self._mask}
        kept = [token for token in tokens if token not in special]
        text: str = self._tokenizer.decode(kept)
        if type(self._tokenizer).__name__.startswith("Esm"):
            return text.replace(" ", "").replace(str(self._tokenizer.mask_token), "_")
        return text


# The callback that asks, and what it keeps.


class Asked(Protocol):
    """What it needs of the Trainer."""

    eval_dataset: Any

    def generation_request(self) -> GenerationRequest:
        """With the model as it is now wrapped."""


class AnswersCallback(RunCallback):
    """Asks before the first step and after every evaluation; where nothing is held out, at every save.

    One process answers, or all of them together where each forward pass needs them all. Greedy: no random number is drawn,
    so that a run with prompts is the same run.
    """

    def __init__(
        self,
        questions: Questions,
        folder: RunFolder,
        meter: StepMeter,
        trainer: Asked,
        resumed_from: int | None,
    ) -> None:
        self._questions = questions
        self._lines = LastingLines(folder.generations_jsonl)
        self._written_before = folder.generations_jsonl.exists()
        self._meter = meter
        self._trainer = trainer
        self._evaluates = trainer.eval_dataset is not None
        self._resumed_from = resumed_from
        self._asked_at: int | None = resumed_from

    def train_begin(self, now: Moment) -> None:
        if now.state.is_world_process_zero and (self._resumed_from is not None or self._written_before):
            # What was said after the checkpoint is taken back, as in metrics.jsonl.
            self._write({"time_s": time.time(), "resumed_from": self._resumed_from or 0})
        if self._resumed_from is None:
            self._ask(0)

    def evaluate(self, now: Moment) -> None:
        self._ask(now.state.global_step)

    def save(self, now: Moment) -> None:
        if not self._evaluates:
            self._ask(now.state.global_step)

    def _ask(self, step: int) -> None:
        request = self._trainer.generation_request()
        together = forward_needs_all(request.model)
        if self._asked_at == step or (request.stopped() and not together):
            return
        self._asked_at = step
        if not (together or request.accelerator.is_main_process):
            return
        training = request.model.training
        request.model.eval()
        with self._meter.paused(), phases.during("generating", step):
            started = time.perf_counter()
            written = self._questions.answer(self._questions.prompts, request)
            seconds = time.perf_counter() - started
        request.model.train(training)
        if request.accelerator.is_main_process and not request.stopped():
            self._keep(written, step, seconds)

    def _keep(self, written: list[Written], step: int, seconds: float) -> None:
        """`answer_s` is the time of all answers together."""
        for number, (prompt, answer) in enumerate(zip(self._questions.prompts, written, strict=True)):
            line = {
                "time_s": time.time(),
                "step": step,
                "prompt": number,
                "source": prompt.shown[:LONGEST_SHOWN],
                "reference": None if prompt.reference is None else prompt.reference[:LONGEST_SHOWN],
                "generation": answer.text[:LONGEST_SHOWN],
                "tokens": answer.tokens,
                "ended": answer.ended,
                "answer_s": round(seconds, 3),
            }
            self._write(line)
        print(f"step {step}  answered {len(written)} prompts in {seconds:.1f} s", flush=True)

    def _write(self, line: dict[str, Any]) -> None:
        try:
            self._lines.write(json_line(line))
        except OSError as error:
            print(f"generations.jsonl could not be written: {os_reason(error)}", flush=True)
