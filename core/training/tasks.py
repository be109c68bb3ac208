"""What each task learns from: its rows as tokens, and all that the Trainer is handed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset
from trainwiz.core.config import RunConfig
from trainwiz.core.config.values import CLASSIFIES, RowKind
from trainwiz.core.data.labels import Labels
from trainwiz.core.data.lengths import joins_texts, packs_rows, prompt_room
from trainwiz.core.data.proteins import MASK, PAD, SPECIAL_TOKENS, ProteinStore
from trainwiz.core.data.streamed import Windows
from trainwiz.core.data.texts import LastAnswers, TextRows, load_text_rows
from trainwiz.core.errors import Finding, UsageError
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.language import tr
from trainwiz.core.training.answers import Questions, questions_of
from trainwiz.core.training.batches import (
    FILLER,
    IGNORED,
    EpochSampler,
    FillerRow,
    PackedBatch,
    PaddedBatch,
    RowKey,
    length_order,
    mask_sequence,
    mask_tokens,
    overfit_items,
    sample_generator,
)
from trainwiz.core.training.best import BestCheckpoints, Patience, best_checkpoints, measured_ranking
from trainwiz.core.training.chats import ChatEncoder, set_template
from trainwiz.core.training.classes import (
    ClassEncoder,
    Scores,
    TagEncoder,
    class_weights,
    labels_of_rows,
    scores_of,
)
from trainwiz.core.training.evaluation import EvaluationSchedule, StepLoss
from trainwiz.core.training.generation import Generator
from trainwiz.core.training.model import ModelInputs, batch_alone, build_model, decoder_only, encoder_decoder
from trainwiz.core.training.tokenizer import build_tokenizer
from trainwiz.core.training.tokens import (
    CausalEncoder,
    MaskEncoder,
    PairEncoder,
    RowEncoder,
    TokenRow,
    TokenStore,
    join_tokens,
    next_tokens,
    row_lengths,
    without_long_rows,
)
from trainwiz.core.training.weights import esm_tokenizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Rows as the Trainer asks for them.

Mask = tuple[int, tuple[int, int]]


class RowDataset(Dataset[TokenRow]):
    """Rows, each made into tokens when it is asked for: in the loader's workers, streamed or not.

    An item is asked for with its epoch, on which masks depend; number FILLER is one that fills up.
    """

    @abstractmethod
    def __len__(self) -> int:
        """Number of items."""

    @abstractmethod
    def item(self, epoch: int, index: int) -> TokenRow:
        """(tokens, labels), (n,) int64 each."""

    def __getitem__(self, key: RowKey) -> TokenRow:
        epoch, index = key
        tokens, labels = self.item(epoch, max(index, 0))
        return FillerRow((tokens, np.full_like(labels, IGNORED))) if index == FILLER else (tokens, labels)


class MaskedRows(RowDataset):
    """Some rows with masks; the mask of a row depends on its number and the epoch."""

    def __init__(self, rows: np.ndarray, probability: float, seed: int) -> None:
        """`rows` (n,) int64: the rows of the set."""
        self._rows = rows
        self._probability = probability
        self._seed = seed

    def __len__(self) -> int:
        return len(self._rows)

    def item(self, epoch: int, index: int) -> TokenRow:
        row = int(self._rows[index])
        return self.masked(row, sample_generator(self._seed, epoch, row))

    @abstractmethod
    def masked(self, row: int, generator: np.random.Generator) -> TokenRow:
        """Some tokens of the row hidden."""


class MaskedProteins(MaskedRows):
    def __init__(self, proteins: ProteinStore, rows: np.ndarray, probability: float, seed: int) -> None:
        super().__init__(rows, probability, seed)
        self._proteins = proteins

    def masked(self, row: int, generator: np.random.Generator) -> TokenRow:
        return mask_sequence(self._proteins.letters(row), self._probability, generator)


class MaskedTexts(MaskedRows):
    def __init__(
        self, rows: TextRows, numbers: np.ndarray, encoder: MaskEncoder, config: RunConfig, mask: Mask
    ) -> None:
        """`mask`: the token that hides, and the tokens that may stand for another one."""
        super().__init__(numbers, config.training.mask_probability, config.training.seed)
        self._texts = rows.texts
        self._encoder = encoder
        self._mask = mask

    def masked(self, row: int, generator: np.random.Generator) -> TokenRow:
        return mask_tokens(*self._encoder.places(self._texts[row]), self._probability, generator, *self._mask)


class TextDataset(RowDataset):
    """Some rows of text."""

    def __init__(self, rows: TextRows, numbers: np.ndarray, encode: Callable[..., TokenRow]) -> None:
        """`numbers` (n,) int64: the rows of the set. `encode` gets the target as None where rows have none."""
        self._texts = rows.texts
        self._targets = rows.targets
        self._numbers = numbers
        self._encode = encode

    def __len__(self) -> int:
        return len(self._numbers)

    def item(self, epoch: int, index: int) -> TokenRow:
        number = int(self._numbers[index])
        return self._encode(self._texts[number], None if self._targets is None else self._targets[number])


class BlockDataset(RowDataset):
    """Joined texts cut into sequences of `length` tokens; what is left over at the end is dropped.

    Texts that are shorter than one sequence altogether give a single short one.
    """

    def __init__(self, tokens: TokenStore, length: int) -> None:
        self._tokens = tokens
        self._length = length
        self._blocks = len(tokens) // length or int(len(tokens) > 1)

    def __len__(self) -> int:
        return self._blocks

    def item(self, epoch: int, index: int) -> TokenRow:
        tokens, labelled = self._tokens.read(index * self._length, self._length)
        return tokens, next_tokens(tokens, labelled)


class Chosen(RowDataset):
    """Some items of another set, as an overfitting run repeats them."""

    def __init__(self, whole: RowDataset, chosen: np.ndarray) -> None:
        self._whole = whole
        self._chosen = chosen

    def __len__(self) -> int:
        return len(self._chosen)

    def item(self, epoch: int, index: int) -> TokenRow:
        return self._whole.item(epoch, int(self._chosen[index]))


# The rows of each task: what a probe of the run computes with too.


@dataclass(frozen=True, slots=True)
class TaskRows:
    """What a run learns from, before there is a model."""

    rows: TextRows
    tokenizer: PreTrainedTokenizerBase
    padding: int
    train: RowDataset
    evaluation: RowDataset | None
    inputs: ModelInputs
    lengths: Callable[[np.ndarray], np.ndarray]
    """Rows of the data (n,) int64 -> (n,) int, in any unit: how long they are."""
    encode_source: Callable[[str], list[int]] | None = None
    """The tokens that an answer is generated from."""
    ends: tuple[int, ...] = ()
    """Tokens that end an answer beside the tokenizer's own."""
    template: str = ""
    """In which chats are written while training."""
    mask_token: int = -1
    """Token that hides a part of the input; -1 for a task that hides none."""
    labels: Labels | None = None
    """The classes of rows that are classified."""
    joined: bool = False
    """The items are no rows of the data but pieces of all of them, of one length."""

    def train_lengths(self) -> np.ndarray:
        """(n,) int: of the items of `train`."""
        return np.ones(len(self.train)) if self.joined else self.lengths(self.rows.train)

    def evaluation_lengths(self) -> np.ndarray | None:
        """See TaskParts."""
        return None if self.joined or self.rows.in_pieces else self.lengths(self.rows.held_out)

    def windows(self) -> Windows | None:
        """Over the items of `train`, where they are read while training."""
        return None if self.joined else self.rows.windows_of_training()


