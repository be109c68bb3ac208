"""What other programs learn of chats: their templates, and the forms of their data sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.importing.report import Became, Imported, Setting
from trainwiz.core.importing.values import WrongValue, text_value
from trainwiz.core.language import mark

TRAIN_ON, TEMPLATE = "training.train_on", "model.chat_template"


def template(imported: Imported, setting: Setting) -> Became:
    """A template by name (LLaMA-Factory, axolotl), or by file (TRL)."""
    name = text_value(setting.value)
    if name.endswith(".jinja"):
        return {TEMPLATE: name}
    if name.lower() == "chatml":
        return {TEMPLATE: "chatml"}
    if "/" in name or name in ("jinja", "default", "empty", "alpaca", "vanilla"):
        imported.say(setting, "other_template")
        return None
    if not name.startswith("tokenizer_default"):
        imported.say(setting, "own_template")
    return {TEMPLATE: "own"}


# An entry of axolotl's `datasets`.


def source_of(imported: Imported, name: str, item: Any, at: Setting, key: str) -> dict[str, Any]:
    """The data source of one entry; what each of its words became is in the report. `key` is the source's."""
    source: dict[str, Any] = {"name": name}
    words = {str(word): value for word, value in item.items()} if isinstance(item, Mapping) else {}
    for word in sorted(set(words) - {"path", "id"}):
        inner = Setting(f"{at.as_written()}.{word}", words[word], at.line)
        try:
            became = _detail(imported, word, inner, words)
        except WrongValue:
            became = None
        if not isinstance(became, Mapping) or TRAIN_ON in became:
            imported.become(inner, became)
            continue
        source |= became
        imported.become(inner, {f"{key}.{entry}": value for entry, value in became.items()})
        if not key.endswith(".0"):
            # It stands in the list of all.
            imported.values = {name: imported.values[name] for name in imported.values if not name.startswith(key)}
    return source


def _detail(imported: Imported, name: str, inner: Setting, words: Mapping[str, Any]) -> Became:
    """Keys of the source (or TRAIN_ON) that a word of an entry means."""
    if name in ("split", "name"):
        return {"split" if name == "split" else "subset": text_value(inner.value)}
    if name == "type":
        return _form(imported, inner, words)
    if name == "roles_to_train":
        roles = inner.value if isinstance(inner.value, list) else [inner.value]
        return {TRAIN_ON: "answers"} if {*roles} <= {"assistant", "gpt", "model"} else None
    if name in ("message_property_mappings", "field_messages", "field"):
        return mark("Both spellings of the role and content keys are supported.")
    if name == "train_on_eos" and inner.value in ("turn", "all"):
        return mark("The end of each answer is always trained on.")
    return None


def _form(imported: Imported, inner: Setting, words: Mapping[str, Any]) -> Became:
    form = text_value(inner.value)
    if form == "chat_template" or form.startswith("sharegpt"):
        usual = "messages" if form == "chat_template" else "conversations"
        return {"layout": "chat", "text_column": str(words.get("field_messages") or usual)}
    if form == "completion":
        return {"layout": "plain", "text_column": str(words.get("field") or "text")}
    if form != "alpaca":
        return None
    imported.say(inner, "own_template.alpaca")
    columns = {"text_column": "instruction", "target_column": "output", "chat_columns": {"context": "input"}}
    return {"layout": "chat", **columns}
