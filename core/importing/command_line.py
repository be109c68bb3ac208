"""A launch command, alone or in a script."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from trainwiz.core.importing.accelerate import read_accelerate
from trainwiz.core.importing.command_line_launch import Launch, find_launches, read_deepspeed_launcher, read_torchrun
from trainwiz.core.importing.command_line_options import Taken, read_environment, take
from trainwiz.core.importing.report import Collector, Imported, gpu_list, refusal
from trainwiz.core.importing.settings import Setting, Unresolved
from trainwiz.core.importing.shell_words import Script, Word, read_script
from trainwiz.core.importing.slurm_job import basename, drop_the_rest, read_alone, read_job, say_processes_unknown
from trainwiz.core.importing.training_arguments import fill, looks_like_arguments
from trainwiz.core.importing.training_arguments_dropped import Hint
from trainwiz.core.importing.training_arguments_engine import NAMES_A_FILE
from trainwiz.core.importing.training_arguments_names import is_argument
from trainwiz.core.language import tr
from trainwiz.core.text import plain_text

# The arguments behind a script's name -> settings, without the script.

NUMBER = re.compile(r"-(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
SETTINGS_FILE = re.compile(r".*\.(?:ya?ml|json)", re.IGNORECASE)
FILE_OPTIONS = frozenset({"config", "config_file", "config_path", "cfg", "c", "args_file", "recipe", "training_config"})
"""Options that name a file of arguments."""
ASSIGNED = re.compile(r"(?P<name>\+{0,2}[A-Za-z_][\w.]*)=(?P<value>.*)", re.DOTALL)
"""Hydra's way: learning_rate=1e-4."""


def read_arguments(words: Sequence[Word], collector: Collector) -> list[Setting]:
    """The settings of a script's arguments. Files of arguments are noted as references, and what is neither option nor
    value as unknown."""
    settings: list[Setting] = []
    for option, values in _options(words):
        if option is None:
            _positional(values[0], settings, collector)
            continue
        written, equals, inline = option.text.partition("=")
        name = written.lstrip("-").replace("-", "_")
        if equals:
            values = [Word(inline, option.line, option.known), *values]
        if not option.known and not equals:
            collector.unknown(option.text, option.text, option.line)
            continue
        setting = Setting(name, _value(values), option.line, written.lstrip("-"))
        if name in FILE_OPTIONS and len(values) == 1 and SETTINGS_FILE.fullmatch(values[0].text):
            _refer(setting.written, values[0], collector)
        else:
            settings.append(_switched_off(setting))
    return settings


def _options(words: Sequence[Word]) -> list[tuple[Word | None, list[Word]]]:
    """(option, its values), and (None, [word]) for what stands before all options. An option whose value is behind
    "=" has no others: what follows it stands for itself."""
    found: list[tuple[Word | None, list[Word]]] = []
    for word in words:
        if word.text == "--":
            continue
        if _is_option(word):
            found.append((word, []))
        elif found and _takes(found[-1], word):
            found[-1][1].append(word)
        else:
            found.append((None, [word]))
    return found


def _is_option(word: Word) -> bool:
    return len(word.text) > 1 and word.text.startswith("-") and not NUMBER.fullmatch(word.text)


def _is_loose(word: Word) -> bool:
    """All further arguments in a variable: "$@", $EXTRA_ARGS."""
    return not word.known and bool(re.fullmatch(r"\$[@*]|\$\{?\w*(?:ARGS|OPTS|OPTIONS)\w*(?:\[@\])?\}?", word.text))


def _takes(option: tuple[Word | None, list[Word]], word: Word) -> bool:
    """The word is a value of the option before it; behind the first one NAME=VALUE stands for itself."""
    name, values = option
    if name is None or "=" in name.text or _is_loose(word):
        return False
    return not values or ASSIGNED.fullmatch(word.text) is None


