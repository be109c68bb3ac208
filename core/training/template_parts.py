"""A chat template taken apart: the texts that it puts around what is said, where it is made of such texts alone."""

from __future__ import annotations

import random
from typing import Any

from transformers import PreTrainedTokenizerBase

CHATS = 50
"""Conversations on which the parts must give what the tokenizer renders, to the letter."""
WORDS = ["fox", "狐狸", "sees", "3", "stones", "<b>", "{{x}}", 'a "quoted" word', "two\nlines", "été", "&", "%s", "\\n"]
USERS, ANSWERS, SYSTEM = ("QxUa", "QxUb", "QxUc"), ("QxAa", "QxAb"), "QxSy"
"""What stands for the turns while a template is taken apart: words that no template has of its own."""


def render(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], *, asks: bool = True) -> str:
    taken = as_the_template_takes(tokenizer, messages)
    return str(tokenizer.apply_chat_template(taken, add_generation_prompt=asks, tokenize=False))


def as_the_template_takes(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> list[Any]:
    """Turns whose contents are texts, or lists of parts where the template wants these (models that also see)."""
    try:
        text = tokenizer.apply_chat_template([{"role": "user", "content": USERS[0]}], tokenize=False)
    # A template raises whatever it likes.
    except Exception:  # noqa: BLE001
        text = ""
    if USERS[0] in str(text):
        return list(messages)
    return [{**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in messages]


def end_of_turn(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The special token that ends an answer in the template; None without a template or such a token."""
    if not tokenizer.chat_template:
        return None
    turns = [{"role": "user", "content": USERS[0]}, {"role": "assistant", "content": ANSWERS[0]}]
    try:
        behind = render(tokenizer, turns, asks=False).rpartition(ANSWERS[0])[2]
    # A template raises whatever it likes.
    except Exception:  # noqa: BLE001
        return None
    known: Any = tokenizer.added_tokens_decoder
    special = {*tokenizer.all_special_ids, *known}
    tokens = tokenizer(behind.lstrip(), add_special_tokens=False, verbose=False)["input_ids"] if behind.strip() else []
    return int(tokens[0]) if tokens and tokens[0] in special else None


def conversations(system: bool) -> list[list[dict[str, str]]]:
    """Always the same: of one to six turns of the user, a third of them with a system turn where there are any."""
    draw = random.Random(50)
    chats = []
    for number in range(CHATS):
        turns = [{"role": "system", "content": _said(draw)}] if system and number % 3 == 0 else []
        for _ in range(draw.randint(0, 5)):
            turns += [{"role": "user", "content": _said(draw)}, {"role": "assistant", "content": _said(draw)}]
        chats.append([*turns, {"role": "user", "content": _said(draw)}])
    return chats


def _said(draw: random.Random) -> str:
    # Blanks at an end of a turn are another question: some templates strip them, and Ollama's language cannot.
    return " ".join(draw.choices(WORDS, k=draw.randint(1, 9)))


def template_parts(tokenizer: PreTrainedTokenizerBase, own_stops: list[int] | None = None) -> dict[str, Any]:
    """{"parts": ..., "stops": texts, "begin": the token that the tokenizer itself puts first}; without parts "problem" is
    `none`, `refuses`, or `differs` with the conversation that the parts render otherwise. `own_stops`: tokens of the
    generation config."""
    begin = tokenizer.bos_token if _adds_begin(tokenizer) else None
    known = {"begin": begin, **_stops(tokenizer, own_stops or []), "chats": 0, "parts": None, "differs": None}
    if not tokenizer.chat_template:
        return {**known, "problem": "none"}
    try:
        parts = taken_apart(tokenizer)
    # A template raises whatever it likes.
    except Exception as error:  # noqa: BLE001
        return {**known, "problem": "refuses", "differs": str(error)[:300]}
    if parts is None:
        return {**known, "problem": "differs"}
    chats = conversations(parts["system"] is not None)
    for chat in chats:
        if put_together(parts, chat) != render(tokenizer, chat):
            return {**known, "problem": "differs", "differs": chat}
    starts = [parts["start"], *([] if parts["system"] is None else [parts["system"][0]])]
    if begin is None or not all(start.startswith(begin) for start in starts):
        begin = None
    else:
        # Whoever reads the text with this tokenizer puts it there again.
        parts["start"] = parts["start"].removeprefix(begin)
        if parts["system"] is not None:
            parts["system"][0] = parts["system"][0].removeprefix(begin)
    dated = "strftime_now" in str(tokenizer.chat_template)
    return {**known, "begin": begin, "problem": None, "parts": parts, "chats": len(chats), "dated": dated}


def _adds_begin(tokenizer: PreTrainedTokenizerBase) -> bool:
    tokens = tokenizer("a", verbose=False)["input_ids"]
    return tokenizer.bos_token_id is not None and bool(tokens) and tokens[0] == tokenizer.bos_token_id


def _stops(tokenizer: PreTrainedTokenizerBase, own: list[int]) -> dict[str, Any]:
    """`stops`: all tokens that end an answer, as texts. `unheard`: the end of a turn, where programs that know the end
    token and the generation config alone would write on behind it."""
    turn, end = end_of_turn(tokenizer), tokenizer.eos_token_id
    texts = [str(tokenizer.convert_ids_to_tokens(one)) for one in (turn, end, *own) if one is not None]
    return {"stops": list(dict.fromkeys(texts)), "unheard": texts[0] if turn not in (None, end, *own) else None}


def taken_apart(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any] | None:
    """`start` before the first user without a system turn, `system` [before, behind it], `answer` between a user and the
    answer, `user` between an answer and the next user, `ask` behind the last user. None where there are no such texts."""
    turns: list[dict[str, str]] = []
    for user, said in zip(USERS, (*ANSWERS, None), strict=True):
        turns.append({"role": "user", "content": user})
        turns += [{"role": "assistant", "content": said}] if said else []
    plain = _between(render(tokenizer, turns), (USERS[0], ANSWERS[0], USERS[1], ANSWERS[1], USERS[2]))
    if plain is None or plain[1] != plain[3] or plain[2] != plain[4]:
        return None
    try:
        text = render(tokenizer, [{"role": "system", "content": SYSTEM}, *turns])
        led = _between(text, (SYSTEM, USERS[0], ANSWERS[0], USERS[1], ANSWERS[1], USERS[2]))
    # Some take no system turn.
    except Exception:  # noqa: BLE001
        led = None
    return {
        "start": plain[0],
        "system": led[:2] if led is not None and led[2:] == plain[1:] else None,
        "answer": plain[1],
        "user": plain[2],
        "ask": plain[5],
    }


def _between(text: str, marks: tuple[str, ...]) -> list[str] | None:
    """What stands before, between and behind the marks; None where one is not there once, in this order."""
    found = []
    for mark in marks:
        before, there, text = text.partition(mark)
        if not there or mark in text:
            return None
        found.append(before)
    return [*found, text]


def put_together(parts: dict[str, Any], messages: list[dict[str, str]]) -> str:
    """What the parts make of a conversation that ends with the user."""
    system = next((turn["content"] for turn in messages if turn["role"] == "system"), None)
    turns = [turn for turn in messages if turn["role"] != "system"]
    text = parts["start"] if system is None else parts["system"][0] + system + parts["system"][1]
    for place, turn in enumerate(turns):
        before = parts["answer"] if turn["role"] == "assistant" else parts["user"] if place else ""
        text += before + turn["content"]
    return str(text + parts["ask"])
