"""Gate: a training that does one optimizer step each time its parent says so, and tells what the step computed."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState


class Gate(TrainerCallback):
    """Writes a line of JSON to stdout after each optimizer step; with `waits`, goes on when a line comes on stdin.

    A step lasts from the word to go on until the optimizer has stepped, the fetching of its rows included.
    Of each micro-batch it says `shape`: rows, tokens of an input, tokens of a target (0 without), with padding; `real`: the
    same without padding, of each row: its tokens, and those of its target. `peak_bytes`: the most that tensors took on a
    CUDA device so far, 0 on a CPU.
    """

    def __init__(self, model: torch.nn.Module, *, waits: bool) -> None:
        self._waits = waits
        self._batches: list[tuple[list[int], list[torch.Tensor]]] = []
        self._started = time.perf_counter()
        model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, model: Any, args: Any, kwargs: dict[str, Any]) -> None:
        if not model.training:
            return
        ids, mask, labels, shifted = (
            kwargs.get(name) for name in ("input_ids", "attention_mask", "labels", "decoder_input_ids")
        )
        of_rows = mask.sum(1)
        targets, width = torch.zeros_like(of_rows), 0
        if shifted is not None:
            # The targets behind a start token, which is the padding's; the longest ones have lost their last token.
            last, pad = shifted[:, -1], model.config.pad_token_id
            cut = (last != pad) & (last != model.config.eos_token_id)
            targets, width = (shifted != pad).sum(1) + cut, shifted.shape[1]
        elif getattr(model.config, "is_encoder_decoder", False):
            targets, width = (labels != -100).sum(1), labels.shape[1]
        self._batches.append(([*ids.shape, width], [of_rows, targets]))

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self._wait()

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        on_gpu = torch.cuda.is_available()
        if on_gpu:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - self._started
        batches = [{"shape": shape, "real": [one.tolist() for one in real]} for shape, real in self._batches]
        said = {
            "step": state.global_step,
            "seconds": seconds,
            "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else 0,
            "batches": batches,
        }
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
        self._batches = []
        self._wait()

    def _wait(self) -> None:
        if self._waits and not sys.stdin.readline():
            sys.exit("the benchmark has gone")
        self._started = time.perf_counter()
