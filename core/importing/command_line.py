"""A launch command, alone or in a shell script: which one trains, its launcher, its script's arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from trainwiz.core.config.values import OWN, PREFIXES, SECRET, check_variable_name, check_variable_value
from trainwiz.core.importing import names as table
from trainwiz.core.importing.engines import place_launcher
from trainwiz.core.importing.names import NAMES_A_FILE
from trainwiz.core.importing.report import Became, Imported, Reference, Setting, refusal
from trainwiz.core.importing.trainer import fill, is_known, looks_like_arguments
from trainwiz.core.importing.values import Unresolved, count_of, gpu_list
from trainwiz.core.language import mark
from trainwiz.core.text import plain_text

_SUBSHELL = r"\$\((?>[^()]|\((?>[^()]|\([^()]*\))*+\))*+\)|`[^`]*`|\$[0-9@*\#?!-]"
_VARIABLE = r"\$[A-Za-z_]\w*|\$\{[^{}]*\}"
PIECE = re.compile(
    rf"""(?P<joined>\\\n)|(?P<comment>(?<![^\s;&|(])\#[^\n]*)|(?P<variable>{_VARIABLE})
  | (?P<opaque>{_SUBSHELL}|<[A-Za-z_][\w./-]*(?:\ [\w./-]+)*>|\{{(?=[^{{}}\s]*+\}})[^{{}}\s]*(?:,|\.\.)[^{{}}\s]*\}})
  | (?P<redirect>(?:(?<!\S)\d+|&)?(?:>>|>&|<&|>|<)[ \t]*&?[^\s<>;|&()]*)
  | "(?P<double>(?:{_SUBSHELL}|[^"\\]|\\.)*+)(?P<ends>"?)|'(?P<single>[^']*)(?P<closes>'?)|\\(?P<escaped>.)""",
    re.VERBOSE | re.DOTALL,
)
"""All of a script that is more than plain words, spaces and ends of commands."""
IN_DOUBLE = re.compile(rf'(?P<joined>\\\n)|(?P<variable>{_VARIABLE})|(?P<opaque>{_SUBSHELL})|\\(?P<escaped>[$`"\\])')
FILLED = re.compile(r"(?P<sign>[$\ue002])(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[^{}]*)\})")
BRACED = re.compile(r"(?P<name>[A-Za-z_]\w*)(?::?[-=](?P<default>[^$`]*))?")
ASSIGNED = re.compile(r"(?P<name>\+{0,2}[A-Za-z_][\w.]*)=(?P<value>.*)", re.DOTALL)
"""Hydra's way: learning_rate=1e-4."""
WORD = re.compile(r"[^ \t\n\ue000;|()&]+|[;|()&\n]")
CUT_OFF_LINE = re.compile(r"\\\s*\Z")
OPENS, CLOSES = frozenset({"if", "for", "while", "until", "case"}), frozenset({"fi", "done", "esac"})
KEYWORDS = OPENS | CLOSES | {"then", "else", "elif", "do", "{", "}", "!", "in", "function", "$", "%", "#"}
SETTERS = frozenset({"export", "declare", "local", "readonly", "typeset", "set", "setenv"})
MOST_PUT_IN = 200_000
"""Characters of all that variables bring: a few lines of A="$A$A" would fill the memory."""

