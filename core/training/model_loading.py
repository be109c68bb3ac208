"""A finished model, loaded to be used: whole or an adapter on its base, in its own bits or in fewer; an adapter merged."""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch
from peft import PeftModel, get_peft_model_state_dict
from peft.utils import load_peft_weights
from trainwiz.core.catalog.model_config import has_attention
from trainwiz.core.config import RunConfig
from trainwiz.core.errors import CannotRunError, Finding, os_reason, usage_error
from trainwiz.core.files import read_small
from trainwiz.core.hardware.install import find_installer, install_line
from trainwiz.core.language import tr
from trainwiz.core.training.chats import end_of_turn, render
from trainwiz.core.training.process import first_line
from trainwiz.core.training.tokenizer import set_languages
from trainwiz.core.training.weights import load_weights, merged
from transformers import AutoTokenizer, PreTrainedTokenizerBase

Json = dict[str, Any]
PRECISIONS = {torch.float32: "fp32", torch.bfloat16: "bf16-true", torch.float16: "fp16"}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
LENGTHS = ("max_position_embeddings", "n_positions", "max_target_positions")


@dataclass
class Speaker:
    """A tuned model, with the one that it was tuned from where that was asked for."""

    order: Json
    config: RunConfig
    tokenizer: PreTrainedTokenizerBase
    device: str
    models: dict[str, Any] = field(default_factory=dict)
    """"tuned", and "base" where it is a model of its own; that of an adapter is in "tuned"."""

    @property
    def main(self) -> Any:
        return self.models["tuned"]

    @property
    def limit(self) -> int | None:
        """Most tokens of prompt and answer together."""
        text = self.main.config.get_text_config()
        return next((value for name in LENGTHS if isinstance(value := getattr(text, name, None), int)), None)

    def stops(self) -> list[int]:
        return stop_tokens(self.main, self.tokenizer)

    @contextmanager
    def model(self, which: str) -> Iterator[Any]:
        if which == "base" and "base" not in self.models:
            with self.main.disable_adapter():
                yield self.main
        else:
            yield self.models[which]


def load_tokenizer(order: Json, config: RunConfig) -> PreTrainedTokenizerBase:
    """Raises UsageError."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            order["tokenizer"], local_files_only=True, trust_remote_code=config.model.trust_remote_code
        )
    except Exception as error:  # noqa: BLE001
        path, reason = order["tokenizer"], first_line(error)
        message = tr("the tokenizer in {path} cannot be loaded: {reason}.", path=path, reason=reason)
        raise usage_error("missing_tokenizer", order["tokenizer"], message) from None
    if order["task"] == "seq2seq":
        set_languages(tokenizer, config)
    return tokenizer


def config_of(order: Json) -> RunConfig:
    """The run's config where the model comes from one; what is loaded how follows `order`."""
    config = RunConfig.model_validate(order["config"]) if order.get("config") else RunConfig()
    values = {"task": order["task"], **order.get("values", {})}
    return config.with_values(values, "you")


def loading(config: RunConfig, dtype: torch.dtype, bits: int, device: str, kind: str) -> RunConfig:
    """`config` with which `load_weights` gives weights of `dtype` or `bits` on `device`."""
    sdpa = has_attention(kind, "sdpa")
    if bits < 16 and dtype == torch.float16:
        # fp16 is for autocast there, with norms in fp32.
        dtype = torch.float32
    values = {
        "engine.precision": PRECISIONS[dtype],
        "engine.device": device,
        "engine.attention": "sdpa" if sdpa else "eager",
        "engine.base_precision": {4: "nf4", 8: "int8"}.get(bits, "none"),
        # With adapters fp16 is what the weights are held in; without, what autocast makes of them.
        "peft.method": "lora" if bits < 16 or dtype == torch.float16 else "none",
    }
    return config.with_values(values, "you")


