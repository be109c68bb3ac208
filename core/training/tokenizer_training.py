"""A tokenizer made from the training rows: byte-level BPE, which has a token for every byte and so for every text."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from trainwiz.core.data.text_rows import TextRows
from trainwiz.core.data.turn import turn
from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr
from trainwiz.core.training.phases import phases
from transformers import AutoTokenizer, PreTrainedTokenizerFast

PAD, BOS, EOS, UNK, MASK = "<pad>", "<s>", "</s>", "<unk>", "<mask>"
SPECIAL_TOKENS = [PAD, BOS, EOS, UNK, MASK]
"""Numbers 0 to 4."""
SMALLEST_VOCABULARY = len(SPECIAL_TOKENS) + 256
MOST_BYTES = 32 * 2**20
"""Text that the merges are counted on; of more, every n-th row is taken."""
LONGEST_TEXT = 2**16
"""Characters of one row that count: a row of millions without a space is one word, and words cost their square."""


def trained_tokenizer(
    place: Path, rows: TextRows, vocabulary: int, *, ends_texts: bool, model_type: str | None = None
) -> PreTrainedTokenizerFast:
    """The tokenizer in folder `place`, made first by whichever process comes first.

    At most `vocabulary` entries. `ends_texts` appends the end token to every text, as encoder-decoder
    models have it. `model_type`: of the model that it will be saved with. Raises UsageError for a
    vocabulary that does not hold the 256 bytes.
    """
    if not (place / "tokenizer.json").is_file():
        with phases.during("tokenising"), turn(place.with_name(f".{place.name}.lock")):
            if not (place / "tokenizer.json").is_file():
                _save(_trained(rows, vocabulary, ends_texts, model_type), place)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(place)
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    return tokenizer


def _trained(rows: TextRows, vocabulary: int, ends_texts: bool, model_type: str | None) -> PreTrainedTokenizerFast:
    if vocabulary < SMALLEST_VOCABULARY:
        raise usage_error(
            "vocabulary_too_small",
            "model.architecture_overrides.vocab_size",
            tr(
                "a tokenizer cannot be made for a vocabulary of {n} entries: it needs {needed} (256 bytes "
                "and {special} special tokens); raise vocab_size, or name a tokenizer (model.tokenizer).",
                n=vocabulary,
                needed=SMALLEST_VOCABULARY,
                special=len(SPECIAL_TOKENS),
            ),
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if model_type is not None:
        _cut_as_loaded(tokenizer, model_type)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    with parallel_tokenizing():
        tokenizer.train_from_iterator(_texts(rows), trainer)
    if ends_texts:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {EOS}", pair=f"$A {EOS} $B {EOS}", special_tokens=[(EOS, SPECIAL_TOKENS.index(EOS))]
        )
    print(f"tokenizer of {tokenizer.get_vocab_size():,} entries made from the training rows", flush=True)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNK,
        mask_token=MASK,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )


def _cut_as_loaded(tokenizer: Tokenizer, model_type: str) -> None:
    """Take over how AutoTokenizer will cut texts beside a model of this type.

    For qwen2 it keeps the entries of a saved tokenizer and puts its own cutting and normalizing in
    the place of the saved ones (transformers 5.23): a model trained otherwise would be given other
    tokens by whoever loads it.
    """
    entries = [EOS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    probe = Tokenizer(models.BPE(vocab={entry: number for number, entry in enumerate(entries)}, merges=[]))
    probe.pre_tokenizer, probe.decoder = tokenizer.pre_tokenizer, tokenizer.decoder
    with TemporaryDirectory() as folder:
        PreTrainedTokenizerFast(tokenizer_object=probe, eos_token=EOS).save_pretrained(folder)  # type: ignore[no-untyped-call]
        (Path(folder) / "config.json").write_text(json.dumps({"model_type": model_type}), encoding="utf-8")
        loaded = AutoTokenizer.from_pretrained(folder, local_files_only=True).backend_tokenizer
    if loaded.normalizer is not None:
        tokenizer.normalizer = loaded.normalizer
    tokenizer.pre_tokenizer = loaded.pre_tokenizer


def _texts(rows: TextRows) -> Iterator[list[str]]:
    """Batches of training texts and targets, MOST_BYTES of them at most, spread over all rows."""
    stores = [rows.texts] if rows.targets is None else [rows.texts, rows.targets]
    total = sum(int(store.lengths[rows.train].sum()) for store in stores)
    chosen: np.ndarray = rows.train[:: -(-total // MOST_BYTES) or 1]
    done, count = 0, len(chosen) * len(stores)
    for store in stores:
        for batch in store.batches(chosen):
            done += len(batch)
            phases.tell(
                tr("tokenizer from {done} of {count} texts", done=f"{done:,}", count=f"{count:,}"), whoever=True
            )
            yield [text[:LONGEST_TEXT] for text in batch]


def _save(tokenizer: PreTrainedTokenizerFast, place: Path) -> None:
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        tokenizer.save_pretrained(part)
        if not place.is_dir():
            part.rename(place)
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def parallel_tokenizing() -> Iterator[None]:
    """Threads of the tokenizer inside the block alone: a loader worker that is forked later must not find them on."""
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    try:
        yield
    finally:
        os.environ["TOKENIZERS_PARALLELISM"] = before or "false"