# Private-use characters for: a continued line, an unknown value, a variable in quotes, an opening quote, a line continued
# inside a quote; then what a quote protects, and the inside of $(nproc --all), which must not be split into words.
JOINED, NOT_KNOWN, IN_QUOTES, QUOTE, JOINED_IN_QUOTES = "\ue000\ue001\ue002\ue003\ue004"
SPECIAL = " \t\n;|()&$<>#"
PROTECTED = {ord(letter): 0xE100 + ord(letter) for letter in SPECIAL}
OPAQUE = {ord(letter): 0xE200 + ord(letter) for letter in SPECIAL}
UNPROTECTED = {hidden: letter for letter, hidden in PROTECTED.items()} | {ord(QUOTE): None, ord(JOINED_IN_QUOTES): None}
PLAIN = UNPROTECTED | {hidden: letter for letter, hidden in OPAQUE.items()} | {
    ord(JOINED): None, ord(NOT_KNOWN): None, ord(IN_QUOTES): "$"
}  # fmt: skip
LINE_ENDS = re.compile(f"[\n{JOINED}{JOINED_IN_QUOTES}{chr(0xE10A)}{chr(0xE20A)}]")


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
        self.depth = self.put_in = at = 0
        self.line = line
        flat = PIECE.sub(self._flat, whole)
        words: list[tuple[str, int]] = []
        for found in WORD.finditer(flat):
            line, at = line + len(LINE_ENDS.findall(flat, at, found.start())), found.start()
            if found[0] in SPECIAL:
                self._end_command(words)
                words = []
            else:
                words += [(word, line) for word in self._filled(found[0])]
        self._end_command(words)

    def _flat(self, found: re.Match[str]) -> str:
        """A piece such that only its ends are still spaces and ends of commands."""
        kind, text = found.lastgroup or "", found[0]
        if kind in ("ends", "closes") and not found[kind]:
            self.cut_off = self.line + found.string.count("\n", 0, found.start())
        if kind == "ends":
            return QUOTE + IN_DOUBLE.sub(self._in_double, found["double"]).translate(PROTECTED)
        if kind == "closes":
            return QUOTE + found["single"].translate(PROTECTED)
        flat = {"joined": JOINED, "comment": "", "redirect": " ", "variable": text.replace(" ", chr(0xE120))}
        return flat[kind] if kind in flat else self._in_double(found).translate(PROTECTED)

    @staticmethod
    def _in_double(found: re.Match[str]) -> str:
        kind, text = found.lastgroup, found[0]
        if kind == "opaque":
            return NOT_KNOWN + text.translate(OPAQUE)
        return (
            JOINED_IN_QUOTES if kind == "joined" else IN_QUOTES + text[1:] if kind == "variable" else found["escaped"]
        )

    def _filled(self, text: str) -> list[str]:
        """The words that one becomes with the values of its variables, which outside of quotes are split."""
        filled = FILLED.sub(self._value, text)
        return [filled] if filled == text or ASSIGNED.match(text) else filled.split()

    def _value(self, found: re.Match[str]) -> str:
        braced = BRACED.fullmatch(found["name"] or found["braced"].translate(UNPROTECTED))
        value = None if braced is None else self.values.get(braced["name"], braced["default"])
        self.put_in += len(value or "")
        if value is None or self.put_in > MOST_PUT_IN:
            return NOT_KNOWN + found[0].translate(OPAQUE)
        return value if found["sign"] == "$" else value.translate(PROTECTED)

    def _end_command(self, words: list[tuple[str, int]]) -> None:
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
        name, value = found["name"], found["value"].translate(UNPROTECTED)
        if keep:
            # Which branch is taken, only a run would tell.
            differs = self.depth > 0 and self.values.get(name, value) != value
            self.values[name] = f"{NOT_KNOWN}${name}" if differs else value
        return _word(value, line)


def _word(text: str, line: int) -> Word:
    return Word(text.translate(PLAIN), line, NOT_KNOWN not in text)


# Which command starts a training: the launcher behind env, nohup, srun and the like, with its options.

PYTHON = re.compile(r"python(?:\d+(?:\.\d+)*)?w?")
LAUNCHERS: Mapping[str, str] = {
    **dict.fromkeys(("accelerate", "accelerate-launch", "accelerate.commands.launch"), "accelerate"),
    **dict.fromkeys(("torchrun", "torch.distributed.run", "torch.distributed.launch"), "torchrun"),
    **dict.fromkeys(("deepspeed", "deepspeed.launcher.runner"), "deepspeed"),
}
STARTS_SEVERAL = frozenset({"mpirun", "mpiexec", "horovodrun", "srun"})
DEEPEST = 4
TRAINS = ("train", "finetune", "fine_tune", "finetuning", "run_", "sft", "dpo", "tune", "lora")
"""Pieces of the names that people give to scripts that train."""


@dataclass(slots=True)
class Launch:
    """One command that starts a training."""

    program: str
    line: int
    script: Word | None = None
    arguments: list[Word] = field(default_factory=list)
    is_module: bool = False
    options: list[Setting] = field(default_factory=list)
    environment: dict[str, Word] = field(default_factory=dict)
    starter: str = ""
    """The program in front of it that starts processes of its own (srun, mpirun)."""

    def script_name(self) -> str:
        if self.script is None:
            return ""
        return self.script.text.rpartition(".")[2] if self.is_module else PurePosixPath(self.script.text).stem


def launches_of(command: Command, depth: int = 0) -> list[Launch]:
    environment, starter = dict(command.environment), ""
    for at, word in enumerate(command.words):
        name = _basename(word)
        if name in table.STARTS_NOTHING:
            return []
        starter = starter or (name if name in STARTS_SEVERAL else "")
        if " " in word.text and depth < DEEPEST:
            # bash -c "...", eval "$COMMAND"
            inner = [one for part in Script(word.text, word.line).commands for one in launches_of(part, depth + 1)]
        else:
            inner = [launch] if (launch := _launch(command.words[at:])) else []
        if inner:
            return [
                replace(one, environment={**environment, **one.environment}, starter=one.starter or starter)
                for one in inner
            ]
        if (assigned := ASSIGNED.fullmatch(word.text)) is not None:
            environment[assigned["name"]] = Word(assigned["value"], word.line, word.known)
    return []


