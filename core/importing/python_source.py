"""Arguments as calls in Python source. The source is parsed, never imported or run."""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from trainwiz.core.importing.names import LORA_DEFAULTS
from trainwiz.core.importing.report import Imported, Setting, Unresolved, refusal
from trainwiz.core.importing.trainer import fill, is_known, take_defaults
from trainwiz.core.text import plain_text, within_bounds

# What names and expressions stand for.

MOST_STEPS = 50_000
"""Expressions read for all values: no script that people write has as many."""
CONSTANTS = (
    "torch",
    "np",
    "numpy",
    "Strategy",
    "SchedulerType",
    "OptimizerNames",
    "DebugOption",
    "TaskType",
    "FSDPOption",
)
"""Ends of modules and enumerations whose attributes (torch.bfloat16) are written for what they are."""


class Unknowable(Exception):
    """Running the source is the only way to know the value."""


class Script:
    """A parsed script: the constants that its names stand for, what it changes one by one, its calls in their order."""

    def __init__(self, tree: ast.Module) -> None:
        nodes = list(ast.walk(tree))
        # A name that is bound twice, or by something else than a plain assignment, is none.
        often = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        often.update(node.arg for node in nodes if isinstance(node, ast.arg))
        self.bound: dict[str, ast.expr] = {}
        self.changed: dict[str, ast.expr] = {}
        """What is put into something: args.key = value, SETTINGS["key"] = value."""
        for node in nodes:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if often[name] == 1:
                    self.bound[name] = value
                case (
                    ast.Attribute(attr=key, ctx=ast.Store())
                    | ast.Subscript(slice=ast.Constant(value=str(key)), ctx=ast.Store())
                ):
                    self.changed[key] = node
        calls = (node for node in nodes if isinstance(node, ast.Call))
        self.calls = sorted(calls, key=lambda call: (call.lineno, call.col_offset))
        self.steps = 0

    def value(self, node: ast.expr) -> Any:
        """The value, as far as it can be read without running anything, or Unresolved with the source text."""
        try:
            return self._value(node)
        except (Unknowable, TypeError, RecursionError):
            return Unresolved(source(node))

    def _value(self, node: ast.expr) -> Any:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Unknowable
        match node:
            case ast.Constant(value=str() | int() | float() | None as value):
                # Hexadecimal digits of any number are read.
                return within_bounds(value) if type(value) is int else value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._value(operand)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._value(item) for item in items]
            case ast.Dict(keys=keys, values=values):
                found: dict[str, Any] = {}
                for key, item in zip(keys, values, strict=True):
                    # Values that cannot be known stay in their places: one of them does not hide the others.
                    found |= self._value(item) if key is None else {str(self._value(key)): self.value(item)}
                return found
            case ast.Name(id=name) if name in self.bound:
                return self._value(self.bound[name])
            case ast.Attribute(value=owner) if source(owner).endswith(CONSTANTS):
                return source(node)
        raise Unknowable


def source(node: ast.expr) -> str:
    """The source of an expression on one line."""
    try:
        return plain_text(" ".join(ast.unparse(node).split()), 80)
    except (ValueError, RecursionError):
        return "..."


# The calls that say how a script trains.

ARGUMENTS = ("TrainingArguments", "TrainingArgs", "SFTConfig", "POConfig", "KTOConfig", "RLOOConfig", "RewardConfig")
"""Ends of the names of classes of arguments; TRL's (DPOConfig, GRPOConfig, ...) are children of TrainingArguments."""
LORA = ("LoraConfig", "AdaLoraConfig", "get_peft_model")
NOT_MODELS = ("Tokenizer", "TokenizerFast", "Processor", "Config")
FILE_READERS = ("json", "csv", "parquet", "text", "arrow")
"""First argument of load_dataset for data_files."""
FIRST: Mapping[str, str] = {
    "load_dataset": "dataset_name dataset_config_name", "SFTTrainer": "model_name_or_path", "Model": "model_name_or_path",
    "TrainingArguments": "output_dir",
}  # fmt: skip
"""What is called -> the settings that its first arguments are."""
OF_LORA = {"r": "lora_r", "target_modules": "lora_target_modules"} | dict.fromkeys(
    ("model", "peft_type", "random_state", "use_gradient_checkpointing", "max_seq_length"), ""
)
"""Of Unsloth's get_peft_model some arguments are of the model."""
CALLED: Mapping[str, Mapping[str, str]] = {
    "load_dataset": {
        "path": "dataset_name", "name": "dataset_config_name", "train": "dataset_name", "validation":
        "validation_file", "test": "test_file",
    },
    **dict.fromkeys(LORA, OF_LORA),
}  # fmt: skip
"""Keywords that are called otherwise as settings of a file, or are left aside."""
CONSTANTS_OF = ("Trainer", "BitsAndBytesConfig", "load_dataset", "Model")
"""Of such calls only constants are taken: `model=model` names nothing."""


