"""An adapter added to its base in 16 or 32 bits, checked, and written as a whole model."""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch
from trainwiz.core.config import RunConfig
from trainwiz.core.errors import CannotRunError, Finding, os_reason, usage_error
from trainwiz.core.files import read_small
from trainwiz.core.language import tr
from trainwiz.core.training.model_loading import (
    DTYPES,
    Json,
    config_of,
    load_base,
    load_tokenizer,
    stop_tokens,
    with_adapter,
)
from trainwiz.core.training.template_parts import render
from trainwiz.core.training.weights import merged
from transformers import PreTrainedTokenizerBase

PROMPTS = ("foxes see", "你好，请介绍一下你自己。", "def add(a, b):\n    return", "1, 2, 3, 4,")
AGREES = 1e-5
"""Largest difference of a logit, merged against not, as a share of the largest logit (of 1 where all are smaller)."""
ROUNDED = 0.1
"""Likewise where the sum cannot be done in fp32: there it is rounded to 8 digits of two."""


def merge(order: Json, say: Callable[..., None]) -> Json:
    """Writes `order["to"]`, which must not be there. Returns what was measured. Raises TrainwizError.

    The base is read anew in its own bits: weights that were packed into 4 are never unpacked. The sum is made in fp32
    where that fits into memory, and rounded once.
    """
    place, partial = Path(order["to"]), Path(order["partial"])
    try:
        if os.path.lexists(place):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place))
        # Before minutes of reading and adding.
        partial.mkdir(parents=True)
        return _merged_into(partial, order, say)
    except OSError as error:
        message = tr("{path} cannot be written: {reason}. Nothing is overwritten.", path=place, reason=os_reason(error))
        raise usage_error("output_not_writable", str(place), message) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _merged_into(partial: Path, order: Json, say: Callable[..., None]) -> Json:
    """See `merge`; `partial` is an empty folder, which is renamed at the end."""
    config = config_of(order)
    tokenizer = load_tokenizer(order, config)
    prompts = check_prompts(tokenizer, order)
    target = DTYPES[order["to_dtype"]]
    single = order["parameters_bytes"] < psutil.virtual_memory().available
    summed_in = torch.float32 if single else target
    say(piece=tr("reading the base model"))
    apart = with_adapter(load_base(order, config, order["base"], summed_in, bits=16, device="cpu"), order)
    before = logits_of(apart, prompts)
    say(piece=tr("merging"))
    whole: Any = merged(apart)
    whole.eval()
    after = logits_of(whole, prompts)
    scale = max(1.0, max(float(one.abs().max()) for one in before))
    found = {
        "dtype": order["to_dtype"],
        "summed_in": str(summed_in).removeprefix("torch."),
        "prompts": len(prompts),
        "merged_difference": difference(before, after),
        "largest_logit": scale,
    }
    if not found["merged_difference"] <= (AGREES if single else ROUNDED) * scale:
        message = tr(
            "The logits of the merged and the unmerged model differ by {difference} (largest logit {scale}); "
            "nothing was written.",
            difference=f"{found['merged_difference']:.2g}",
            scale=f"{scale:.3g}",
        )
        raise CannotRunError(Finding("merge_differs", "error", order["path"], message))
    whole.to(target)
    found["rounding_difference"] = difference(after, logits_of(whole, prompts))
    found["stops"] = set_stops(whole, tokenizer)
    say(piece=tr("writing"))
    write(whole, tokenizer, partial)
    partial.rename(order["to"])
    del whole, apart
    gc.collect()
    if order["bits"] < 16:
        say(piece=tr("comparing with the {bits}-bit base model", bits=order["bits"]))
        found["trained"] = against_trained(order, config, prompts, after)
    return found


def check_prompts(tokenizer: PreTrainedTokenizerBase, order: Json) -> list[Json]:
    """What the model is asked: texts, and the same as a chat where there is a template."""
    texts = list(PROMPTS)
    if order["task"] == "causal-lm" and tokenizer.chat_template:
        texts += [render(tokenizer, [{"role": "user", "content": text}]) for text in PROMPTS[:2]]
    asked = []
    for text in texts:
        ids = torch.tensor([tokenizer(text, verbose=False)["input_ids"]])
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        asked.append({**batch, "decoder_input_ids": ids} if order["task"] == "seq2seq" else batch)
    return asked


def logits_of(model: Any, prompts: list[Json]) -> list[torch.Tensor]:
    with torch.inference_mode():
        device = next(model.parameters()).device
        return [model(**{k: v.to(device) for k, v in one.items()}).logits.float().cpu() for one in prompts]


def difference(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    return max(float((left - right).abs().max()) for left, right in zip(one, other, strict=True))


def against_trained(order: Json, config: RunConfig, prompts: list[Json], after: list[torch.Tensor]) -> Json | None:
    """The model as it was trained, its base in few bits, against the merged one; None where it cannot be loaded here."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        base = load_base(order, config, order["base"], torch.bfloat16, bits=order["bits"], device=device)
    except CannotRunError:
        return None
    trained = logits_of(with_adapter(base, order), prompts)
    same = [left.argmax(-1) == right.argmax(-1) for left, right in zip(trained, after, strict=True)]
    agree = float(torch.cat([one.flatten() for one in same]).float().mean())
    return {"bits": order["bits"], "difference": difference(trained, after), "same_next_token": agree}


def set_stops(model: Any, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """All tokens that end an answer go into the generation config, where other programs look for them."""
    stops = stop_tokens(model, tokenizer)
    if getattr(model, "generation_config", None) is not None and stops:
        model.generation_config.eos_token_id = stops if len(stops) > 1 else stops[0]
    return [str(tokenizer.convert_ids_to_tokens(token)) for token in stops]


def write(model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    config = folder / "config.json"
    # Where the base lies is nobody's business.
    values = {name: value for name, value in json.loads(read_small(config)).items() if name != "_name_or_path"}
    config.write_text(json.dumps(values, indent=2) + "\n")
