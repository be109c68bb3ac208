"""A launch command, alone or among the plain lines of a shell script: its launcher, its script's arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from trainwiz.core.config.values import OWN, PREFIXES
from trainwiz.core.importing import names as table
from trainwiz.core.importing.engines import CALLED, GPUS, read_launcher
from trainwiz.core.importing.report import Imported, Setting, Unresolved, is_secret, refusal, to
from trainwiz.core.importing.trainer import fill
from trainwiz.core.text import plain_text

# The words of a text, by `shlex`. What only a shell could know stays as it is written.

_SUBSHELL = r"\$\((?>[^()]|\((?>[^()]|\([^()]*\))*+\))*+\)|`[^`]*`"
_OPEN = r"""<[A-Za-z_][\w./-]*(?:\ [\w./-]+)*>|\{(?=[^{}\s"':]*+\})[^{}\s"':]*(?:,|\.\.)[^{}\s"':]*\}"""
PIECE = re.compile(
    rf"""(?P<comment>(?<![^\s;&|(])\#[^\n]*)|(?P<opaque>{_SUBSHELL}|{_OPEN}|\$\{{[^{{}}]*\}})
  | (?P<redirect>(?:(?<!\S)\d+|&)?(?:>>|>&|<&|>|<)[ \t]*&?[^\s<>;|&()]*)
  | (?P<quoted>"(?:{_SUBSHELL}|[^"\\]|\\.)*+"|'[^']*'|\\.)""",
    re.VERBOSE | re.DOTALL,
)
"""What is not for `shlex` to split, or means something else inside of quotes."""
JOINED = "\ue000"
"""The end of a continued line."""
VARIABLE = re.compile(
    r"(?<!\\)\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?::?[-=](?P<default>[^{}$`]*))?\})"
)
UNKNOWN = re.compile(rf"\$[\w{{(@*#?!-]|`|{_OPEN}")
ASSIGNED = re.compile(r"(?P<name>\+{0,2}[A-Za-z_][\w.]*)=(?P<value>.*)", re.DOTALL)
"""Hydra's way too: learning_rate=1e-4."""
SET = re.compile(r"""(?<![^\s;&])([A-Za-z_]\w*)=("(?:[^"\\]|\\.)*+"|'[^']*'|[^\s;&|<>()"'`]*)(?=[\s;&]|$)""")
"""A variable that a script sets."""
ENDS = ";|&()\n"
LONGEST_VALUE = 20_000
"""Characters that variables bring to one; a few lines of B="$A$A" would fill the memory."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word; where `known` is False, `text` holds pieces as they are written."""

    text: str
    line: int
    known: bool = True


def commands_of(text: str) -> list[list[Word]]:
    """The commands of a text in their order, each behind what is exported before it. Raises ValueError for a quote
    that nothing closes."""
    lexer = shlex.shlex(PIECE.sub(_flat, _filled(text.replace("\\\n", JOINED))), posix=True, punctuation_chars=ENDS)
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t", "", True
    commands: list[list[Word]] = []
    exported: dict[str, Word] = {}
    words: list[Word] = []
    line = 1
    for token in [*lexer, "\n"]:
        if token and not token.strip(ENDS):
            if "export" in [word.text for word in words[:2]]:
                exported |= {word.text.partition("=")[0]: word for word in words}
            elif words:
                commands.append([*exported.values(), *words])
            words = []
        elif token.strip(JOINED) or not token:
            # A line continuation between spaces is not a word.
            words.append(Word(token.replace(JOINED, ""), line, UNKNOWN.search(token) is None))
        line += token.count("\n") + token.count(JOINED)
    return commands


def _filled(text: str) -> str:
    """The text with the variables that it sets; of two values, in two branches, only a run would tell which counts."""
    values: dict[str, str | None] = {}
    room = LONGEST_VALUE * 10

    def value(found: re.Match[str]) -> str:
        nonlocal room
        known = values.get(found["name"] or found["braced"], found["default"])
        room -= len(known or "")
        return found[0] if known is None or room < 0 else known

    for name, written in SET.findall(text):
        said = VARIABLE.sub(value, written.strip("\"'").replace(JOINED, " "))
        values[name] = said if values.get(name, said) == said else None
    return VARIABLE.sub(value, text)


def _flat(found: re.Match[str]) -> str:
    """A piece such that `shlex` splits it where a shell would."""
    flat = {"comment": "", "redirect": " ", "quoted": found[0]}
    return flat.get(str(found.lastgroup), shlex.quote(found[0]))


# Which command starts a training: the launcher behind env, nohup, srun and the like, with its options.

_PYTHON = r"python(?:\d+(?:\.\d+)*)?w? (?:-[WX] \S+ |-[bBdEiIOPqsSuvx]\S* )*"
START = re.compile(
    rf"(?<!\S)[!@]?(?:\S*/)?(?:(?:{_PYTHON}-m )?(?:(?P<accelerate>accelerate(?: |-|\.commands\.)launch)"
    r"|(?P<deepspeed>deepspeed(?:\.launcher\.runner)?)|(?P<torchrun>torchrun|torch\.distributed\.(?:run|launch))"
    r"|(?P<axolotl>axolotl)(?= train )|(?P<llamafactory>llamafactory-cli|lmf)(?= train )|(?P<trl>trl)(?= [a-z_]+ )) (?=\S)"
    rf"|(?P<python>{_PYTHON})(?P<module>-m )?(?=[\w./$]))"
)
"""Words that start a training: a launcher, a program with a launcher of its own, or Python with a script. In a notebook "!"
comes first, in a recipe "@"."""
STARTS_SEVERAL = frozenset({"mpirun", "mpiexec", "horovodrun", "srun"})
NOT_TRAINING = table.words(
    "pip pip3 install apt apt-get yum dnf brew npm git wget curl venv pytest unittest tensorboard jupyter huggingface_hub "
    "spacy setup.py http.server json.tool"
) | {"echo", "which"}
"""Scripts and modules that prepare things; a launcher's name behind them is that of a package, or only a text."""
FLAGS = table.words(
    "help quiet cpu multi_gpu tpu enable_cpu_affinity dynamo_use_fullgraph dynamo_use_dynamic "
    "dynamo_use_regional_compilation use_deepspeed use_fsdp use_parallelism_config use_megatron_lm same_network module "
    "no_python tpu_cluster no_tpu_cluster tpu_use_sudo downcast_bf16 fp8_use_autocast_during_eval debug fp16 bf16 use_xpu "
    "ipex use_mps_device standalone run_path virtual_local_rank use_env no_local_rank no_ssh no_ssh_check force_multi "
    "m h save_pid bind_cores_to_rank elastic_training disable_python enable_elastic_training"
)
"""Options of the launchers without a value (accelerate 1.15, torch 2.13, DeepSpeed 0.19 and older releases; a test
compares them with what is installed); all others have one."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One command that starts a training, in its parts."""

    program: str
    line: int
    environment: list[Setting]
    options: Sequence[Word]
    """Of a launcher; the words behind the script are its arguments."""
    script: Word | None
    arguments: Sequence[Word]


def launch_of(command: Sequence[Word]) -> Launch | None:
    text = " ".join(re.sub(r"\s", "_", word.text) for word in command) + " "
    if (found := START.search(text)) is None:
        return None
    at = text.count(" ", 0, found.start())
    rest = command[text.count(" ", 0, found.end()) :]
    names = [PurePosixPath(word.text).name for word in command[:at]]
    program, line = str(found.lastgroup).replace("module", "python"), command[at].line
    if NOT_TRAINING.intersection(names) or (
        program == "python" and {PurePosixPath(rest[0].text).name, rest[0].text.partition(".")[0]} & NOT_TRAINING
    ):
        return None
    environment = [
        _setting(assigned["name"], [replace(word, text=assigned["value"])], word.line)
        for word in command[:at]
        if (assigned := ASSIGNED.fullmatch(word.text)) is not None
    ]
    first = _script_at(rest) if program in ("accelerate", "deepspeed", "torchrun") else 0
    if program == "python":
        # srun and mpirun start processes of their own.
        program = next((name for name in names if name in STARTS_SEVERAL), program)
    script = rest[first] if first < len(rest) else None
    return Launch(program, line, environment, rest[:first], script, rest[first + 1 :])


def _script_at(words: Sequence[Word]) -> int:
    """Where the script stands behind a launcher: the first word that is neither an option nor its value. A word that
    cannot be known is options ($DISTRIBUTED_ARGS) where a script follows."""
    takes_value = False
    last = max((at for at, one in enumerate(words) if one.text.endswith(".py")), default=-1)
    for at, one in enumerate(words):
        if one.text.startswith("-"):
            takes_value = "=" not in one.text and one.text.lstrip("-").replace("-", "_") not in FLAGS
        elif takes_value and not one.text.endswith(".py"):
            takes_value = False
        elif one.known or at >= last:
            return at
    return len(words)


def _setting(name: str, words: Sequence[Word], line: int, written: str = "") -> Setting:
    """A name with its value: True without one, a list for several."""
    texts = [word.text for word in words]
    value: Any = texts[0] if len(texts) == 1 else texts or True
    return Setting(name, value if all(word.known for word in words) else Unresolved(" ".join(texts)), line, written)


# The command as an import.

SFT_SCRIPT = re.compile(r"(run_|train_)?sft(_(?!.*vlm)\w+)?")
"""TRL's scripts: sft, sft_gpt_oss. Those with vlm in their names train models of images."""
SURELY_THE_TRAINERS = 4
"""Of its own arguments; other scripts took over a few of the names, with defaults of their own."""
OF_LAUNCHERS = re.compile(
    r"(ACCELERATE|FSDP)_.*|MASTER_(ADDR|PORT)|(NODE_|LOCAL_)?RANK|(LOCAL_)?WORLD_SIZE|NNODES|NPROC_PER_NODE"
)
NUMBER = re.compile(r"-(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
SETTINGS_FILE = re.compile(r".*\.(?:ya?ml|json)", re.IGNORECASE)
FILE_OPTIONS = table.words("config config_file config_path cfg c args_file recipe training_config")


def read(text: str, file: str) -> Imported:
    """Raises NotImportable for what starts no training, and for a command without a script."""
    text = "\n".join(text.splitlines()).rstrip()
    whole = text.removesuffix("\\")
    try:
        commands = commands_of(whole)
    except ValueError:
        raise refusal("cut_off", file, 1 + text.count("\n")) from None
    launches = [launch for command in commands if (launch := launch_of(command))]
    if not launches:
        said = " ".join(word.text for command in commands[:1] for word in command[:3])
        raise refusal("not_importable.no_launch", file, said=plain_text(said, 60))
    # The first with a launcher of several processes, else the first.
    launch = next((launch for launch in launches if launch.program != "python"), launches[0])
    if launch.script is None:
        raise refusal("not_importable.no_script", file, launch.line, program=launch.program)
    imported = Imported("launch_command", file)
    options = _options(imported, launch.options)
    is_open = bool(imported.unknown) or any(isinstance(option.value, Unresolved) for option in options)
    launcher = read_launcher(file, launch.program, [*_environment(imported, launch), *options])
    imported.inner.append(launcher)
    if is_open:
        # An unknown option may say how many processes there are.
        launcher.defaults.clear()
    _place_script(imported, launch, launch.script)
    if launch.program in STARTS_SEVERAL:
        imported.say(launch.line, "processes_unknown", program=launch.program)
    is_on_cpu = imported.word("use_cpu") == "yes" or "engine.device" in launcher.values
    if launch.program == "python" and not is_on_cpu and len(launcher.values.get(GPUS, ())) != 1:
        imported.say(launch.line, "data_parallel", program="python")
    if len(launches) > 1:
        imported.say(launch.line, "several_trainings", count=len(launches))
    if whole != text:
        imported.say(1 + whole.count("\n"), "cut_off")
    return imported


def _environment(imported: Imported, launch: Launch) -> Iterator[Setting]:
    """The variables in front of a command that its launcher reads; those that the training reads are placed, constants
    that a script only uses in its own lines are left aside."""
    for setting in launch.environment:
        name = setting.name
        if name in CALLED:
            yield setting
        elif OF_LAUNCHERS.fullmatch(name) or is_secret(name):
            imported.drop(setting, table.NO_SECRETS if is_secret(name) else table.HANDLED)
        elif name in OWN or name.startswith(PREFIXES):
            imported.place(setting, to(f"engine.environment.{name}"))


# The script and its arguments.


def _place_script(imported: Imported, launch: Launch, script: Word) -> None:
    """The script itself is read by the caller, where it is here."""
    name = re.split(r"[/.]", script.text.removesuffix(".py"))[-1]
    if not script.known:
        imported.leave_unknown(Setting(script.text, script.text, script.line))
    elif script.text.endswith(".py"):
        imported.references.append(Setting("script", script.text, script.line))
    settings = [one for one in _options(imported, launch.arguments) if not _names_a_file(imported, one)]
    name = "sft" if SFT_SCRIPT.fullmatch(name) else name
    defaults = _defaults_of(launch.program, name, {setting.name for setting in settings})
    fill(imported, settings, [Setting("script", name, script.line)], defaults)


def _defaults_of(program: str, script: str, names: set[str]) -> str:
    """Whose defaults hold for what is left out: the Trainer's where its arguments are used, TRL's for its script."""
    if script == "sft":
        return "SFTConfig" if names - FILE_OPTIONS else ""
    surely = "per_device_train_batch_size" in names or len(table.TRAINERS_OWN & names) >= SURELY_THE_TRAINERS
    return "TrainingArguments" if surely and program not in ("trl", "axolotl") else ""


def _names_a_file(imported: Imported, setting: Setting) -> bool:
    """Whether it was a file of arguments, which is noted as a reference."""
    value = setting.value
    is_file = setting.name in FILE_OPTIONS and isinstance(value, str) and SETTINGS_FILE.fullmatch(value) is not None
    if is_file:
        imported.references.append(Setting("arguments", value, setting.line))
        imported.drop(setting, table.NAMES_A_FILE)
    return is_file


def _options(imported: Imported, words: Sequence[Word]) -> list[Setting]:
    """Options with their values. What is neither is left unknown, such as further arguments in a variable ("$@",
    $EXTRA_ARGS) behind a value."""
    found: list[tuple[str, list[Word], int]] = []
    takes_values = False
    for one in words:
        written, equals, inline = one.text.partition("=")
        is_option = len(one.text) > 1 and one.text.startswith("-") and not NUMBER.fullmatch(one.text)
        is_assigned = ASSIGNED.fullmatch(one.text) is not None
        if takes_values and not is_option and not (found[-1][1] and (is_assigned or not one.known)):
            found[-1][1].append(one)
            continue
        takes_values = is_option and not equals
        if is_option or is_assigned:
            found.append((written.lstrip("-+"), [replace(one, text=inline)] if equals else [], one.line))
        elif one.known and SETTINGS_FILE.fullmatch(one.text):
            found.append(("config", [one], one.line))
        else:
            imported.leave_unknown(Setting(one.text, None if one.known else one.text, one.line))
    return [_setting(written.replace("-", "_"), values, line, written) for written, values, line in found if written]