def read_python(text: str, file: str) -> Imported:
    """Raises NotImportable for what is no Python, and for a script that says nothing of a training."""
    imported = Imported("training_arguments", file)
    script = Script(parsed(text, file))
    settings: dict[str, Setting] = {}
    hints: list[Setting] = []
    programs: list[Setting] = []
    program = ""
    for call in script.calls:
        owner, name = _called(call)
        hints.append(Setting("class", owner if name in ("from_pretrained", "from_config") else name, call.lineno))
        is_program = name.endswith(ARGUMENTS)
        if name == "SFTTrainer" and len(call.args) < 2 and all(keyword.arg != "args" for keyword in call.keywords):
            # Without arguments it makes an SFTConfig of its own.
            program = "SFTConfig"
        if is_program:
            programs.append(hints[-1])
            if len(programs) > 1:
                continue
        for setting in _settings(script, call, imported):
            # What the Trainer is given counts before what other calls say, of these the first: a second model is a teacher.
            if is_program or setting.name not in settings:
                settings[setting.name] = setting
    for key, node in script.changed.items():
        # What a script changes of its arguments one by one, only a run could follow.
        if key in settings or (programs and is_known(key)):
            settings[key] = Setting(key, Unresolved(source(node)), node.lineno)
            imported.say(settings[key], "changed_later")
    if not programs and not settings:
        parser = next((hint for hint in hints if hint.value.endswith(("ArgumentParser", "TrlParser"))), None)
        what = "not_importable.from_command" if parser else "not_importable.kinds"
        raise refusal(what, file, parser.line if parser else None)
    if programs:
        name = str(programs[0].value)
        program = name if name == "SFTConfig" or not name.endswith("Config") else ""
    # Of **SETTINGS that nobody knows any may be set, and no default is sure.
    fill(imported, settings.values(), hints, "" if imported.unknown else program)
    if "use_peft" in settings and settings["use_peft"].written in LORA:
        take_defaults(imported, LORA_DEFAULTS)
    imported.say(None, "code_not_read")
    if len(programs) > 1:
        imported.say(programs[0].line, "several_trainings", count=len(programs))
    return imported


def _called(call: ast.Call) -> tuple[str, str]:
    """("AutoModel", "from_pretrained"); twice the same for a plain name."""
    parts = source(call.func).split(".")[-2:]
    return parts[0], parts[-1]


def _settings(script: Script, call: ast.Call, imported: Imported) -> Iterator[Setting]:
    """What one call says."""
    (owner, name), line = _called(call), call.lineno
    is_model = name == "from_pretrained" and not owner.endswith(NOT_MODELS) and "AutoPeft" not in owner
    kind = "Model" if is_model else "TrainingArguments" if name.endswith(ARGUMENTS) else name
    is_lora = name in LORA and (name != "get_peft_model" or any(keyword.arg == "r" for keyword in call.keywords))
    if is_lora:
        yield Setting("use_peft", True, line, name)
    for role, node in zip(FIRST.get(kind, "").split(), call.args, strict=False):
        value = script.value(node)
        if (isinstance(value, str) or kind != "SFTTrainer") and value not in FILE_READERS:
            yield Setting(role, value, line, f"{owner}.{name}" if is_model else "")
    takes_all = is_lora or kind == "TrainingArguments"
    for keyword in call.keywords if takes_all or kind.endswith(CONSTANTS_OF) else ():
        given = script.value(keyword.value)
        if keyword.arg is None and not isinstance(given, dict):
            imported.leave_unknown(Setting(f"**{source(keyword.value)}", source(keyword.value), line))
            continue
        is_several = isinstance(given, dict) and keyword.arg in (None, "data_files")
        for written, value in given.items() if is_several else [(str(keyword.arg), given)]:
            role = CALLED.get(kind, {}).get(written, written)
            if role and (takes_all or (is_known(role) and isinstance(value, str | int | float | list))):
                yield Setting(role, value, keyword.value.lineno, written)


def parsed(text: str, file: str) -> ast.Module:
    """Raises NotImportable for what is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line, reason = (error.lineno or 1, error.msg) if isinstance(error, SyntaxError) else (1, error)
        raise refusal("broken_file", file, line, reason=plain_text(reason, 120)) from None