def _basename(word: Word) -> str:
    # A notebook's "!", a recipe's "@".
    return PurePosixPath(word.text.lstrip("!@")).name


def _launch(words: Sequence[Word]) -> Launch | None:
    """The launch that begins with the first of these words."""
    name, line, rest = _basename(words[0]), words[0].line, list(words[1:])
    if PYTHON.fullmatch(name):
        is_module = False
        while rest and rest[0].text.startswith("-") and not is_module:
            option, rest = rest[0].text, rest[2:] if rest[0].text in ("-W", "-X") else rest[1:]
            if option in ("-", "-c", "-V", "--version", "-h", "--help"):
                return None
            is_module = option == "-m"
        script = rest[0].text if rest else "-"
        named = {script, PurePosixPath(script).name, script.partition(".")[0]}
        if script.startswith(("-", "=", "<", ">", "~", "!")) or named & table.NOT_TRAINING:
            return None
        if not is_module or script not in LAUNCHERS:
            return Launch("python", line, rest[0], rest[1:], is_module)
        name, rest = script, rest[1:]
    first = rest[0].text if rest else ""
    if name == "trl" and re.fullmatch(r"[a-z_]+", first):
        return Launch("trl", line, rest[0], rest[1:], is_module=True)
    if name in table.FRAMEWORKS and first == "train":
        return Launch("framework", line, Word(name, line), rest[1:], is_module=True)
    if name not in LAUNCHERS or not rest or (name == "accelerate" and first != "launch"):
        return None
    return _cut(Launch(LAUNCHERS[name], line), rest[1:] if name == "accelerate" else rest)


def chosen(launches: Sequence[Launch]) -> Launch:
    """The first with a launcher of several processes, else the first whose script seems to train, else the first."""
    launchers = [launch for launch in launches if launch.program != "python"]
    training = [launch for launch in launches if any(piece in launch.script_name().lower() for piece in TRAINS)]
    return (launchers or training or list(launches))[0]


def _cut(launch: Launch, words: list[Word]) -> Launch:
    """Split the words after a launcher's name: its options, the script (the first word that is neither an option nor
    its value), the rest."""
    while words:
        word, words = words[0], words[1:]
        if not word.text.startswith("-") or word.text == "-":
            if _stands_for_options(word, words):
                launch.options.append(Setting("", Unresolved(word.text), word.line, word.text))
                continue
            launch.script, launch.arguments = word, words
            break
        written, equals, inline = word.text.partition("=")
        name = written.lstrip("-").replace("-", "_")
        # Beginnings are completed as argparse does.
        longer = [option for option in table.PER_NODE | table.NODES if option.startswith(name)]
        name = longer[0] if len(longer) == 1 else table.SHORT.get(name, name)
        value = Word(inline, word.line, word.known) if equals else None
        if value is None and words and name not in table.FLAGS and not words[0].text.startswith("-"):
            # The script is never the value of an option.
            value, words = (None, words) if words[0].text.endswith(".py") else (words[0], words[1:])
        launch.is_module |= name == "module"
        given: Any = True if value is None else value.text if value.known else Unresolved(value.text)
        launch.options.append(Setting(name, given, word.line))
    return launch


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


# The command as an import.

SFT_SCRIPT = re.compile(r"(run_|train_)?sft(_(?!.*vlm)\w+)?")
"""TRL's scripts: sft, sft_gpt_oss. Those with vlm in their names train models of images."""
LLAMA_FACTORY = frozenset({"llamafactory-cli", "lmf"})
"""They read NNODES and NPROC_PER_NODE, and give them to torchrun (cli.py)."""
SURELY_THE_TRAINERS = 4
"""Of its own arguments; other scripts took over a few of the names, with defaults of their own."""

