"""What a finished model says: answers piece by piece, the likeliest tokens of a mask; failures as sentences."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from trainwiz.core.errors import CannotRunError, Finding, TrainwizError, usage_error
from trainwiz.core.language import tr
from trainwiz.core.training.chats import as_the_template_takes
from trainwiz.core.training.generation import Stopped
from trainwiz.core.training.model_loading import Json, Speaker
from trainwiz.core.training.process import first_line
from trainwiz.core.training.tokenizer import forced_first_token
from trainwiz.core.training.tokens import CausalEncoder
from transformers import TextStreamer

SHOWN_FILLS = 5


@contextmanager
def in_words() -> Iterator[None]:
    """Whatever libraries raise becomes a TrainwizError with one sentence; what they only remark is not shown."""
    logging.disable(logging.WARNING)
    try:
        yield
    except TrainwizError:
        raise
    except torch.OutOfMemoryError:
        message = tr("The model does not fit in GPU memory; try --cpu, or fewer bits: --bits 4.")
        raise CannotRunError(Finding("out_of_memory", "error", "GPU", message)) from None
    except Exception as error:
        message = tr("The model failed: {name}: {reason}", name=type(error).__name__, reason=first_line(error))
        raise TrainwizError(Finding("model_failed", "error", "model", message), 1) from error
    finally:
        logging.disable(logging.NOTSET)


class Pieces(TextStreamer):
    """What `generate` writes, piece by piece as whole letters."""

    def __init__(self, tokenizer: Any, say: Callable[[str], None], *, skip_prompt: bool) -> None:
        super().__init__(tokenizer, skip_prompt=skip_prompt, skip_special_tokens=True)
        self._say = say

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        if text:
            self._say(text)


def chat_tokens(tokenizer: Any, chat: Sequence[Mapping[str, str]]) -> list[int]:
    """Raises UsageError for a chat that the template does not take."""
    try:
        text = tokenizer.apply_chat_template(
            as_the_template_takes(tokenizer, [dict(turn) for turn in chat]), add_generation_prompt=True, tokenize=False
        )
    # A template raises whatever it likes.
    except Exception as error:  # noqa: BLE001
        message = tr("The chat template rejects this chat: {reason}.", reason=first_line(error))
        raise usage_error("template_refuses", "chat", message) from None
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def _search(speaker: Speaker, model: Any, asked: Mapping[str, Any], room: int | None) -> Any:
    """The generation config of an answer: the model's own, with what was asked for."""
    chosen = copy.deepcopy(model.generation_config)
    most = int(asked["max_tokens"])
    chosen.max_length, chosen.max_new_tokens = None, most if room is None else min(most, room)
    stops, pad = speaker.stops(), speaker.tokenizer.pad_token_id
    chosen.num_beams, chosen.eos_token_id = 1, stops or None
    chosen.pad_token_id = pad if pad is not None else next(iter(stops), None)
    if asked["temperature"] is not None:
        chosen.do_sample = asked["temperature"] > 0
        chosen.temperature = asked["temperature"]
    if not chosen.do_sample:
        chosen.temperature = chosen.top_p = chosen.top_k = None
    if speaker.model.task == "seq2seq":
        chosen.forced_bos_token_id = forced_first_token(speaker.tokenizer) or chosen.forced_bos_token_id
    return chosen


def answer(
    speaker: Speaker,
    which: str,
    asked: Mapping[str, Any],
    say: Callable[[str], None],
    stopped: Callable[[], bool],
) -> Json:
    """Says it in pieces; returns what there is to tell of it. `asked`: a `text` or the turns of a `chat`, and max_tokens,
    temperature, seed. `stopped` is asked after each token. Raises UsageError."""
    follows, limit = speaker.model.task == "causal-lm", speaker.limit
    tokenizer: Any = speaker.tokenizer
    if asked.get("chat") is not None:
        ids = chat_tokens(tokenizer, asked["chat"])
    elif follows:
        room = (limit or 10**6) - 1
        ids = CausalEncoder(tokenizer, room).prompt(asked["text"], room)
    else:
        ids = list(tokenizer(asked["text"], verbose=False)["input_ids"])
    check_length(len(ids) + 1, limit)
    if asked["seed"] is not None:
        torch.manual_seed(asked["seed"])
    began = time.monotonic()
    tokens = torch.tensor([ids], device=speaker.device)
    with speaker.side(which) as model, torch.inference_mode():
        written = model.generate(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            generation_config=_search(
                speaker, model, asked, limit - len(ids) if limit is not None and follows else None
            ),
            streamer=Pieces(tokenizer, say, skip_prompt=follows),
            stopping_criteria=[Stopped(stopped)],
        )[0].tolist()
    new = written[len(ids) :] if follows else written[1:]
    ended = "end" if new and new[-1] in speaker.stops() else "stopped" if stopped() else "length"
    return {"tokens": len(new), "prompt_tokens": len(ids), "seconds": time.monotonic() - began, "ended": ended}


def check_length(tokens: int, limit: int | None) -> None:
    """Raises UsageError for more than the model reads."""
    if limit is not None and tokens > limit:
        message = tr(
            "This is {n} tokens long, but the model reads at most {limit}. /new starts over.", n=tokens, limit=limit
        )
        raise usage_error("chat_too_long", "chat", message)


def fill(speaker: Speaker, which: str, text: str) -> Json:
    """The likeliest tokens of each mask. Raises UsageError for a text without one."""
    tokenizer: Any = speaker.tokenizer
    mask = str(tokenizer.mask_token)
    text = text.replace("[MASK]", mask).replace("<mask>", mask)
    tokens = torch.tensor([tokenizer(text, verbose=False)["input_ids"]], device=speaker.device)
    places = (tokens[0] == tokenizer.mask_token_id).nonzero()[:, 0].tolist()
    if not places:
        message = tr("The text has no mask. Write {mask} where a token should be filled in.", mask=mask)
        raise usage_error("no_mask", "text", message)
    check_length(tokens.shape[1], speaker.limit)
    with speaker.side(which) as model, torch.inference_mode():
        logits = model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits[0, places].float()
    likely = logits.softmax(-1).topk(SHOWN_FILLS)
    best = tokens[0].clone()
    best[places] = likely.indices[:, 0]
    masks = [
        [{"token": tokenizer.decode([token]).strip(), "probability": share} for token, share in zip(row, shares, strict=True)]
        for row, shares in zip(likely.indices.tolist(), likely.values.tolist(), strict=True)
    ]  # fmt: skip
    return {"masks": masks, "filled": tokenizer.decode(best, skip_special_tokens=True)}
