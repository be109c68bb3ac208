"""Arguments of the Trainer as calls in Python source. The source is parsed, never imported or run."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from trainwiz.core.importing.names import LORA_DEFAULTS
from trainwiz.core.importing.report import Imported, Setting, refusal
from trainwiz.core.importing.trainer import fill, is_known, other_training, task_of
from trainwiz.core.importing.values import ENUMERATIONS, Unresolved, gpu_list
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text, within_bounds

ARGUMENT_ENDS = ("TrainingArguments", "TrainingArgs")
CONFIG_CLASSES = frozenset(
    f"{kind}Config"
    for kind in [
        "SFT",
        "DPO",
        "KTO",
        "ORPO",
        "CPO",
        "GRPO",
        "RLOO",
        "PPO",
        "Reward",
        "GKD",
        "BCO",
        "OnlineDPO",
        "XPO",
        "NashMD",
        "PRM",
    ]
)
"""TRL's children of TrainingArguments."""
FILE_READERS = frozenset({"json", "csv", "parquet", "text", "arrow"})
"""First argument of load_dataset for data_files."""
LORA = ("LoraConfig", "AdaLoraConfig", "get_peft_model")
MODEL = "torch_dtype dtype attn_implementation load_in_4bit load_in_8bit trust_remote_code max_seq_length"
KEYWORDS: Mapping[str, Mapping[str, str]] = {
    "Trainer": {name: name for name in ("max_seq_length", "dataset_text_field", "packing")},
    "BitsAndBytesConfig": {name: name for name in ("load_in_4bit", "load_in_8bit")},
    "Accelerator": {name: name for name in ("mixed_precision", "gradient_accumulation_steps")},
    "DataCollatorForLanguageModeling": {"mlm_probability": "mlm_probability"},
    "from_pretrained": {**{name: name for name in MODEL.split()}, "use_flash_attention_2": "use_flash_attn"},
    "load_dataset": {"name": "dataset_config_name", "split": "dataset_train_split", "streaming": "streaming"},
    "tokenizer": {"max_length": "max_seq_length"},
    "lora": {"r": "lora_r", "target_modules": "lora_target_modules"},
}
"""What is called -> its keywords, and the settings that they are; SFTTrainer's became SFTConfig's in TRL 0.12."""
NOT_OF_LORA = frozenset({"model", "peft_type", "use_gradient_checkpointing", "random_state", "max_seq_length"})
SEVERAL_CALLS = mark("{name} is called {count} times; the call on line {line} was read.")
OF_COMMAND_LINE = mark(
    "Some values come from the command line (line {line}): the command that starts the script says them."
)
CHANGED_LATER = mark(
    "{name} is changed after it was given, which only a run could follow; it is left out, so set the value that is meant."
)

DEEPEST, MOST_STEPS = 40, 5_000
"""Names of names and sums of sums, and expressions read for one value: no script that people write has as many."""
LARGEST, LONGEST_TEXT = 10**15, 10_000
ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
MODULES_OF_CONSTANTS = ("torch.", "np.", "numpy.")
"""Their attributes (torch.bfloat16) are written for what they are."""


class Unknowable(Exception):
    """Running the source is the only way to know the value."""


