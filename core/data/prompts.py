"""Prompts that a model answers while it trains: a file of them, or some held-out rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.data.chats import turns_of
from trainwiz.core.data.lengths import longest_generation, trains_on_chats
from trainwiz.core.errors import Finding, UsageError, os_reason, usage_error
from trainwiz.core.files import at_home, read_small
from trainwiz.core.language import tr

KEY = "evaluation.prompts"
NO_PROMPTS, HELD_OUT = "none", "rows"
"""Values of evaluation.prompts that stand for no file."""
ROWS, MOST = 3, 8
"""Held-out rows that are answered where no prompts are named; prompts of a file."""
LONGEST = 128
"""Tokens of an answer. evaluation.generation_length may ask for fewer."""
MOST_S = 20.0
"""Seconds of all answers of one evaluation; where each forward pass needs every process, only their length ends them."""
MASKS = ("<mask>", "[MASK]")


def asks_prompts(config: RunConfig) -> bool:
    """Whether the run answers prompts, where it has rows or a file to take them from."""
    return config.evaluation.prompts not in (None, NO_PROMPTS) and config.mode.kind != "benchmark"


def names_prompts(config: RunConfig) -> bool:
    """Whether they are in a file."""
    return config.evaluation.prompts not in (None, NO_PROMPTS, HELD_OUT)


def answer_length(config: RunConfig) -> int:
    """Most tokens of an answer; 0 of a model that fills masks instead of writing."""
    return 0 if config.task == "masked-lm" else min(LONGEST, longest_generation(config))


def most_prompts(config: RunConfig) -> int:
    """How many are answered at once, at most."""
    if not asks_prompts(config):
        return 0
    return MOST if names_prompts(config) else ROWS


def read_prompts(config: RunConfig, folder: Path) -> list[str]:
    """The prompts of the file that evaluation.prompts names, a chat as core/data/chats.py keeps it where the rows of the
    run are chats. A relative path is from `folder`. Raises UsageError."""
    named = str(config.evaluation.prompts)
    path = folder / at_home(Path(named))
    try:
        text = read_small(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = os_reason(error) if isinstance(error, OSError) else tr("the text is not UTF-8")
        message = tr(
            "the prompts {path} cannot be read: {reason}. Specify a text file with one prompt per line, a .jsonl "
            "file with one list of messages per line, rows or none.",
            path=named,
            reason=reason,
        )
        raise usage_error("bad_prompts", KEY, message) from None
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not 1 <= len(lines) <= MOST:
        message = tr("{path} has {n} prompts; a run can use 1 to {most}.", path=named, n=len(lines), most=MOST)
        raise usage_error("bad_prompts", KEY, message)
    is_json = path.suffix in (".jsonl", ".json")
    return [_prompt(config, line, f"{named}:{number}", is_json=is_json) for number, line in lines]


def _prompt(config: RunConfig, line: str, place: str, *, is_json: bool) -> str:
    chats = trains_on_chats(config)
    try:
        value: Any = json.loads(line) if is_json else line
        if isinstance(value, dict):
            value = value.get("messages", value.get("prompt"))
        if isinstance(value, str) and chats:
            value = [{"role": "user", "content": value}]
        if isinstance(value, list) and chats:
            turns = turns_of(value)
            if not any(turn["role"] != "system" for turn in turns):
                raise ValueError(tr("it has only system messages."))
            if turns[-1]["role"] != "assistant":
                # What is asked for stands last in a kept chat.
                turns.append({"role": "assistant", "content": ""})
            return json.dumps({"messages": turns}, ensure_ascii=False)
        if not isinstance(value, str):
            raise ValueError(tr("it is not a prompt: this run reads texts, not messages."))
        if config.task == "masked-lm" and not any(mask in value for mask in MASKS):
            raise ValueError(tr("it has no mask to fill; use {masks}.", masks=" or ".join(MASKS)))
    except ValueError as error:
        reason = tr("it is not valid JSON.") if isinstance(error, json.JSONDecodeError) else str(error)
        raise usage_error("bad_prompts", KEY, f"{place}: {reason}") from None
    return value


def prompt_findings(config: RunConfig) -> tuple[Finding, ...]:
    """What is wrong with the file of prompts, before anything starts."""
    if not (names_prompts(config) and asks_prompts(config)):
        return ()
    try:
        read_prompts(config, Path())
    except UsageError as error:
        return tuple(error.findings)
    return ()