def load_task_rows(config: RunConfig, folder: Path) -> TaskRows:
    """Read the rows and get the tokenizer. Raises UsageError."""
    rows = load_text_rows(config, folder)
    kinds: dict[RowKind, Callable[..., TaskRows]] = {"proteins": _proteins, "masked-lm": _masked}
    load = _classified if config.task in CLASSIFIES else kinds.get(config.row_kind, _texts)
    task_rows = load(config, folder, rows)
    if len(task_rows.train) == 0:
        names = ", ".join(source.name for source in config.data.sources)
        message = tr("No rows of {names} are left to train on.", names=names)
        raise UsageError(Finding("empty_data", "error", "data.sources", message))
    return task_rows


def _proteins(config: RunConfig, folder: Path, rows: TextRows) -> TaskRows:
    """Masked-LM training of ESM-2 on protein sequences."""
    proteins = ProteinStore(rows.texts, config.batch.sequence_length - SPECIAL_TOKENS)
    probability, seed = config.training.mask_probability, config.training.seed
    train, held_out = (MaskedProteins(proteins, numbers, probability, seed) for numbers in (rows.train, rows.held_out))
    return TaskRows(
        rows=rows,
        tokenizer=esm_tokenizer(),
        padding=PAD,
        train=train,
        evaluation=held_out if len(held_out) else None,
        inputs=batch_alone,
        lengths=lambda numbers: proteins.lengths[numbers],
        mask_token=MASK,
    )


