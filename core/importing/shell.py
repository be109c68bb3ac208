"""The commands of a shell script as words, and which of them starts a training. No shell is asked.

What only a shell or the machine could know (`$RANK`, `$(nproc)`, a template's <MODEL>) stays as it is written, in words
that say that they are not known.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from trainwiz.core.importing import engine_names as table
from trainwiz.core.importing.report import Setting
from trainwiz.core.importing.values import Unresolved

# The commands of a text as words, with the variables that the text itself sets put in.

_SUBSHELL = r"\$\((?>[^()]|\((?>[^()]|\([^()]*\))*+\))*+\)|`[^`]*`|\$[0-9@*\#?!-]"
_BOTH = r"(?P<joined>\\\n)|\$(?P<name>[A-Za-z_]\w*)|\$\{(?P<braced>[^{}]*)\}"
QUOTED = re.compile(
    rf'{_BOTH}|(?P<opaque>{_SUBSHELL})|(?P<quote>")|\\(?P<escaped>[$`"\\])|(?P<plain>[^"\\`$]+|.)', re.DOTALL
)
BARE = re.compile(
    rf"""{_BOTH}|(?P<comment>(?<![^\s;&|(])\#[^\n]*)
  | (?P<opaque>{_SUBSHELL}|<[A-Za-z_][\w./-]*(?:\ [\w./-]+)*>|\{{(?=[^{{}}\s]*+\}})[^{{}}\s]*(?:,|\.\.)[^{{}}\s]*\}})
  | (?P<redirect>(?:(?<!\S)\d+|&)?(?:>>|>&|<&|>|<)[ \t]*&?[^\s<>;|&()]*)
  | (?P<end>[;|()&\n])|(?P<space>[ \t]+)|(?P<quote>")|'(?P<single>[^']*)'?|\\(?P<escaped>.)
  | (?P<plain>[^\s;&|()'"\\`$<>{{]+|.)""",
    re.VERBOSE | re.DOTALL,
)
"""A piece of a command, within double quotes and outside."""
BRACED = re.compile(r"(?P<name>[A-Za-z_]\w*)(?::?[-=](?P<default>[^$`]*))?")
ASSIGNED = re.compile(r"(?P<name>\+{0,2}[A-Za-z_][\w.]*)=(?P<value>.*)", re.DOTALL)
"""Hydra's way: learning_rate=1e-4."""
CUT_OFF_LINE = re.compile(r"\\\s*\Z")
OPENS, CLOSES = frozenset({"if", "for", "while", "until", "case"}), frozenset({"fi", "done", "esac"})
KEYWORDS = OPENS | CLOSES | {"then", "else", "elif", "do", "{", "}", "!", "in", "function", "$", "%", "#"}
"""With the prompts that people copy."""
SETTERS = frozenset({"export", "declare", "local", "readonly", "typeset", "set", "setenv"})
MOST_PUT_IN = 200_000
"""Characters of all that variables bring: a few lines of A="$A$A" would fill the memory."""
NOT_KNOWN = "\ue001"
HIDDEN = {ord(letter): 0xE100 + ord(letter) for letter in " \t\n"}
"""Private-use characters stand for the spaces of $(nproc --all), which no splitting of words takes apart."""
PLAIN = {hidden: letter for letter, hidden in HIDDEN.items()} | {ord(NOT_KNOWN): None}


@dataclass(frozen=True, slots=True)
class Word:
    """One word; where `known` is False, `text` holds pieces as they are written."""

    text: str
    line: int
    known: bool = True


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its words, and the environment that the script gives it."""

    words: list[Word]
    environment: Mapping[str, Word] = field(default_factory=dict)


class Script:
    """The commands of a text in their order; `cut_off` is the line of a quote that nothing closes, or of a backslash
    at the end."""

    def __init__(self, text: str, line: int = 1, given: Mapping[str, str] | None = None) -> None:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        whole = CUT_OFF_LINE.sub("", text)
        self.cut_off = line + whole.count("\n") if whole != text else None
        self.commands: list[Command] = []
        self.values: dict[str, str] = dict(given or {})
        self.exported: dict[str, Word] = {}
        self.depth = 0
        self.put_in = 0
        self.line = self.started = line
        self.words: list[tuple[str, int]] = []
        self.pieces: list[str] = []
        """Of the word that is read."""
        at, opened = 0, 0
        while found := (QUOTED if opened else BARE).match(whole, at):
            at, kind = found.end(), found.lastgroup or ""
            if kind == "quote":
                opened = 0 if opened else self.line
                self._add("")
            elif kind in ("plain", "single", "escaped"):
                self._add(found[kind])
            elif kind == "opaque":
                self._add(NOT_KNOWN + found[0].translate(HIDDEN))
            elif kind in ("name", "braced"):
                self._put_in(found, opened > 0)
            elif kind in ("space", "end"):
                self._end_word()
            if kind == "end":
                self._end_command()
            if kind == "single" and not found[0][1:].endswith("'"):
                self.cut_off = self.line
            self.line += found[0].count("\n")
        self.cut_off = opened or self.cut_off
        self._end_word()
        self._end_command()

    def _add(self, piece: str) -> None:
        if not self.pieces:
            self.started = self.line
        self.pieces.append(piece)

    def _put_in(self, found: re.Match[str], quoted: bool) -> None:
        """The value of a variable, which outside of quotes is split into words."""
        braced = BRACED.fullmatch(found["name"] or found["braced"])
        value = None if braced is None else self.values.get(braced["name"], braced["default"])
        self.put_in += len(value or "")
        if value is None or self.put_in > MOST_PUT_IN:
            self._add(NOT_KNOWN + found[0].translate(HIDDEN))
        elif quoted or (self.pieces and self.pieces[-1].endswith("=")):
            self._add(value)
        else:
            for part in re.findall(r"\s+|\S+", value):
                if part.isspace():
                    self._end_word()
                else:
                    self._add(part)

    def _end_word(self) -> None:
        if self.pieces:
            self.words.append(("".join(self.pieces), self.started))
            self.pieces = []

    def _end_command(self) -> None:
        words, self.words = self.words, []
        while words and words[0][0] in KEYWORDS:
            keyword = words[0][0]
            self.depth += (keyword in OPENS) - (keyword in CLOSES)
            words = [] if keyword in ("for", "case", "function") else words[1:]
        prefix: dict[str, Word] = {}
        while words and (found := ASSIGNED.fullmatch(words[0][0])):
            prefix[found["name"]] = self._assign(found, words[0][1], keep=len(words) == 1)
            words = words[1:]
        if words and words[0][0] in SETTERS:
            for text, at in words[1:]:
                if (found := ASSIGNED.fullmatch(text)) is not None:
                    self.exported[found["name"]] = self._assign(found, at, keep=True)
                elif text in self.values:
                    self.exported[text] = _word(self.values[text], at)
        elif words:
            self.commands.append(Command([_word(text, at) for text, at in words], {**self.exported, **prefix}))

    def _assign(self, found: re.Match[str], line: int, keep: bool) -> Word:
        name, value = found["name"], found["value"]
        if keep:
            # Which branch is taken, only a run would tell.
            differs = self.depth > 0 and self.values.get(name, value) != value
            self.values[name] = f"{NOT_KNOWN}${name}" if differs else value
        return _word(value, line)


def _word(text: str, line: int) -> Word:
    return Word(text.translate(PLAIN), line, NOT_KNOWN not in text)


# Which command starts a training: the launcher behind env, nohup, srun and the like, with its options.

PYTHON = re.compile(r"python(?:\d+(?:\.\d+)*)?w?")
PYTHON_VALUES = ("-W", "-X", "--check-hash-based-pycs")
LAUNCHERS: Mapping[str, str] = {
    "accelerate-launch": "accelerate", "torchrun": "torchrun", "deepspeed": "deepspeed", "deepspeed.pt": "deepspeed",
    "ds": "deepspeed",
}  # fmt: skip
MODULES: Mapping[str, str] = {
    **dict.fromkeys(("torch.distributed.run", "torch.distributed.launch"), "torchrun"),
    **dict.fromkeys(("accelerate.commands.launch", "accelerate.commands.accelerate_cli", "accelerate"), "accelerate"),
    **dict.fromkeys(("deepspeed", "deepspeed.launcher.runner"), "deepspeed"),
}
SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
STARTS_SEVERAL = frozenset({"mpirun", "mpiexec", "horovodrun", "srun"})
DEEPEST = 4
"""Commands within quotes within commands."""
TRAINS = ("train", "finetune", "fine_tune", "finetuning", "pretrain", "run_", "sft", "dpo", "tune", "lora")
"""Pieces of the names that people give to scripts that train."""


@dataclass(slots=True)
class Launch:
    """One command that starts a training."""

    program: str
    line: int
    environment: dict[str, Word] = field(default_factory=dict)
    starter: str = ""
    """The program in front of it that starts processes of its own (srun, mpirun)."""
    old_name: str = ""
    """How the launcher is written, where it has another name today."""
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


def launches_of(command: Command, depth: int) -> list[Launch]:
    words = command.words
    environment, starter = dict(command.environment), ""
    for at, word in enumerate(words):
        name = _basename(word)
        if name in table.INSTALLS:
            return []
        starter = starter or (name if name in STARTS_SEVERAL else "")
        inner = _in_quotes(words[at:], depth)
        if inner is None:
            launch = _launch(words[at:])
            inner = None if launch is None else [launch]
        if inner is not None:
            return [
                replace(one, environment={**environment, **one.environment}, starter=one.starter or starter)
                for one in inner
            ]
        if _basename(words[0]) not in table.WRAPPERS:
            return []
        if (assigned := ASSIGNED.fullmatch(word.text)) is not None:
            environment[assigned["name"]] = Word(assigned["value"], word.line, word.known)
    return []


def _in_quotes(words: Sequence[Word], depth: int) -> list[Launch] | None:
    """The commands in `bash -c "..."` and `eval "..."`."""
    text = None
    if words[0].text == "eval":
        text = " ".join(word.text for word in words[1:])
    elif _basename(words[0]) in SHELLS:
        text = next(
            (after.text for word, after in itertools.pairwise(words) if re.fullmatch(r"-\w*c", word.text)), None
        )
    if text is None or depth >= DEEPEST:
        return None
    return [launch for command in Script(text, words[0].line).commands for launch in launches_of(command, depth + 1)]


def _basename(word: Word) -> str:
    # A notebook's "!", a recipe's "@".
    return PurePosixPath(word.text.lstrip("!@")).name


def _launch(words: Sequence[Word]) -> Launch | None:
    """The launch that begins with the first of these words."""
    name, line, rest = _basename(words[0]), words[0].line, list(words[1:])
    first = rest[0].text if rest else ""
    if name == "accelerate" and first == "launch":
        return _cut(Launch("accelerate", line), rest[1:])
    if name in LAUNCHERS and rest:
        return _cut(Launch(LAUNCHERS[name], line), rest)
    if name == "trl" and re.fullmatch(r"[a-z_]+", first):
        return Launch("trl", line, script=rest[0], is_module=True, arguments=rest[1:])
    if name in table.FRAMEWORKS and first == "train":
        return Launch("framework", line, script=Word(name, line), is_module=True, arguments=rest[1:])
    return _python(rest, line) if PYTHON.fullmatch(name) else None


def _python(words: list[Word], line: int) -> Launch | None:
    while words and words[0].text.startswith("-") and words[0].text != "-":
        option = words[0].text
        if option in ("-c", "-V", "--version", "-h", "--help"):
            return None
        if option.startswith("-m"):
            return _module([*([Word(option[2:], line)] if len(option) > 2 else []), *words[1:]], line)
        words = words[2:] if option in PYTHON_VALUES else words[1:]
    if not words or PurePosixPath(words[0].text).name in table.NOT_TRAINING or words[0].text[:1] in ("-", *"=<>~!"):
        return None
    return Launch("python", line, script=words[0], arguments=words[1:])


def _module(words: list[Word], line: int) -> Launch | None:
    if not words or {words[0].text, words[0].text.partition(".")[0]} & table.NOT_TRAINING:
        return None
    name, rest = words[0].text, words[1:]
    if name not in MODULES:
        return Launch("python", line, script=words[0], is_module=True, arguments=rest)
    rest = rest[1:] if MODULES[name] == "accelerate" and rest and rest[0].text == "launch" else rest
    return _cut(Launch(MODULES[name], line, old_name=name if name == "torch.distributed.launch" else ""), rest)


def chosen(launches: Sequence[Launch]) -> Launch:
    """The first with a launcher of several processes, else the first whose script seems to train, else the first."""
    launchers = [launch for launch in launches if launch.program != "python"]
    training = [launch for launch in launches if any(piece in launch.script_name().lower() for piece in TRAINS)]
    return (launchers or training or list(launches))[0]


def _cut(launch: Launch, words: list[Word]) -> Launch:
    """Cut the words behind a launcher's name: its options, the script (the first word that is no option and no value
    of one), the rest."""
    program = launch.program
    flags, values = table.FLAGS[program], table.VALUES[program]
    while words:
        word, words = words[0], words[1:]
        if not word.text.startswith("-") or word.text == "-":
            if _stands_for_options(word, words):
                launch.options.append(Setting("", Unresolved(word.text), word.line, word.text))
                continue
            launch.script, launch.arguments = word, words
            break
        written, equals, inline = word.text.partition("=")
        name = _option_name(program, written, flags | values)
        known = name in flags or name in values or (program == "accelerate" and name.startswith(table.ANY_VALUES))
        value = Word(inline, word.line, word.known) if equals else None
        loose = words and not words[0].text.startswith("-") and not words[0].text.endswith(".py")
        if value is None and words and (name not in flags if known else loose):
            value, words = words[0], words[1:]
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


def _stands_for_options(word: Word, behind: Sequence[Word]) -> bool:
    """A word that cannot be known is options ($DISTRIBUTED_ARGS) where a script follows; else it is the script."""
    if word.known or not word.text.startswith(("$", "<")):
        return False
    for following in behind:
        if following.text.endswith(".py") or following.text in ("-m", "--module"):
            return True
        if following.text.startswith("-"):
            return "ARG" in word.text.upper() or "OPT" in word.text.upper()
    return False
