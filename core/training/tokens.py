"""Texts to tokens, kept in files and counted."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from trainwiz.core.config.values import RowKind
from trainwiz.core.data.labels import Labels
from trainwiz.core.data.text_file import BATCH_CHARACTERS
from trainwiz.core.data.text_store import BATCH_TEXTS, file_lock
from trainwiz.core.data.texts import TextRows
from trainwiz.core.errors import CannotRunError, Finding, UsageError, os_reason, usage_error
from trainwiz.core.language import tr
from trainwiz.core.training.batches import IGNORED
from trainwiz.core.training.process import phases
from trainwiz.core.training.tokenizer import parallel_tokenizing
from transformers import PreTrainedTokenizerBase

# Special tokens of a model and of its tokenizer: brought together where the model starts from scratch.

SPECIAL = ("pad_token_id", "bos_token_id", "eos_token_id")
FOLLOWS_ANOTHER = ("decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id")
"""Keys that name a token by the part it plays: opus-mt starts its decoder with the padding, NLLB with the end."""


def with_token_ids(values: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """The architecture with the special tokens of `tokenizer`.

    A key that names the architecture's own padding, beginning or end (as decoder_start_token_id
    does) names the tokenizer's after this. An encoder-decoder without a decoder start gets the
    padding, as T5 has it.
    """
    changed = dict(values)
    # Where two of them are one token in the architecture, the padding is meant: it comes last.
    for key in reversed(SPECIAL):
        number, own = getattr(tokenizer, key), values.get(key)
        if number is None or (isinstance(own, list) and number in own):
            continue
        followers = [other for other in FOLLOWS_ANOTHER if own is not None and values.get(other) == own]
        changed |= dict.fromkeys([key, *followers], number)
    if changed.get("is_encoder_decoder") and changed.get("decoder_start_token_id") is None:
        changed["decoder_start_token_id"] = changed.get("pad_token_id")
    return changed


def check_vocabulary(vocabulary: int, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises UsageError when the tokenizer makes numbers that the model has no embedding for."""
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if largest >= vocabulary:
        raise usage_error(
            "tokenizer_too_large",
            "model.tokenizer",
            tr(
                "The tokenizer has {entries} entries but the model has {vocabulary} embeddings; choose a matching "
                "tokenizer (model.tokenizer), or raise model.architecture_overrides.vocab_size for a "
                "model from scratch.",
                entries=f"{largest + 1:,}",
                vocabulary=f"{vocabulary:,}",
            ),
        )


# How long rows of text are.

MOST_ROWS, MOST_BYTES = 200_000, 64 * 1024**2
"""Of more rows, or longer texts with their targets, the bytes count: each process counts, each time that it starts."""
LONGEST_TOKEN = 100
"""Characters that a token of a real text may have on average: what lies beyond cannot be reached and is not read."""

Batch = tuple[list[str], list[str] | None]
"""Texts and targets of some rows."""
TokenRow = tuple[np.ndarray, np.ndarray]
"""(input tokens, labels), int64; for a causal model of one length, for an encoder-decoder each of its own."""
Count = Callable[[list[str], Any], list[int]]
"""(texts, targets or None) -> tokens of each row."""


def _bytes(rows: TextRows, numbers: np.ndarray) -> np.ndarray:
    """(n,) of both sides of each row."""
    sizes: np.ndarray = rows.texts.lengths[numbers]
    return sizes if rows.targets is None else sizes + rows.targets.lengths[numbers]


def _batches(rows: TextRows, numbers: np.ndarray) -> Iterator[Batch]:
    """Texts and targets of the rows, fewer at once where they are books; tells how far they are tokenised meanwhile."""
    batch = np.arange(len(numbers)) // BATCH_TEXTS + np.cumsum(_bytes(rows, numbers)) // BATCH_CHARACTERS
    done, count = 0, f"{len(numbers):,}"
    with parallel_tokenizing():
        for part in filter(len, np.split(numbers, np.flatnonzero(np.diff(batch)) + 1)):
            texts = [rows.texts[number] for number in part.tolist()]
            yield texts, None if rows.targets is None else [rows.targets[number] for number in part.tolist()]
            done += len(part)
            phases.tell(tr("{done} of {count} rows", done=f"{done:,}", count=count), whoever=True)


