"""Entry of the process that holds a finished model: it answers, fills masks, translates, merges, line by line of JSON."""

from __future__ import annotations

import argparse
import copy
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.errors import CannotRunError, Finding, TrainwizError, usage_error
from trainwiz.core.language import chosen_language, tr, use_language
from trainwiz.core.processes import heavy_imports, wait_briefly
from trainwiz.core.supervise.ties import hold_to

wait_briefly(os.environ)
with heavy_imports():
    import torch
    from peft import PeftModel, get_peft_model_state_dict
    from peft.utils import load_peft_weights
    from trainwiz.core.catalog.model_config import has_attention
    from trainwiz.core.training.chats import ChatError, ChatTemplate
    from trainwiz.core.training.template_parts import end_of_turn, template_parts
    from trainwiz.core.training.tokenizer import forced_first_token, set_languages
    from trainwiz.core.training.tokens import CausalEncoder
    from trainwiz.core.training.weights import load_weights
    from transformers import AutoTokenizer, PreTrainedTokenizerBase, StoppingCriteria, TextStreamer

Json = dict[str, Any]
PRECISIONS = {torch.float32: "fp32", torch.bfloat16: "bf16-true", torch.float16: "fp16"}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
LENGTHS = ("max_position_embeddings", "n_positions", "max_target_positions")
SHOWN_FILLS = 5


# The lines to and from the parent.


class Parent:
    """Reads requests in a thread of its own, so that `stop` is heard while an answer is written."""

    def __init__(self, out: Any) -> None:
        self.stop = threading.Event()
        self._out = out
        self._asked: queue.Queue[Json | None] = queue.Queue()

    def listen(self) -> Iterator[Json]:
        threading.Thread(target=self._read, name="parent", daemon=True).start()
        while (asked := self._asked.get()) is not None:
            self.stop.clear()
            yield asked

    def _read(self) -> None:
        for line in sys.stdin:
            asked = json.loads(line)
            if asked["do"] == "stop":
                self.stop.set()
            else:
                self._asked.put(asked)
        self._asked.put(None)

    def say(self, **line: Any) -> None:
        self._out.write((json.dumps(line) + "\n").encode())
        self._out.flush()


class Pieces(TextStreamer):
    """What `generate` writes, piece by piece as whole letters."""

    def __init__(self, tokenizer: Any, parent: Parent, *, skip_prompt: bool) -> None:
        super().__init__(tokenizer, skip_prompt=skip_prompt, skip_special_tokens=True)
        self._parent = parent

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        if text:
            self._parent.say(piece=text)


class Stopped(StoppingCriteria):
    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:  # type: ignore[override]
        return torch.full((input_ids.shape[0],), self._stop.is_set(), device=input_ids.device, dtype=torch.bool)


# The model, loaded.


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
        """Tokens that end an answer: those of the generation config, and the one that ends a turn in the template."""
        own = getattr(self.main.generation_config, "eos_token_id", None)
        listed = own if isinstance(own, list) else [own]
        turn = end_of_turn(self.tokenizer)
        return sorted({token for token in (*listed, self.tokenizer.eos_token_id, turn) if token is not None})

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
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        message = tr("the tokenizer in {path} cannot be loaded: {reason}.", path=order["tokenizer"], reason=reason)
        raise usage_error("missing_tokenizer", order["tokenizer"], message) from None
    if order["task"] == "seq2seq":
        set_languages(tokenizer, config)
    return tokenizer  # type: ignore[no-any-return]


def config_of(order: Json) -> RunConfig:
    """The run's config where the model comes from one; what is loaded how follows `order`."""
    config = RunConfig.model_validate(order["config"]) if order.get("config") else RunConfig()
    values = {"task": order["task"], **order.get("values", {})}
    return config.with_values(values, "you")


def loading(config: RunConfig, dtype: torch.dtype, bits: int, device: str, kind: str) -> RunConfig:
    """`config` with which `load_weights` gives weights of `dtype` or `bits` on `device`."""
    sdpa = has_attention(kind, "sdpa")
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
                "{bits} bits need bitsandbytes: pip install 'trainwiz[chat]'; or load it in 16: --bits 16.", bits=bits
            )
            raise CannotRunError(Finding("missing_package", "error", "--bits", message)) from None
    whole = order["kind"] == "whole"
    model: Any = load_weights(name, loading(config, dtype, bits, device, kind), what, whole=whole, quantized=bits < 16)
    return (model if bits < 16 else model.to(device)).eval()


