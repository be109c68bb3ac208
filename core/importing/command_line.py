"""A launch command, alone or among the plain lines of a shell script: its launcher, its script's arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from trainwiz.core.config.values import OWN, PREFIXES
from trainwiz.core.importing import names as table
from trainwiz.core.importing.engines import GPUS, MACHINES, PER_NODE, RENDEZVOUS, read_launcher
from trainwiz.core.importing.report import Imported, Setting, Unresolved, is_secret, refusal
from trainwiz.core.importing.trainer import fill, is_known
from trainwiz.core.language import mark
from trainwiz.core.text import plain_text

# The words of a text, by `shlex`. What only a shell could know stays as it is written.

_SUBSHELL = r"\$\((?>[^()]|\((?>[^()]|\([^()]*\))*+\))*+\)|`[^`]*`"
_OPEN = r"""<[A-Za-z_][\w./-]*(?:\ [\w./-]+)*>|\{(?=[^{}\s"':]*+\})[^{}\s"':]*(?:,|\.\.)[^{}\s"':]*\}"""
PIECE = re.compile(
    rf"""(?P<joined>\\\n)|(?P<comment>(?<![^\s;&|(])\#[^\n]*)|(?P<opaque>{_SUBSHELL}|{_OPEN}|\$\{{[^{{}}]*\}})
  | (?P<redirect>(?:(?<!\S)\d+|&)?(?:>>|>&|<&|>|<)[ \t]*&?[^\s<>;|&()]*)
  | (?P<quoted>"(?:{_SUBSHELL}|[^"\\]|\\.)*+"|'[^']*'|\\.)""",
    re.VERBOSE | re.DOTALL,
)
"""What is not for `shlex` to split, or means something else inside of quotes."""
JOINED, DOLLAR, LESS, IN_QUOTES = "\ue000\ue001\ue002\ue003"
"""A continued line; what is only a letter between quotes; the "$" of a variable whose value is not split."""
PLAIN = {ord(JOINED): None, ord(DOLLAR): "$", ord(LESS): "<", ord(IN_QUOTES): "$"}
VARIABLE = re.compile(
    r"[$\ue003](?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?::?[-=](?P<default>[^{}$`]*))?\})"
)
UNKNOWN = re.compile(rf"[$\ue003][\w{{(@*#?!-]|`|{_OPEN}")
ASSIGNED = re.compile(r"(?P<name>\+{0,2}[A-Za-z_][\w.]*)=(?P<value>.*)", re.DOTALL)
"""Hydra's way too: learning_rate=1e-4."""
ENDS = ";|&()\n"
KEYWORDS = table.words("if then else elif fi while until do done { } ! $ % # export declare local readonly")
"""Words before a command or an assignment that are not part of it."""
MOST_PUT_IN = 200_000
"""Characters of all that variables bring: a few lines of B="$A$A" would fill the memory."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word; where `known` is False, `text` holds pieces as they are written."""

    text: str
    line: int
    known: bool = True


class Script:
    """The commands of a text in their order. Raises ValueError for a quote that nothing closes."""

    def __init__(self, text: str) -> None:
        self.commands: list[list[Word]] = []
        self.values: dict[str, str] = {}
        self.exported: dict[str, Word] = {}
        self.put_in = 0
        lexer = shlex.shlex(PIECE.sub(_flat, text), posix=True, punctuation_chars=ENDS)
        lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t", "", True
        words: list[Word] = []
        line = 1
        for token in [*lexer, "\n"]:
            if token and not token.strip(ENDS):
                self._end_command(words)
                words = []
            elif token.strip(JOINED) or not token:
                # A line continuation between spaces is not a word.
                filled = VARIABLE.sub(self._value, token)
                is_split = token.startswith("$") and not filled.startswith("$")
                for part in filled.split() if is_split else [filled]:
                    words.append(Word(part, line, UNKNOWN.search(part) is None))
            line += token.count("\n") + token.count(JOINED)

    def _value(self, found: re.Match[str]) -> str:
        value = self.values.get(found["name"] or found["braced"], found["default"])
        self.put_in += len(value or "")
        return found[0] if value is None or self.put_in > MOST_PUT_IN else value

    def _end_command(self, words: list[Word]) -> None:
        exports = any(word.text == "export" for word in words[:1])
        while words and words[0].text in KEYWORDS:
            words = words[1:]
        assigned = [(found, word) for word in words if (found := ASSIGNED.fullmatch(word.text)) is not None]
        if len(assigned) < len(words):
            words = [*self.exported.values(), *words]
            self.commands.append([replace(word, text=word.text.translate(PLAIN)) for word in words])
            return
        for found, word in assigned:
            name, value = found["name"], found["value"].replace(JOINED, "")
            # Of two values, in two branches, only a run would tell which one counts.
            self.values[name] = value if self.values.get(name, value) == value else f"${name}"
            if exports:
                self.exported[name] = word


def _flat(found: re.Match[str]) -> str:
    """A piece such that `shlex` splits it where a shell would."""
    kind, text = found.lastgroup, found[0]
    if kind == "quoted":
        text = text.replace("<", LESS)
        if text[0] != '"':
            return text.replace("$", DOLLAR)
        return text.replace("\\\n", JOINED).replace("\\$", DOLLAR).replace("$", IN_QUOTES)
    return {"joined": JOINED, "comment": "", "redirect": " "}.get(str(kind), shlex.quote(text))


# Which command starts a training: the launcher behind env, nohup, srun and the like, with its options.

PYTHON = re.compile(r"python(?:\d+(?:\.\d+)*)?w?")
LAUNCHERS: Mapping[str, str] = {
    **dict.fromkeys(("accelerate", "accelerate-launch", "accelerate.commands.launch"), "accelerate"),
    **dict.fromkeys(("torchrun", "torch.distributed.run", "torch.distributed.launch"), "torchrun"),
    **dict.fromkeys(("deepspeed", "deepspeed.launcher.runner"), "deepspeed"),
}
FRAMEWORKS = table.words("llamafactory-cli lmf axolotl")
"""Programs that start their processes by themselves, with the command `train`."""
LLAMA_FACTORY = frozenset({"llamafactory-cli", "lmf"})
"""They read NNODES and NPROC_PER_NODE, and give them to torchrun (cli.py)."""
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
    "save_pid bind_cores_to_rank elastic_training disable_python enable_elastic_training"
)
"""Options of the launchers without a value (accelerate 1.15, torch 2.13, DeepSpeed 0.19 and older releases; a test
compares them with what is installed); all others have one."""
SHORT: Mapping[str, str] = {"h": "help", "m": "module", "H": "hostfile", "i": "include", "e": "exclude"}


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