def _masked(config: RunConfig, folder: Path, rows: TextRows) -> TaskRows:
    """Masked language models on texts, each model with its own tokenizer."""
    tokenizer = build_tokenizer(config, folder, rows)
    length = config.batch.sequence_length
    encoder = MaskEncoder(tokenizer, length, whole_words=config.training.whole_words)
    mask = int(tokenizer.mask_token_id)
    train, held_out = (
        MaskedTexts(rows, numbers, encoder, config, (mask, (0, len(tokenizer))))
        for numbers in (rows.train, rows.held_out)
    )
    return TaskRows(
        rows=rows,
        tokenizer=tokenizer,
        padding=_padding(tokenizer),
        train=train,
        evaluation=held_out if len(held_out) else None,
        inputs=batch_alone,
        lengths=lambda numbers: row_lengths(rows, numbers, config.row_kind, encoder),
        mask_token=mask,
    )


def _classified(config: RunConfig, folder: Path, rows: TextRows) -> TaskRows:
    """Texts with a class each, or words with one each."""
    labels = labels_of_rows(config, rows)
    tokenizer = build_tokenizer(config, folder, rows)
    kind: Any = ClassEncoder if config.task == "sequence-classification" else TagEncoder
    encoder = kind(tokenizer, config.batch.sequence_length, labels)
    train, held_out = (TextDataset(rows, numbers, encoder.row) for numbers in (rows.train, rows.held_out))
    architecture, _ = read_architecture(config.model.architecture or {})
    decodes = architecture is not None and architecture.kind == "decoder"
    return TaskRows(
        # What is compared is classes, not texts.
        rows=replace(rows, targets=None),
        tokenizer=tokenizer,
        padding=_padding(tokenizer),
        train=train,
        evaluation=held_out if len(held_out) else None,
        inputs=decoder_only if decodes else batch_alone,
        lengths=lambda numbers: row_lengths(replace(rows, targets=None), numbers, config.row_kind, encoder),
        labels=labels,
    )


def _padding(tokenizer: PreTrainedTokenizerBase) -> int:
    padding = tokenizer.pad_token_id
    assert isinstance(padding, int)
    return padding


def _texts(config: RunConfig, folder: Path, rows: TextRows) -> TaskRows:
    """Causal language models on joined texts, texts one by one, prompts with their responses, or chats; pairs of texts."""
    tokenizer = build_tokenizer(config, folder, rows)
    length, train_on = config.batch.sequence_length, config.training.train_on
    encoder: RowEncoder
    if config.task == "seq2seq":
        encoder = pairs = PairEncoder(tokenizer, length, config.batch.target_length or length)
        encode_source: Callable[[str], list[int]] = pairs.source
    elif rows.are_chats:
        encoder = chats = ChatEncoder(tokenizer, set_template(tokenizer, config, folder), length, train_on)
        encode_source = lambda chat: chats.prompt(chat, prompt_room(config))  # noqa: E731
    else:
        encoder = causal = CausalEncoder(tokenizer, length, learns_all=train_on == "everything")
        encode_source = lambda text: causal.prompt(text, prompt_room(config))  # noqa: E731
    joined = joins_texts(config)
    if config.data.too_long == "drop" and config.task == "causal-lm" and not joined:
        rows = without_long_rows(rows, encoder, length)
    train, held_out = (
        BlockDataset(join_tokens(rows, numbers, causal, tokenizer), length)
        if joined
        else TextDataset(rows, numbers, encoder.row)
        for numbers in (rows.train, rows.held_out)
    )
    return TaskRows(
        rows=rows,
        tokenizer=tokenizer,
        padding=_padding(tokenizer),
        train=train,
        evaluation=held_out if len(held_out) else None,
        inputs=encoder_decoder if config.task == "seq2seq" else decoder_only,
        lengths=lambda numbers: row_lengths(rows, numbers, config.task, encoder),
        encode_source=encode_source,
        ends=encoder.ends() if isinstance(encoder, ChatEncoder) else (),
        template=encoder.template.text if isinstance(encoder, ChatEncoder) else "",
        joined=joined,
    )


# TaskParts: what a task hands to the Trainer.


