"""The settings of one text, and what became of each: mapped, dropped or unknown, with findings."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from trainwiz.core.config.build import check_values
from trainwiz.core.config.run import RunConfig
from trainwiz.core.config.values import SECRET
from trainwiz.core.errors import Finding, UsageError
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text

Kind = Literal["training_arguments", "accelerate", "deepspeed", "launch_command"]
KIND_WORDS: Mapping[Kind, str] = {
    "training_arguments": mark("Trainer arguments"),
    "accelerate": mark("accelerate file"),
    "deepspeed": mark("DeepSpeed JSON"),
    "launch_command": mark("launch command"),
}
HIDDEN = "***"
"""Stands in a report where a password or key stood."""
OF_TOKENIZERS = frozenset(f"{kind}_TOKEN" for kind in ("EOS", "BOS", "PAD", "UNK", "SEP", "CLS", "MASK"))
NOTES = (
    "assumed_meaning", "code_not_read", "data_parallel", "follows", "library_defaults", "missing_data", "missing_model",
)  # fmt: skip
"""Codes of findings that are notes; all others are warnings."""
LONGEST_SHOWN = 60
UNSET = mark("It is not set.")
PRECEDENCE = mark("{place} sets {value}, which takes precedence.")
AUTO = mark("auto leaves it to other settings or to the plan.")
OFF = mark("It is off, as in a trainwiz run.")
NO_SETTINGS = RunConfig()


class NotImportable(UsageError):
    """The text is not one of the kinds, is half of one, or belongs to another program."""


class WrongValue(ValueError):
    """A value that its setting cannot have."""


def finding(what: str, where: str, /, **values: object) -> Finding:
    """One of SENTENCES about one place."""
    code = what.partition(".")[0]
    return Finding(code, "note" if code in NOTES else "warning", where, tr(SENTENCES[what], **values))


def refusal(what: str, file: str, line: int | None = None, /, **values: object) -> NotImportable:
    """One of SENTENCES, to be raised."""
    return NotImportable(replace(finding(what, at(file, line), file=file, line=line, **values), severity="error"))


def at(file: str, line: int | None) -> str:
    return f"{file}:{line}" if line else file


# Values as foreign files write them.


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A value that cannot be known without running something: `text` is how it is written ("$LR", "args.lr")."""

    text: str

    def __str__(self) -> str:
        return self.text


def is_nothing(value: Any) -> bool:
    """None, nothing in brackets, or text that says none."""
    return value in (None, [], {}) or (isinstance(value, str) and value.strip().lower() in ("", "none", "null", "~"))


def word(value: Any) -> str:
    """A text or number in small letters, "yes" and "no" for all spellings of them, a member of an enumeration as its
    name (IntervalStrategy.EPOCH, torch.bfloat16); "" for all else."""
    if not isinstance(value, str | int | float):
        return ""
    head, _, name = str(value).strip().rpartition(".")
    text = name.lower() if head.isidentifier() else str(value).strip().lower()
    # Of transformers.hf_argparser.string_to_bool, and YAML's own two.
    if text in ("true", "yes", "y", "t", "1", "on"):
        return "yes"
    return "no" if text in ("false", "no", "n", "f", "0", "off") else text


def number(value: Any) -> float | None:
    """2e-5, "2e-5" (YAML reads 2e-5 as text), 3; None for everything that is not a finite number."""
    with suppress(ValueError, TypeError, OverflowError):
        found = float(value)
        return found if math.isfinite(found) and not isinstance(value, bool) else None
    return None


