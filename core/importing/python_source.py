"""Arguments of the Trainer as calls in Python source. The source is parsed, never imported or run."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from trainwiz.core.importing.names import LORA_DEFAULTS, words
from trainwiz.core.importing.report import Imported, Setting, refusal
from trainwiz.core.importing.trainer import fill, is_known, other_training, task_of
from trainwiz.core.importing.values import ENUMERATIONS, Unresolved, attempt, gpu_list, text_value
from trainwiz.core.text import plain_text, within_bounds

ARGUMENT_ENDS = ("TrainingArguments", "TrainingArgs")
CONFIG_CLASSES = words(
    "SFTConfig DPOConfig KTOConfig ORPOConfig CPOConfig GRPOConfig RLOOConfig PPOConfig RewardConfig GKDConfig BCOConfig "
    "OnlineDPOConfig XPOConfig NashMDConfig PRMConfig"
)
"""TRL's children of TrainingArguments."""
FILE_READERS = words("json csv parquet text arrow")
"""First argument of load_dataset for data_files."""
DATA_FILES: Mapping[str, str] = {"train": "dataset_name", "validation": "validation_file", "test": "test_file"}
FIRST: Mapping[str, str] = {
    "load_dataset": "path",
    "SFTTrainer": "model",
    "from_pretrained": "pretrained_model_name_or_path",
}
"""The first argument of a call, by its name."""
LORA = ("LoraConfig", "AdaLoraConfig", "get_peft_model")
MODEL = "torch_dtype dtype attn_implementation load_in_4bit load_in_8bit trust_remote_code max_seq_length"
KEYWORDS: Mapping[str, Mapping[str, str]] = {
    "Trainer": {name: name for name in ("max_seq_length", "dataset_text_field", "packing")},
    "BitsAndBytesConfig": {name: name for name in ("load_in_4bit", "load_in_8bit")},
    "DataCollatorForLanguageModeling": {"mlm_probability": "mlm_probability"},
    "from_pretrained": {**{name: name for name in MODEL.split()}, "use_flash_attention_2": "use_flash_attn"},
    "load_dataset": {"name": "dataset_config_name", "split": "dataset_train_split", "streaming": "streaming"},
    "tokenizer": {"max_length": "max_seq_length"},
}
"""What is called -> its keywords, and the settings that they are; SFTTrainer's became SFTConfig's in TRL 0.12."""
LORA_NAMES = {"r": "lora_r", "target_modules": "lora_target_modules"}
NOT_OF_LORA = words("model peft_type use_gradient_checkpointing random_state max_seq_length")
CHANGES_ROWS = words("map filter train_test_split rename_column rename_columns remove_columns")
OWN_CODE = frozenset({"formatting_func", "compute_loss_func"})

MOST_STEPS = 5_000
"""Expressions read for one value: no script that people write has as many."""
LONGEST_TEXT = 10_000
MODULES_OF_CONSTANTS = ("torch.", "np.", "numpy.")
"""Their attributes (torch.bfloat16) are written for what they are."""
OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class Unknowable(Exception):
    """Running the source is the only way to know the value."""


class Script:
    """A parsed script: what its names stand for, and its calls in the order of the text."""

    def __init__(self, tree: ast.Module) -> None:
        self.bound: dict[str, ast.expr | None] = {}
        """Constants; None for a name that is bound twice, or by something else than a plain assignment."""
        self.changed: dict[str, dict[str, ast.expr]] = {}
        """Name -> what is put into it one by one: NAME.key = value, NAME["key"] = value."""
        self.steps = 0
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self._assign(target, node.value)
            elif isinstance(node, ast.arg):
                self.bound[node.arg] = None
            elif isinstance(node, ast.AugAssign | ast.For | ast.AsyncFor | ast.comprehension | ast.NamedExpr):
                self._hide(node.target)
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                self._hide(node)
        calls = (node for node in nodes if isinstance(node, ast.Call))
        self.calls = sorted(calls, key=lambda call: (call.lineno, call.col_offset))

    def _hide(self, node: ast.AST) -> None:
        names = (name for name in ast.walk(node) if isinstance(name, ast.Name) and not isinstance(name.ctx, ast.Load))
        self.bound |= {name.id: None for name in names}

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            # `kwargs = TrainingArguments(**kwargs)`: in the call the name means what it did.
            keywords = value.keywords if isinstance(value, ast.Call) else []
            if all(dotted(one.value) != target.id for one in keywords):
                self.bound[target.id] = None if target.id in self.bound else value
        elif isinstance(target, ast.Attribute | ast.Subscript):
            key = target.attr if isinstance(target, ast.Attribute) else getattr(target.slice, "value", None)
            if isinstance(key, str):
                self.changed.setdefault(dotted(target.value), {})[key] = value
        else:
            self._hide(target)

    def value(self, node: ast.expr) -> Any:
        """The value, as far as it can be read without running anything, or Unresolved with the source text."""
        self.steps = 0
        return self._known(node)

    def _known(self, node: ast.expr) -> Any:
        try:
            return self._value(node)
        except (Unknowable, ArithmeticError, TypeError, ValueError, RecursionError):
            return Unresolved(source(node))

    def _value(self, node: ast.expr) -> Any:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Unknowable
        match node:
            case ast.Constant(value=value) if isinstance(value, str | int | float | bool | None):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._value(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                both = self._value(left), self._value(right)
                if not isinstance(op, ast.Add) and not all(isinstance(value, int | float) for value in both):
                    raise Unknowable
                return _bounded(OPERATORS[type(op)](*both))
            case ast.JoinedStr(values=parts):
                return _bounded("".join(str(self._value(part)) for part in parts))
            case ast.FormattedValue(value=inner, format_spec=None, conversion=-1):
                return self._value(inner)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._value(item) for item in items]
            case ast.Dict(keys=keys, values=values):
                return self._mapping(zip(keys, values, strict=True))
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
                return self._mapping((one.arg and ast.Constant(one.arg), one.value) for one in keywords)
            case ast.Name() | ast.Attribute():
                path = dotted(node)
                if (bound := self.bound.get(path)) is not None:
                    return self._value(bound)
                if path.startswith(MODULES_OF_CONSTANTS) or path.rpartition(".")[0].endswith(ENUMERATIONS):
                    return path
        raise Unknowable

    def _mapping(self, items: Iterable[tuple[Any, ast.expr]]) -> dict[str, Any]:
        """Values that cannot be known stay in their places: one of them does not hide the others."""
        found: dict[str, Any] = {}
        for key, value in items:
            found |= self._value(value) if key is None else {str(self._value(key)): self._known(value)}
        return found