def _value(values: Sequence[Word]) -> Any:
    if not values:
        return True
    if any(not value.known for value in values):
        return Unresolved(" ".join(value.text for value in values))
    return values[0].text if len(values) == 1 else [value.text for value in values]


def _switched_off(setting: Setting) -> Setting:
    """HfArgumentParser has --no_NAME for what is on by default."""
    name = setting.name.removeprefix("no_")
    if name != setting.name and setting.value is True and not is_argument(setting.name) and is_argument(name):
        return Setting(name, False, setting.line, setting.written)
    return setting


def _positional(word: Word, settings: list[Setting], collector: Collector) -> None:
    assigned = ASSIGNED.fullmatch(word.text)
    if SETTINGS_FILE.fullmatch(word.text) and assigned is None:
        _refer(word.text, word, collector)
    elif assigned is not None:
        name = assigned["name"].lstrip("+")
        value: Any = assigned["value"] if word.known else Unresolved(assigned["value"])
        settings.append(Setting(name, value, word.line, name))
    else:
        collector.unknown(word.text, None if word.known else word.text, word.line)


def _refer(name: str, word: Word, collector: Collector) -> None:
    if word.known:
        collector.refer("arguments", word.text, word.line)
        collector.drop(name, word.text, NAMES_A_FILE, word.line)
    else:
        collector.unknown(name, word.text, word.line)


# A launch command, alone or in a shell script: read word by word, never run, and no shell is asked.

TRAINS = ("train", "finetune", "fine_tune", "finetuning", "pretrain", "run_", "sft", "dpo", "tune", "lora")
"""Pieces of the names that people give to scripts that train."""
SURELY_THE_TRAINERS = 4
"""Of its own arguments; other scripts took over a few of the names, with defaults of their own."""
SFT_SCRIPTS = frozenset({"sft", "run_sft", "train_sft", "sft_trainer"})
COUNTS_IN_ENVIRONMENT = frozenset({"llamafactory-cli", "lmf", "swift"})
"""Frameworks that read NNODES and NPROC_PER_NODE."""
THE_TRAINERS_DEFAULTS = frozenset({"llamafactory-cli", "lmf"})
"""Frameworks whose arguments are TrainingArguments, with their defaults."""


def read(text: str, file_name: str) -> Imported:
    """Raises NotImportable for what starts no training, and for a command without a script."""
    job = read_job(text)
    script = read_script(text, given=job.variables())
    launches = find_launches(script.commands)
    if not launches:
        raise _no_launch(script, file_name)
    launch = _chosen(launches)
    collector = Collector("launch_command", file_name)
    collector.setup["launcher"] = "torchrun" if launch.program == "framework" else launch.program
    taken = _taken(launch)
    if taken.script is None:
        raise refusal(
            f"{file_name}:{launch.line}",
            tr(
                "{file}: the {program} command on line {line} names no script; get the whole command.",
                file=file_name,
                program=launch.program,
                line=launch.line,
            ),
        )
    _read_launcher(launch, taken, collector)
    read_environment(launch.environment, collector, counts=launch.name in COUNTS_IN_ENVIRONMENT)
    if launch.program == "python" and launch.before:
        say_processes_unknown(basename(launch.before[0]), launch.line, collector)
    elif launch.program in ("python", "framework") and "num_processes" not in collector.setup:
        _one_process_for_each_gpu(collector)
        read_alone(job, collector)
    _read_script(launch, taken, collector)
    _leave_to_deepspeed(collector)
    drop_the_rest(job, collector)
    _say_more(script, launches, launch, collector)
    return collector.done()


def _no_launch(script: Script, file_name: str) -> Exception:
    said = " ".join(word.text for command in script.commands[:1] for word in command.words[:3])
    message = tr(
        "{file} starts no training ({said}); expected is a command with accelerate launch, torchrun, deepspeed or python.",
        file=file_name,
        said=plain_text(said, 60),
    )
    return refusal(file_name, message)