def shown(value: Any) -> str:
    """A foreign value inside a sentence: one line, as JSON writes it, not too long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return plain_text(text, LONGEST_SHOWN)


def is_secret(name: str) -> bool:
    """A variable with such a word in its name, or a setting that ends in one: `max_new_tokens` is none."""
    upper = name.upper()
    ends = upper == name or (upper.endswith(("TOKEN", "API_KEY", "PASSWORD", "SECRET")) and upper not in OF_TOKENIZERS)
    return ends and SECRET.search(upper) is not None


def _plain(value: Any) -> Any:
    """The value as data: what is not known, as it is written."""
    return json.loads(json.dumps(value, default=str, skipkeys=True))


@dataclass(frozen=True, slots=True)
class Setting:
    """A name with its value and its line; `name` is the one with a rule, `written` the one in the text."""

    name: str
    value: Any
    line: int | None = None
    written: str = ""

    def as_written(self) -> str:
        return self.written or self.name

    def as_given(self) -> Any:
        """As data for a report; passwords stay out of it."""
        return HIDDEN if is_secret(self.as_written()) and not is_nothing(self.value) else _plain(self.value)

    def called(self, name: str, value: Any = ...) -> Setting:
        """The same setting under the name of its rule, with another value where one is given."""
        return Setting(name, self.value if value is ... else value, self.line, self.as_written())


@dataclass(frozen=True, slots=True)
class Entry:
    """What became of a setting: it has a place, or was left out, or neither is known."""

    name: str
    value: Any
    line: int | None
    file: str
    key: str = ""
    """Of a RunConfig, and what it was set to."""
    set_to: Any = None
    why: str = ""
    """One sentence why it was left out, marked for translation."""

    def place(self) -> str:
        return at(self.file, self.line)

    def to_json(self, *more: str) -> dict[str, Any]:
        document = asdict(self)
        return {field: document[field] for field in ("name", "value", "line", "file", *more)}


@dataclass(frozen=True, slots=True)
class Renamed:
    """A setting that its program calls otherwise today; what became of it is in the report besides."""

    old: str
    new: str
    line: int | None
    file: str


@dataclass(slots=True)
class Imported:
    """What one text, or all of them together, come to: `values` by key paths of a RunConfig; `defaults` is what the
    program takes for settings that the text leaves out, and any value of any text wins over it."""

    kind: Kind
    file: str
    settings: dict[str, Setting] = field(default_factory=dict)
    """By the names of their rules: each can look at the others that decide with it."""
    values: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    program: str = ""
    """The class whose defaults hold for what is left out; empty where that is not known."""
    is_launcher: bool = False
    """The options and variables of a command's launcher, which are weaker than what files and scripts say."""
    counts_all_nodes: bool = False
    """Its engine.processes are those of all nodes together."""
    mapped: list[Entry] = field(default_factory=list)
    renamed: list[Renamed] = field(default_factory=list)
    dropped: list[Entry] = field(default_factory=list)
    unknown: list[Entry] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    references: list[Setting] = field(default_factory=list)
    """Other files that the text names: "accelerate", "deepspeed", "script" or "arguments" with the path."""
    inner: list[Imported] = field(default_factory=list)
    """What else stands in this text: its launcher, settings of another program as a value."""
    parts: list[Imported] = field(default_factory=list)
    """The texts, where this is all of them together."""

    def place_of(self, key: str) -> str:
        """ "FILE:LINE" of the setting that gave the value at `key`, or the file."""
        entry = next((entry for entry in reversed(self.mapped) if entry.key == key), None)
        return entry.place() if entry else self.file

    def to_json(self) -> dict[str, Any]:
        return {
            "mapped": [entry.to_json("key", "set_to") for entry in self.mapped],
            "renamed": [asdict(entry) for entry in self.renamed],
            "dropped": [entry.to_json("why") for entry in self.dropped],
            "unknown": [entry.to_json() for entry in self.unknown],
            "findings": [finding.to_json() for finding in self.findings],
        }

    def word(self, name: str) -> str:
        """What a setting says; "" where it is absent or unknown."""
        return word(self.settings[name].value) if name in self.settings else ""

    def number(self, name: str) -> float | None:
        """Likewise; None where it is no number."""
        return number(self.settings[name].value) if name in self.settings else None

    def take(self, settings: Sequence[Setting], rule_of: Callable[[Setting], Rule | None]) -> None:
        """Put every setting where its rule says; each can look at the others of its text."""
        for setting in settings:
            if setting.name not in self.settings or not is_nothing(setting.value):
                self.settings[setting.name] = setting
        for setting in settings:
            self.place(setting, rule_of(setting))

    def place(self, setting: Setting, rule: Rule | None) -> None:
        """Put one setting where its rule says."""
        value, written = setting.value, setting.as_written()
        if new := RENAMED.get(written.replace("-", "_")):
            self.renamed.append(Renamed(written, new, setting.line, self.file))
        if not isinstance(rule, str) and isinstance(value, Unresolved):
            rule = None
        elif callable(rule) and not setting.name.endswith(TAKES_WORDS):
            rule = UNSET if is_nothing(value) else AUTO if word(value) == "auto" else rule
        if setting.name in CHOOSES_ONE and not is_nothing(value) and word(value) != self.word(setting.name):
            counts = self._entry(self.settings[setting.name])
            self.overrule(self._entry(setting), setting.name, value, counts.place(), counts.value)
            return
        try:
            became = rule(self, setting) if callable(rule) else rule
            if isinstance(became, Mapping):
                for key, given in became.items():
                    self.map(setting, key, given)
            elif became is None:
                self.leave_unknown(setting)
            else:
                self.drop(setting, became)
        except WrongValue:
            self.leave_unknown(setting)
            self.say(setting, "bad_value")

    def map(self, setting: Setting, key: str, value: Any) -> None:
        """The setting gives the value at `key`. What no run can have there is kept as unknown, and said."""
        good, findings = check_values(NO_SETTINGS, {key: value})
        if isinstance(value, bool) and not findings and not isinstance(good[key], bool):
            # An option without its value.
            raise WrongValue
        if findings:
            self.leave_unknown(setting)
            where, name = at(self.file, setting.line), setting.as_written()
            self.findings += [left_out(replace(one, where=where), name) for one in findings]
            return
        self.values[key] = value if isinstance(value, list) else good[key]
        self.mapped.append(replace(self._entry(setting), key=key, set_to=self.values[key]))

    def drop(self, setting: Setting, why: str) -> None:
        """`why` is a sentence from `mark`, or one that `tr` has translated."""
        self.dropped.append(replace(self._entry(setting), why=why))

    def leave_unknown(self, setting: Setting) -> None:
        self.unknown.append(self._entry(setting))

    def _entry(self, setting: Setting) -> Entry:
        return Entry(setting.as_written(), setting.as_given(), setting.line, self.file)

    def overrule(self, entry: Entry, key: str, other: Any, place: str, value: Any) -> None:
        """The `other` that an entry says of `key` does not count, for `value` at `place` does."""
        words = {"place": place, "value": shown(value)}
        self.dropped.append(replace(entry, why=tr(PRECEDENCE, **words)))
        words |= {"key": key, "other": shown(other), "other_place": entry.place()}
        self.findings.append(finding("contradiction.two_places", place, **words))

    def take_out(self, key: str) -> list[Entry]:
        """The entries that gave the value at `key`, which is none from now on."""
        self.values.pop(key, None)
        taken = [entry for entry in self.mapped if entry.key == key]
        self.mapped = [entry for entry in self.mapped if entry.key != key]
        return taken

    def say(self, about: Setting | int | None, what: str, **values: object) -> None:
        """A finding about a setting, or a line; {file}, {line}, {name} and {value} are filled in from it."""
        line = about.line if isinstance(about, Setting) else about
        if isinstance(about, Setting):
            values |= {"name": plain_text(about.as_written(), LONGEST_SHOWN), "value": shown(about.as_given())}
        self.findings.append(finding(what, at(self.file, line), file=self.file, line=line, **values))