def _counted(rows: TextRows, numbers: np.ndarray, count: Count) -> np.ndarray:
    return np.array([tokens for batch in _batches(rows, numbers) for tokens in count(*batch)], np.int64)


def without_long_rows(rows: TextRows, count: Count, length: int) -> TextRows:
    """`rows` less those of more than `length` tokens. All processes of a run drop the same."""
    with phases.during("tokenising"):
        train, held_out = (part[_counted(rows, part, count) <= length] for part in (rows.train, rows.held_out))
    left_out = len(rows.train) + len(rows.held_out) - len(train) - len(held_out)
    words = tr(
        "{rows} rows of more than {length} tokens are skipped (data.too_long).",
        rows=f"{left_out:,}",
        length=f"{length:,}",
    )
    print(words, flush=True)
    return replace(rows, train=train, held_out=held_out)


def row_lengths(rows: TextRows, task: RowKind, count: Count, most: int, numbers: np.ndarray) -> np.ndarray:
    """(n,) int64 of the rows `numbers` (n,) int64, in tokens, `most` of them in a row, where counting them is quick, else in
    bytes: the same on every process, which must draw the same order.

    Bytes stand for tokens badly where a script has three bytes a letter: on Chinese and English pairs rows arranged by bytes
    compute 1.53 tokens for each real one, by tokens 1.27 (docs/arrangement.md).
    """
    if len(numbers) > MOST_ROWS or _bytes(rows, numbers).sum() > MOST_BYTES:
        return rows.lengths_of(task, numbers)
    counted: np.ndarray = np.minimum(_counted(rows, numbers, count), most)
    return counted


# Texts as token numbers: a prompt with its response in one sequence, or a source and its target.


class CausalEncoder:
    """Rows of a causal language model: text + end, or prompt + response + end with the prompt unlabelled."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, length: int, *, learns_all: bool = False) -> None:
        """`length`: most tokens of a sequence. `learns_all`: prompts have labels too."""
        self.length = length
        self.learns_all = learns_all
        self._tokenizer: Any = tokenizer
        self._end = int(tokenizer.eos_token_id)
        self._begin = tokenizer.bos_token_id

    def whole(self, texts: list[str], targets: list[str] | None) -> list[tuple[np.ndarray, int]]:
        """Each row uncut: its tokens (n,) int64 and how many of them, from the first, have no label."""
        prompts = self._tokens(texts, special=True)
        responses: list[list[int]] = [[]] * len(texts) if targets is None else self._tokens(targets, special=False)
        return [
            (np.array([*prompt, *response, self._end], dtype=np.int64), 0 if targets is None else len(prompt))
            for prompt, response in zip(prompts, responses, strict=True)
        ]

    def row(self, text: str, target: str | None) -> TokenRow:
        """One row cut to `length`, with labels moved one place to the left: position t predicts token t + 1.

        Of a prompt and a response that are too long together, the response keeps its beginning,
        in at least half of the places, and the prompt keeps what stands nearest to it.
        """
        ((tokens, unlabelled),) = self._within_reach([text], None if target is None else [target])
        begin = tokens[0]
        tokens, unlabelled = cut(tokens, unlabelled, self.length)
        if unlabelled and begin == self._begin:
            tokens[0] = begin
        return tokens, next_tokens(tokens, np.arange(len(tokens)) >= (0 if self.learns_all else unlabelled))

    def lengths(self, texts: list[str], targets: list[str] | None) -> list[int]:
        """Tokens of each row, uncut; of what no cut can reach it is only known to be too long."""
        return [len(tokens) for tokens, _ in self._within_reach(texts, targets)]

    def prompt(self, text: str, room: int) -> list[int]:
        """The tokens that a response is generated from, at most `room`, the last ones."""
        (tokens,) = self._tokens([text[-room * LONGEST_TOKEN :]], special=True)
        if len(tokens) > room and tokens[0] == self._begin:
            return [tokens[0], *tokens[len(tokens) - room + 1 :]]
        return tokens[-room:] or [self._end]

    def _within_reach(self, texts: list[str], targets: list[str] | None) -> list[tuple[np.ndarray, int]]:
        """`whole` of as much of each row as `length` tokens may be cut from."""
        reach = self.length * LONGEST_TOKEN
        if targets is None:
            return self.whole([text[:reach] for text in texts], None)
        return self.whole([text[-reach:] for text in texts], [target[:reach] for target in targets])

    def _tokens(self, texts: list[str], *, special: bool) -> list[list[int]]:
        """Token numbers without an end token."""
        every = uncut_tokens(self._tokenizer, texts, special=special)
        return [tokens[:-1] if tokens and tokens[-1] == self._end else tokens for tokens in every]


class CutTexts:
    """Texts with all that their tokenizer puts around them, cut to a number of tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, length: int) -> None:
        # A copy: a fast tokenizer remembers the cut that it was last asked for, and would be saved with it.
        self._tokenizer: Any = copy.deepcopy(tokenizer)
        self._length = length

    def encoded(self, text: str) -> Any:
        return self._tokenizer(text[: self._length * LONGEST_TOKEN], truncation=True, max_length=self._length)

    def lengths(self, texts: list[str], targets: list[str] | None) -> list[int]:
        """Tokens of each row as `row` gives it."""
        return self._counts(texts, self._length)

    def _counts(self, texts: list[str], most: int) -> list[int]:
        every = uncut_tokens(self._tokenizer, [text[: most * LONGEST_TOKEN] for text in texts])
        return [min(len(tokens), most) for tokens in every]


