"""The tokenizer of a run, its languages, and training one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from trainwiz.core.catalog.hub import TOKENIZER_FILES, is_offline
from trainwiz.core.catalog.models import MADE_FROM_THE_DATA, resolve_model
from trainwiz.core.config import RunConfig
from trainwiz.core.config.values import CLASSIFIES, WRITE_TEXT, Task
from trainwiz.core.data.chats import contents_of
from trainwiz.core.data.labels import words_of
from trainwiz.core.data.lengths import tokenizer_folder
from trainwiz.core.data.text_store import file_lock
from trainwiz.core.data.texts import TextRows
from trainwiz.core.errors import Finding, UsageError, usage_error
from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.process import first_line, phases
from trainwiz.core.training.weights import esm_tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

# Languages of a multilingual tokenizer (NLLB, M2M100, mBART): a token in front of each text names its language.


def set_languages(tokenizer: PreTrainedTokenizerBase, config: RunConfig) -> None:
    """Give the tokenizer the languages of the run; nothing for one that knows none. Raises UsageError."""
    if config.task != "seq2seq" or not hasattr(tokenizer, "set_src_lang_special_tokens"):
        return
    languages = {"source": config.model.source_language, "target": config.model.target_language}
    known = getattr(tokenizer, "lang_code_to_token", None) or tokenizer.get_vocab()
    wrong = {f"model.{side}_language": language for side, language in languages.items() if language not in known}
    if wrong:
        raise UsageError([_needs_language(tokenizer, key, language) for key, language in wrong.items()])
    tokenizer.src_lang, tokenizer.tgt_lang = languages.values()


def _needs_language(tokenizer: PreTrainedTokenizerBase, key: str, language: str | None) -> Finding:
    message = tr(
        "the multilingual tokenizer of {name} needs one of its languages in {key} (for NLLB a code such as zho_Hans), "
        "which is now {language}.",
        name=tokenizer.name_or_path,
        key=key,
        language=language or tr("empty"),
    )
    return Finding("unknown_language", "error", key, message)


def forced_first_token(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The token that every target of this tokenizer begins with, which names its language; None where there is none."""
    if not hasattr(tokenizer, "set_src_lang_special_tokens"):
        return None
    first = int(tokenizer(text_target="a")["input_ids"][0])
    return first if first in tokenizer.all_special_ids and first != tokenizer.eos_token_id else None


# A tokenizer made from the training rows: byte-level BPE, which has a token for every byte and so for every text.

PAD, BOS, EOS, UNK, MASK = "<pad>", "<s>", "</s>", "<unk>", "<mask>"
SPECIAL_TOKENS = [PAD, BOS, EOS, UNK, MASK]
"""Numbers 0 to 4."""
SMALLEST_VOCABULARY = len(SPECIAL_TOKENS) + 256
MOST_BYTES = 32 * 2**20
"""Text that the merges are counted on; of more, every n-th row is taken."""
LONGEST_TEXT = 2**16
"""Characters of one row that count: a row of millions without a space is one word, and words cost their square."""


def trained_tokenizer(
    place: Path, rows: TextRows, vocabulary: int, task: Task, *, model_type: str | None = None
) -> PreTrainedTokenizerFast:
    """The tokenizer in folder `place`, made first by whichever process comes first.

    At most `vocabulary` entries. As encoder-decoder models have it, the end token is appended to every text; encoders
    have the token of the beginning too. `model_type`: of the model that it will be saved with. Raises UsageError for a
    vocabulary that does not hold the 256 bytes.
    """
    with phases.during("tokenising"), file_lock(place.with_name(f".{place.name}.lock")):
        if not (place / "tokenizer.json").is_file():
            _save(_trained(rows, vocabulary, task, model_type), place)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(place)
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    return tokenizer


def _trained(rows: TextRows, vocabulary: int, task: Task, model_type: str | None) -> PreTrainedTokenizerFast:
    if vocabulary < SMALLEST_VOCABULARY:
        raise usage_error(
            "vocabulary_too_small",
            "model.architecture_overrides.vocab_size",
            tr(
                "a tokenizer cannot be trained for a vocabulary of {n} entries: it needs at least {needed} (256 bytes "
                "and {special} special tokens); raise vocab_size, or set a tokenizer (model.tokenizer).",
                n=vocabulary,
                needed=SMALLEST_VOCABULARY,
                special=len(SPECIAL_TOKENS),
            ),
        )
    tokenizer = Tokenizer(models.BPE())
    # Words apart are cut as they are in the middle of a text.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=task == "token-classification")
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
        tokenizer.train_from_iterator(_texts(rows, task), trainer)
    if task != "causal-lm":
        begin = "" if task == "seq2seq" else f"{BOS} "
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin}$A {EOS}",
            pair=f"{begin}$A {EOS} $B {EOS}",
            special_tokens=[(token, SPECIAL_TOKENS.index(token)) for token in (BOS, EOS)],
        )
    print(f"tokenizer with {tokenizer.get_vocab_size():,} entries trained on the training rows", flush=True)
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

    For qwen2 it puts its own cutting and normalizing in the place of the saved ones (transformers 5.23): a model trained
    otherwise would be given other tokens by whoever loads it.
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