def launch_of(command: Sequence[Word]) -> Launch | None:
    environment: dict[str, Word] = {}
    starter = ""
    for at, one in enumerate(command):
        # A notebook's "!", a recipe's "@".
        name = PurePosixPath(one.text.lstrip("!@")).name
        is_option = at > 0 and command[at - 1].text.startswith("-")
        if not is_option and (assigned := ASSIGNED.fullmatch(one.text)) is not None:
            environment[assigned["name"]] = Word(assigned["value"], one.line, one.known)
        elif name in NOT_TRAINING:
            return None
        elif launch := _launch(name, one.line, list(command[at + 1 :])):
            launch.environment, launch.starter = environment, starter
            return launch
        elif name in STARTS_SEVERAL:
            starter = name
    return None


def _launch(name: str, line: int, rest: list[Word]) -> Launch | None:
    """The launch that begins with the program `name`."""
    if PYTHON.fullmatch(name):
        is_module = False
        while rest and rest[0].text.startswith("-") and not is_module:
            option, rest = rest[0].text, rest[2:] if rest[0].text in ("-W", "-X") else rest[1:]
            if option in ("-", "-c", "-V", "--version", "-h", "--help"):
                return None
            is_module = option == "-m"
        script = rest[0].text if rest else "-"
        named = {script, PurePosixPath(script).name, script.partition(".")[0]}
        if script.startswith(("-", "=", "<", ">", "~", "!")) or named & NOT_TRAINING:
            return None
        if not is_module or script not in LAUNCHERS:
            return Launch("python", line, rest[0], rest[1:], is_module)
        name, rest = script, rest[1:]
    first = rest[0].text if rest else ""
    if name == "trl" and re.fullmatch(r"[a-z_]+", first):
        return Launch("trl", line, rest[0], rest[1:], is_module=True)
    if name in FRAMEWORKS and first == "train":
        return Launch("framework", line, Word(name, line), rest[1:], is_module=True)
    if name not in LAUNCHERS or not rest or (name == "accelerate" and first != "launch"):
        return None
    return _cut(Launch(LAUNCHERS[name], line), rest[1:] if name == "accelerate" else rest)


