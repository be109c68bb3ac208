"""What the model writes while it trains: texts for BLEU, and answers to a few prompts."""

from __future__ import annotations

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
from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import generates_at_saves
from trainwiz.core.data.lengths import longest_generation
from trainwiz.core.data.text_store import TextStore
from trainwiz.core.data.texts import TextRows
from trainwiz.core.errors import usage_error
from trainwiz.core.hardware.install import find_installer, install_line
from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.text import json_line
from trainwiz.core.training.engine import forward_needs_all
from trainwiz.core.training.evaluation import ends_epoch
from trainwiz.core.training.events import any_process
from trainwiz.core.training.process import LastingLines
from trainwiz.core.training.tokenizer import forced_first_token
from transformers import GenerationConfig, PreTrainedTokenizerBase, StoppingCriteria, StoppingCriteriaList, TrainerState

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

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
                "BLEU with {name} needs a package that is not installed: {command}, or choose another "
                "evaluation.bleu_tokenizer.",
                name=cutter,
                command=install_line(find_installer(), package),
            ),
        ) from error


# Writer: the model continues some tokens.


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


@dataclass(frozen=True, slots=True)
class Written:
    text: str
    tokens: int
    """The end token counts."""
    ended: bool
    """By itself, and not because it reached the longest length."""


class _Stop(StoppingCriteria):
    """Ends all texts of a batch once the run is asked to stop."""

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        return torch.full((input_ids.shape[0],), self._stopped(), dtype=torch.bool, device=input_ids.device)


class Writer:
    """Greedy or beam search from sources or prompts, a batch at once."""

    def __init__(
        self,
        config: RunConfig,
        tokenizer: PreTrainedTokenizerBase,
        length: int,
        *,
        beams: int = 1,
        ends: Sequence[int] = (),
        most_s: float | None = None,
    ) -> None:
        """`length`: most tokens of a text. `ends`: tokens that end one beside the tokenizer's own. `most_s`: most seconds
        of a batch."""
        self._tokenizer: Any = tokenizer
        self._follows = config.task == "causal-lm"
        """A causal model continues its input, so sources are padded on the left."""
        self._ends = {int(tokenizer.eos_token_id), *ends}
        self._search = GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=length,
            num_beams=beams,
            do_sample=False,
            use_cache=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=sorted(self._ends),
            forced_bos_token_id=forced_first_token(tokenizer),
            max_time=most_s,
        )

    def write(
        self, sources: Sequence[list[int]], request: GenerationRequest, *, may_stop: bool = False
    ) -> list[Written]:
        """A text for each source, whose tokens are given; `may_stop`: cut where the run is asked to stop meanwhile."""
        padding = self._tokenizer.pad_token_id
        longest = max(map(len, sources))
        ids = torch.full((len(sources), longest), padding, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for place, tokens in enumerate(sources):
            where = slice(longest - len(tokens), None) if self._follows else slice(0, len(tokens))
            ids[place, where] = torch.tensor(tokens)
            mask[place, where] = 1
        device = request.accelerator.device
        with torch.no_grad(), request.computing():
            written = request.model.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                generation_config=self._search,
                stopping_criteria=StoppingCriteriaList([_Stop(request.stopped)] if may_stop else []),
            )
        answers = (written[:, longest:] if self._follows else written[:, 1:]).tolist()
        ends = [next((n for n, token in enumerate(row) if token in self._ends), None) for row in answers]
        rows = [row if end is None else row[: end + 1] for row, end in zip(answers, ends, strict=True)]
        texts = self._tokenizer.batch_decode(rows, skip_special_tokens=True)
        return [
            Written(text.strip(), len(row), end is not None) for text, row, end in zip(texts, rows, ends, strict=True)
        ]


# Generator: the model writes an answer to held-out rows, and BLEU compares it with theirs.

SHOWN_ROWS = 5
"""Generated texts of one evaluation that are kept in generations.jsonl."""
Generated = tuple[int, str, int]
"""(row, text, its length in tokens)."""


class Generator:
    """Greedy or beam search over the first held-out rows, shared among the processes."""

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        rows: TextRows,
        tokenizer: PreTrainedTokenizerBase,
        encode: Callable[[str], list[int]],
        ends: Sequence[int] = (),
    ) -> None:
        """`encode` gives the tokens of a source or prompt; `ends`: see Writer. Raises UsageError when BLEU lacks a package.

        Of a causal model prompt and answer together fit the sequence length, as they do in
        training: see core/data/lengths.py.
        """
        assert rows.targets is not None
        settings = config.evaluation
        self._numbers: np.ndarray = rows.held_out[: settings.generation_rows]
        self._sources = rows.texts
        self._references: TextStore = rows.targets
        self._encode = encode
        self._at = settings.generate_at
        self._scores_saves = generates_at_saves(config)
        self._batch = config.batch.eval_micro_batch_size or config.batch.micro_batch_size or 1
        self._lines = LastingLines(RunFolder(folder).generations_jsonl)
        self._writer = Writer(config, tokenizer, longest_generation(config), beams=settings.beams, ends=ends)
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
                self._writer.write([self._encode(self._sources[int(self._numbers[0])])], request)
                continue
            texts = self._writer.write([tokens for _, _, tokens in batch], request)
            done.extend((number, one.text, one.tokens) for (_, number, _), one in zip(batch, texts, strict=True))
        return done

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