def load_base(order: Json, config: RunConfig, name: str, dtype: torch.dtype, *, bits: int, device: str) -> Any:
    """A whole model. Raises UsageError."""
    kind = str(order["model_type"])
    what = tr("the model")
    if bits < 16:
        try:
            import bitsandbytes  # noqa: F401
        except ImportError:
            message = tr(
                "Loading in {bits} bits needs bitsandbytes: {command}; or load in 16 bits: --bits 16.",
                bits=bits,
                command=install_line(find_installer(), "[qlora]"),
            )
            raise CannotRunError(Finding("missing_package", "error", "--bits", message)) from None
    whole = order["kind"] == "whole"
    model: Any = load_weights(name, loading(config, dtype, bits, device, kind), what, whole=whole, quantized=bits < 16)
    return (model if bits < 16 else model.to(device)).eval()


def with_adapter(base: Any, order: Json) -> Any:
    """`base` with the adapter on it. Raises UsageError for an adapter of another base."""
    path = order["path"]
    try:
        model = PeftModel.from_pretrained(base, path)
        held, wanted = load_peft_weights(path, device="cpu").keys(), get_peft_model_state_dict(model).keys()
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        lines = [line.strip() for line in str(error).splitlines()]
        reason = next((line for line in lines if "size mismatch" in line), first_line(error)).rstrip(".")
    else:
        apart = sorted(held ^ wanted)
        if not apart:
            return model.eval()
        reason = tr("{n} tensors are in only one of them, for example {example}", n=len(apart), example=apart[0])
    message = tr(
        "The adapter in {path} does not match the base model {base}: {reason}.",
        path=path,
        base=order["base"],
        reason=reason,
    )
    raise usage_error("adapter_of_another_base", path, message)


def own_dtype(order: Json, device: str) -> torch.dtype:
    """As the weights were saved; what a CPU has no arithmetic for in fp32."""
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(order["dtype"], torch.float32)
    return torch.float32 if dtype == torch.float16 and device == "cpu" else dtype


def load(order: Json) -> Speaker:
    """Raises TrainwizError."""
    config = config_of(order)
    device = "cuda" if torch.cuda.is_available() and not order.get("cpu") else "cpu"
    speaker = Speaker(order, config, load_tokenizer(order, config), device)
    dtype, bits = own_dtype(order, device), int(order["bits"])
    adapter = order["kind"] == "adapter"
    whole = load_base(order, config, order["base"] if adapter else order["path"], dtype, bits=bits, device=device)
    speaker.models["tuned"] = with_adapter(whole, order) if adapter else whole
    if order.get("compare") and not adapter:
        base = load_base(order, config, order["base"], dtype, bits=16, device=device)
        if base.get_input_embeddings().weight.shape[0] < len(speaker.tokenizer):
            message = tr(
                "The base model has fewer tokens than the tokenizer of the fine-tuned model: they cannot be compared."
            )
            raise usage_error("another_vocabulary", order["base"], message)
        speaker.models["base"] = base
    return speaker


def stop_tokens(model: Any, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """What ends an answer: tokens of the generation config, and the one that ends a turn in the template."""
    own = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    listed = own if isinstance(own, list) else [own]
    every = (*listed, tokenizer.eos_token_id, end_of_turn(tokenizer))
    return sorted({token for token in every if token is not None})


# An adapter added to its base in 16 or 32 bits, checked, and written as a whole model.

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
    partial = Path(order["partial"])
    with writing_to(Path(order["to"])):
        try:
            # Before minutes of reading and adding.
            partial.mkdir(parents=True)
            return _merged_into(partial, order, say)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def writing_to(place: Path) -> Iterator[None]:
    """Raises UsageError where something is there, or it cannot be written."""
    try:
        if os.path.lexists(place):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place))
        yield
    except OSError as error:
        message = tr("{path} cannot be written: {reason}. Nothing is overwritten.", path=place, reason=os_reason(error))
        raise usage_error("output_not_writable", str(place), message) from None


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
