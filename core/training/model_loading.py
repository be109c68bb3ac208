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
from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.errors import CannotRunError, Finding, UsageError, os_reason, usage_error
from trainwiz.core.files import read_small
from trainwiz.core.language import tr
from trainwiz.core.model.found import FoundModel
from trainwiz.core.run.folder import PARTIAL, read_json
from trainwiz.core.training.chats import end_of_turn, render
from trainwiz.core.training.model import merged, with_head
from trainwiz.core.training.process import first_line
from trainwiz.core.training.tokenizer import set_languages
from trainwiz.core.training.weights import load_weights
from transformers import AutoTokenizer, PreTrainedTokenizerBase

Json = dict[str, Any]
PRECISIONS = {torch.float32: "fp32", torch.bfloat16: "bf16-true", torch.float16: "fp16"}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
LENGTHS = ("max_position_embeddings", "n_positions", "max_target_positions")


@dataclass
class Speaker:
    """A tuned model, with the one that it was tuned from where that was asked for."""

    model: FoundModel
    tokenizer: PreTrainedTokenizerBase
    device: str
    sides: dict[str, Any] = field(default_factory=dict)
    """"tuned", and "base" where it is a model of its own; that of an adapter is in "tuned"."""

    @property
    def main(self) -> Any:
        return self.sides["tuned"]

    @property
    def limit(self) -> int | None:
        """Most tokens of prompt and answer together."""
        text = self.main.config.get_text_config()
        return next((value for name in LENGTHS if isinstance(value := getattr(text, name, None), int)), None)

    @property
    def sampling(self) -> dict[str, float | None]:
        """The model's own settings; {} where it decodes greedily."""
        own = getattr(self.main, "generation_config", None)
        if own is None or not own.do_sample:
            return {}
        return {"temperature": own.temperature, "top_p": own.top_p, "top_k": own.top_k}

    def stops(self) -> list[int]:
        return stop_tokens(self.main, self.tokenizer)

    @contextmanager
    def side(self, which: str) -> Iterator[Any]:
        if which == "base" and "base" not in self.sides:
            with self.main.disable_adapter():
                yield self.main
        else:
            yield self.sides[which]


def config_of(model: FoundModel, values: dict[str, Any] | None = None) -> RunConfig:
    """The run's config where the model comes from one."""
    return (model.config or RunConfig()).with_values({"task": model.task, **(values or {})}, "you")


def load_tokenizer(model: FoundModel, config: RunConfig) -> PreTrainedTokenizerBase:
    """Raises UsageError."""
    path = str(model.tokenizer.resolve())
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=config.model.trust_remote_code
        )
    except Exception as error:  # noqa: BLE001
        message = tr("the tokenizer in {path} cannot be loaded: {reason}.", path=path, reason=first_line(error))
        raise usage_error("missing_tokenizer", path, message) from None
    if model.task == "seq2seq":
        set_languages(tokenizer, config)
    return tokenizer


def load_base(model: FoundModel, config: RunConfig, path: Path, dtype: torch.dtype, *, bits: int, device: str) -> Any:
    """A whole model, of `dtype` or in few `bits`. Raises UsageError."""
    few = bits < 16
    if few and dtype == torch.float16:
        # fp16 is for autocast there, with norms in fp32.
        dtype = torch.float32
    values = {
        "engine.precision": PRECISIONS[dtype],
        "engine.device": device,
        "engine.attention": "sdpa" if has_attention(str(model.architecture.get("model_type")), "sdpa") else "eager",
        "engine.base_precision": {4: "nf4", 8: "int8"}.get(bits, "none"),
        # With adapters fp16 is what the weights are held in; without, what autocast makes of them.
        "peft.method": "lora" if few or dtype == torch.float16 else "none",
    }
    config, whole = config.with_values(values, "you"), model.kind == "whole"
    if not whole and model.task in CLASSIFIES:
        saved = read_json(model.path / "config.json") or {}
        config = with_head(config, {key: saved[key] for key in ("id2label", "label2id") if key in saved})
    loaded: Any = load_weights(str(path.resolve()), config, tr("the model"), whole=whole, quantized=few)
    return (loaded if few else loaded.to(device)).eval()