def _chosen(launches: Sequence[Launch]) -> Launch:
    """The first with a launcher of several processes, else the first whose script seems to train, else the first."""
    launchers = [launch for launch in launches if launch.program != "python"]
    training = [launch for launch in launches if any(piece in _script_name(launch).lower() for piece in TRAINS)]
    return (launchers or training or list(launches))[0]


def _script_name(launch: Launch) -> str:
    script = _taken(launch).script
    return PurePosixPath(script.text).name if script is not None else ""


def _taken(launch: Launch) -> Taken:
    words = launch.words
    if launch.program in ("accelerate", "torchrun", "deepspeed"):
        return take(launch.program, words)
    if words and words[0].text == "-m":
        return Taken(script=words[1] if len(words) > 1 else None, is_module=True, arguments=words[2:])
    if launch.program == "framework":
        return Taken(script=Word(launch.name, launch.line), is_module=True, arguments=words)
    return Taken(script=words[0] if words else None, is_module=launch.program == "trl", arguments=words[1:])


def _read_launcher(launch: Launch, taken: Taken, collector: Collector) -> None:
    for word in taken.loose:
        collector.unknown(word.text, word.text, word.line)
    if launch.old_name is not None:
        collector.rename(f"python -m {launch.old_name}", "torchrun", launch.line)
    if launch.program == "accelerate":
        read_accelerate(taken, collector)
    elif launch.program == "torchrun":
        read_torchrun(taken, collector)
    elif launch.program == "deepspeed":
        read_deepspeed_launcher(taken, collector)


def _read_script(launch: Launch, taken: Taken, collector: Collector) -> None:
    """The script's arguments; the script itself is read by the caller, where it is here."""
    assert taken.script is not None
    script = taken.script
    if not script.known:
        collector.unknown(script.text, script.text, script.line)
    elif not taken.is_module and script.text.endswith(".py"):
        collector.refer("script", script.text, script.line)
    settings = read_arguments(taken.arguments, collector)
    name = script.text.rpartition(".")[2] if taken.is_module else PurePosixPath(script.text).stem
    fill(collector, settings, [Hint(name, script.line)], _program(launch, name, settings))


def _one_process_for_each_gpu(collector: Collector) -> None:
    """Plain python feeds every GPU that it sees with DataParallel; as many processes of DDP see the same sequences."""
    gpus = len(gpu_list(collector.setup.get("gpu_ids")))
    if gpus:
        collector.setup |= {"num_processes": gpus, "distributed_type": "MULTI_GPU" if gpus > 1 else "NO"}


def _leave_to_deepspeed(collector: Collector) -> None:
    """Where the script is given a DeepSpeed file, that file says how the processes share the work, not the launcher."""
    if any(reference.role == "deepspeed" for reference in collector.references):
        collector.setup.pop("distributed_type", None)


def _program(launch: Launch, script: str, settings: Sequence[Setting]) -> str | None:
    """Whose defaults hold for what is left out: the Trainer's where its arguments are used, TRL's for its script."""
    if launch.program == "trl" or script in SFT_SCRIPTS:
        return "SFTConfig" if script in SFT_SCRIPTS and settings else None
    if launch.program == "framework" and script not in THE_TRAINERS_DEFAULTS:
        return None
    names = {setting.name for setting in settings}
    surely = "per_device_train_batch_size" in names or looks_like_arguments(names, least=SURELY_THE_TRAINERS)
    return "TrainingArguments" if surely else None


def _say_more(script: Script, launches: Sequence[Launch], launch: Launch, collector: Collector) -> None:
    if len(launches) > 1:
        message = tr(
            "{count} commands here could start a training; the one on line {line} was read.",
            count=len(launches),
            line=launch.line,
        )
        collector.find("several_trainings", "warning", message, launch.line)
    if script.unclosed is not None:
        message = tr("The command on line {line} goes on behind its end; get the whole command.", line=script.unclosed)
        collector.find("cut_off", "warning", message, script.unclosed)