def _cut(launch: Launch, words: list[Word]) -> Launch:
    """Split the words after a launcher's name: its options, the script (the first word that is neither an option nor
    its value), the rest."""
    while words:
        one, words = words[0], words[1:]
        if not one.text.startswith("-") or one.text == "-":
            # A word that cannot be known is options ($DISTRIBUTED_ARGS) where a script follows.
            if not one.known and any(other.text.endswith(".py") or other.text == "-m" for other in words):
                launch.options.append(Setting("", Unresolved(one.text), one.line, one.text))
                continue
            launch.script, launch.arguments = one, words
            break
        written, equals, inline = one.text.partition("=")
        name = written.lstrip("-").replace("-", "_")
        # Beginnings are completed as argparse does.
        longer = [option for option in PER_NODE | MACHINES if option.startswith(name)]
        name = longer[0] if len(longer) == 1 else SHORT.get(name, name)
        value = Word(inline, one.line, one.known) if equals else None
        # The script is never the value of an option.
        if not equals and words and name not in FLAGS and not words[0].text.startswith("-"):
            value, words = (None, words) if words[0].text.endswith(".py") else (words[0], words[1:])
        launch.is_module |= name == "module"
        launch.options.append(_setting(name, [] if value is None else [value], one.line))
    return launch


# The command as an import.

