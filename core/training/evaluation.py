"""The loss of a step, and when and how held-out rows are measured."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch.nn.functional import cross_entropy
from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import generates_at_saves
from trainwiz.core.config.values import LossMean
from trainwiz.core.data.lengths import longest_generation
from trainwiz.core.data.text_store import TextStore
from trainwiz.core.data.texts import TextRows
from trainwiz.core.errors import usage_error
from trainwiz.core.estimate.activations import evaluation_slice
from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.text import json_line
from trainwiz.core.training.batches import IGNORED
from trainwiz.core.training.chunked_logits import READER, VocabularyProduct, sliced_loss
from trainwiz.core.training.engine import forward_needs_all
from trainwiz.core.training.events import Moment, RunCallback, any_process
from trainwiz.core.training.process import LastingLines
from trainwiz.core.training.tokenizer import forced_first_token
from transformers import GenerationConfig, PreTrainedTokenizerBase, TrainerState

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU
    from trainwiz.core.training.classes import Scores


# The loss: a mean over all labelled tokens of one optimizer step, over every process, or of the means of its micro-batches.

Positions = Callable[[torch.Tensor], torch.Tensor]
"""labels of any shape -> (n,) int64, the places in the flattened labels that are labelled."""


def labelled_positions(labels: torch.Tensor) -> torch.Tensor:
    """(n,) int64: the places of the labels that are not -100, in order."""
    return (labels != IGNORED).flatten().nonzero().squeeze(1)


class StepLoss:
    """`compute_loss_func` of the Trainer, and what the model must be called with for it.

        outputs = model(**inputs, **loss.keywords(labels))
        loss(outputs, labels, num_items_in_batch)

    With `chunk` the loss is computed inside the model's forward pass in slices of that many
    positions (see core.training.chunked_logits, whose let_logits_be_read the model needs first);
    without, from the logits that come out. `positions` is the one step that depends on the values
    of the labels: a trace, whose tensors have none, brings its own.
    """

    def __init__(
        self,
        smoothing: float,
        chunk: int | None,
        positions: Positions = labelled_positions,
        mean: LossMean = "tokens",
        weights: torch.Tensor | None = None,
    ) -> None:
        """`weights` (classes,) float32: how much each counts; the mean is over their number, not over their weights."""
        self.smoothing = smoothing
        self.chunk = chunk
        self.positions = positions
        self.mean = mean
        self.weights = weights

    @classmethod
    def of(cls, config: RunConfig, weights: torch.Tensor | None = None) -> StepLoss:
        """As the run asks for; a file from before there was a choice of the mean has token means."""
        training = config.training
        return cls(training.label_smoothing, training.loss_chunk, mean=training.loss_mean or "tokens", weights=weights)

    def keywords(self, labels: torch.Tensor) -> dict[str, Any]:
        """Keyword arguments of the model beside the batch."""
        return {} if self.chunk is None else {READER: lambda logits: self.summed(logits, labels)}

    def __call__(
        self, outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """Mean over `num_items_in_batch`, the labels of the whole accumulation window over all processes.

        So the gradient does not depend on how a window is cut into micro-batches. Without it, the mean over the labels
        of this micro-batch: the Trainer then divides by the micro-batches of the window.
        """
        total = self.summed(outputs.logits, labels) if self.chunk is None else outputs.loss
        count = num_items_in_batch if num_items_in_batch is not None else (labels != IGNORED).sum()
        # A window of prompts that were cut to nothing but themselves has no label: a loss of 0, not 0 / 0.
        return total / max(count, 1) if isinstance(count, int) else total / count.clamp(min=1)

    def summed(self, logits: torch.Tensor | VocabularyProduct, labels: torch.Tensor) -> torch.Tensor:
        """Summed cross entropy in nats over the labelled positions, in float32, with label smoothing."""
        positions = self.positions(labels)
        targets = labels.flatten()
        if isinstance(logits, VocabularyProduct):
            return sliced_loss(logits, positions, targets[positions], self.smoothing)
        rows = logits.reshape(-1, logits.shape[-1])
        if 2 * len(positions) <= len(rows):
            rows, targets = rows[positions], targets[positions]
        # Most are labelled: a copy of those that are would cost more than the ones that are not.
        weights = None if self.weights is None else self.weights.to(rows.device)
        return cross_entropy(
            rows.float(), targets, weights, reduction="sum", label_smoothing=self.smoothing, ignore_index=IGNORED
        )


# When held-out rows are measured.


@dataclass(frozen=True, slots=True)
class EvaluationSchedule:
    """The steps after which a run evaluates. The last step is always one of them."""

    every_steps: int | None
    every_epoch: bool
    with_saves: bool
    """At each save too, so that every checkpoint has a score."""

    @classmethod
    def of(cls, config: RunConfig, *, with_saves: bool = False) -> EvaluationSchedule:
        every_epoch = config.evaluation.every_epoch
        every_steps = config.evaluation.every_steps
        if every_steps is None and not every_epoch:
            every_steps = config.checkpoint.every_steps
        return cls(every_steps, every_epoch, with_saves)

    def due(self, state: TrainerState, *, saves: bool) -> bool:
        step = state.global_step
        return (
            (self.every_steps is not None and step % self.every_steps == 0)
            or (self.every_epoch and ends_epoch(state))
            or (self.with_saves and saves)
            or step >= state.max_steps
        )


def ends_epoch(state: TrainerState) -> bool:
    """Whether the step that was just done is the last of its epoch: the Trainer's epoch is a whole number then."""
    return state.epoch is not None and float(state.epoch).is_integer()


