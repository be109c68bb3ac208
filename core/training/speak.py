"""Entry of the process that holds a finished model: it answers, fills masks, translates, merges, line by line of JSON."""

from __future__ import annotations

import copy
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from trainwiz.core.errors import Finding, TrainwizError, usage_error
from trainwiz.core.language import tr
from trainwiz.core.processes import heavy_imports, wait_briefly
from trainwiz.core.training.process import begin_answering, first_line

wait_briefly(os.environ)
with heavy_imports():
    import torch
    from trainwiz.core.training.chats import as_the_template_takes, template_parts
    from trainwiz.core.training.generation import Stopped
    from trainwiz.core.training.gguf_file import write_gguf
    from trainwiz.core.training.model_loading import Json, Speaker, config_of, load, load_tokenizer, merge
    from trainwiz.core.training.tokenizer import forced_first_token
    from trainwiz.core.training.tokens import CausalEncoder
    from transformers import TextStreamer

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


# Answers.


def prompt_tokens(speaker: Speaker, asked: Json, limit: int) -> list[int]:
    """Raises UsageError for a chat that the template does not take."""
    tokenizer: Any = speaker.tokenizer
    if asked.get("text") is not None:
        return CausalEncoder(tokenizer, limit).prompt(asked["text"], limit)
    try:
        text = tokenizer.apply_chat_template(
            as_the_template_takes(tokenizer, asked["messages"]), add_generation_prompt=True, tokenize=False
        )
    # A template raises whatever it likes.
    except Exception as error:  # noqa: BLE001
        message = tr("The chat template rejects this chat: {reason}.", reason=first_line(error))
        raise usage_error("template_refuses", "chat", message) from None
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def search(speaker: Speaker, model: Any, asked: Json, room: int | None) -> Any:
    """The generation config of an answer: the model's own, with what was asked for."""
    chosen = copy.deepcopy(model.generation_config)
    most = int(asked["max_tokens"])
    chosen.max_length, chosen.max_new_tokens = None, most if room is None else min(most, room)
    stops, pad = speaker.stops(), speaker.tokenizer.pad_token_id
    chosen.num_beams, chosen.eos_token_id = 1, stops or None
    chosen.pad_token_id = pad if pad is not None else next(iter(stops), None)
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
    check_length(len(ids) + 1, limit)
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
            stopping_criteria=[Stopped(parent.stop.is_set)],
        )[0].tolist()
    new = written[len(ids) :] if follows else written[1:]
    ended = "end" if new and new[-1] in speaker.stops() else "stopped" if parent.stop.is_set() else "length"
    parent.say(
        done={"tokens": len(new), "prompt_tokens": len(ids), "seconds": time.monotonic() - began, "ended": ended}
    )


def check_length(tokens: int, limit: int | None) -> None:
    """Raises UsageError for more than the model reads."""
    if limit is not None and tokens > limit:
        message = tr(
            "This is {n} tokens long, but the model reads at most {limit}. /new starts over.", n=tokens, limit=limit
        )
        raise usage_error("chat_too_long", "chat", message)


def fill(speaker: Speaker, asked: Json, parent: Parent) -> None:
    """The likeliest tokens of each mask. Raises UsageError for a text without one."""
    tokenizer: Any = speaker.tokenizer
    mask = str(tokenizer.mask_token)
    text = asked["text"].replace("[MASK]", mask).replace("<mask>", mask)
    tokens = torch.tensor([tokenizer(text, verbose=False)["input_ids"]], device=speaker.device)
    places = (tokens[0] == tokenizer.mask_token_id).nonzero()[:, 0].tolist()
    if not places:
        message = tr("The text has no mask. Write {mask} where a token should be filled in.", mask=mask)
        raise usage_error("no_mask", "text", message)
    check_length(tokens.shape[1], speaker.limit)
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
    generation = getattr(speaker.main, "generation_config", None)
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
                parent.say(done=template_parts(load_tokenizer(asked, config_of(asked)), asked["stops"]))
            elif asked["do"] == "merge":
                parent.say(done=merge(asked, parent.say))
            elif asked["do"] == "gguf":
                parent.say(done=write_gguf(asked))
            elif speaker is not None:
                (fill if asked["do"] == "fill" else answer)(speaker, asked, parent)
        except TrainwizError as error:
            parent.say(failed=[finding.to_json() for finding in error.findings], exit_code=error.exit_code)
        except torch.OutOfMemoryError:
            message = tr("The model does not fit in GPU memory; try --cpu, or fewer bits: --bits 4.")
            parent.say(failed=[Finding("out_of_memory", "error", "GPU", message).to_json()], exit_code=3)
        # A failure nobody foresaw is told, and the next request may go well.
        except Exception as error:  # noqa: BLE001
            reason = (str(error).strip().splitlines() or [""])[0]
            message = tr("The model failed: {name}: {reason}", name=type(error).__name__, reason=reason)
            parent.say(failed=[Finding("model_failed", "error", "model", message).to_json()], exit_code=1)


def main() -> None:
    with begin_answering("speak") as out:
        serve(Parent(out))


if __name__ == "__main__":
    main()
