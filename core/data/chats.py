"""Chats: rows of any known form as one list of turns each, written as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainwiz.core.language import mark, tr

# A chat is kept as one text: {"messages": [...], "tools": [...]} in the form that templates take. A turn that must not be
# learnt although the assistant says it holds "learn": false.

ROLES: dict[str, str] = {
    **dict.fromkeys(("user", "human", "prompter"), "user"),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "bot", "model", "bard", "bing"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "observation", "function", "function_response", "ipython"), "tool"),
    "function_call": "assistant",
}
"""What data sets call a speaker (ShareGPT's human and gpt, LLaMA-Factory's observation) -> what templates call it."""
ROLE_KEYS, CONTENT_KEYS = ("role", "from"), ("content", "value")
THOUGHT_KEYS = ("reasoning_content", "thinking", "reasoning")
"""Names of a thought beside an answer; templates that know one read the first."""
WEIGHT_KEYS = ("weight", "train")
"""0 or false: this turn is not learnt (OpenAI's fine-tuning files, axolotl)."""
CHAT_PARTS = (mark("context"), mark("system"), mark("history"), mark("tools"))
"""What other columns may add to the turns, or to an instruction and its answer."""


@dataclass(frozen=True, slots=True)
class ChatColumns:
    """Which of the cells that are read of a row are what. The first are the turns; or a prompt, instruction or question."""

    has_answer: bool
    """The second cell is what is answered, as text or as turns; else the turns hold the answers."""
    lists: frozenset[int] = frozenset()
    """Places whose column holds lists: a text that looks like a list is a text."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """CHAT_PARTS -> place."""
    json_turns: bool = False
    """The prompt and its answer are lists of turns, written as JSON into columns of text."""

    def chat(self, cells: Sequence[str | None]) -> str | None:
        """One row; None where it is empty or nothing in it is answered. Raises ValueError that says what is wrong."""
        sides = [(cell or "").strip() for cell in cells[: 1 + self.has_answer]]
        if not all(sides):
            return None
        parts = {name: (cells[place] or "").strip() for name, place in self.parts.items()}
        turns = [_message("system", parts["system"])] if parts.get("system") else []
        turns += _history(parts.get("history"))
        if self.has_answer:
            # A context stands on the next line, as LLaMA-Factory joins them.
            asked = "\n".join(filter(None, (sides[0], parts.get("context"))))
            said = self._turns_in(0, sides[0]) or [_message("user", asked)]
            turns += [{**turn, "learn": False} if turn["role"] == "assistant" else turn for turn in said]
            turns += self._turns_in(1, sides[1]) or [_message("assistant", sides[1])]
        else:
            turns += turns_of(_list_in(sides[0]))
        if not any(turn["role"] == "assistant" and turn.get("learn", True) for turn in turns):
            return None
        tools = _list_in(parts["tools"]) if parts.get("tools") else None
        return json.dumps({"messages": turns, **({"tools": tools} if tools else {})}, ensure_ascii=False)

    def _turns_in(self, place: int, cell: str) -> list[dict[str, Any]]:
        """The turns of a cell; none where it is a text."""
        if self.json_turns:
            if not (turns := turns_of(_list_in(cell))):
                raise ValueError(tr("is an empty list, but must contain turns."))
            return turns
        return turns_of(_list_in(cell)) if place in self.lists and cell.lstrip().startswith("[") else []


def _history(text: str | None) -> list[dict[str, Any]]:
    """Earlier rounds, as Alpaca's `history` has them: pairs of what was asked and answered."""
    turns = []
    for place, pair in enumerate(_list_in(text) if text else [], 1):
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(side, str) for side in pair)):
            raise ValueError(tr("round {place} of the history is not a pair of texts.", place=place))
        turns += [_message("user", pair[0]), _message("assistant", pair[1])]
    return turns


def _list_in(text: str) -> list[Any]:
    """A list cell, which readers give as JSON."""
    try:
        value = json.loads(text)
    except ValueError as error:
        if text.lstrip().startswith("["):
            # What str() or pandas makes of a list.
            problem = tr("contains a list that is not valid JSON ({detail}); write it with json.dumps.", detail=error)
            raise ValueError(problem) from None
        raise ValueError(tr("is text, but must be a list.")) from None
    if not isinstance(value, list):
        raise ValueError(tr("must be a list."))
    return value