class Script:
    """A parsed script: what its names stand for, and its calls in the order of the text."""

    def __init__(self, tree: ast.Module) -> None:
        self.bound: dict[str, ast.expr | None] = {}
        """Constants of the file and of its classes; None for a name that is bound twice, or by something else."""
        self.calls: list[ast.Call] = []
        self.changed: dict[str, dict[str, ast.expr]] = {}
        """Name -> what is put into it one by one: NAME.key = value, NAME["key"] = value."""
        self.steps = 0
        self._walk(tree, "")
        self.calls.sort(key=lambda call: (call.lineno, call.col_offset))

    def _walk(self, tree: ast.AST, within: str) -> None:
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, ast.Call):
                self.calls.append(node)
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self._assign(target, node.value, within)
            elif isinstance(node, ast.arg):
                self.bound[node.arg] = None
            elif isinstance(node, ast.AugAssign | ast.For | ast.AsyncFor | ast.comprehension | ast.NamedExpr):
                self.bound |= {name.id: None for name in ast.walk(node.target) if isinstance(name, ast.Name)}
            self._walk(node, f"{node.name}." if isinstance(node, ast.ClassDef) else within)

    def _assign(self, target: ast.expr, value: ast.expr, within: str) -> None:
        if isinstance(target, ast.Name):
            name = f"{within}{target.id}"
            # `kwargs = TrainingArguments(**kwargs)`: in the call the name means what it did.
            keywords = value.keywords if isinstance(value, ast.Call) else []
            if not any(isinstance(one.value, ast.Name) and one.value.id == name for one in keywords):
                self.bound[name] = None if name in self.bound else value
        elif isinstance(target, ast.Attribute | ast.Subscript):
            key = target.attr if isinstance(target, ast.Attribute) else getattr(target.slice, "value", None)
            if isinstance(key, str):
                self.changed.setdefault(dotted(target.value), {})[key] = value
        elif isinstance(target, ast.Tuple | ast.List):
            values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            if len(values) == len(target.elts) and not any(isinstance(one, ast.Starred) for one in target.elts):
                for inner, part in zip(target.elts, values, strict=True):
                    self._assign(inner, part, within)
            else:
                self.bound |= {name.id: None for name in ast.walk(target) if isinstance(name, ast.Name)}

    def value(self, node: ast.expr) -> Any:
        """The value, as far as it can be read without running anything, or Unresolved with the source text."""
        self.steps = 0
        try:
            return self._value(node, 0)
        except (Unknowable, ArithmeticError, TypeError, ValueError):
            return Unresolved(source(node))

    def _value(self, node: ast.expr, depth: int) -> Any:
        self.steps += 1
        depth += 1
        if depth > DEEPEST or self.steps > MOST_STEPS:
            raise Unknowable
        match node:
            case ast.Constant(value=value) if isinstance(value, str | int | float | bool | None):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._value(operand, depth)
            case ast.BinOp(left=left, op=sign, right=right):
                return _arithmetic(sign, self._value(left, depth), self._value(right, depth))
            case ast.JoinedStr(values=parts):
                return "".join(str(self._value(part, depth)) for part in parts)
            case ast.FormattedValue(value=inner, format_spec=None, conversion=-1):
                return self._value(inner, depth)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._value(item, depth) for item in items]
            case ast.Dict(keys=keys, values=values):
                return self._mapping(zip(keys, values, strict=True), depth)
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
                return self._mapping(((one.arg and ast.Constant(one.arg), one.value) for one in keywords), depth)
            case ast.Name() | ast.Attribute():
                path = dotted(node)
                if (bound := self.bound.get(path)) is not None:
                    return self._value(bound, depth)
                if path.startswith(MODULES_OF_CONSTANTS) or path.rpartition(".")[0].endswith(ENUMERATIONS):
                    return path
        raise Unknowable

    def _mapping(self, items: Iterable[tuple[Any, ast.expr]], depth: int) -> dict[str, Any]:
        """Values that cannot be known stay in their places: one of them does not hide the others."""
        found: dict[str, Any] = {}
        for key, value in items:
            if key is None:
                found |= self._value(value, depth)
                continue
            name = str(self._value(key, depth))
            try:
                found[name] = self._value(value, depth)
            except Unknowable:
                found[name] = Unresolved(source(value))
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


