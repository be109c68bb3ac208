"""Generator: the model writes an answer to held-out rows, and BLEU compares it with theirs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from trainwiz.core.config import RunConfig
from trainwiz.core.config.metrics import generates_at_saves
from trainwiz.core.data.answers import longest_generation
from trainwiz.core.data.text_rows import TextRows
from trainwiz.core.data.text_store import TextStore
from trainwiz.core.json_text import json_line
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.bleu import LOOKED_AT, make_bleu, word_cutter
from trainwiz.core.training.evaluation_schedule import ends_epoch
from trainwiz.core.training.full_disk import LastingLines
from trainwiz.core.training.languages import forced_first_token
from trainwiz.core.training.shards import forward_needs_all
from transformers import GenerationConfig, PreTrainedTokenizerBase, TrainerState

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

    def all_stop(self) -> bool:
        """Whether any process was asked to stop; every process must ask at the same place."""
        asked = torch.tensor([int(self.stopped())], device=self.accelerator.device)
        return bool(self.accelerator.reduce(asked, reduction="sum").item() > 0)


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
        training: see core/data/answers.py.
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
            if request.all_stop() if together else request.stopped():
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
        rows = [self._until_end(answer) for answer in answers.tolist()]
        texts = self._tokenizer.batch_decode(rows, skip_special_tokens=True)
        return [(text.strip(), len(row)) for text, row in zip(texts, rows, strict=True)]

    def _until_end(self, tokens: list[int]) -> list[int]:
        end = self._tokenizer.eos_token_id
        return tokens[: tokens.index(end) + 1] if end in tokens else tokens

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