Became = str | Mapping[str, Any] | None
"""Why a setting is left out, or the values of a run that it gives, or None where nobody knows."""
Decides = Callable[[Imported, Setting], Became]
"""What becomes of a setting; raises WrongValue."""
Rule = str | Decides
"""Also why a setting is always left out."""
RENAMED: Mapping[str, str] = {
    "evaluation_strategy": "eval_strategy", "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size", "no_cuda": "use_cpu", "warmup_ratio": "warmup_steps",
    "torchdynamo": "torch_compile_backend", "gradient_checkpointing": "activation_checkpointing", "torch_dtype": "dtype",
}  # fmt: skip
"""What transformers 4.30 to 5.23 called a setting -> what it calls it today."""
CHOOSES_ONE = ("eval_strategy", "distributed_type")
"""Settings of which another value has another place: two of them do not meet there."""
TAKES_WORDS = ("report_to", "mixed_precision", "use_flash_attn", "attn_implementation", "distributed_type", "gpu_ids")
"""Ends of settings for which "none" and "auto" are values like others."""


def left_out(refused: Finding, name: str) -> Finding:
    """What no run can have, as a warning that the import goes on without it; `name` is what its text calls it."""
    message = tr(SENTENCES["bad_value.is_left_out"], name=plain_text(name, LONGEST_SHOWN), message=refused.message)
    return replace(refused, severity="warning", message=message)


# Rules that are data.


def to(key: str, means: Mapping[str, Any] | None = None, otherwise: str = "") -> Decides:
    """The value itself, or what one of some words means. `otherwise`: why all other values are left out; without it
    they are taken as they are, so that what the run says of them is told, but for what is off."""

    def rule(_: Imported, setting: Setting) -> Became:
        if not means:
            return {key: setting.value}
        exact = str(setting.value).strip().lower()
        said = exact if exact in means else word(setting.value)
        if said not in means and (otherwise or said == "no"):
            return otherwise or OFF
        return {key: means.get(said, said if isinstance(setting.value, str) else setting.value)}

    return rule


def positive(key: str, why: str) -> Decides:
    """The value, where it is no number below 1; else `why` it is left out."""

    def rule(_: Imported, setting: Setting) -> Became:
        value = number(setting.value)
        return why if value is not None and value < 1 else {key: setting.value}

    return rule


