"""TrainingArguments in Python source."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainwiz.core.importing.python_source_values import Names, dotted, field_default, value_of
from trainwiz.core.importing.report import Collector, Imported, refusal
from trainwiz.core.importing.settings import Setting, Unresolved
from trainwiz.core.importing.training_arguments import fill
from trainwiz.core.importing.training_arguments_dropped import Hint, other_training, task_of_class
from trainwiz.core.importing.training_arguments_names import is_argument
from trainwiz.core.language import tr
from trainwiz.core.text import plain_text, within_bounds

# What a script changes of its settings one by one: kwargs["eval_steps"] = 100, args.seed = 3.

MAY_BE_LEFT_OUT = ast.If | ast.For | ast.AsyncFor | ast.While | ast.Try | ast.ExceptHandler | ast.Match


@dataclass(frozen=True, slots=True)
class Change:
    """One assignment: `key` is None where only a run would tell which one it is."""

    key: str | None
    value: ast.expr
    line: int
    certain: bool
    """No condition decides whether it is done."""


def item_changes(tree: ast.Module) -> Mapping[str, list[Change]]:
    """Name -> what is put into it: NAME["key"] = value."""
    found: dict[str, list[Change]] = {}
    for statement, certain in _assignments(tree, True):
        for target in statement.targets:
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                key = target.slice.value if isinstance(target.slice, ast.Constant) else None
                text = key if isinstance(key, str) else None
                change = Change(text, statement.value, statement.lineno, certain and text is not None)
                found.setdefault(target.value.id, []).append(change)
    return found


def attribute_changes(tree: ast.Module, call: ast.Call) -> list[Change]:
    """What is changed in the object that `call` makes, behind it: NAME.key = value. Only the Trainer's own names."""
    assignments = list(_assignments(tree, True))
    names = {
        target.id
        for statement, _ in assignments
        if statement.value is call
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    return [
        Change(target.attr, statement.value, statement.lineno, certain)
        for statement, certain in assignments
        for target in statement.targets
        if isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id in names
        and statement.lineno > call.lineno
        and is_argument(target.attr)
    ]


def with_changes(settings: list[Setting], changes: list[Change], names: Names) -> list[Setting]:
    """The settings as they are after the changes; a change that a condition decides makes its setting unknown."""
    changed = {setting.name: setting for setting in settings}
    for change in changes:
        if change.key is not None:
            value = value_of(change.value, names) if change.certain else Unresolved(ast.unparse(change.value))
            changed[change.key] = Setting(change.key, value, change.line)
    return list(changed.values())


def _assignments(node: ast.AST, certain: bool) -> Iterator[tuple[ast.Assign, bool]]:
    """All assignments in the order of the text, and whether each is certain."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assign):
            yield child, certain
        elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _assignments(child, certain and not isinstance(child, MAY_BE_LEFT_OUT))


# The calls of a script that say how it trains -> settings.

ARGUMENT_ENDS = ("TrainingArguments", "TrainingArgs")
CONFIG_CLASSES = frozenset(
    {"SFTConfig", "DPOConfig", "KTOConfig", "ORPOConfig", "CPOConfig", "GRPOConfig", "RLOOConfig", "PPOConfig",
     "RewardConfig", "GKDConfig", "BCOConfig", "OnlineDPOConfig", "XPOConfig", "NashMDConfig", "PRMConfig"}
)  # fmt: skip
"""TRL's children of TrainingArguments."""

TRAINER_SETTINGS = frozenset({"max_seq_length", "dataset_text_field", "packing"})
"""Arguments of SFTTrainer before they became SFTConfig's (TRL 0.12)."""

LORA_NAMES: Mapping[str, str] = {"r": "lora_r", "target_modules": "lora_target_modules", "lora_alpha": "lora_alpha"}
FILE_READERS = frozenset({"json", "csv", "parquet", "text", "arrow"})
"""First argument of load_dataset for data_files."""

MODEL_KEYWORDS: Mapping[str, str] = {
    "torch_dtype": "dtype",
    "dtype": "dtype",
    "attn_implementation": "attn_implementation",
    "use_flash_attention_2": "use_flash_attn",
    "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit",
    "trust_remote_code": "trust_remote_code",
    "max_seq_length": "max_seq_length",
}
"""Keywords of from_pretrained (transformers, unsloth) -> settings."""


@dataclass(slots=True)
class Found:
    """What the calls of a script say, in the order of the script."""

    settings: list[Setting] = field(default_factory=list)
    hints: list[Hint] = field(default_factory=list)
    unknown: list[Setting] = field(default_factory=list)
    programs: list[Hint] = field(default_factory=list)
    """The calls of TrainingArguments and its children; settings are those of the first."""
    parsers: list[int] = field(default_factory=list)
    """Lines where arguments are read from the command line."""
    visible: Setting | None = None
    """os.environ["CUDA_VISIBLE_DEVICES"] = ..."""
    lora: Hint | None = None
    items: Mapping[str, list[Change]] = field(default_factory=dict)
    """What is put into mappings one by one."""


def find_calls(tree: ast.Module) -> Found:
    """Everything that a script says; nothing of it is run."""
    names, found = Names(tree), Found(items=item_changes(tree))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for node in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        had = len(found.programs)
        _call(node, names, found)
        if not had and found.programs:
            found.settings[:] = with_changes(found.settings, attribute_changes(tree, node), names)
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Assign):
            _environment(statement, names, found)
    return found