class ScheduleCallback(RunCallback):
    """Evaluates by the schedule in place of the Trainer's own rule, which knows steps or epochs but not both.

    Always at the end of a step and before its save, so that the checkpoint holds the score, and
    never twice at one step.
    """

    def __init__(self, schedule: EvaluationSchedule | None) -> None:
        """None: nothing is held out, and nothing is evaluated."""
        self._schedule = schedule

    def step_end(self, now: Moment) -> None:
        schedule, control = self._schedule, now.control
        control.should_evaluate = schedule is not None and schedule.due(now.state, saves=control.should_save)

    def epoch_end(self, now: Moment) -> None:
        now.control.should_evaluate = False


# BLEU of generated texts (Papineni et al. 2002), by sacrebleu.

HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
KANA = re.compile(r"[\u3040-\u30ff]")
HAN_SHARE = 0.2
"""Share of Chinese characters among the letters of the references above which they are Chinese."""
LOOKED_AT = 200


def word_cutter(choice: str | None, references: Sequence[str]) -> str:
    """Name of sacrebleu's tokenizer: the choice, else zh for Chinese references and 13a for all others."""
    if choice is not None:
        return choice
    text = "".join(references[:LOOKED_AT])
    letters = sum(1 for letter in text if letter.isalpha())
    chinese = len(HAN.findall(text))
    return "zh" if letters and chinese > HAN_SHARE * letters and not KANA.search(text) else "13a"


def make_bleu(cutter: str) -> BLEU:
    """sacrebleu's BLEU-4 with its default smoothing. Raises UsageError when the tokenizer needs a package more."""
    from sacrebleu.metrics.bleu import BLEU

    try:
        return BLEU(tokenize=cutter)
    except (ImportError, RuntimeError) as error:
        package = "sacrebleu[ja]" if cutter == "ja-mecab" else "sacrebleu[ko]"
        raise usage_error(
            "missing_package",
            "evaluation.bleu_tokenizer",
            tr(
                "BLEU with {name} needs a package that is not here: pip install '{package}', or choose another "
                "evaluation.bleu_tokenizer.",
                name=cutter,
                package=package,
            ),
        ) from error


# Generator: the model writes an answer to held-out rows, and BLEU compares it with theirs.

SHOWN_ROWS = 5
"""Generated texts of one evaluation that are kept in generations.jsonl."""
Generated = tuple[int, str, int]
"""(row, text, its length in tokens)."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What one evaluation generates with."""

    model: Any
    """The bare model, in evaluation mode."""
    accelerator: Accelerator
    computing: Callable[[], AbstractContextManager[Any]]
    """The context that the training computes in."""
    step: int
    stopped: Callable[[], bool]
    """Whether this process was asked to stop."""