def _texts(rows: TextRows, task: Task) -> Iterator[list[str]]:
    """Batches of training texts and targets, MOST_BYTES of them at most, spread over all rows. Classes are no texts."""
    stores = [rows.texts] if rows.targets is None or task in CLASSIFIES else [rows.texts, rows.targets]
    written = contents_of if rows.are_chats else words_of if task == "token-classification" else str
    total = sum(int(store.lengths[rows.train].sum()) for store in stores)
    chosen: np.ndarray = rows.train[:: -(-total // MOST_BYTES) or 1]
    for store in stores:
        for batch in store.batches(chosen):
            yield [written(text)[:LONGEST_TEXT] for text in batch]


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


# The tokenizer of a text task: the named one, the model's own, or one made from the training rows.


def build_tokenizer(config: RunConfig, folder: Path, rows: TextRows) -> PreTrainedTokenizerBase:
    """The tokenizer of a causal-lm or seq2seq run; relative paths are from `folder`, the run folder.

    `model.tokenizer` where it is named; else the model's own where its files are here; else, for a
    model from scratch, one made from `rows` and kept in RUN/tokenizer, from where a resumed run
    loads it. It always has a padding and an end token. Raises UsageError.
    """
    made = RunFolder(folder).tokenizer
    named = None if made.is_dir() else named_tokenizer(config, folder)
    if named is not None:
        return named
    values = {**(config.model.architecture or {}), **config.model.architecture_overrides}
    size = values.get("vocab_size")
    if not isinstance(size, int):
        raise usage_error(
            "missing_model", "model.architecture", tr("run.yaml contains no model.architecture; plan the run again.")
        )
    return _ready(trained_tokenizer(made, rows, size, config.task, model_type=values.get("model_type")), config)


def named_tokenizer(config: RunConfig, folder: Path) -> PreTrainedTokenizerBase | None:
    """The tokenizer that is named, or the model's own; None where one is made from the rows. Raises UsageError."""
    model = config.model
    if model.tokenizer == MADE_FROM_THE_DATA:
        return None
    found = tokenizer_folder(config, folder, TOKENIZER_FILES)
    if model.tokenizer is not None:
        return _load(str(found or model.tokenizer), config, "model.tokenizer")
    spec, _ = resolve_model(model)
    names = [] if spec is None else [spec.tokenizer, spec.hub_id]
    if "esm" in names and config.task in CLASSIFIES:
        return esm_tokenizer()
    if found is None and model.init != "pretrained":
        return None
    return _load(str(found or next(filter(None, names), model.name)), config, "model.name")


def _load(name: str, config: RunConfig, key: str) -> PreTrainedTokenizerBase:
    code = config.model.trust_remote_code
    load = partial(AutoTokenizer.from_pretrained, name, local_files_only=is_offline(), trust_remote_code=code)
    try:
        tokenizer = load()
    # Tokenizer files are read by many libraries, each with errors of its own.
    except Exception as error:
        raise usage_error(
            "missing_tokenizer",
            key,
            tr(
                "the tokenizer of {name} cannot be loaded: {reason}; set an available one with model.tokenizer (a "
                "folder, a Hub ID, or `train` to train one for a model from scratch).",
                name=name,
                reason=first_line(error),
            ),
        ) from error
    assert isinstance(tokenizer, PreTrainedTokenizerBase)
    if config.task == "token-classification" and getattr(tokenizer, "add_prefix_space", None) is False:
        # RoBERTa's and GPT-2's: words apart are cut as they are in the middle of a text.
        tokenizer = load(add_prefix_space=True)
    return _ready(tokenizer, config)


def _ready(tokenizer: PreTrainedTokenizerBase, config: RunConfig) -> PreTrainedTokenizerBase:
    """With an end token, a padding token and the languages of the run."""
    if tokenizer.eos_token_id is None and config.task in WRITE_TEXT:
        raise usage_error(
            "no_end_token",
            "model.tokenizer",
            tr(
                "the tokenizer of {name} has no EOS token, so the model cannot learn where a text ends; choose "
                "another one with model.tokenizer.",
                name=tokenizer.name_or_path,
            ),
        )
    if tokenizer.pad_token_id is None:
        # Padding is hidden by the attention mask and has no label: any number does.
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.sep_token or tokenizer.unk_token
    set_languages(tokenizer, config)
    return tokenizer