def _call(node: ast.Call, names: Names, found: Found) -> None:
    path = dotted(node.func) or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
    owner, _, name = path.rpartition(".")
    owner = owner.rpartition(".")[2]
    if name.endswith(ARGUMENT_ENDS) or name in CONFIG_CLASSES:
        _arguments(node, name, names, found)
    elif name in ("HfArgumentParser", "TrlParser", "ArgumentParser", "parse_args_into_dataclasses"):
        found.parsers.append(node.lineno)
    elif name in ("LoraConfig", "AdaLoraConfig") or (name == "get_peft_model" and _has(node, "r")):
        _lora(node, name, names, found)
    elif name == "BitsAndBytesConfig":
        _add(found, _keywords(node, names, {"load_in_4bit": "load_in_4bit", "load_in_8bit": "load_in_8bit"}))
    elif name == "from_pretrained":
        _pretrained(node, owner, names, found)
    elif name == "from_config" and owner.startswith("AutoModel"):
        _hint(found, owner, node.lineno)
    elif name == "load_dataset":
        _data_set(node, names, found)
    elif name == "Accelerator":
        wanted = {one: one for one in ("mixed_precision", "gradient_accumulation_steps")}
        _add(found, _keywords(node, names, wanted))
    elif name == "DataCollatorForLanguageModeling":
        _collator(node, names, found)
    elif name.endswith("Trainer"):
        _hint(found, name, node.lineno)
        _add(found, _keywords(node, names, {one: one for one in TRAINER_SETTINGS}))
    elif name == "tokenizer" and _has(node, "truncation"):
        wanted = {"max_length": "max_target_length" if _has(node, "text_target") else "max_seq_length"}
        _add(found, _keywords(node, names, wanted))
    else:
        _hint(found, name, node.lineno)


def _has(node: ast.Call, name: str) -> bool:
    return any(keyword.arg == name for keyword in node.keywords)


def _keywords(node: ast.Call, names: Names, wanted: Mapping[str, str]) -> Iterator[Setting]:
    for keyword in node.keywords:
        if keyword.arg is not None and keyword.arg in wanted:
            value = value_of(keyword.value, names)
            yield Setting(wanted[keyword.arg], value, keyword.value.lineno, keyword.arg)


def _add(found: Found, settings: Iterator[Setting]) -> None:
    """Of a setting that several calls have, the first counts: a second model is a teacher, a second data set a test."""
    for setting in settings:
        if all(known.name != setting.name for known in found.settings):
            found.settings.append(setting)


def _hint(found: Found, name: str, line: int) -> None:
    if task_of_class(name) or other_training(name):
        found.hints.append(Hint(name, line))


def _arguments(node: ast.Call, name: str, names: Names, found: Found) -> None:
    found.programs.append(Hint(name, node.lineno))
    if len(found.programs) > 1:
        return
    _hint(found, name, node.lineno)
    # Before those of other calls: what the Trainer is given counts.
    settings = list(_all_keywords(node, names, found))
    known = {setting.name for setting in settings}
    found.settings[:] = [*settings, *(setting for setting in found.settings if setting.name not in known)]
    if node.args:
        found.settings.append(Setting("output_dir", value_of(node.args[0], names), node.lineno))


