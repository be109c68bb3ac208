"""What each task learns from: its rows as tokens, and all that the Trainer is handed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset
from trainwiz.core.config import RunConfig
from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.data.labels import Labels, classes_in, label_problems, labels_of
from trainwiz.core.data.lengths import joins_texts, packs_rows, prompt_room
from trainwiz.core.data.text_store import (
    CLS,
    EOS,
    FIRST_RESIDUE,
    LAST_RESIDUE,
    MASK,
    NUMBERS,
    SPECIAL_TOKENS,
    TextStore,
)
from trainwiz.core.data.texts import LastAnswers, TextRows, load_text_rows
from trainwiz.core.errors import Finding, UsageError, usage_error
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.language import tr
from trainwiz.core.training.batches import (
    FILLER,
    IGNORED,
    EpochSampler,
    FillerRow,
    PaddedBatch,
    RowKey,
    length_order,
    mask_tokens,
    overfit_items,
    packed_batch,
    sample_generator,
)
from trainwiz.core.training.best import KeptCheckpoints, Patience, best_checkpoints, measured_ranking
from trainwiz.core.training.chats import ChatEncoder, end_of_turn, set_template
from trainwiz.core.training.evaluation import EvaluationSchedule, Scores, StepLoss, class_weights, scores_of
from trainwiz.core.training.generation import Generator, Questions, questions_of
from trainwiz.core.training.model import ModelInputs, batch_alone, build_model, decoder_only, encoder_decoder, with_head
from trainwiz.core.training.tokenizer import build_tokenizer
from trainwiz.core.training.tokens import (
    CausalEncoder,
    ClassEncoder,
    MaskEncoder,
    PairEncoder,
    TagEncoder,
    TokenRow,
    TokenStore,
    check_words,
    join_tokens,
    next_tokens,
    row_lengths,
    without_long_rows,
)
from trainwiz.core.training.weights import esm_tokenizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Rows as the Trainer asks for them.


@dataclass(eq=False)
class Rows(Dataset[TokenRow]):
    """Rows, each made into tokens when it is asked for: in the loader's workers, streamed or not.

    An item is asked for with its epoch, on which masks depend; number FILLER is one that fills up.
    """

    numbers: np.ndarray
    """(n,) int64: the rows of the set."""
    make: Callable[[int, int], TokenRow]
    """Epoch, row -> (tokens, labels), (n,) int64 each."""

    def __len__(self) -> int:
        return len(self.numbers)

    def item(self, epoch: int, index: int) -> TokenRow:
        return self.make(epoch, int(self.numbers[index]))

    def __getitem__(self, key: RowKey) -> TokenRow:
        epoch, index = key
        tokens, labels = self.item(epoch, max(index, 0))
        return FillerRow((tokens, np.full_like(labels, IGNORED))) if index == FILLER else (tokens, labels)


def text_row(rows: TextRows, encode: Callable[..., TokenRow], epoch: int, row: int) -> TokenRow:
    """`encode` gets the target as None where rows have none."""
    return encode(rows.texts[row], None if rows.targets is None else rows.targets[row])


RESIDUES = FIRST_RESIDUE, LAST_RESIDUE + 1


@dataclass(frozen=True, slots=True)
class MaskedRow:
    """Makes rows of which some tokens are hidden: which ones is a function of (seed, epoch, row) and of nothing else."""

    texts: TextStore
    places: Callable[[str], tuple[np.ndarray, np.ndarray, np.ndarray]]
    """Text -> its tokens, and where they may be hidden: see `mask_tokens`."""
    mask: int
    others: tuple[int, int]
    probability: float
    seed: int

    def __call__(self, epoch: int, row: int) -> TokenRow:
        generator = sample_generator(self.seed, epoch, row)
        places = self.places(self.texts[row])
        return mask_tokens(*places, self.probability, generator, self.mask, self.others)


def protein_places(most: int, sequence: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of its first `most` letters."""
    letters = NUMBERS[np.frombuffer(sequence[:most].encode(), np.uint8)]
    inside = np.arange(1, len(letters) + 1)
    return np.concatenate([[CLS], letters, [EOS]]).astype(np.int64), inside, inside


