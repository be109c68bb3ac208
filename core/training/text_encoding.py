"""Texts as token numbers: a prompt with its response in one sequence, or a source and its target."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from trainwiz.core.training.masking import IGNORED
from transformers import PreTrainedTokenizerBase

LONGEST_TOKEN = 100
"""Characters that a token of a real text may have on average: what lies beyond cannot be reached and is not read."""

TokenRow = tuple[np.ndarray, np.ndarray]
"""(input tokens, labels), int64; for a causal model of one length, for an encoder-decoder each of its own."""


class CausalEncoder:
    """Rows of a causal language model: text + end, or prompt + response + end with the prompt unlabelled."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, length: int) -> None:
        """`length`: most tokens of a sequence."""
        self.length = length
        self._tokenizer: Any = tokenizer
        self._end = int(tokenizer.eos_token_id)
        self._begin = tokenizer.bos_token_id

    def whole(self, texts: list[str], targets: list[str] | None) -> list[tuple[np.ndarray, int]]:
        """Each row uncut: its tokens (n,) int64 and how many of them, from the first, have no label."""
        prompts = self._tokens(texts, special=True)
        if targets is None:
            return [(np.array([*tokens, self._end], dtype=np.int64), 0) for tokens in prompts]
        responses = self._tokens(targets, special=False)
        return [
            (np.array([*prompt, *response, self._end], dtype=np.int64), len(prompt))
            for prompt, response in zip(prompts, responses, strict=True)
        ]

    def row(self, text: str, target: str | None) -> TokenRow:
        """One row cut to `length`, with labels moved one place to the left: position t predicts token t + 1.

        Of a prompt and a response that are too long together, the response keeps its beginning,
        in at least half of the places, and the prompt keeps what stands nearest to it.
        """
        reach = self.length * LONGEST_TOKEN
        if target is None:
            ((tokens, unlabelled),) = self.whole([text[:reach]], None)
        else:
            ((tokens, unlabelled),) = self.whole([text[-reach:]], [target[:reach]])
        begin = tokens[0]
        tokens, unlabelled = cut(tokens, unlabelled, self.length)
        if unlabelled and begin == self._begin:
            tokens[0] = begin
        return tokens, next_tokens(tokens, np.arange(len(tokens)) >= unlabelled)

    def lengths(self, texts: list[str], targets: list[str] | None) -> list[int]:
        """Tokens of each row as `row` gives it."""
        reach = self.length * LONGEST_TOKEN
        within = [text[:reach] if targets is None else text[-reach:] for text in texts]
        counts = [count + 1 for count in self._counts(within, special=True)]
        if targets is not None:
            answers = self._counts([target[:reach] for target in targets], special=False)
            counts = [sum(sides) for sides in zip(counts, answers, strict=True)]
        return [min(count, self.length) for count in counts]

    def prompt(self, text: str, room: int) -> list[int]:
        """The tokens that a response is generated from, at most `room`, the last ones."""
        (tokens,) = self._tokens([text[-room * LONGEST_TOKEN :]], special=True)
        if len(tokens) > room and tokens[0] == self._begin:
            return [tokens[0], *tokens[len(tokens) - room + 1 :]]
        return tokens[-room:] or [self._end]

    def _tokens(self, texts: list[str], *, special: bool) -> list[list[int]]:
        """Token numbers without an end token."""
        every = self._tokenizer(texts, add_special_tokens=special, verbose=False)["input_ids"]
        return [tokens[:-1] if tokens and tokens[-1] == self._end else tokens for tokens in every]

    def _counts(self, texts: list[str], *, special: bool) -> list[int]:
        """How many tokens `_tokens` gives for each."""
        every = uncut_tokens(self._tokenizer, texts, special=special)
        return [len(tokens) - bool(tokens and tokens[-1] == self._end) for tokens in every]


class PairEncoder:
    """Rows of an encoder-decoder: source and target, each cut to its own length and closed by the tokenizer's end."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, source_length: int, target_length: int) -> None:
        # A copy: a fast tokenizer remembers the cut that it was last asked for, and would be saved with it.
        self._tokenizer: Any = copy.deepcopy(tokenizer)
        self._source_length = source_length
        self._target_length = target_length
        self._end = int(tokenizer.eos_token_id)

    def row(self, text: str, target: str) -> TokenRow:
        within = target[: self._target_length * LONGEST_TOKEN]
        labels = self._tokenizer(text_target=within, truncation=True, max_length=self._target_length)["input_ids"]
        if self._end not in labels:
            labels = [*labels[: self._target_length - 1], self._end]
        return np.array(self.source(text), dtype=np.int64), np.array(labels, dtype=np.int64)

    def lengths(self, texts: list[str], targets: list[str] | None) -> list[int]:
        """Tokens of each row's longer side, as `row` gives it, or one fewer where a token that ends it is missing."""
        assert targets is not None
        sides = (
            [
                min(len(tokens), most)
                for tokens in uncut_tokens(self._tokenizer, [text[: most * LONGEST_TOKEN] for text in side])
            ]
            for side, most in ((texts, self._source_length), (targets, self._target_length))
        )
        return [max(pair) for pair in zip(*sides, strict=True)]

    def source(self, text: str) -> list[int]:
        """The tokens that the encoder reads."""
        within = text[: self._source_length * LONGEST_TOKEN]
        tokens: list[int] = self._tokenizer(within, truncation=True, max_length=self._source_length)["input_ids"]
        return tokens or [self._end]


def uncut_tokens(tokenizer: Any, texts: list[str], *, special: bool = True) -> list[list[int]]:
    """Token numbers of each text, without what transformers makes beside them: that takes longer than the tokens."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        every: list[list[int]] = tokenizer(texts, add_special_tokens=special, verbose=False)["input_ids"]
        return every
    # It remembers the cut that it was last asked for.
    backend.no_truncation()
    backend.no_padding()
    return [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=special)]


def cut(tokens: np.ndarray, unlabelled: int, length: int) -> tuple[np.ndarray, int]:
    """(tokens, number of unlabelled ones) with at most `length` tokens."""
    if len(tokens) <= length:
        return tokens, unlabelled
    answer = min(len(tokens) - unlabelled, max(length - unlabelled, length // 2))
    prompt = length - answer if unlabelled else 0
    answer = length - prompt
    kept = np.concatenate([tokens[unlabelled - prompt : unlabelled], tokens[unlabelled : unlabelled + answer]])
    return kept, prompt


def next_tokens(tokens: np.ndarray, labelled: np.ndarray) -> np.ndarray:
    """(n,) int64 labels: position t holds token t + 1 where that one is `labelled` (n,) bool; the last holds none."""
    labels = np.full(len(tokens), IGNORED, dtype=np.int64)
    labels[:-1][labelled[1:]] = tokens[1:][labelled[1:]]
    return labels