def on(key: str, value: Any) -> Decides:
    """The value for a switch that is on."""
    return to(key, {"yes": value})


def places(keys: Mapping[str, str]) -> dict[str, Rule]:
    """Names -> the key that each of them gives its value to."""
    return for_each({names: to(key) for names, key in keys.items()})


def for_each(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """Names -> rule, as name -> rule."""
    return {name: rule for names, rule in rules.items() for name in names.split()}


SENTENCES: Mapping[str, str] = {
    "assumed_meaning": "{name} is read as the micro-batch (the sequences that one process computes at once); if the "
    "script means all processes together, set batch.micro_batch_size.",
    "bad_value": "{name} cannot be {value}; it is ignored.",
    "bad_value.is_left_out": "{name}: {message} It is ignored.",
    "broken_file": "{file}, line {line}: this is not valid Python ({reason}).",
    "changed_later": "{name} is changed after it is set, and only running the script would show the result; it is "
    "ignored, so set the value you want.",
    "contradiction.contradicts": "{place} sets {total} sequences per step, but micro-batch x accumulation {window} x {world} "
    "processes is another number; micro-batch and accumulation are used.",
    "contradiction.two_places": "{place} sets {key} to {value}, but {other_place} sets it to {other}; {value} is used.",
    "code_not_read": "Only settings are read: what the script does to its rows or its loss with its own code is not. "
    "`trainwiz data show` shows what is trained on.",
    "cut_off": "The command on line {line} is incomplete; use the whole command.",
    "data_parallel": "{program} starts one process, from which the Trainer would feed all GPUs that it sees "
    "(DataParallel); a run starts one process per GPU, and a step uses as many sequences.",
    "follows": "A step uses micro-batch x accumulation {window} x {world} processes = {total} sequences; a plan "
    "keeps this number on other GPUs (batch.target_samples).",
    "follows.any_number": "The number of GPUs is not specified; a plan keeps micro-batch x accumulation = {window} "
    "sequences per step on any number of GPUs, unless --target-samples sets another value.",
    "library_defaults": "Unset settings use the defaults of {program}: {said}.",
    "other_targets": "lora_target_modules is not set: PEFT then uses its own table, q_proj and v_proj for most models; "
    "a plan targets all linear layers (peft.targets).",
    "missing_data": "No data is specified; set it with --dataset FILE.",
    "missing_file": "{file} refers to {path}, which was not found; its settings are missing, so import it too.",
    "missing_model": "No model is specified; a plan uses {default} until --model sets one.",
    "no_such_path": "{file} is neither a file nor a launch command.",
    "not_importable.among_other_text": "{file} contains commands among other text: paste only the one command or the "
    "settings.",
    "not_importable.empty": "{file} is empty.",
    "not_importable.from_command": "{file} reads its arguments from the command line (line {line}); import the command "
    "that starts it.",
    "not_importable.kinds": "{file} cannot be imported. Supported kinds are Trainer arguments (Python, YAML, JSON), an "
    "accelerate file, a DeepSpeed JSON and a launch command.",
    "not_importable.no_launch": "{file} contains no command that starts a training ({said}); paste the one that begins with "
    "accelerate launch, torchrun, deepspeed or python.",
    "not_importable.no_script": "{file}: the {program} command on line {line} contains no script; use the whole "
    "command.",
    "not_importable.no_utf8": "{file} is not text (byte {start} is not UTF-8).",
    "not_importable.only_a_part": "{file} has no valid `distributed_type`, which accelerate requires: the file is "
    "incomplete. Use the whole file, or create one with: accelerate config",
    "not_importable.too_large": "{file} is larger than {size} MiB; settings and scripts are smaller.",
    "nothing_mapped": "Nothing in {file} applies to a run; the profile contains the defaults of a plan.",
    "other_training": "{name} is of a training that trainwiz does not support; the settings are kept to plan its size and "
    "speed.",
    "packing_counts_rows": "{name}: rows are packed end to end, and each attends only to itself (data.packing); a step "
    "counts rows in trainwiz, but packed sequences in the original program: check the effective batch.",
    "processes_unknown": "The number of processes that {program} starts is not read; set it with --num-gpus and "
    "--nodes.",
    "several_trainings": "{count} trainings are started or set up in it; the one on line {line} was read.",
    "trl_learns_more": "TRL trains on every token of `messages` unless assistant_only_loss is on; this run trains on "
    "the answers (training.train_on).",
    "unreadable_file": "{file} cannot be read: {reason}.",
}  # fmt: skip
"""Findings and refusals by their codes, with a word behind a dot where a code has several. scripts/catalogue.py reads
them here."""
