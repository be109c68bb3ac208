"""The commands of a shell script as words, with the variables that the script itself sets put in. No shell is asked.

What only a shell or the machine could know (`$RANK`, `$(nproc)`, a template's <MODEL>) stays as it is written, in words
that say that they are not known. (`shlex` loses on which line a word stands, and which `$` stood in quotes.)
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from trainwiz.core.importing import engine_names as table
from trainwiz.core.importing.report import Setting
from trainwiz.core.importing.values import Unresolved

LONGEST_WORD = 50_000
"""Characters of one word with its variables: a few lines of A="$A$A" would fill the memory."""
MOST_WORDS = 5_000

_SHELL_INNER = r"\$\(\((?:(?!\)\)).){0,100}\)\)|\$\((?>[^()]|\([^()]*\))*+\)|`[^`]*`"
_VARIABLE = r"\$\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|\$(?:[A-Za-z_]\w*|[0-9@*#?$!-])"
PIECE = re.compile(
    rf"""
    (?P<joined>\\\n) | (?P<escaped>\\(?:.|\Z))
  | \$?(?P<single>'[^']*(?:'|\Z))
  | (?P<double>"(?>\\.|{_SHELL_INNER}|[^"\\])*+(?:"|\Z))
  | (?P<comment>(?<![^\s;&|(])\#[^\n]*)
  | (?P<array>(?<![^\s;&|(])[A-Za-z_]\w*\+?=)\((?P<items>(?>"(?:\\.|[^"\\])*"|'[^']*'|[^()"'])*+)\)
  | (?P<opaque>{_SHELL_INNER}|<[A-Za-z_][\w./-]*(?:\ [\w./-]+)*>|\{{(?=[^{{}}\s]*+\}})[^{{}}\s]*(?:,|\.\.)[^{{}}\s]*\}})
  | (?P<redirect>(?:(?<!\S)\d+|&)?(?:>>|>\||>&|<>|<&|<<<|>|<)[ \t]*&?[^\s;|&()<>]*)
  | (?P<variable>{_VARIABLE})
    """,
    re.VERBOSE | re.DOTALL,
)
IN_QUOTES = re.compile(
    rf"(?P<joined>\\\n)|\\(?P<escaped>[$`\"\\])|(?P<opaque>{_SHELL_INNER})|(?P<variable>{_VARIABLE})|.", re.DOTALL
)
TOKEN = re.compile(r"[;&|()\n]+|[^\s;&|()]+")
BRACED = re.compile(r"(?P<name>[A-Za-z_]\w*|\d|@)(?P<array>\[[@*]\])?(?::?[-=](?P<default>.*))?", re.DOTALL)
ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<add>\+?)=(?P<value>.*)", re.DOTALL)

# Letters of Unicode's private area stand for what is quoted, not known, or to be put in: the rest is plain splitting.
SHIFT = 0xE100
OPEN, CLOSE, EMPTY, IN_TEXT, IN_WORD, JOINED, BETWEEN = (chr(0xE000 + place) for place in range(7))
_SHIFTED = {letter: letter + SHIFT for letter in range(128)}
_PLAIN = {letter + SHIFT: letter for letter in range(128)} | dict.fromkeys(map(ord, (OPEN, CLOSE, EMPTY, JOINED)), None)
_PLAIN[ord(BETWEEN)] = ord(" ")
_SPACES = "".join(chr(ord(letter) + SHIFT) for letter in " \t\n")
_VARIABLES = re.compile(f"([{IN_TEXT}{IN_WORD}])([^{CLOSE}]*){CLOSE}")
_ITEMS = re.compile(f"(?:{OPEN}[^{CLOSE}]*{CLOSE}|[^{BETWEEN}])+")
_SPLIT = re.compile(f"(?:{OPEN}[^{CLOSE}]*{CLOSE}|[^{BETWEEN}{_SPACES}])+")

HERE = re.compile(r"(?:^|(?<=[\s\d;&|)]))<<-?[ \t]*(?P<quote>['\"\\]?)(?P<mark>[A-Za-z_]\w*)(?P=quote)?")

OPENS, CLOSES = frozenset({"if", "for", "while", "until", "case"}), frozenset({"fi", "done", "esac"})
KEYWORDS = OPENS | CLOSES | {"then", "else", "elif", "do", "{", "}", "!", "in", "function"}
SETTERS = frozenset({"export", "declare", "local", "readonly", "typeset", "set", "setenv"})
PROMPTS = frozenset({"$", "%", "#"})


@dataclass(frozen=True, slots=True)
class Word:
    """One word; where `known` is False, `text` holds pieces as they are written."""

    text: str
    line: int
    known: bool = True


@dataclass(slots=True)
class Command:
    """One command: its words, and the environment that the script gives it."""

    line: int
    words: list[Word]
    environment: Mapping[str, Word] = field(default_factory=dict)


@dataclass(slots=True)
class Script:
    """All commands of a text. `unclosed` is the line of a quote that nothing closes, or of a backslash at the end."""

    commands: list[Command]
    unclosed: int | None = None


def read_script(text: str, line: int = 1, given: Mapping[str, str] | None = None) -> Script:
    """The commands of a text in their order; its first line is number `line`. `given`: what its shell finds set."""
    text = _without_documents(text.replace("\r\n", "\n").replace("\r", "\n"))
    shell = _Shell({name: _shift(value) for name, value in (given or {}).items()})
    commands: list[Command] = []
    for tokens in _commands(_marked(text), line):
        command = shell.command(tokens)
        if command is not None:
            commands.append(command)
    unclosed = next((found.start() for found in PIECE.finditer(text) if _is_unclosed(found)), None)
    return Script(commands, None if unclosed is None else line + text.count("\n", 0, unclosed))


def _without_documents(text: str) -> str:
    """The text with its here-documents as empty lines; one that nothing ends goes to the end, as for a shell."""
    kept: list[str] = []
    mark: str | None = None
    for line in text.split("\n"):
        if mark is not None:
            mark = None if line.lstrip("\t") == mark else mark
            kept.append("")
            continue
        found = HERE.search(line) if "$((" not in line and not line.lstrip().startswith("#") else None
        mark = None if found is None else found["mark"]
        kept.append(line if found is None else line[: found.start()] + line[found.end() :])
    return "\n".join(kept)


def _is_unclosed(found: re.Match[str]) -> bool:
    piece = found["single"] or found["double"]
    if piece is not None:
        return len(piece) < 2 or piece[-1] != piece[0]
    return found["escaped"] == "\\"


def _shift(text: str) -> str:
    return text.translate(_SHIFTED)


def _opaque(text: str) -> str:
    return f"{OPEN}{_shift(text)}{CLOSE}"


def _marked(text: str) -> str:
    """The text with all that quotes protect in private letters, so that words are what stands between spaces."""
    return PIECE.sub(_piece, text)


def _piece(found: re.Match[str]) -> str:
    kind = next(kind for kind, piece in found.groupdict().items() if piece is not None)
    whole = found[0]
    if kind == "joined":
        return JOINED
    if kind in ("comment", "redirect"):
        return ""
    if kind == "single":
        return EMPTY + _shift(found["single"][1:].removesuffix("'"))
    if kind == "double":
        return EMPTY + IN_QUOTES.sub(_quoted, whole[1:].removesuffix('"'))
    if kind == "array":
        items = [token for tokens in _commands(_marked(found["items"]), 1) for token, _ in tokens]
        return found["array"] + BETWEEN.join(items) + JOINED * found["items"].count("\n")
    if kind == "escaped":
        return _shift(whole[1:])
    return f"{IN_WORD}{_shift(whole)}{CLOSE}" if kind == "variable" else _opaque(whole)


def _quoted(found: re.Match[str]) -> str:
    if found["joined"]:
        return JOINED
    if found["variable"]:
        return f"{IN_TEXT}{_shift(found[0])}{CLOSE}"
    return _opaque(found[0]) if found["opaque"] else _shift(found["escaped"] or found[0])


def _commands(marked: str, line: int) -> Iterator[list[tuple[str, int]]]:
    """The tokens between two separators, each with its line."""
    current: list[tuple[str, int]] = []
    newlines = re.compile(f"[\n{JOINED}{chr(10 + SHIFT)}]")
    at = 0
    for found in TOKEN.finditer(marked):
        line += len(newlines.findall(marked, at, found.start()))
        at = found.start()
        token = found[0].replace(JOINED, "")
        if found[0][0] in ";&|()\n":
            if current:
                yield current
            current = []
        elif token:
            # Newlines in front of the first letter belong to what was before.
            current.append((token, line + len(found[0]) - len(found[0].lstrip(JOINED))))
    if current:
        yield current


class _Shell:
    """What the script has set so far; values are marked texts."""

    def __init__(self, given: dict[str, str]) -> None:
        self.values = given
        self.exported: dict[str, tuple[str, int]] = {}
        self.depth = 0

    def command(self, tokens: list[tuple[str, int]]) -> Command | None:
        """The command with its variables put in; None for one that only sets variables."""
        tokens = self._without_keywords(tokens)
        prefix: dict[str, tuple[str, int]] = {}
        while tokens and (found := ASSIGNMENT.fullmatch(tokens[0][0])):
            prefix[found["name"]] = (self._assign(found, keep=len(tokens) == 1), tokens[0][1])
            tokens = tokens[1:]
        if not tokens:
            return None
        if tokens[0][0] in SETTERS:
            for token, line in tokens[1:]:
                found = ASSIGNMENT.fullmatch(token)
                if found or token in self.values:
                    name = found["name"] if found else token
                    value = self._assign(found, keep=True) if found else self.values[name]
                    self.exported[name] = (value, line)
            return None
        words = [_word(text, line) for token, line in tokens[:MOST_WORDS] for text in self.expand(token)][:MOST_WORDS]
        environment = {name: _word(value, line) for name, (value, line) in {**self.exported, **prefix}.items()}
        return Command(tokens[0][1], words, environment) if words else None

    def _without_keywords(self, tokens: list[tuple[str, int]]) -> list[tuple[str, int]]:
        while tokens and (tokens[0][0] in KEYWORDS or (tokens[0][0] in PROMPTS and len(tokens) > 1)):
            keyword = tokens[0][0]
            self.depth += (keyword in OPENS) - (keyword in CLOSES)
            if keyword == "for" and len(tokens) > 1:
                self.values[tokens[1][0]] = _opaque(f"${tokens[1][0]}")
            if keyword in ("for", "case", "function"):
                return []
            tokens = tokens[1:]
        return tokens

    def _assign(self, found: re.Match[str], keep: bool) -> str:
        name = found["name"]
        value = BETWEEN.join(_ITEMS.findall(_VARIABLES.sub(self._put_in, found["value"]))).replace(EMPTY, "")
        if found["add"]:
            value = (
                self.values.get(name, "")
                + (BETWEEN if BETWEEN in value or BETWEEN in self.values.get(name, "") else "")
                + value
            )
        if len(value) > LONGEST_WORD:
            value = _opaque(f"${name}")
        if keep:
            # Which branch is taken, only a run would tell.
            differs = self.depth > 0 and self.values.get(name, value) != value
            self.values[name] = _opaque(f"${name}") if differs else value
        return value

    def expand(self, token: str) -> list[str]:
        """The words that one becomes: an unquoted variable with spaces in it becomes several, an empty one none."""
        words: list[str] = []
        current, at = "", 0
        for found in _VARIABLES.finditer(token):
            current += token[at : found.start()]
            at = found.end()
            value = self._value(found[2].translate(_PLAIN))
            whole = found[2].translate(_PLAIN).endswith("[@]}")
            if found[1] == IN_TEXT and not whole:
                pieces = [value.replace(BETWEEN, _shift(" "))]
            else:
                pieces = (_ITEMS if found[1] == IN_TEXT else _SPLIT).findall(value)
            if len(value) > LONGEST_WORD or len(words) > MOST_WORDS:
                return [*words, _opaque("…")]
            current += pieces[0] if pieces else ""
            for piece in pieces[1:]:
                words.append(current)
                current = piece
        current += token[at:]
        return [*words, current] if current else words

    def _put_in(self, found: re.Match[str]) -> str:
        """Inside an assignment nothing is split, but for the items of an array."""
        return self._value(found[2].translate(_PLAIN))

    def _value(self, written: str) -> str:
        inner = written[2:-1] if written.startswith("${") else written[1:]
        found = BRACED.fullmatch(inner)
        if found is None:
            return _opaque(written)
        known = self.values.get(found["name"])
        if known is not None or found["default"] is None:
            return _opaque(written) if known is None else known
        return IN_QUOTES.sub(_quoted, found["default"].strip("\"'")).replace(IN_TEXT, OPEN)


def _word(marked: str, line: int) -> Word:
    return Word(marked.translate(_PLAIN), line, OPEN not in marked)


# Which command starts a training: the launcher behind env, nohup, srun and the like, with its options.

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