NUMBER = re.compile(r"-(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
SETTINGS_FILE = re.compile(r".*\.(?:ya?ml|json)", re.IGNORECASE)
FILE_OPTIONS = frozenset(["config", "config_file", "config_path", "cfg", "c", "args_file", "recipe", "training_config"])
LOOSE = re.compile(r"\$[@*]|\$\{?\w*(?:ARGS|OPTS|OPTIONS)\w*(?:\[@\])?\}?")
"""All further arguments in a variable: "$@", $EXTRA_ARGS."""

SBATCH = re.compile(
    r"^#SBATCH\s(?:.*\s)?(?:--(nodes|ntasks|gpus-per-node|gres|cpus-per-task)[= ]|-([Nnc]) ?)"
    r"(?:gpu:)?(?:[A-Za-z][\w.-]*:)?(\d+)(?=\s|$)",
    re.MULTILINE,
)
SLURM: Mapping[str, str] = {
    **dict.fromkeys(("nodes", "N"), "SLURM_NNODES SLURM_JOB_NUM_NODES"),
    **dict.fromkeys(("ntasks", "n"), "SLURM_NTASKS"),
    **dict.fromkeys(("gres", "gpus-per-node"), "SLURM_GPUS_ON_NODE"),
    **dict.fromkeys(("cpus-per-task", "c"), "SLURM_CPUS_PER_TASK"),
}
"""What a job asks of Slurm -> the variables that it then finds (sbatch(1) of Slurm 24.11)."""


def read(text: str, file: str) -> Imported:
    """Raises NotImportable for what starts no training, and for a command without a script."""
    script = Script(text, given=_slurm_variables(text))
    launches = [launch for command in script.commands for launch in launches_of(command)]
    if not launches:
        said = " ".join(word.text for command in script.commands[:1] for word in command.words[:3])
        raise refusal("not_importable.no_launch", file, said=plain_text(said, 60))
    launch = chosen(launches)
    if launch.script is None:
        raise refusal("not_importable.no_script", file, launch.line, program=launch.program)
    imported = Imported("launch_command", file)
    imported.setup["launcher"] = "torchrun" if launch.program == "framework" else launch.program
    place_launcher(imported, launch.program, [*launch.options, *_of_llama_factory(launch)])
    _place_environment(imported, launch)
    gpus = gpu_list(imported.setup.get("gpu_ids"))
    if launch.program == "python" and launch.starter:
        imported.setup["launcher"] = launch.starter
        imported.say(launch.line, "processes_unknown", program=launch.starter)
    elif launch.program in ("python", "framework") and "num_processes" not in imported.setup and gpus:
        # Plain python feeds every GPU that it sees with DataParallel; as many processes of DDP see the same sequences.
        kind = "MULTI_GPU" if len(gpus) > 1 else "NO"
        imported.setup |= {"num_processes": len(gpus), "distributed_type": kind}
    _place_script(imported, launch)
    if len(launches) > 1:
        imported.say(launch.line, "several_trainings.several", count=len(launches))
    if script.cut_off is not None:
        imported.say(script.cut_off, "cut_off")
    return imported


def _slurm_variables(text: str) -> dict[str, str]:
    """The variables that Slurm sets in a job, as far as the #SBATCH lines in front of its first command say them."""
    header = re.match(r"(?:[ \t]*(?:#[^\n]*)?\n)*", text)
    asked = SBATCH.findall(header[0] if header is not None else "")
    return {name: count for long, short, count in asked for name in SLURM[long or short].split()}


def _of_llama_factory(launch: Launch) -> list[Setting]:
    names = ("NNODES", "NPROC_PER_NODE") if launch.script_name() in LLAMA_FACTORY else ()
    given = [(name, launch.environment.pop(name)) for name in names if name in launch.environment]
    return [Setting(name, word.text if word.known else Unresolved(word.text), word.line) for name, word in given]


# The variables in front of a command (CUDA_VISIBLE_DEVICES=0,1 NCCL_DEBUG=INFO ...).

OF_ACCELERATE = mark("The accelerate launcher reads it; a trainwiz run has its own settings.")
OF_RENDEZVOUS = table.words("MASTER_ADDR MASTER_PORT NODE_RANK RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NNODES")
READ_BY_TRAININGS = (*PREFIXES, "ACCELERATE_", "FSDP_")


def _place_environment(imported: Imported, launch: Launch) -> None:
    """Place the variables that a training reads; constants that a script only uses in its own lines are left aside."""
    for name, word in launch.environment.items():
        setting = Setting(name, word.text if word.known else Unresolved(word.text), word.line)
        if name in OF_RENDEZVOUS:
            imported.drop(setting, table.RENDEZVOUS)
        elif name in OWN or name.startswith(READ_BY_TRAININGS) or SECRET.search(name):
            imported.become(setting, _place_variable(imported, name, word.text) if word.known else None)


def _place_variable(imported: Imported, name: str, value: str) -> Became:
    if name == "CUDA_VISIBLE_DEVICES":
        gpus = [gpu for gpu in gpu_list(value) if gpu not in ("-1", "NoDevFiles")]
        if not gpus:
            imported.setup["use_cpu"] = True
            return {"engine.device": "cpu"}
        # accelerate's own --gpu_ids replaces the variable.
        imported.setup.setdefault("gpu_ids", ",".join(gpus))
        return {"engine.gpus": gpus}
    if name == "OMP_NUM_THREADS" and count_of(value):
        return {"engine.cpu_threads": count_of(value)}
    if name.startswith(("ACCELERATE_", "FSDP_")):
        return OF_ACCELERATE
    try:
        check_variable_name(name)
        check_variable_value(value)
    except ValueError as error:
        return f"{error}."
    return {f"engine.environment.{name}": value}


# The script and its arguments.


def _place_script(imported: Imported, launch: Launch) -> None:
    """The script itself is read by the caller, where it is here."""
    script = launch.script
    assert script is not None
    if not script.known:
        imported.leave_unknown(Setting(script.text, script.text, script.line))
    elif not launch.is_module and script.text.endswith(".py"):
        imported.references.append(Reference("script", script.text, script.line))
    settings = list(_arguments(imported, launch.arguments))
    name = launch.script_name()
    hint = "sft" if SFT_SCRIPT.fullmatch(name) else name
    fill(imported, settings, [Setting("script", hint, script.line)], _defaults_of(launch, name, settings))
    if any(reference.role == "deepspeed" for reference in imported.references):
        # That file says how the processes share the work, not the launcher.
        imported.setup.pop("distributed_type", None)


def _defaults_of(launch: Launch, script: str, settings: Sequence[Setting]) -> str | None:
    """Whose defaults hold for what is left out: the Trainer's where its arguments are used, TRL's for its script."""
    is_sft = SFT_SCRIPT.fullmatch(script) is not None
    if launch.program == "trl" or is_sft:
        return "SFTConfig" if is_sft and settings else None
    if launch.program == "framework" and script not in LLAMA_FACTORY:
        return None
    names = {setting.name for setting in settings}
    surely = "per_device_train_batch_size" in names or looks_like_arguments(names, least=SURELY_THE_TRAINERS)
    return "TrainingArguments" if surely else None


def _arguments(imported: Imported, words: Sequence[Word]) -> Iterator[Setting]:
    """The settings of a script's arguments. Files of arguments are noted as references, and what is neither option nor
    value as unknown."""
    for option, values in _options(words):
        if option is None:
            word = values[0]
            if SETTINGS_FILE.fullmatch(word.text) and not ASSIGNED.fullmatch(word.text):
                _refer(imported, word.text, word)
                continue
            if not ASSIGNED.fullmatch(word.text):
                imported.leave_unknown(Setting(word.text, None if word.known else word.text, word.line))
                continue
            option, values = word, []
        written, equals, inline = option.text.partition("=")
        written = written.lstrip("-+")
        if equals:
            values = [Word(inline, option.line, option.known)]
        value: Any = True if not values else values[0].text if len(values) == 1 else [word.text for word in values]
        if not all(word.known for word in values):
            value = Unresolved(" ".join(word.text for word in values))
        name = written.replace("-", "_")
        on = name.removeprefix("no_")
        if name in FILE_OPTIONS and len(values) == 1 and SETTINGS_FILE.fullmatch(values[0].text):
            _refer(imported, written, values[0])
        elif value is True and on != name and is_known(on) and not is_known(name):
            # HfArgumentParser has --no_NAME for what is on by default.
            yield Setting(on, False, option.line, written)
        else:
            yield Setting(name, value, option.line, written)


def _options(words: Sequence[Word]) -> list[tuple[Word | None, list[Word]]]:
    """(option, its values), and (None, [word]) for what stands for itself: what stands before all options, follows
    one with "=", or is NAME=VALUE behind a value."""
    found: list[tuple[Word | None, list[Word]]] = []
    for word in words:
        option, values = found[-1] if found else (None, [])
        if len(word.text) > 1 and word.text.startswith("-") and not NUMBER.fullmatch(word.text):
            if word.text != "--":
                found.append((word, []))
        elif (
            option is None
            or "=" in option.text
            or (not word.known and LOOSE.fullmatch(word.text))
            or (values and ASSIGNED.fullmatch(word.text))
        ):
            found.append((None, [word]))
        else:
            values.append(word)
    return found


def _refer(imported: Imported, name: str, word: Word) -> None:
    setting = Setting(name, word.text, word.line)
    if word.known:
        imported.references.append(Reference("arguments", word.text, word.line))
        imported.drop(setting, NAMES_A_FILE)
    else:
        imported.leave_unknown(setting)