def blocks(tokens: TokenStore, length: int) -> Rows:
    """Joined texts cut into sequences of `length` tokens; what is left over at the end is dropped.

    Texts that are shorter than one sequence altogether give a single short one.
    """
    return Rows(np.arange(len(tokens) // length or int(len(tokens) > 1)), partial(_block, tokens, length))


def _block(store: TokenStore, length: int, epoch: int, index: int) -> TokenRow:
    tokens, labelled = store.read(index * length, length)
    return tokens, next_tokens(tokens, labelled)


# The rows of each task: what a probe of the run computes with too.


@dataclass(frozen=True, kw_only=True)
class TaskRows:
    """What a run learns from, before there is a model."""

    rows: TextRows
    tokenizer: PreTrainedTokenizerBase
    """Saved beside the weights."""
    padding: int
    train: Rows
    evaluation: Rows | None
    inputs: ModelInputs = batch_alone
    lengths: Callable[[np.ndarray], np.ndarray]
    """Rows of the data (n,) int64 -> (n,) int, in any unit: how long they are."""
    encode_source: Callable[[str], list[int]] | None = None
    """The tokens that an answer is generated from."""
    ends: Sequence[int] = ()
    """Tokens that end an answer beside the tokenizer's own."""
    template: str = ""
    """In which chats are written while training: a resumed run must find the same."""
    labels: Labels | None = None
    """The classes that are told apart: a resumed run must find the same."""
    joined: bool = False
    """The items are no rows of the data but pieces of all of them, of one length."""

    def train_lengths(self) -> np.ndarray:
        """(n,) int: of the items of `train`."""
        return np.ones(len(self.train)) if self.joined else self.lengths(self.rows.train)

    def head(self) -> dict[str, Any]:
        """Keys of the model's config that the rows decide: classes, and the padding, before which a decoder finds the end."""
        return {} if self.labels is None else {**self.labels.head, "pad_token_id": self.padding}


def load_task_rows(config: RunConfig, folder: Path) -> TaskRows:
    """Read the rows and get the tokenizer. Raises UsageError."""
    rows = load_text_rows(config, folder)
    kinds = {"masked-lm": _masked, **dict.fromkeys(CLASSIFIES, _classified)}
    task_rows = kinds.get(config.task, _texts)(config, folder, rows)
    if len(task_rows.train) == 0:
        names = ", ".join(source.name for source in config.data.sources)
        message = tr("No rows of {names} are left to train on.", names=names)
        raise usage_error("empty_data", "data.sources", message)
    return task_rows


def _masked(config: RunConfig, folder: Path, rows: TextRows) -> TaskRows:
    """Masked language models: ESM-2 on protein sequences, others on texts, each model with its own tokenizer."""
    length, hidden = config.batch.sequence_length, (config.training.mask_probability, config.training.seed)
    if config.row_kind == "proteins":
        most = length - SPECIAL_TOKENS
        make = MaskedRow(rows.texts, partial(protein_places, most), MASK, RESIDUES, *hidden)
        lengths = lambda numbers: np.minimum(rows.texts.lengths[numbers], most)  # noqa: E731
        return TaskRows(**_sets(rows, esm_tokenizer(), make), lengths=lengths)
    tokenizer = build_tokenizer(config, folder, rows)
    encoder = MaskEncoder(tokenizer, length, whole_words=config.training.whole_words)
    make = MaskedRow(rows.texts, encoder.places, int(tokenizer.mask_token_id), (0, len(tokenizer)), *hidden)
    return TaskRows(
        **_sets(rows, tokenizer, make), lengths=partial(row_lengths, rows, config.row_kind, encoder.lengths, length)
    )


def _classified(config: RunConfig, folder: Path, rows: TextRows) -> TaskRows:
    """Texts with a class each, or words with one each."""
    labels = labels_of_rows(config, rows)
    tokenizer = build_tokenizer(config, folder, rows)
    kind = ClassEncoder
    if config.task == "token-classification":
        check_words(tokenizer)
        kind = TagEncoder
    encoder = kind(tokenizer, config.batch.sequence_length, labels)
    architecture, _ = read_architecture(config.model.architecture or {})
    # What is compared is classes, not texts.
    texts = replace(rows, targets=None)
    return TaskRows(
        **_sets(texts, tokenizer, partial(text_row, rows, encoder.row)),
        inputs=decoder_only if architecture is not None and architecture.kind == "decoder" else batch_alone,
        lengths=partial(row_lengths, texts, config.row_kind, encoder.lengths, config.batch.sequence_length),
        labels=labels,
    )


def _texts(config: RunConfig, folder: Path, rows: TextRows) -> TaskRows:
    """Causal language models on joined texts, texts one by one, prompts with their responses, or chats; pairs of texts."""
    tokenizer = build_tokenizer(config, folder, rows)
    length, train_on = config.batch.sequence_length, config.training.train_on
    encoder: PairEncoder | ChatEncoder | CausalEncoder
    joined, more, most = joins_texts(config), dict[str, Any](), length
    if config.task == "seq2seq":
        target_length = config.batch.target_length or length
        encoder, most = PairEncoder(tokenizer, length, target_length), max(length, target_length)
        more = {"encode_source": encoder.source, "inputs": encoder_decoder}
    else:
        if rows.are_chats:
            encoder = ChatEncoder(tokenizer, set_template(tokenizer, config, folder), length, train_on)
            end = end_of_turn(tokenizer)
            more = {"ends": [] if end is None else [end], "template": encoder.template.text}
        else:
            encoder = CausalEncoder(tokenizer, length, learns_all=train_on == "everything")
        more |= {"encode_source": partial(encoder.prompt, room=prompt_room(config)), "inputs": decoder_only}
        if config.data.too_long == "drop" and not joined:
            rows = without_long_rows(rows, encoder.lengths, length)
    sets = _sets(rows, tokenizer, partial(text_row, rows, encoder.row))
    if joined and isinstance(encoder, CausalEncoder):
        train, held_out = (
            blocks(join_tokens(rows, part, encoder, tokenizer), length) for part in (rows.train, rows.held_out)
        )
        sets |= {"train": train, "evaluation": held_out if len(held_out) else None}
    lengths = partial(row_lengths, rows, config.row_kind, encoder.lengths, most)
    return TaskRows(**sets, lengths=lengths, joined=joined, **more)


def _sets(rows: TextRows, tokenizer: Any, make: Callable[[int, int], TokenRow]) -> dict[str, Any]:
    """Fields of TaskRows, for an encoding of the rows one by one."""
    return {
        "rows": rows,
        "tokenizer": tokenizer,
        "padding": int(tokenizer.pad_token_id),
        "train": Rows(rows.train, make),
        "evaluation": Rows(rows.held_out, make) if len(rows.held_out) else None,
    }


def labels_of_rows(config: RunConfig, rows: TextRows) -> Labels:
    """Counted apart in the rows that train and in those that are held out. Raises UsageError with what is wrong."""
    targets = rows.targets
    assert targets is not None
    train, held_out = (
        Counter(classes_in((target for batch in targets.batches(part) for target in batch), config.task))
        for part in (rows.train, rows.held_out)
    )
    labels = labels_of(config, train, held_out)
    errors = [
        Finding(code, severity, where, message)
        for code, severity, where, message, _ in label_problems(labels, config)
        if severity == "error" and (labels.problem or not config.forced)
    ]
    if errors:
        raise UsageError(errors)
    shown = ", ".join(f"{number} {name[:40]} ({count:,})" for number, (name, count) in enumerate(labels.train.items()))
    print(f"classes: {shown[:2000]}", flush=True)
    return labels


# TaskParts: what a task hands to the Trainer.


@dataclass(frozen=True, kw_only=True)
class TaskParts(TaskRows):
    model: PreTrainedModel
    collate: Callable[..., dict[str, Any]]
    """Rows -> one batch with input_ids, attention_mask and labels."""
    sampler: EpochSampler
    loss: StepLoss
    schedule: EvaluationSchedule
    generator: Generator | None = None
    """Writes texts in evaluation, for BLEU."""
    questions: Questions | None = None
    """What the model answers at every evaluation."""
    retention: KeptCheckpoints | None = None
    """None keeps the newest checkpoints."""
    patience: Patience | None = None
    """None where nothing is held out."""
    evaluation_lengths: np.ndarray | None = None
    """(n,) int, in any unit: of the rows of `evaluation`, which are then evaluated the longest first. None for rows
    that are read piece by piece, in the order of their files, and for those of one length."""
    train_collate: Callable[..., dict[str, Any]] | None = None
    """Of the rows that train, where they lie end to end; None pads them as those that are evaluated."""
    scores: Scores | None = None
    """What an evaluation measures of classes; None measures tokens."""


def parts_of(
    task: TaskRows, config: RunConfig, model: PreTrainedModel, sampler: EpochSampler, **more: Any
) -> TaskParts:
    """With what follows from the config alone; nothing is evaluated unless there is more."""
    alone = {
        "model": model,
        "sampler": sampler,
        "schedule": EvaluationSchedule(config, sampler.start_epoch),
        "collate": PaddedBatch.of(config, task.padding),
        "train_collate": packed_batch if packs_rows(config) else None,
    }
    return TaskParts(**(vars(task) | alone | more))


def build_task(config: RunConfig, folder: Path, checkpoint: Path | None, processes: int) -> TaskParts:
    """The parts of the configured task. The model comes last, when all else is known to be right.

    Raises UsageError for what is wrong with its data, tokenizer or model.
    """
    task = load_task_rows(config, folder)
    evaluates, rows, labels = task.evaluation is not None, task.rows, task.labels
    generates = evaluates and config.evaluation.generate and task.encode_source is not None
    if rows.are_chats:
        # What an answer is compared with is the last one of the chat.
        rows = replace(rows, targets=LastAnswers(rows.texts))
    if generates and rows.targets is None:
        message = tr(
            "BLEU compares generated texts with targets, but the data has none: set their column "
            "(data.sources.0.target_column), or turn evaluation.generate off."
        )
        raise usage_error("nothing_to_compare", "evaluation.generate", message)
    retention = best_checkpoints(config, folder, evaluates=evaluates)
    asked = (task.tokenizer, task.encode_source, task.ends)
    generator = Generator(config, folder, rows, *asked) if generates else None
    questions = questions_of(config, folder, task.rows, *asked)
    evaluation_lengths = None if task.joined else task.lengths(task.rows.held_out)
    lengths, windows = task.train_lengths, None if task.joined else task.rows.windows_of_training()
    overfits = config.mode.kind == "overfit"
    if overfits:
        whole, chosen = task, overfit_items(len(task.train), config, processes)
        task = replace(task, train=Rows(chosen, whole.train.item))
        lengths, windows = lambda: whole.train_lengths()[chosen], None
    sampler = EpochSampler(
        len(task.train),
        config.training.seed,
        repeat_first_epoch=overfits,
        windows=windows,
        lengths=length_order(config, lengths, processes),
    )
    tokenizer = None if config.row_kind == "proteins" else task.tokenizer
    return parts_of(
        task,
        config,
        build_model(with_head(config, task.head()), checkpoint, folder, tokenizer),
        sampler,
        loss=StepLoss.of(config, None if labels is None else class_weights(labels, config)),
        schedule=EvaluationSchedule(config, sampler.start_epoch, evaluates, with_saves=retention is not None),
        scores=None if labels is None else scores_of(config, labels),
        generator=generator,
        questions=questions,
        retention=retention,
        patience=Patience(measured_ranking(config), config.evaluation.patience) if evaluates else None,
        evaluation_lengths=evaluation_lengths,
    )