class PairEncoder(CutTexts):
    """Rows of an encoder-decoder: source and target, each cut to its own length and closed by the tokenizer's end."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, source_length: int, target_length: int) -> None:
        super().__init__(tokenizer, source_length)
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
        sides = self._counts(texts, self._length), self._counts(targets, self._target_length)
        return [max(pair) for pair in zip(*sides, strict=True)]

    def source(self, text: str) -> list[int]:
        """The tokens that the encoder reads."""
        return self.encoded(text)["input_ids"] or [self._end]


def tokenizer_lacks(tokenizer: PreTrainedTokenizerBase, problem: str) -> UsageError:
    message = tr(
        "The tokenizer of {name} {problem}; choose another one with model.tokenizer.",
        name=tokenizer.name_or_path,
        problem=problem,
    )
    return usage_error("unsuited_tokenizer", "model.tokenizer", message)


def check_words(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises UsageError for a tokenizer that does not say of which word a token is."""
    if not tokenizer.is_fast:
        raise tokenizer_lacks(tokenizer, tr("does not map tokens to words (it has no tokenizer.json)"))


class MaskEncoder(CutTexts):
    """Texts of a masked language model."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, length: int, *, whole_words: bool = False) -> None:
        """Raises UsageError for a tokenizer without a mask, or without words where they are hidden whole."""
        if tokenizer.mask_token_id is None:
            raise tokenizer_lacks(tokenizer, tr("has no mask token, so nothing can be masked"))
        if whole_words:
            check_words(tokenizer)
        super().__init__(tokenizer, length)
        self._whole_words = whole_words
        self._special = np.array(tokenizer.all_special_ids, np.int64)

    def places(self, text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(tokens (n,), places that may be hidden (m,), for each the place that its word begins at (m,)), int64."""
        encoded = self.encoded(text)
        tokens = np.array(encoded["input_ids"], np.int64)
        places = np.flatnonzero(~np.isin(tokens, self._special))
        if not self._whole_words or not len(places):
            return tokens, places, places
        words = np.array([-1 if word is None else word for word in encoded.word_ids()], np.int64)[places]
        begins = np.concatenate([[True], (words[1:] != words[:-1]) | (np.diff(places) > 1)])
        return tokens, places, places[begins][np.cumsum(begins) - 1]