class Generator:
    """Greedy or beam search over the first held-out rows, shared among the processes."""

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        rows: TextRows,
        tokenizer: PreTrainedTokenizerBase,
        encode: Callable[[str], list[int]],
    ) -> None:
        """`encode` gives the tokens of a source or prompt. Raises UsageError when BLEU lacks a package.

        Of a causal model prompt and answer together fit the sequence length, as they do in
        training: see core/data/lengths.py.
        """
        assert rows.targets is not None
        settings = config.evaluation
        self._numbers: np.ndarray = rows.held_out[: settings.generation_rows]
        self._sources = rows.texts
        self._references: TextStore = rows.targets
        self._tokenizer: Any = tokenizer
        self._encode = encode
        self._at = settings.generate_at
        self._scores_saves = generates_at_saves(config)
        self._batch = config.batch.eval_micro_batch_size or config.batch.micro_batch_size or 1
        self._answers_follow = config.task == "causal-lm"
        self._lines = LastingLines(RunFolder(folder).generations_jsonl)
        self._search = GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=longest_generation(config),
            num_beams=settings.beams,
            do_sample=False,
            use_cache=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            forced_bos_token_id=forced_first_token(tokenizer),
        )
        references = [self._references[int(number)] for number in self._numbers[:LOOKED_AT]]
        self._bleu = make_bleu(word_cutter(settings.bleu_tokenizer, references))

    def due(self, state: TrainerState, *, saves: bool) -> bool:
        """Whether the evaluation after this step generates; the last one always does."""
        if self._at == "evaluation" or state.global_step >= state.max_steps:
            return True
        return (self._at == "epoch" and ends_epoch(state)) or (self._scores_saves and saves)

    def metrics(self, request: GenerationRequest, prefix: str) -> dict[str, float]:
        """bleu (0 to 100), generated_tokens (mean length), generation_s (wall time); nothing when a stop came between.

        Every process must call it; each gets the figures of all rows.
        """
        started = time.perf_counter()
        every: list[Generated] = sorted(gather_object(self._own_share(request)))
        if len(every) < len(self._numbers):
            return {}
        references = [self._references[row] for row, _, _ in every]
        score = self._bleu.corpus_score([text for _, text, _ in every], [references])
        if request.accelerator.is_main_process:
            self._keep(every[:SHOWN_ROWS], request.step)
            print(f"BLEU of {len(every):,} texts: {score.score:.2f} ({self._bleu.get_signature()})", flush=True)
        return {
            f"{prefix}_bleu": float(score.score),
            f"{prefix}_generated_tokens": float(np.mean([length for _, _, length in every])),
            f"{prefix}_generation_s": time.perf_counter() - started,
        }

    def _own_share(self, request: GenerationRequest) -> list[Generated]:
        """Rows of this process, in batches of like length; fewer after a stop."""
        mine = self._numbers[request.accelerator.process_index :: request.accelerator.num_processes]
        encoded = sorted(
            ((len(tokens := self._encode(self._sources[int(n)])), int(n), tokens) for n in mine), reverse=True
        )
        done: list[Generated] = []
        together = forward_needs_all(request.model)
        longest_share = -(-len(self._numbers) // request.accelerator.num_processes)
        for start in range(0, longest_share if together else len(encoded), self._batch):
            if any_process(request.accelerator, request.stopped()) if together else request.stopped():
                break
            batch = encoded[start : start + self._batch]
            if not batch:
                # The others still generate, and each of their forward passes needs this process.
                self._generate([self._encode(self._sources[int(self._numbers[0])])], request)
                continue
            texts = self._generate([tokens for _, _, tokens in batch], request)
            done.extend((number, *written) for (_, number, _), written in zip(batch, texts, strict=True))
        return done

    def _generate(self, sources: Sequence[list[int]], request: GenerationRequest) -> list[tuple[str, int]]:
        """(text, length in tokens) for each source. A causal model continues, so its sources are padded at the left."""
        padding = self._tokenizer.pad_token_id
        longest = max(map(len, sources))
        ids = torch.full((len(sources), longest), padding, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for place, tokens in enumerate(sources):
            where = slice(longest - len(tokens), None) if self._answers_follow else slice(0, len(tokens))
            ids[place, where] = torch.tensor(tokens)
            mask[place, where] = 1
        device = request.accelerator.device
        with torch.no_grad(), request.computing():
            written = request.model.generate(
                input_ids=ids.to(device), attention_mask=mask.to(device), generation_config=self._search
            )
        answers = written[:, longest:] if self._answers_follow else written[:, 1:]
        end = self._tokenizer.eos_token_id
        rows = [row[: row.index(end) + 1] if end in row else row for row in answers.tolist()]
        texts = self._tokenizer.batch_decode(rows, skip_special_tokens=True)
        return [(text.strip(), len(row)) for text, row in zip(texts, rows, strict=True)]

    def _keep(self, generated: Sequence[Generated], step: int) -> None:
        for row, text, _ in generated:
            line = {
                "time_s": time.time(),
                "step": step,
                "row": row,
                "source": self._sources[row],
                "reference": self._references[row],
                "generation": text,
            }
            self._lines.write(json_line(line))


# Loss, accuracy and perplexity of held-out rows.

SUMS = 5


def batch_sums(
    model: Any,
    inputs: dict[str, Any],
    labels: torch.Tensor,
    mask_token: int,
    positions: Positions = labelled_positions,
    scores: Scores | None = None,
) -> torch.Tensor:
    """`token_sums` of one batch, or those of `scores`, read inside the model's forward pass (see core.training.chunked_logits)."""

    def reader(logits: torch.Tensor | VocabularyProduct) -> torch.Tensor:
        if scores is not None and isinstance(logits, torch.Tensor):
            return scores.sums(logits, labels)
        return token_sums(inputs["input_ids"], logits, labels, mask_token, positions)

    sums: torch.Tensor = model(**inputs, **{READER: reader}).loss
    return sums


def token_sums(
    input_ids: torch.Tensor,
    logits: torch.Tensor | VocabularyProduct,
    labels: torch.Tensor,
    mask_token: int = -1,
    positions: Positions = labelled_positions,
) -> torch.Tensor:
    """(5,): summed loss in nats, right tokens, labelled tokens; loss and number of the hidden ones.

    `logits` (rows, length, vocabulary) belong to `labels` (rows, length), which a causal task has
    already moved to the place that predicts them. Without label smoothing. Hidden are those whose
    input is `mask_token`; a task that hides none has -1. Beside `logits` no more than one slice
    (core.estimate.logit_slices) exists at a time.
    """
    where = positions(labels)
    targets = labels.flatten()[where]
    hidden = (
        input_ids.flatten()[where] == mask_token if mask_token >= 0 else torch.zeros_like(targets, dtype=torch.bool)
    )
    if isinstance(logits, VocabularyProduct):
        product, rows = logits, logits.rows()[where]
        return product.read(rows, lambda rows: _sums(rows, product.chunk, product.logits_of, targets, hidden))
    flat, step = logits.reshape(-1, logits.shape[-1]), evaluation_slice(logits.shape[-1])
    return _sums(where, step, lambda places: flat[places], targets, hidden)


def _sums(
    rows: torch.Tensor,
    step: int,
    logits_of: Callable[[torch.Tensor], torch.Tensor],
    targets: torch.Tensor,
    hidden: torch.Tensor,
) -> torch.Tensor:
    """`token_sums` of the logits of `rows`, `step` of them after the other."""
    loss, hidden_loss = (torch.zeros((), dtype=torch.float32, device=targets.device) for _ in range(2))
    right = torch.zeros((), dtype=torch.int64, device=targets.device)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        some = logits_of(rows[part])
        losses = cross_entropy(some.float(), targets[part], reduction="none")
        loss += losses.sum()
        right += (some.argmax(dim=-1) == targets[part]).sum()
        hidden_loss += losses.where(hidden[part], 0.0).sum()
    return torch.stack([loss, right, torch.tensor(len(targets), device=targets.device), hidden_loss, hidden.sum()])


def token_metrics(sums: torch.Tensor, prefix: str) -> dict[str, Any]:
    """Means over all labelled tokens of all processes, from the sums of `token_sums`.

    `loss` is the mean in nats, `perplexity` exp(loss) (Jelinek et al. 1977), `accuracy` the share
    of tokens whose largest logit is right. `hidden_loss` counts only the tokens that the input
    hides: a kept or swapped token gives its answer half away, so that plain copying lowers the
    loss below the entropy of the data.
    """
    loss, right, count, hidden_loss, hidden = (float(value) for value in sums)
    mean = loss / count if count else math.nan
    metrics: dict[str, Any] = {
        f"{prefix}_loss": mean,
        f"{prefix}_perplexity": math.exp(mean) if mean < 700 else math.inf if mean >= 700 else math.nan,
        f"{prefix}_accuracy": right / count if count else math.nan,
        f"{prefix}_labelled_tokens": int(count),
    }
    if hidden:
        metrics[f"{prefix}_hidden_loss"] = hidden_loss / hidden
    return metrics