def with_adapter(base: Any, model: FoundModel) -> Any:
    """`base` with the adapter on it. Raises UsageError for an adapter of another base."""
    path = str(model.path.resolve())
    try:
        adapted = PeftModel.from_pretrained(base, path)
        held, wanted = load_peft_weights(path, device="cpu").keys(), get_peft_model_state_dict(adapted).keys()
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        lines = [line.strip() for line in str(error).splitlines()]
        reason = next((line for line in lines if "size mismatch" in line), first_line(error)).rstrip(".")
    else:
        apart = sorted(held ^ wanted)
        if not apart:
            return adapted.eval()
        reason = tr("{n} tensors are in only one of them, for example {example}", n=len(apart), example=apart[0])
    message = tr(
        "The adapter in {path} does not match the base model {base}: {reason}.",
        path=path,
        base=model.base,
        reason=reason,
    )
    raise usage_error("adapter_of_another_base", path, message)


def load(
    model: FoundModel,
    bits: int | None = None,
    *,
    cpu: bool = False,
    compare: bool = False,
    values: dict[str, Any] | None = None,
) -> Speaker:
    """`bits` of the base of an adapter, as it was trained without. `compare`: the base of a whole model beside it. `values`
    of its config. Raises TrainwizError."""
    config = config_of(model, values)
    device = "cuda" if torch.cuda.is_available() and not cpu else "cpu"
    speaker = Speaker(model, load_tokenizer(model, config), device)
    # As the weights were saved; what a CPU has no arithmetic for in fp32.
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(model.dtype, torch.float32)
    if dtype == torch.float16 and device == "cpu":
        dtype = torch.float32
    if model.kind == "adapter":
        base = load_base(model, config, _base_of(model), dtype, bits=bits or model.bits, device=device)
        speaker.sides["tuned"] = with_adapter(base, model)
        return speaker
    speaker.sides["tuned"] = load_base(model, config, model.path, dtype, bits=16, device=device)
    if compare:
        speaker.sides["base"] = load_base(model, config, _base_of(model), dtype, bits=16, device=device)
    return speaker


def _base_of(model: FoundModel) -> Path:
    assert model.base is not None
    return model.base


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
ROOM = 1.3
"""Of the base in fp32: what is read, added and compared beside it."""


@contextmanager
def writing_to(place: Path) -> Iterator[Path]:
    """A name beside `place` for what is not whole yet. Raises UsageError where something is there, or it cannot be
    written."""
    partial = place.absolute().with_name(f".{place.name}.{os.getpid()}{PARTIAL}")
    try:
        if os.path.lexists(place):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place))
        yield partial
        partial.rename(place)
    except OSError as error:
        message = tr("{path} cannot be written: {reason}. Nothing is overwritten.", path=place, reason=os_reason(error))
        raise usage_error("output_not_writable", str(place), message) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if partial.is_file():
            partial.unlink()