def _all_keywords(node: ast.Call, names: Names, found: Found) -> Iterator[Setting]:
    for keyword in node.keywords:
        line = keyword.value.lineno
        value = value_of(keyword.value, names)
        if keyword.arg is not None:
            yield Setting(keyword.arg, value, line)
        elif isinstance(value, dict):
            settings = [Setting(str(inner), one, line) for inner, one in value.items()]
            yield from with_changes(settings, _items_before(keyword.value, found), names)
        else:
            text = value.text if isinstance(value, Unresolved) else "..."
            found.unknown.append(Setting(f"**{text}", Unresolved(text), line))


def _items_before(mapping: ast.expr, found: Found) -> list[Change]:
    changes = found.items.get(mapping.id, []) if isinstance(mapping, ast.Name) else []
    return [change for change in changes if change.line < mapping.lineno]


def _lora(node: ast.Call, name: str, names: Names, found: Found) -> None:
    if found.lora is not None:
        return
    found.lora = Hint(name, node.lineno)
    _add(found, iter([Setting("use_peft", True, node.lineno, name)]))
    for setting in _all_keywords(node, names, found):
        if setting.name in ("model", "peft_type", "use_gradient_checkpointing", "random_state", "max_seq_length"):
            continue
        proper = LORA_NAMES.get(setting.name, setting.name)
        _add(found, iter([Setting(proper, setting.value, setting.line, setting.name)]))


def _pretrained(node: ast.Call, owner: str, names: Names, found: Found) -> None:
    given = node.args[0] if node.args else _argument(node, "pretrained_model_name_or_path", "model_name")
    if given is None:
        return
    value = value_of(given, names)
    if "Tokenizer" in owner or "Processor" in owner:
        _add(found, iter([Setting("tokenizer_name", value, node.lineno, f"{owner}.from_pretrained")]))
    elif "Config" not in owner and ("Model" in owner or "For" in owner):
        _hint(found, owner, node.lineno)
        if all(known.name != "model_name_or_path" for known in found.settings):
            _add(found, iter([Setting("model_name_or_path", value, node.lineno, f"{owner}.from_pretrained")]))
            _add(found, _keywords(node, names, MODEL_KEYWORDS))


def _argument(node: ast.Call, *wanted: str) -> ast.expr | None:
    return next((keyword.value for keyword in node.keywords if keyword.arg in wanted), None)


def _data_set(node: ast.Call, names: Names, found: Found) -> None:
    given = node.args[0] if node.args else _argument(node, "path")
    if given is None or any(known.name == "dataset_name" for known in found.settings):
        return
    value: Any = value_of(given, names)
    files = _argument(node, "data_files")
    if value in FILE_READERS and files is not None:
        _data_files(value_of(files, names), files.lineno, found)
        return
    settings = [Setting("dataset_name", value, node.lineno, "load_dataset")]
    subset = node.args[1] if len(node.args) > 1 else _argument(node, "name")
    if subset is not None:
        settings.append(Setting("dataset_config_name", value_of(subset, names), subset.lineno, "name"))
    split = _argument(node, "split")
    if split is not None:
        settings.append(Setting("dataset_train_split", value_of(split, names), split.lineno, "split"))
    _add(found, iter(settings))
    _add(found, _keywords(node, names, {"streaming": "streaming"}))


def _data_files(files: Any, line: int, found: Found) -> None:
    if not isinstance(files, dict):
        _add(found, iter([Setting("dataset_name", files, line, "data_files")]))
        return
    for split, name in (("train", "dataset_name"), ("validation", "validation_file"), ("test", "test_file")):
        if split in files:
            _add(found, iter([Setting(name, files[split], line, f"data_files.{split}")]))


def _collator(node: ast.Call, names: Names, found: Found) -> None:
    masked = _argument(node, "mlm")
    value = value_of(masked, names) if masked is not None else True
    if isinstance(value, bool):
        found.hints.append(Hint("AutoModelForMaskedLM" if value else "AutoModelForCausalLM", node.lineno))
    if value is not False:
        _add(found, _keywords(node, names, {"mlm_probability": "mlm_probability"}))


def _environment(node: ast.Assign, names: Names, found: Found) -> None:
    for target in node.targets:
        if not isinstance(target, ast.Subscript) or dotted(target.value) not in ("os.environ", "environ"):
            continue
        if value_of(target.slice, names) == "CUDA_VISIBLE_DEVICES":
            found.visible = Setting("CUDA_VISIBLE_DEVICES", value_of(node.value, names), node.lineno)


# Arguments of the Trainer as calls in Python source. The source is parsed, never imported or run.

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
