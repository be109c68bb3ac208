"""Arguments of the Trainer as calls in Python source. The source is parsed, never imported or run."""

from __future__ import annotations

import ast
import warnings

from trainwiz.core.importing.python_source_calls import ARGUMENT_ENDS, CONFIG_CLASSES, Found, find_calls
from trainwiz.core.importing.python_source_names import Names, field_default
from trainwiz.core.importing.python_source_values import value_of
from trainwiz.core.importing.report import Collector, Imported, refusal
from trainwiz.core.importing.training_arguments_fill import fill
from trainwiz.core.importing.training_arguments_setting import Setting, Unresolved
from trainwiz.core.json_text import within_bounds
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text

LORA_DEFAULTS = {"peft.rank": 8, "peft.alpha": 8.0, "peft.dropout": 0.0}
"""LoraConfig of peft 0.21."""


def read(text: str, file_name: str) -> Imported:
    """Raises NotImportable for what is no Python, and for a script that says nothing of a training."""
    tree = _parsed(text, file_name)
    collector = Collector("training_arguments", file_name)
    try:
        found = find_calls(tree)
        _class_defaults(tree, collector)
    except RecursionError:
        # A sum of thousands: Python's parser goes deeper than a walk through what it made.
        raise _unparsed(file_name) from None
    if not found.programs and not found.lora and not found.settings and not collector.defaults:
        raise _nothing(found, file_name)
    program = found.programs[0].name if found.programs else None
    fill(collector, found.settings, found.hints, program)
    for setting in found.unknown:
        collector.unknown(setting.name, setting.name.lstrip("*"), setting.line)
    if found.lora is not None:
        collector.defaults.update({key: value for key, value in LORA_DEFAULTS.items() if key not in collector.values})
    _visible_gpus(collector, found)
    _say_more(collector, found)
    return collector.done()


def _parsed(text: str, file_name: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text)
    except SyntaxError as error:
        line = error.lineno or 1
        message = tr(
            "{file}, line {line}: this is not valid Python ({reason}).",
            file=file_name,
            line=line,
            reason=plain_text(error.msg, 120),
        )
        raise refusal(f"{file_name}:{line}", message, "broken_file") from None
    except (ValueError, RecursionError, MemoryError):
        raise _unparsed(file_name) from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            # Hexadecimal digits of any number are read, and then neither shown nor computed with.
            node.value = within_bounds(node.value)
    return tree


def _unparsed(file_name: str) -> Exception:
    return refusal(file_name, tr("{file} cannot be parsed as Python.", file=file_name), "broken_file")


def _nothing(found: Found, file_name: str) -> Exception:
    if found.parsers:
        message = tr(
            "{file} takes its arguments from the command line (line {line}); import the command that starts it.",
            file=file_name,
            line=found.parsers[0],
        )
        return refusal(f"{file_name}:{found.parsers[0]}", message)
    message = tr(
        "{file} calls neither TrainingArguments nor anything else that says how it trains.",
        file=file_name,
    )
    return refusal(file_name, message)


def _class_defaults(tree: ast.Module, collector: Collector) -> None:
    """Fields of a script's own child of TrainingArguments: what holds where the command line says nothing."""
    settings: list[Setting] = []
    names = Names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(_is_arguments(base) for base in node.bases):
            for statement in node.body:
                if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
                    continue
                default = field_default(statement.value) if statement.value is not None else None
                value = value_of(default, names) if default is not None else None
                if value is not None and not isinstance(value, Unresolved):
                    settings.append(Setting(statement.target.id, value, statement.lineno))
    if not settings:
        return
    own = Collector("training_arguments", collector.file)
    fill(own, settings)
    collector.defaults.update(own.values)
    if own.values:
        message = tr(
            "The script's own class of arguments has these defaults: {names}.",
            names=plain_text(", ".join(setting.name for setting in settings), 200),
        )
        collector.find("library_defaults", "note", message, settings[0].line)


def _is_arguments(base: ast.expr) -> bool:
    name = base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""
    return name.endswith(ARGUMENT_ENDS) or name in CONFIG_CLASSES


def _visible_gpus(collector: Collector, found: Found) -> None:
    visible = found.visible
    if visible is None:
        return
    if isinstance(visible.value, Unresolved):
        collector.unknown(visible.name, visible.value.text, visible.line)
        return
    gpus = [part.strip() for part in str(visible.value).split(",") if part.strip()]
    if gpus:
        collector.setup["gpu_ids"] = ",".join(gpus)
        collector.map(visible.name, visible.value, "engine.gpus", gpus, visible.line)


def _say_more(collector: Collector, found: Found) -> None:
    if len(found.programs) > 1:
        first = found.programs[0]
        message = tr(
            "{name} is called {count} times; the call on line {line} was read.",
            name=first.name,
            count=len(found.programs),
            line=first.line,
        )
        collector.find("several_trainings", "warning", message, first.line)
    if found.parsers and any(isinstance(setting.value, Unresolved) for setting in found.settings):
        message = tr(
            "Some values come from the command line (line {line}): the command that starts the script says them.",
            line=found.parsers[0],
        )
        collector.find("from_command_line", "note", message, found.parsers[0])
