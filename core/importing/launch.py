"""Which command of a script starts a training, and its launcher with its options."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from trainwiz.core.importing import engine_names as table
from trainwiz.core.importing.report import Setting
from trainwiz.core.importing.shell import Command, Script, Word, read_script
from trainwiz.core.importing.values import Unresolved

PYTHON = re.compile(r"python(?:\d+(?:\.\d+)*)?w?")
PYTHON_VALUES = ("-W", "-X", "--check-hash-based-pycs")
MODULES: Mapping[str, str] = {
    **dict.fromkeys(("torch.distributed.run", "torch.distributed.launch"), "torchrun"),
    **dict.fromkeys(("accelerate.commands.launch", "accelerate.commands.accelerate_cli", "accelerate"), "accelerate"),
    **dict.fromkeys(("deepspeed", "deepspeed.launcher.runner"), "deepspeed"),
}
LAUNCHERS: Mapping[str, str] = {
    "accelerate-launch": "accelerate", "torchrun": "torchrun", "deepspeed": "deepspeed", "deepspeed.pt": "deepspeed",
    "ds": "deepspeed",
}  # fmt: skip
SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
STARTS_SEVERAL = frozenset({"mpirun", "mpiexec", "horovodrun", "srun"})
DEEPEST = 4
"""Commands within quotes within commands."""
TRAINS = ("train", "finetune", "fine_tune", "finetuning", "pretrain", "run_", "sft", "dpo", "tune", "lora")
"""Pieces of the names that people give to scripts that train."""
ASSIGNED = re.compile(r"(?P<name>\+{0,2}[A-Za-z_][\w.]*)=(?P<value>.*)", re.DOTALL)
"""Hydra's way: learning_rate=1e-4."""


@dataclass(slots=True)
class Launch:
    """One command that starts a training. `words` is what follows the launcher's name (and its `launch`)."""

    program: str
    words: list[Word]
    line: int
    environment: dict[str, Word] = field(default_factory=dict)
    starter: str = ""
    """The program in front of it that starts processes of its own (srun, mpirun)."""
    old_name: str = ""
    """How the launcher is written, where it has another name today."""
    framework: str = ""
    options: list[Setting] = field(default_factory=list)
    script: Word | None = None
    is_module: bool = False
    arguments: list[Word] = field(default_factory=list)

    def option(self, *names: str) -> Any:
        """The value of an option; None where it is absent or cannot be known."""
        found = [option.value for option in self.options if option.name in names]
        return None if not found or isinstance(found[-1], Unresolved) else found[-1]

    def script_name(self) -> str:
        if self.script is None:
            return ""
        return self.script.text.rpartition(".")[2] if self.is_module else PurePosixPath(self.script.text).stem


# Which words start a training: the launcher behind env, nohup, srun and the like.


def launches_of(command: Command, depth: int) -> list[Launch]:
    words = command.words
    environment, starter = dict(command.environment), ""
    for at, word in enumerate(words):
        name = _basename(word)
        if name in table.INSTALLS:
            return []
        if name in STARTS_SEVERAL:
            starter = starter or name
        inner = _in_quotes(words[at:], depth)
        if inner is None:
            launch = _launch(words[at:], command.line)
            inner = [launch] if launch is not None else None
        if inner is not None:
            return [
                replace(one, environment={**environment, **one.environment}, starter=one.starter or starter)
                for one in inner
            ]
        if _basename(words[0]) not in table.WRAPPERS:
            return []
        assigned = ASSIGNED.fullmatch(word.text)
        if assigned is not None:
            environment[assigned["name"]] = Word(assigned["value"], word.line, word.known)
    return []


def _in_quotes(words: Sequence[Word], depth: int) -> list[Launch] | None:
    """The commands in `bash -c "..."` and `eval "..."`."""
    script: Script | None = None
    if depth < DEEPEST and words[0].text == "eval":
        script = read_script(" ".join(word.text for word in words[1:]), words[0].line)
    elif depth < DEEPEST and _basename(words[0]) in SHELLS:
        quoted = [after for word, after in itertools.pairwise(words) if re.fullmatch(r"-\w*c", word.text)]
        script = read_script(quoted[0].text, quoted[0].line) if quoted else None
    if script is None:
        return None
    return [launch for command in script.commands for launch in launches_of(command, depth + 1)]


def _basename(word: Word) -> str:
    # A notebook's "!", a recipe's "@".
    return PurePosixPath(word.text.lstrip("!@")).name