@dataclass(frozen=True, slots=True)
class TaskParts:
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    """Saved beside the weights."""
    train: Dataset[Any]
    evaluation: Dataset[Any] | None
    collate: Callable[..., dict[str, Any]]
    """Rows -> one batch with input_ids, attention_mask and labels."""
    sampler: EpochSampler
    loss: StepLoss
    schedule: EvaluationSchedule
    mask_token: int = -1
    """Token that hides a letter in the input; -1 for a task that hides none."""
    inputs: ModelInputs = batch_alone
    generator: Generator | None = None
    """Writes texts in evaluation, for BLEU."""
    questions: Questions | None = None
    """What the model answers at every evaluation."""
    retention: BestCheckpoints | None = None
    """None keeps the newest checkpoints."""
    patience: Patience | None = None
    """None where nothing is held out."""
    evaluation_lengths: np.ndarray | None = None
    """(n,) int, in any unit: of the rows of `evaluation`, which are then evaluated the longest first. None for rows
    that are read piece by piece, in the order of their files, and for those of one length."""
    train_collate: Callable[..., dict[str, Any]] | None = None
    """Of the rows that train, where they lie end to end; None pads them as those that are evaluated."""
    template: str = ""
    """In which chats are written while training: a resumed run must find the same."""
    labels: Labels | None = None
    """The classes that are told apart: a resumed run must find the same."""
    scores: Scores | None = None
    """What an evaluation measures of classes; None measures tokens."""
    counts_targets: bool = False
    """The labels are a text of their own, whose tokens are counted too."""


def head_of(task: TaskRows) -> dict[str, Any]:
    """Keys of the model's config that the rows decide: classes, and the padding, before which a decoder finds the end."""
    return {} if task.labels is None else {**task.labels.head, "pad_token_id": task.padding}


def build_task(config: RunConfig, folder: Path, checkpoint: Path | None, processes: int) -> TaskParts:
    """The parts of the configured task. The model comes last, when all else is known to be right.

    Raises UsageError with all that is wrong with its data, tokenizer or model.
    """
    task = load_task_rows(config, folder)
    findings: list[Finding] = []
    generates = task.evaluation is not None and config.evaluation.generate
    rows = task.rows
    if rows.are_chats:
        # What an answer is compared with is the last one of the chat.
        rows = replace(rows, targets=LastAnswers(rows.texts))
    if generates and task.encode_source is not None and rows.targets is None:
        message = tr(
            "BLEU compares generated texts with targets, but the data has none: set their column "
            "(data.sources.0.target_column), or turn evaluation.generate off."
        )
        findings.append(Finding("nothing_to_compare", "error", "evaluation.generate", message))
    retention = best_checkpoints(config, folder, findings, evaluates=task.evaluation is not None)
    if findings:
        raise UsageError(findings)
    generator = None
    if generates and task.encode_source is not None:
        generator = Generator(config, folder, rows, task.tokenizer, task.encode_source, task.ends)
    train, lengths, windows = task.train, task.train_lengths, task.windows()
    overfits = config.mode.kind == "overfit"
    if overfits:
        chosen = overfit_items(len(train), config, processes)
        train, lengths, windows = Chosen(train, chosen), lambda: task.train_lengths()[chosen], None
    labels = task.labels
    tokenizer = None if config.row_kind == "proteins" else task.tokenizer
    return TaskParts(
        model=build_model(config, checkpoint, folder, tokenizer, head_of(task)),
        tokenizer=task.tokenizer,
        train=train,
        evaluation=task.evaluation,
        collate=PaddedBatch.of(config, task.padding),
        sampler=EpochSampler(
            len(train),
            config.training.seed,
            repeat_first_epoch=overfits,
            windows=windows,
            lengths=length_order(config, lengths, processes),
        ),
        loss=StepLoss.of(config, None if labels is None else class_weights(labels, config)),
        schedule=EvaluationSchedule.of(config, with_saves=retention is not None),
        mask_token=task.mask_token,
        labels=labels,
        scores=None if labels is None else scores_of(config, labels),
        inputs=task.inputs,
        generator=generator,
        questions=questions_of(config, folder, task.rows, task.tokenizer, task.encode_source, task.ends),
        retention=retention,
        patience=None if task.evaluation is None else Patience(measured_ranking(config), config.evaluation.patience),
        template=task.template,
        counts_targets=config.task == "seq2seq",
        evaluation_lengths=task.evaluation_lengths(),
        train_collate=PackedBatch() if packs_rows(config) else None,
    )