SFT_SCRIPT = re.compile(r"(run_|train_)?sft(_(?!.*vlm)\w+)?")
"""TRL's scripts: sft, sft_gpt_oss. Those with vlm in their names train models of images."""
SURELY_THE_TRAINERS = 4
"""Of its own arguments; other scripts took over a few of the names, with defaults of their own."""
OF_ACCELERATE = mark("The accelerate launcher reads it; a trainwiz run has its own settings.")
OF_RENDEZVOUS = table.words("MASTER_ADDR MASTER_PORT NODE_RANK RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NNODES")
NUMBER = re.compile(r"-(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
SETTINGS_FILE = re.compile(r".*\.(?:ya?ml|json)", re.IGNORECASE)
FILE_OPTIONS = table.words("config config_file config_path cfg c args_file recipe training_config")


def read(text: str, file: str) -> Imported:
    """Raises NotImportable for what starts no training, and for a command without a script."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").rstrip()
    whole = text.removesuffix("\\")
    try:
        commands = Script(whole).commands
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
    environment = list(_environment(imported, launch))
    launcher = read_launcher(file, launch.program, [*environment, *launch.options])
    imported.inner.append(launcher)
    if launch.starter and launch.program == "python":
        launcher.defaults.clear()
        imported.say(launch.line, "processes_unknown", program=launch.starter)
    _place_script(imported, launch, launch.script)
    is_on_cpu = imported.word("use_cpu") == "yes" or "engine.device" in launcher.values
    if launch.program == "python" and not (launch.starter or is_on_cpu or len(launcher.values.get(GPUS, ())) == 1):
        imported.say(launch.line, "data_parallel", program="python")
    if len(launches) > 1:
        imported.say(launch.line, "several_trainings", count=len(launches))
    if whole != text:
        imported.say(1 + whole.count("\n"), "cut_off")
    return imported


def _setting(name: str, words: Sequence[Word], line: int, written: str = "") -> Setting:
    """A name with its value: True without one, a list for several."""
    value: Any = True if not words else words[0].text if len(words) == 1 else [word.text for word in words]
    if not all(word.known for word in words):
        value = Unresolved(" ".join(word.text for word in words))
    return Setting(name, value, line, written)


def _environment(imported: Imported, launch: Launch) -> Iterator[Setting]:
    """The variables in front of a command that its launcher reads; those that the training reads are placed, constants
    that a script only uses in its own lines are left aside."""
    for name, value in launch.environment.items():
        setting = _setting(name, [value], value.line)
        if name in PER_NODE | MACHINES and launch.script_name() in LLAMA_FACTORY:
            yield setting
        elif name == "CUDA_VISIBLE_DEVICES" and value.known:
            yield setting.called("gpu_ids", value.text or "-1")
        elif name == "OMP_NUM_THREADS" and value.known:
            yield setting.called("num_cpu_threads_per_process")
        elif name in OF_RENDEZVOUS:
            imported.drop(setting, RENDEZVOUS)
        elif name.startswith(("ACCELERATE_", "FSDP_")):
            imported.drop(setting, OF_ACCELERATE)
        elif is_secret(name):
            imported.drop(setting, table.NO_SECRETS)
        elif name in OWN or name.startswith(PREFIXES):
            imported.become(setting, {f"engine.environment.{name}": value.text} if value.known else None)


# The script and its arguments.


def _place_script(imported: Imported, launch: Launch, script: Word) -> None:
    """The script itself is read by the caller, where it is here."""
    name = launch.script_name()
    if not script.known:
        imported.leave_unknown(Setting(script.text, script.text, script.line))
    elif not launch.is_module and script.text.endswith(".py"):
        imported.references.append(Setting("script", script.text, script.line))
    settings = list(_arguments(imported, launch.arguments))
    is_sft = SFT_SCRIPT.fullmatch(name) is not None
    hint = Setting("script", "sft" if is_sft else name, script.line)
    fill(imported, settings, [hint], _defaults_of(launch, is_sft, {setting.name for setting in settings}))


def _defaults_of(launch: Launch, is_sft: bool, names: set[str]) -> str:
    """Whose defaults hold for what is left out: the Trainer's where its arguments are used, TRL's for its script."""
    if launch.program == "trl" or is_sft:
        return "SFTConfig" if is_sft and names else ""
    if launch.program == "framework" and launch.script_name() not in LLAMA_FACTORY:
        return ""
    surely = "per_device_train_batch_size" in names or len(table.TRAINERS_OWN & names) >= SURELY_THE_TRAINERS
    return "TrainingArguments" if surely else ""


def _arguments(imported: Imported, words: Sequence[Word]) -> Iterator[Setting]:
    """The settings of a script's arguments. Files of arguments are noted as references, and what is neither option nor
    value as unknown."""
    for option, values in _options(words):
        written, equals, inline = option.text.partition("=")
        name = written.lstrip("-+").replace("-", "_")
        if equals:
            values = [Word(inline, option.line, option.known)]
        if not option.text.startswith("-") and not equals:
            written, name, values = option.text, "config", [option]
        setting = _setting(name, values, option.line, written.lstrip("-+"))
        if name in FILE_OPTIONS and len(values) == 1 and SETTINGS_FILE.fullmatch(values[0].text):
            if values[0].known:
                imported.references.append(Setting("arguments", values[0].text, option.line))
            imported.become(setting, table.NAMES_A_FILE if values[0].known else None)
        elif values == [option]:
            imported.leave_unknown(Setting(written, None if option.known else written, option.line))
        elif not values and name.startswith("no_") and is_known(name[3:]) and not is_known(name):
            # HfArgumentParser has --no_NAME for what is on by default.
            yield setting.called(name[3:], False)
        else:
            yield setting


def _options(words: Sequence[Word]) -> list[tuple[Word, list[Word]]]:
    """Options with their values; for itself stands what comes before all options, NAME=VALUE, and further arguments
    in a variable ("$@", $EXTRA_ARGS) behind a value."""
    found: list[tuple[Word, list[Word]]] = []
    for one in words:
        option, values = found[-1] if found else (None, [])
        is_option = len(one.text) > 1 and one.text.startswith("-") and not NUMBER.fullmatch(one.text)
        takes_none = option is None or "=" in option.text or not option.text.startswith("-")
        if is_option or takes_none or (values and (not one.known or ASSIGNED.fullmatch(one.text))):
            found += [(one, [])] if one.text != "--" else []
        else:
            values.append(one)
    return found