class ClassEncoder(CutTexts):
    """A text cut to `length` tokens, and the number of its class."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, length: int, labels: Labels) -> None:
        super().__init__(tokenizer, length)
        self._numbers = labels.numbers

    def row(self, text: str, target: str) -> TokenRow:
        """(n,) tokens and one label."""
        return np.array(self.encoded(text)["input_ids"], np.int64), np.array([self._numbers[target]], np.int64)


class TagEncoder(ClassEncoder):
    """Words and their tags: the first token of each word has its tag, the others have none (Devlin et al. 2019).

    For a tokenizer that says of which word a token is.
    """

    def row(self, text: str, target: str) -> TokenRow:
        """(tokens, labels), (n,) both."""
        words, tags = json.loads(text), json.loads(target)
        encoded = self._tokenizer(words, is_split_into_words=True, truncation=True, max_length=self._length)
        tokens = np.array(encoded["input_ids"], np.int64)
        labels = np.full(len(tokens), IGNORED, np.int64)
        for place, (before, word) in enumerate(pairwise([None, *encoded.word_ids()])):
            if word is not None and word != before:
                labels[place] = self._numbers[tags[word]]
        return tokens, labels

    def lengths(self, texts: list[str], targets: list[str] | None) -> list[int]:
        encoded = self._tokenizer([json.loads(text) for text in texts], is_split_into_words=True, verbose=False)
        return [min(len(tokens), self._length) for tokens in encoded["input_ids"]]


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
    start = unlabelled - prompt
    return tokens[start : start + length], prompt


def next_tokens(tokens: np.ndarray, labelled: np.ndarray) -> np.ndarray:
    """(n,) int64 labels: position t holds token t + 1 where that one is `labelled` (n,) bool; the last holds none."""
    labels = np.full(len(tokens), IGNORED, dtype=np.int64)
    labels[:-1][labelled[1:]] = tokens[1:][labelled[1:]]
    return labels


# TokenStore: all tokens of some rows one after another, in memory or in a file.

KIND = np.dtype("<i4")
"""A token without a label is stored as its complement: -1 - token."""


@dataclass(frozen=True, slots=True)
class TokenStore:
    """Tokens by position. In a file they are read by position: memory does not grow with what was read."""

    source: np.ndarray | Path
    """(n,) int32 in memory, or a file of them."""

    def __len__(self) -> int:
        return self.source.stat().st_size // KIND.itemsize if isinstance(self.source, Path) else len(self.source)

    def read(self, start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """(tokens int64, whether each has a label), (count,) both, fewer at the end. Raises OSError."""
        if isinstance(self.source, Path):
            stored = np.fromfile(self.source, KIND, count, offset=start * KIND.itemsize).astype(np.int64)
        else:
            stored = self.source[start : start + count].astype(np.int64)
        labelled = stored >= 0
        return np.where(labelled, stored, -1 - stored), labelled


def join_tokens(
    rows: TextRows, numbers: np.ndarray, encoder: CausalEncoder, tokenizer: PreTrainedTokenizerBase
) -> TokenStore:
    """The tokens of the rows `numbers`, each text with its end.

    Streamed rows get a file beside theirs, written once by whichever process comes first.
    Raises CannotRunError where the disk is full.
    """
    batches = (encoder.whole(*batch) for batch in _batches(rows, numbers))
    parts = (np.concatenate([_stored(*row) for row in batch]) for batch in batches)
    with phases.during("tokenising"):
        if rows.folder is None:
            return TokenStore(np.concatenate([np.empty(0, KIND), *parts]))
        place = rows.folder / f"tokens-{_digest(numbers, tokenizer)}.i32"
        try:
            with file_lock(place.with_name(".tokens.lock")):
                if not place.is_file():
                    _write(place, parts)
        except OSError as error:
            message = tr(
                "the tokens cannot be stored in {path}: {reason}; free space there, or keep them in memory with "
                "data.streaming: false.",
                path=place.parent,
                reason=os_reason(error),
            )
            raise CannotRunError(Finding("cannot_stream", "error", "data.streaming", message)) from None
        return TokenStore(place)


def _stored(tokens: np.ndarray, unlabelled: int) -> np.ndarray:
    stored = tokens.astype(KIND)
    stored[:unlabelled] = -1 - stored[:unlabelled]
    return stored


def _write(place: Path, parts: Iterator[np.ndarray]) -> None:
    part = place.with_name(f"{place.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            for tokens in parts:
                file.write(tokens.tobytes())
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


def _digest(numbers: np.ndarray, tokenizer: PreTrainedTokenizerBase) -> str:
    """Name of the tokens that these rows and this tokenizer give."""
    digest = hashlib.sha256(np.ascontiguousarray(numbers, np.int64).tobytes())
    backend = getattr(tokenizer, "backend_tokenizer", None)
    digest.update((backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))).encode())
    digest.update(repr((tokenizer.eos_token_id, tokenizer.bos_token_id)).encode())
    return digest.hexdigest()[:16]