def dotted(node: ast.expr) -> str:
    """ "a.b.c" for a chain of attributes on a name; "" for all else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def source(node: ast.expr) -> str:
    """The source of an expression on one line."""
    try:
        return plain_text(" ".join(ast.unparse(node).split()), 80)
    except (ValueError, RecursionError):
        return "..."


def _bounded(value: Any) -> Any:
    if isinstance(value, str | list) and len(value) > LONGEST_TEXT:
        raise Unknowable
    return within_bounds(value) if type(value) is int else value


# The calls that say how a script trains.


def read(text: str, file: str) -> Imported:
    """Raises NotImportable for what is no Python, and for a script that says nothing of a training."""
    imported = Imported("training_arguments", file)
    script = Script(parsed(text, file))
    settings: dict[str, Setting] = {}
    hints: list[Setting] = []
    programs: list[Setting] = []
    firsts: dict[str, ast.Call] = {}
    for call in script.calls:
        (name, owner), given = _names(call), _given(call)
        if name.endswith(ARGUMENT_ENDS) or name in CONFIG_CLASSES:
            programs.append(Setting("class", name, call.lineno))
            if len(programs) > 1:
                continue
            # What the Trainer is given counts before what other calls say.
            settings |= {setting.name: setting for setting in _all_keywords(script, call, imported)}
            if call.args:
                settings["output_dir"] = Setting("output_dir", script.value(call.args[0]), call.lineno)
            _leave_changed(script, call, settings, imported)
        for setting in _settings(script, call, imported):
            settings.setdefault(setting.name, setting)
        hint = owner if name in ("from_pretrained", "from_config") else name
        if name == "DataCollatorForLanguageModeling":
            masked = script.value(given.get("mlm", ast.Constant(True)))
            hint = {"True": "AutoModelForMaskedLM", "False": "AutoModelForCausalLM"}.get(str(masked), "")
        if task_of(hint) or other_training(hint):
            hints.append(Setting("class", hint, call.lineno))
        firsts.setdefault("parser" if name.endswith(("ArgumentParser", "TrlParser")) else name, call)
        if name in CHANGES_ROWS or OWN_CODE & set(given):
            firsts.setdefault("changes", call)
    parser, trl, changes = (firsts.get(name) for name in ("parser", "SFTTrainer", "changes"))
    if not programs and not settings:
        what = "not_importable.from_command" if parser else "not_importable.no_training_called"
        raise refusal(what, file, parser.lineno if parser else None)
    # SFTTrainer without arguments makes an SFTConfig of its own.
    alone = trl is not None and len(trl.args) < 2 and "args" not in _given(trl)
    fill(imported, settings.values(), hints, programs[0].value if programs else "SFTConfig" if alone else None)
    if "use_peft" in settings and settings["use_peft"].written in LORA:
        imported.defaults |= {key: value for key, value in LORA_DEFAULTS.items() if key not in imported.values}
    visible = script.changed.get("os.environ", {}).get("CUDA_VISIBLE_DEVICES")
    gpus = [] if visible is None else gpu_list(attempt(text_value, script.value(visible)))
    if visible is not None and gpus:
        imported.setup["gpu_ids"] = ",".join(gpus)
        imported.map(Setting("CUDA_VISIBLE_DEVICES", ",".join(gpus), visible.lineno), "engine.gpus", gpus)
    if changes and (trl or imported.program == "SFTConfig"):
        imported.say(changes.lineno, "rows_changed")
    if len(programs) > 1:
        imported.say(programs[0].line, "several_trainings.several_calls", name=programs[0].value, count=len(programs))
    if parser and any(isinstance(setting.value, Unresolved) for setting in settings.values()):
        imported.say(parser.lineno, "from_command_line")
    return imported


def _names(call: ast.Call) -> tuple[str, str]:
    """What is called, and what it belongs to: ("from_pretrained", "AutoModelForCausalLM")."""
    owner, _, name = (dotted(call.func) or getattr(call.func, "attr", "")).rpartition(".")
    return name, owner.rpartition(".")[2]


def _given(call: ast.Call) -> dict[str, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def _settings(script: Script, call: ast.Call, imported: Imported) -> Iterator[Setting]:
    """What one call says. Of a setting that several calls have, the first counts: a second model is a teacher."""
    (name, owner), given, line = _names(call), _given(call), call.lineno
    first = call.args[0] if call.args else given.get(FIRST.get(name, ""))
    wanted = KEYWORDS.get("Trainer" if name.endswith("Trainer") else name, {})
    value = None if first is None else script.value(first)
    if name in LORA and ("r" in given or name != "get_peft_model"):
        yield Setting("use_peft", True, line, name)
        for setting in _all_keywords(script, call, imported):
            if setting.name not in NOT_OF_LORA:
                yield setting.called(LORA_NAMES.get(setting.name, setting.name))
    elif name == "from_pretrained":
        is_adapter = owner.startswith("AutoPeftModel")
        is_model = ("Model" in owner or "For" in owner) and not owner.endswith(("Tokenizer", "Processor"))
        if is_adapter:
            yield Setting("use_peft", True, line, owner)
        if value is not None and "Config" not in owner:
            role = "adapter_name_or_path" if is_adapter else "model_name_or_path" if is_model else "tokenizer_name"
            yield Setting(role, value, line, f"{owner}.from_pretrained")
        wanted = wanted if is_model and not is_adapter and "Config" not in owner else {}
    elif name == "load_dataset" and str(value) in FILE_READERS and "data_files" in given:
        files = script.value(given["data_files"])
        splits = files if isinstance(files, dict) else {"train": files}
        for split, role in DATA_FILES.items():
            if split in splits:
                yield Setting(role, splits[split], given["data_files"].lineno, f"data_files.{split}")
        return
    elif name == "load_dataset" and value is not None:
        yield Setting("dataset_name", value, line, "load_dataset")
        if len(call.args) > 1:
            yield Setting("dataset_config_name", script.value(call.args[1]), line, "name")
    elif name == "SFTTrainer" and isinstance(value, str):
        yield Setting("model_name_or_path", value, line, "model")
    elif name == "tokenizer" and "truncation" not in given:
        return
    for keyword, node in given.items():
        if keyword in wanted:
            role = "max_target_length" if name == "tokenizer" and "text_target" in given else wanted[keyword]
            yield Setting(role, script.value(node), node.lineno, keyword)


def _all_keywords(script: Script, call: ast.Call, imported: Imported) -> Iterator[Setting]:
    for keyword in call.keywords:
        value, line = script.value(keyword.value), keyword.value.lineno
        if keyword.arg is not None:
            yield Setting(keyword.arg, value, line)
        elif isinstance(value, dict):
            yield from (Setting(name, item, line) for name, item in value.items())
        else:
            imported.leave_unknown(Setting(f"**{source(keyword.value)}", source(keyword.value), line))


def _leave_changed(script: Script, call: ast.Call, settings: dict[str, Setting], imported: Imported) -> None:
    """What a script changes of its arguments one by one, before the call or behind it, only a run could follow."""
    owners = [name for name, bound in script.bound.items() if bound is call]
    owners += [dotted(keyword.value) for keyword in call.keywords if keyword.arg is None]
    for key, value in ((key, value) for name in owners for key, value in script.changed.get(name, {}).items()):
        if is_known(key):
            settings[key] = Setting(key, Unresolved(source(value)), value.lineno)
            imported.say(settings[key], "changed_later")


def parsed(text: str, file: str) -> ast.Module:
    """Raises NotImportable for what is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text)
    except SyntaxError as error:
        raise refusal("broken_file.python_at", file, error.lineno or 1, reason=plain_text(error.msg, 120)) from None
    except (ValueError, RecursionError, MemoryError):
        raise refusal("broken_file.python", file) from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            # Hexadecimal digits of any number are read, and then neither shown nor computed with.
            node.value = within_bounds(node.value)
    return tree