def with_adapter(base: Any, order: Json) -> Any:
    """`base` with the adapter on it. Raises UsageError for an adapter of another base."""
    path, name = order["path"], order["base"]
    try:
        model = PeftModel.from_pretrained(base, path)
        held, wanted = load_peft_weights(path, device="cpu").keys(), get_peft_model_state_dict(model).keys()
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = next((line for line in lines if "size mismatch" in line), lines[0] if lines else type(error).__name__)
        message = tr(
            "The adapter in {path} does not fit the base {base}: {reason}.",
            path=path,
            base=name,
            reason=reason.rstrip("."),
        )
        raise usage_error("adapter_of_another_base", path, message) from None
    apart = sorted(held ^ wanted)
    if apart:
        message = tr(
            "The adapter in {path} does not fit the base {base}: {n} tensors are only in one of them, for example {example}.",
            path=path, base=name, n=len(apart), example=apart[0],
        )  # fmt: skip
        raise usage_error("adapter_of_another_base", path, message)
    return model.eval()


def own_dtype(order: Json, device: str) -> torch.dtype:
    """As the weights were saved; what a CPU has no arithmetic for in fp32."""
    said = str(order["dtype"]).removeprefix("torch.")
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(said, torch.float32)
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
            message = tr("The base knows fewer tokens than the tuned model's tokenizer has: they cannot be compared.")
            raise usage_error("another_vocabulary", order["base"], message)
        speaker.models["base"] = base
    return speaker


# Answers.


def prompt_tokens(speaker: Speaker, asked: Json, limit: int) -> list[int]:
    """Raises UsageError for a chat that the template does not take."""
    tokenizer: Any = speaker.tokenizer
    if asked.get("text") is not None:
        return CausalEncoder(tokenizer, limit).prompt(asked["text"], limit)
    try:
        text = tokenizer.apply_chat_template(asked["messages"], add_generation_prompt=True, tokenize=False)
    # A template raises whatever it likes.
    except Exception as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        message = tr("The template does not take this chat: {reason}.", reason=reason)
        raise usage_error("template_refuses", "chat", message) from None
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def search(speaker: Speaker, model: Any, asked: Json, room: int | None) -> Any:
    """The generation config of an answer: the model's own, with what was asked for."""
    chosen = copy.deepcopy(model.generation_config)
    most = int(asked["max_tokens"])
    chosen.max_length, chosen.max_new_tokens = None, most if room is None else min(most, room)
    chosen.num_beams, chosen.eos_token_id = 1, speaker.stops()
    chosen.pad_token_id = speaker.tokenizer.pad_token_id or chosen.eos_token_id[0]
    if asked.get("temperature") is not None:
        chosen.do_sample = asked["temperature"] > 0
        chosen.temperature = asked["temperature"] or None
    if not chosen.do_sample:
        chosen.temperature = chosen.top_p = chosen.top_k = None
    if speaker.order["task"] == "seq2seq":
        chosen.forced_bos_token_id = forced_first_token(speaker.tokenizer) or chosen.forced_bos_token_id
    return chosen


def answer(speaker: Speaker, asked: Json, parent: Parent) -> None:
    """Writes it in pieces, then what there is to say of it. Raises UsageError."""
    follows, limit = speaker.order["task"] == "causal-lm", speaker.limit
    tokenizer: Any = speaker.tokenizer
    if follows:
        ids = prompt_tokens(speaker, asked, (limit or 10**6) - 1)
    else:
        ids = list(tokenizer(asked["text"], verbose=False)["input_ids"])
    if limit is not None and len(ids) >= limit:
        message = tr("The chat has {n} tokens, and the model reads {limit}. Begin anew: /new.", n=len(ids), limit=limit)
        raise usage_error("chat_too_long", "chat", message)
    if asked.get("seed") is not None:
        torch.manual_seed(asked["seed"])
    began = time.monotonic()
    tokens = torch.tensor([ids], device=speaker.device)
    with speaker.model(asked["which"]) as model, torch.inference_mode():
        chosen = search(speaker, model, asked, limit - len(ids) if limit is not None and follows else None)
        written = model.generate(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            generation_config=chosen,
            streamer=Pieces(tokenizer, parent, skip_prompt=follows),
            stopping_criteria=[Stopped(parent.stop)],
        )[0].tolist()
    new = written[len(ids) :] if follows else written[1:]
    ended = "end" if new and new[-1] in chosen.eos_token_id else "stopped" if parent.stop.is_set() else "length"
    parent.say(
        done={"tokens": len(new), "prompt_tokens": len(ids), "seconds": time.monotonic() - began, "ended": ended}
    )