def _arithmetic(sign: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(sign, ast.Add) and isinstance(left, str) and isinstance(right, str):
        if len(left) + len(right) > LONGEST_TEXT:
            raise Unknowable
        return left + right
    small = not isinstance(sign, ast.Pow) or (abs(left) < 1e6 and abs(right) < 32)
    if type(sign) not in ARITHMETIC or not all(isinstance(value, int | float) for value in (left, right)) or not small:
        raise Unknowable
    result = ARITHMETIC[type(sign)](left, right)
    if abs(result) > LARGEST:
        raise Unknowable
    return result


# The calls that say how a script trains.


def read(text: str, file: str) -> Imported:
    """Raises NotImportable for what is no Python, and for a script that says nothing of a training."""
    imported = Imported("training_arguments", file)
    try:
        script = Script(_parsed(text, file))
    except RecursionError:
        # A sum of thousands: Python's parser goes deeper than a walk through what it made.
        raise _unparsed(file) from None
    settings: dict[str, Setting] = {}
    hints: list[Setting] = []
    programs: list[Setting] = []
    for call in script.calls:
        name, owner = _names(call)
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
            masked = script.value(given["mlm"]) if "mlm" in (given := _given(call)) else True
            hint = "AutoModelForMaskedLM" if masked is True else "AutoModelForCausalLM" if masked is False else ""
        if task_of(hint) or other_training(hint):
            hints.append(Setting("class", hint, call.lineno))
    parsers = [call.lineno for call in script.calls if _names(call)[0].endswith(("ArgumentParser", "TrlParser"))]
    if not programs and not settings:
        raise _nothing(file, parsers)
    fill(imported, settings.values(), hints, programs[0].value if programs else None)
    if "use_peft" in settings and settings["use_peft"].written in LORA:
        imported.defaults |= {key: value for key, value in LORA_DEFAULTS.items() if key not in imported.values}
    _visible_gpus(script, imported)
    if len(programs) > 1:
        name, line = programs[0].value, programs[0].line
        imported.say(line, "several_trainings", SEVERAL_CALLS, name=name, count=len(programs), line=line)
    if parsers and any(isinstance(setting.value, Unresolved) for setting in settings.values()):
        imported.say(parsers[0], "from_command_line", OF_COMMAND_LINE, line=parsers[0])
    return imported


def _names(call: ast.Call) -> tuple[str, str]:
    """What is called, and what it belongs to: ("from_pretrained", "AutoModelForCausalLM")."""
    owner, _, name = (dotted(call.func) or getattr(call.func, "attr", "")).rpartition(".")
    return name, owner.rpartition(".")[2]


def _given(call: ast.Call) -> dict[str, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def _settings(script: Script, call: ast.Call, imported: Imported) -> Iterator[Setting]:
    """What one call says. Of a setting that several calls have, the first counts: a second model is a teacher."""
    (name, owner), given = _names(call), _given(call)
    first = call.args[0] if call.args else None
    if name in LORA and ("r" in given or name != "get_peft_model"):
        yield Setting("use_peft", True, call.lineno, name)
        for setting in _all_keywords(script, call, imported):
            if setting.name not in NOT_OF_LORA:
                yield setting.called(KEYWORDS["lora"].get(setting.name, setting.name))
        return
    if name == "from_pretrained":
        node = first or given.get("pretrained_model_name_or_path") or given.get("model_name")
        is_model = ("Model" in owner or "For" in owner) and not owner.endswith(("Tokenizer", "Processor"))
        if node is not None and "Config" not in owner:
            role = "model_name_or_path" if is_model else "tokenizer_name"
            yield Setting(role, script.value(node), call.lineno, f"{owner}.from_pretrained")
        given = given if is_model and "Config" not in owner else {}
    elif name == "load_dataset":
        yield from _data_set(script, call, given, first or given.get("path"))
        return
    elif name == "tokenizer":
        given = given if "truncation" in given else {}
    wanted = KEYWORDS.get("Trainer" if name.endswith("Trainer") else name, {})
    for keyword, node in given.items():
        if keyword in wanted:
            role = "max_target_length" if name == "tokenizer" and "text_target" in given else wanted[keyword]
            yield Setting(role, script.value(node), node.lineno, keyword)


def _data_set(
    script: Script, call: ast.Call, given: Mapping[str, ast.expr], first: ast.expr | None
) -> Iterator[Setting]:
    value = None if first is None else script.value(first)
    if isinstance(value, str) and value in FILE_READERS and "data_files" in given:
        files, line = script.value(given["data_files"]), given["data_files"].lineno
        if not isinstance(files, dict):
            yield Setting("dataset_name", files, line, "data_files")
            return
        for split, name in (("train", "dataset_name"), ("validation", "validation_file"), ("test", "test_file")):
            if split in files:
                yield Setting(name, files[split], line, f"data_files.{split}")
    elif value is not None:
        yield Setting("dataset_name", value, call.lineno, "load_dataset")
        if len(call.args) > 1:
            yield Setting("dataset_config_name", script.value(call.args[1]), call.lineno, "name")
        for keyword, name in KEYWORDS["load_dataset"].items():
            if keyword in given:
                yield Setting(name, script.value(given[keyword]), given[keyword].lineno, keyword)


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
            imported.say(settings[key], "changed_later", CHANGED_LATER)


def _parsed(text: str, file: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text)
    except SyntaxError as error:
        line, reason = error.lineno or 1, plain_text(error.msg, 120)
        message = tr("{file}, line {line}: this is not valid Python ({reason}).", file=file, line=line, reason=reason)
        raise refusal(f"{file}:{line}", message, "broken_file") from None
    except (ValueError, RecursionError, MemoryError):
        raise _unparsed(file) from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            # Hexadecimal digits of any number are read, and then neither shown nor computed with.
            node.value = within_bounds(node.value)
    return tree


def _unparsed(file: str) -> Exception:
    return refusal(file, tr("{file} cannot be parsed as Python.", file=file), "broken_file")


def _nothing(file: str, parsers: list[int]) -> Exception:
    if parsers:
        message = tr(
            "{file} takes its arguments from the command line (line {line}); import the command that starts it.",
            file=file,
            line=parsers[0],
        )
        return refusal(f"{file}:{parsers[0]}", message)
    message = tr("{file} calls neither TrainingArguments nor anything else that says how it trains.", file=file)
    return refusal(file, message)


def _visible_gpus(script: Script, imported: Imported) -> None:
    """os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"."""
    node = script.changed.get("os.environ", {}).get("CUDA_VISIBLE_DEVICES")
    if node is None:
        return
    setting = Setting("CUDA_VISIBLE_DEVICES", script.value(node), node.lineno)
    gpus = gpu_list(setting.value)
    if isinstance(setting.value, Unresolved):
        imported.leave_unknown(setting)
    elif gpus:
        imported.setup["gpu_ids"] = ",".join(gpus)
        imported.map(setting, "engine.gpus", gpus)