def merge(model: FoundModel, place: Path, dtype: str, say: Callable[[str], None]) -> Json:
    """Writes `place`, which must not be there, in "fp32", "bf16" or "fp16". Returns what was measured. Raises TrainwizError.

    The base is read anew in its own bits: weights that were packed into 4 are never unpacked. The sum is made in fp32
    where that fits into memory, and rounded once.
    """
    config, base = config_of(model), _base_of(model)
    tokenizer, target = load_tokenizer(model, config), DTYPES[dtype]
    prompts = check_prompts(tokenizer, model)
    held = sum(path.stat().st_size for pattern in ("*.safetensors", "*.bin") for path in base.glob(pattern))
    in_fp32 = held * (1 if model.dtype in ("", "float32") else 2)
    single = ROOM * in_fp32 < psutil.virtual_memory().available
    summed_in = torch.float32 if single else target
    with writing_to(place) as partial:
        # Before minutes of reading and adding.
        partial.mkdir(parents=True)
        say(tr("reading the base model"))
        apart = with_adapter(load_base(model, config, base, summed_in, bits=16, device="cpu"), model)
        before = logits_of(apart, prompts)
        say(tr("merging"))
        whole: Any = merged(apart)
        whole.eval()
        after = logits_of(whole, prompts)
        apart_by, scale = difference(before, after), max(1.0, *(float(one.abs().max()) for one in before))
        if not apart_by <= (AGREES if single else ROUNDED) * scale:
            message = tr(
                "The logits of the merged and the unmerged model differ by {difference} (largest logit {scale}); "
                "nothing was written.",
                difference=f"{apart_by:.2g}",
                scale=f"{scale:.3g}",
            )
            raise CannotRunError(Finding("merge_differs", "error", str(model.path), message))
        whole.to(target)
        stops = stop_tokens(whole, tokenizer)
        found: Json = {
            "dtype": dtype,
            "summed_in": str(summed_in).removeprefix("torch."),
            "prompts": len(prompts),
            "merged_difference": apart_by,
            "largest_logit": scale,
            "rounding_difference": difference(after, logits_of(whole, prompts)),
            "stops": [str(tokenizer.convert_ids_to_tokens(token)) for token in stops],
        }
        # All tokens that end an answer go into the generation config, where other programs look for them.
        if getattr(whole, "generation_config", None) is not None and stops:
            whole.generation_config.eos_token_id = stops if len(stops) > 1 else stops[0]
        say(tr("writing"))
        write(whole, tokenizer, partial)
    del whole, apart
    gc.collect()
    if model.bits < 16:
        say(tr("comparing with the {bits}-bit base model", bits=model.bits))
        found["trained"] = against_trained(model, config, prompts, after)
    return found


def check_prompts(tokenizer: PreTrainedTokenizerBase, model: FoundModel) -> list[Json]:
    """What the model is asked: texts, and the same as a chat where there is a template."""
    texts = list(PROMPTS)
    if model.task == "causal-lm" and tokenizer.chat_template:
        texts += [render(tokenizer, [{"role": "user", "content": text}]) for text in PROMPTS[:2]]
    asked = []
    for text in texts:
        ids = torch.tensor([tokenizer(text, verbose=False)["input_ids"]])
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        asked.append({**batch, "decoder_input_ids": ids} if model.task == "seq2seq" else batch)
    return asked


def logits_of(model: Any, prompts: list[Json]) -> list[torch.Tensor]:
    with torch.inference_mode():
        device = next(model.parameters()).device
        return [model(**{k: v.to(device) for k, v in one.items()}).logits.float().cpu() for one in prompts]


def difference(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    return max(float((left - right).abs().max()) for left, right in zip(one, other, strict=True))


def against_trained(
    model: FoundModel, config: RunConfig, prompts: list[Json], after: list[torch.Tensor]
) -> Json | None:
    """The model as it was trained, its base in few bits, against the merged one; None where it cannot be loaded here."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        base = load_base(model, config, _base_of(model), torch.bfloat16, bits=model.bits, device=device)
    except UsageError:
        return None
    trained = logits_of(with_adapter(base, model), prompts)
    same = [left.argmax(-1) == right.argmax(-1) for left, right in zip(trained, after, strict=True)]
    agree = float(torch.cat([one.flatten() for one in same]).float().mean())
    return {"bits": model.bits, "difference": difference(trained, after), "same_next_token": agree}


def write(model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    config = folder / "config.json"
    # Where the base lies is nobody's business.
    values = {name: value for name, value in json.loads(read_small(config)).items() if name != "_name_or_path"}
    config.write_text(json.dumps(values, indent=2) + "\n")