def fill(speaker: Speaker, asked: Json, parent: Parent) -> None:
    """The likeliest tokens of each mask. Raises UsageError for a text without one."""
    tokenizer: Any = speaker.tokenizer
    mask = str(tokenizer.mask_token)
    text = asked["text"].replace("[MASK]", mask).replace("<mask>", mask)
    tokens = torch.tensor([tokenizer(text, verbose=False)["input_ids"]], device=speaker.device)
    places = (tokens[0] == tokenizer.mask_token_id).nonzero()[:, 0].tolist()
    if not places:
        message = tr("The text has no mask. Write {mask} where a token is to be filled in.", mask=mask)
        raise usage_error("no_mask", "text", message)
    if speaker.limit is not None and tokens.shape[1] > speaker.limit:
        message = tr("The text has {n} tokens, and the model reads {limit}.", n=tokens.shape[1], limit=speaker.limit)
        raise usage_error("chat_too_long", "text", message)
    with speaker.model(asked["which"]) as model, torch.inference_mode():
        logits = model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits[0, places].float()
    likely = logits.softmax(-1).topk(SHOWN_FILLS)
    best = tokens[0].clone()
    best[places] = likely.indices[:, 0]
    masks = [
        [{"token": tokenizer.decode([token]).strip(), "probability": share} for token, share in zip(row, shares, strict=True)]
        for row, shares in zip(likely.indices.tolist(), likely.values.tolist(), strict=True)
    ]  # fmt: skip
    parent.say(done={"masks": masks, "filled": tokenizer.decode(best, skip_special_tokens=True)})


def ready(speaker: Speaker) -> Json:
    """What is known of the model once it is here."""
    generation = speaker.main.generation_config
    sampled = bool(getattr(generation, "do_sample", False))
    names = ("temperature", "top_p", "top_k")
    return {
        "device": speaker.device,
        "dtype": str(speaker.main.dtype).removeprefix("torch."),
        "sampling": {name: getattr(generation, name, None) for name in names} if sampled else {},
        "mask": speaker.tokenizer.mask_token,
    }


def serve(parent: Parent) -> None:
    """Answers until the parent hangs up."""
    speaker: Speaker | None = None
    for asked in parent.listen():
        try:
            if asked["do"] == "load":
                speaker = load(asked)
                parent.say(done=ready(speaker))
            elif asked["do"] == "template":
                parent.say(done=template_parts(load_tokenizer(asked, config_of(asked))))
            elif asked["do"] == "merge":
                from trainwiz.core.training.merge import merge

                parent.say(done=merge(asked, parent.say))
            elif speaker is not None:
                (fill if asked["do"] == "fill" else answer)(speaker, asked, parent)
        except TrainwizError as error:
            parent.say(failed=[finding.to_json() for finding in error.findings], exit_code=error.exit_code)
        except torch.OutOfMemoryError:
            message = tr("The memory of the GPU does not hold it; try --cpu, or fewer bits: --bits 4.")
            parent.say(failed=[Finding("out_of_memory", "error", "GPU", message).to_json()], exit_code=3)


def main() -> None:
    parser = argparse.ArgumentParser(prog="trainwiz.core.training.speak")
    parser.add_argument("--parent", type=int, required=True)
    hold_to(parser.parse_args().parent)
    use_language(chosen_language(None, os.environ))
    # What libraries print goes elsewhere.
    answers = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(answers, "wb") as out:
        serve(Parent(out))


if __name__ == "__main__":
    main()
