"""What other programs learn of chats: their templates, their masks, and the forms of their data sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.importing import names as table
from trainwiz.core.importing.report import Imported, Setting
from trainwiz.core.importing.values import LeftOut, WrongValue, text_value, word, yes_or_no
from trainwiz.core.language import mark

TRAIN_ON, TEMPLATE = "training.train_on", "model.chat_template"
ANSWERS, EVERYTHING, LAST = "answers", "everything", "last_answer"
LEARNS: Mapping[str, tuple[str, str]] = {
    "assistant_only_loss": (ANSWERS, EVERYTHING),
    "completion_only_loss": (ANSWERS, EVERYTHING),
    "train_on_inputs": (EVERYTHING, ANSWERS),
    "train_on_prompt": (EVERYTHING, ANSWERS),
}
"""Name -> what is learnt where it is on, and where it is off (TRL 1.16, axolotl, LLaMA-Factory)."""
OWN_TEMPLATE = mark(
    "{name}: {value} is assumed to be the model's own chat template; `trainwiz data show` shows its output."
)
OTHER_TEMPLATE = mark(
    "{name}: trainwiz does not know the template {value}; the model's own template is used if it has one."
)
ALPACA = mark(
    "{name}: {value} uses the Alpaca prompt format there; trainwiz writes an instruction as a chat in the model's "
    "template."
)
TRL_LEARNS = mark(
    "TRL trains on every token of `messages` unless assistant_only_loss is on; this run trains on the answers "
    "(training.train_on)."
)
READ_HERE = mark("Both spellings of the role and content keys are supported.")
ENDS_LEARNT = mark("The end of each answer is always trained on.")
FORMATS = {"json": "jsonl", "jsonl": "jsonl", "parquet": "parquet", "csv": "csv", "text": "txt"}


def learns(imported: Imported, setting: Setting) -> None:
    on, off = LEARNS[setting.name]
    imported.map(setting, TRAIN_ON, on if yes_or_no(setting.value) else off)


def last_answer(imported: Imported, setting: Setting) -> None:
    """LLaMA-Factory's mask_history."""
    if not yes_or_no(setting.value):
        raise LeftOut(table.OFF)
    imported.map(setting, TRAIN_ON, LAST)


def template(imported: Imported, setting: Setting) -> None:
    """A template by name (LLaMA-Factory, axolotl), or by file (TRL)."""
    name = text_value(setting.value)
    if name.endswith(".jinja"):
        imported.map(setting, TEMPLATE, name)
    elif word(name) == "chatml":
        imported.map(setting, TEMPLATE, "chatml")
    elif name.startswith("tokenizer_default"):
        imported.map(setting, TEMPLATE, "own")
    elif "/" in name or name in ("jinja", "default", "empty", "alpaca", "vanilla"):
        imported.leave_unknown(setting)
        imported.say(setting, "other_template", OTHER_TEMPLATE)
    else:
        imported.map(setting, TEMPLATE, "own")
        imported.say(setting, "own_template", OWN_TEMPLATE)


def say_what_trl_learns(imported: Imported, program: str | None) -> None:
    """TRL's default differs from what is usual here, and the file says nothing of it."""
    if program == "SFTConfig" and not any(name in imported.settings for name in LEARNS):
        imported.say(None, "trl_learns_more", TRL_LEARNS)


# An entry of axolotl's `datasets`.


def source_of(imported: Imported, name: str, item: Any, at: Setting, key: str) -> dict[str, Any]:
    """The data source of one entry; what each of its words became is in the report. `key` is the source's."""
    source: dict[str, Any] = {"name": name}
    if not isinstance(item, Mapping):
        return source
    for word_of_it, value in sorted((str(one), value) for one, value in item.items() if one not in ("path", "id")):
        inner = Setting(f"{at.as_written()}.{word_of_it}", value, at.line)
        try:
            found = _detail(imported, word_of_it, inner, item)
        except WrongValue:
            found = None
        if found is None:
            imported.leave_unknown(inner)
            continue
        source |= {entry: value for entry, value in found.items() if entry != TRAIN_ON}
        for entry, value in found.items():
            imported.map(inner, entry if entry == TRAIN_ON else f"{key}.{entry}", value)
            if entry != TRAIN_ON and not key.endswith(".0"):
                imported.values.pop(f"{key}.{entry}")
    return source


def _detail(imported: Imported, name: str, inner: Setting, item: Mapping[str, Any]) -> dict[str, Any] | None:
    """Keys of the source (and TRAIN_ON) that a word of an entry means; {} where it is left out, None where unknown."""
    if name in ("split", "name"):
        return {"split" if name == "split" else "subset": text_value(inner.value)}
    if name == "ds_type":
        kind = FORMATS.get(word(inner.value))
        return None if kind is None else {"format": kind}
    if name == "type":
        return _form(imported, inner, item)
    if name == "roles_to_train":
        roles = inner.value if isinstance(inner.value, list) else [inner.value]
        return {TRAIN_ON: ANSWERS} if {*roles} <= {"assistant", "gpt", "model"} else None
    said = {"message_property_mappings": READ_HERE, "field_messages": READ_HERE, "field": READ_HERE}
    if name == "train_on_eos" and inner.value in ("turn", "all"):
        said[name] = ENDS_LEARNT
    if name in said:
        imported.drop(inner, said[name])
        return {}
    return None


def _form(imported: Imported, inner: Setting, item: Mapping[str, Any]) -> dict[str, Any] | None:
    form = text_value(inner.value)
    if form == "chat_template" or form.startswith("sharegpt"):
        usual = "messages" if form == "chat_template" else "conversations"
        return {"layout": "chat", "text_column": str(item.get("field_messages") or usual)}
    if form == "completion":
        return {"layout": "plain", "text_column": str(item.get("field") or "text")}
    if form == "alpaca":
        imported.say(inner, "own_template", ALPACA)
        columns = {"text_column": "instruction", "target_column": "output", "chat_columns": {"context": "input"}}
        return {"layout": "chat", **columns}
    return None