def is_list_of_turns(cell: str) -> bool:
    """Whether a cell is a list of turns, each with a role and what is said, written as JSON."""
    try:
        return cell.lstrip().startswith("[") and bool(turns_of(_list_in(cell)))
    except ValueError:
        return False


def turns_of(values: Sequence[Any]) -> list[dict[str, Any]]:
    """A list of messages as templates take them. Raises ValueError that says what is wrong."""
    return [_turn(value, place) for place, value in enumerate(values, 1)]


def _turn(value: Any, place: int) -> dict[str, Any]:
    """One turn as templates take it. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError(tr("turn {place} is not an object with a role and content.", place=place))
    said = next((value[key] for key in ROLE_KEYS if isinstance(value.get(key), str)), None)
    if said is None:
        keys = ", ".join(value) or tr("none")
        raise ValueError(tr("turn {place} has no role (its keys: {keys}).", place=place, keys=keys))
    role = ROLES.get(said.strip().lower())
    if role is None:
        known = "user, assistant, system, tool"
        raise ValueError(
            tr(
                "turn {place} has the role {role}; supported roles: {known}.",
                place=place,
                role=repr(said[:40]),
                known=known,
            )
        )
    content = _content(next((value[key] for key in CONTENT_KEYS if value.get(key) is not None), None), place)
    calls = _calls(value.get("tool_calls"), place)
    if said.strip().lower() == "function_call":
        content, calls = "", _calls(_list_in(content if content.lstrip().startswith("[") else f"[{content}]"), place)
    if content is None and not calls and not any(key in value for key in CONTENT_KEYS):
        raise ValueError(tr("turn {place} has no content (its keys: {keys}).", place=place, keys=", ".join(value)))
    turn = _message(role, content or "")
    if calls:
        turn["tool_calls"] = calls
    thought = next((value[key] for key in THOUGHT_KEYS if isinstance(value.get(key), str) and value[key]), None)
    if thought is not None:
        turn[THOUGHT_KEYS[0]] = thought
    if isinstance(value.get("name"), str):
        turn["name"] = value["name"]
    if any(value.get(key) is not None and not value[key] for key in WEIGHT_KEYS):
        turn["learn"] = False
    return turn


def _message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _content(value: Any, place: int) -> Any:
    """A text, or a list of parts that are text. None where there is none."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError(tr("the content of turn {place} is not text.", place=place))
    texts = []
    for part in value:
        text = part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, dict) else None
            raise ValueError(
                tr(
                    "turn {place} contains {kind}; only text can be trained on.",
                    place=place,
                    kind=repr(str(kind or "?")[:40]),
                )
            )
        texts.append(text)
    return "".join(texts)


def _calls(value: Any, place: int) -> list[dict[str, Any]]:
    """Calls of tools, their arguments as an object: OpenAI writes them as text, templates take values."""
    calls = []
    for call in value or []:
        function = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ValueError(tr("turn {place} calls a tool without a name.", place=place))
        arguments = function.get("arguments") or {}
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError:
                raise ValueError(
                    tr("turn {place} calls a tool with arguments that are not valid JSON.", place=place)
                ) from None
        calls.append({"type": "function", "function": {"name": function["name"], "arguments": arguments}})
    return calls


# What a kept chat holds.


def messages_of(chat: str) -> tuple[list[dict[str, Any]], list[Any] | None]:
    """(turns, tools or None) of a kept chat."""
    document = json.loads(chat)
    return document["messages"], document.get("tools")


def contents_of(chat: str) -> str:
    """All that is said in a kept chat, for counting letters and for making a tokenizer."""
    turns, _ = messages_of(chat)
    return "\n".join(f"{turn.get(THOUGHT_KEYS[0], '')}{turn['content']}" for turn in turns)


def last_answer(chat: str) -> str:
    """What the assistant says last."""
    turns, _ = messages_of(chat)
    return next((turn["content"] for turn in reversed(turns) if turn["role"] == "assistant"), "")