def _launch(words: Sequence[Word], line: int) -> Launch | None:
    """The launch that begins with the first of these words."""
    name, rest = _basename(words[0]), list(words[1:])
    first = rest[0].text if rest else ""
    if name == "accelerate" and first == "launch":
        return _cut(Launch("accelerate", rest[1:], line))
    if name in LAUNCHERS and rest:
        return _cut(Launch(LAUNCHERS[name], rest, line))
    if name == "trl" and re.fullmatch(r"[a-z_]+", first):
        return Launch("trl", rest, line, script=rest[0], is_module=True, arguments=rest[1:])
    commands = table.FRAMEWORKS.get(name)
    if commands is not None and rest and (not commands or first in commands):
        arguments = rest[1:] if commands else rest
        return Launch(
            "framework", rest, line, framework=name, script=Word(name, line), is_module=True, arguments=arguments
        )
    return _python(rest, line) if PYTHON.fullmatch(name) else None


def _python(words: list[Word], line: int) -> Launch | None:
    at = 0
    while at < len(words) and words[at].text.startswith("-") and words[at].text != "-":
        option = words[at].text
        if option in ("-c", "-V", "--version", "-h", "--help"):
            return None
        if option.startswith("-m"):
            joined = [Word(option[2:], line)] if len(option) > 2 else []
            return _module([*joined, *words[at + 1 :]], line)
        at += 2 if option in PYTHON_VALUES else 1
    if (
        at >= len(words)
        or PurePosixPath(words[at].text).name in table.NOT_TRAINING
        or words[at].text[:1] in ("-", *"=<>~!")
    ):
        return None
    return Launch("python", words[at:], line, script=words[at], arguments=words[at + 1 :])


def _module(words: list[Word], line: int) -> Launch | None:
    if not words or {words[0].text, words[0].text.partition(".")[0]} & table.NOT_TRAINING:
        return None
    name, rest = words[0].text, words[1:]
    if name not in MODULES:
        return Launch("python", words, line, script=words[0], is_module=True, arguments=rest)
    rest = rest[1:] if MODULES[name] == "accelerate" and rest and rest[0].text == "launch" else rest
    return _cut(Launch(MODULES[name], rest, line, old_name=name if name == "torch.distributed.launch" else ""))


def chosen(launches: Sequence[Launch]) -> Launch:
    """The first with a launcher of several processes, else the first whose script seems to train, else the first."""
    launchers = [launch for launch in launches if launch.program != "python"]
    training = [launch for launch in launches if any(piece in launch.script_name().lower() for piece in TRAINS)]
    return (launchers or training or list(launches))[0]


def _cut(launch: Launch) -> Launch:
    """Cut the words behind a launcher's name: its options, the script (the first word that is no option and no value
    of one), the rest."""
    program, words = launch.program, launch.words
    flags, values = table.FLAGS[program], table.VALUES[program]
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.text.startswith("-") or word.text == "-":
            if _stands_for_options(words, at - 1):
                launch.options.append(Setting("", Unresolved(word.text), word.line, word.text))
                continue
            launch.script, launch.arguments = word, words[at:]
            break
        written, equals, inline = word.text.partition("=")
        name = _option_name(program, written, flags | values)
        known = name in flags or name in values or (program == "accelerate" and name.startswith(table.ANY_VALUES))
        value: Word | None = Word(inline, word.line, word.known) if equals else None
        loose = at < len(words) and not words[at].text.startswith("-") and not words[at].text.endswith(".py")
        if value is None and at < len(words) and (name not in flags if known else loose):
            value = words[at]
            at += 1
        launch.is_module |= name == "module"
        given: Any = True if value is None else value.text if value.known else Unresolved(value.text)
        launch.options.append(Setting(name, given, word.line, name if known else f"--{name}"))
    return launch


def _option_name(program: str, written: str, known: frozenset[str]) -> str:
    """The option's whole name: short ones written out, beginnings completed as argparse does."""
    if not written.startswith("--"):
        letter = written.lstrip("-")
        return table.SHORT[program].get(letter, letter)
    name = written.lstrip("-").replace("-", "_")
    longer = [option for option in known if option.startswith(name)] if name and name not in known else []
    return longer[0] if len(longer) == 1 else name


def _stands_for_options(words: Sequence[Word], at: int) -> bool:
    """A word that cannot be known is options ($DISTRIBUTED_ARGS) where a script follows; else it is the script."""
    word = words[at]
    if word.known or not word.text.startswith(("$", "<")):
        return False
    for following in words[at + 1 :]:
        if following.text.endswith(".py") or following.text in ("-m", "--module"):
            return True
        if following.text.startswith("-"):
            return "ARG" in word.text.upper() or "OPT" in word.text.upper()
    return False
