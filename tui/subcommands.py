"""Every command of `trainwiz`: what it says of itself, what it takes, and the function that it calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from trainwiz.core.defaults import REPLAY_SPEED
from trainwiz.core.language import mark, tr
from trainwiz.tui.options import (
    BENCH_OPTIONS,
    BENCH_USAGE,
    COMMON,
    DATA_OPTIONS,
    DATA_USAGE,
    EXIT_CODES,
    FIT_OPTIONS,
    FIT_USAGE,
    OPTIONS,
    PLAN_OPTIONS,
    PLAN_USAGE,
    SAVE_OPTIONS,
    SAVE_USAGE,
    USAGE,
    Option,
    help_for,
    lines_of,
)


class Own(NamedTuple):
    synopsis: str
    """As it is written: "RUN", "[WHAT]" where it may be left out, "RUN..." for several; "--now", "--every S"."""
    help: str
    kind: type = str
    default: Any = None
    """Ellipsis: an option that has to be given."""
    parameter: str = ""
    """Of the function, where it is not that of the option or argument."""
    repeated: bool = False
    least: float | None = None
    most: float | None = None
    bare: str = ""
    """The value of an option where none follows."""
    follows: str = ""
    """How a word behind the option begins that is its value."""

    @property
    def is_option(self) -> bool:
        return self.synopsis.startswith("--")

    @property
    def flag(self) -> str:
        return self.synopsis.partition(" ")[0]

    @property
    def metavar(self) -> str:
        return self.synopsis.partition(" ")[2] if self.is_option else self.synopsis.strip("[]")

    @property
    def is_flag(self) -> bool:
        return self.is_option and not self.metavar

    @property
    def is_list(self) -> bool:
        return self.repeated or self.metavar.endswith("...")

    @property
    def is_required(self) -> bool:
        return self.default is ... or not (self.is_option or self.synopsis.startswith("["))

    @property
    def absent(self) -> Any:
        """Its value where it is not given."""
        return [] if self.is_list else False if self.is_flag else self.default

    @property
    def name(self) -> str:
        return self.parameter or self.flag.strip("-[].").replace("-", "_").lower()


class Subcommand(NamedTuple):
    words: str
    calls: str
    """Module below commands/ and function, which gets what is given by name; the choices before, in a mapping."""
    says: str
    own: tuple[Own, ...] = ()
    choices: tuple[Option, ...] = ()
    """Those of a plan that it takes too."""
    usage: str = ""
    """What its help begins with, where that says more than `says`."""

    @property
    def arguments(self) -> list[Own]:
        return [one for one in self.own if not one.is_option]

    @property
    def options(self) -> list[Own]:
        return [one for one in self.own if one.is_option]


JSON = Own("--json", "Print JSON instead of text.", parameter="as_json")
PROFILE = Own("NAME", "Name or file of a profile.")
RUN = Own("RUN", "Name of a run, the start of its name, or its folder.")
RUN_YES = Own("--yes", "Do not ask for confirmation.")
PATH = Own("PATH", "A run, or a folder with a model or an adapter.")
BASE = Own("--base FOLDER", "Base model of the adapter, if it has moved.")
TO = Own("--to FILE", "Output file; default: print to the terminal.")
SPEECH = (
    PATH,
    Own("--prompt TEXT", "Ask this and exit; can be repeated, one turn each.", repeated=True, parameter="prompts"),
    Own("--compare", "Also ask the base model."),
    Own("--plain", "Continue the text, without a chat template."),
    Own("--system TEXT", "System prompt."),
    Own("--max-tokens N", "Maximum answer length in tokens (default: 512).", int, 512, least=1),
    Own("--temperature T", "0: greedy; default: the model's own settings.", float, least=0),
    Own("--seed N", "Sampling seed.", int),
    Own("--bits N", "Load the adapter's base model in 4, 8 or 16 bits; default: as it was trained.", int),
    BASE,
    Own("--source-language CODE", "For multilingual models."),
    Own("--target-language CODE", "For multilingual models."),
    Own("--cpu", "Do not use a GPU."),
    JSON,
)

GROUPS: dict[str, str] = {
    "data": mark("The rows of a run, as the model reads them."),
    "model": mark("A finished model: chat with it, merge, describe, export and publish it."),
    "profiles": mark("Hardware profiles: tested settings for one kind of machine."),
    "runs": mark("The runs in ./runs."),
}

COMMANDS: tuple[Subcommand, ...] = (
    Subcommand(
        "plan",
        "plan:run_plan",
        "Show memory, time and every choice of a plan. Nothing is written.",
        (Own("--verbose", "All settings with their reasons."),),
        PLAN_OPTIONS,
        PLAN_USAGE,
    ),
    Subcommand(
        "fit",
        "fit:run_fit",
        "Find the models that fit the machine, the data and the time limit.",
        (
            Own("--until TIME", "When it must be finished: 08:00 (the next one), or 2026-12-01 08:00."),
            Own("--hours H", "How long it may take, in hours."),
            Own("--budget AMOUNT", "What it may cost, such as 5EUR."),
            Own("--per-hour AMOUNT", "Rental price of the machine per hour."),
            Own("--model NAME", "Only these models; can be repeated.", repeated=True, parameter="models"),
            Own(
                "--best {largest,fastest,cheapest,uncut}",
                "Which models come first (default: largest).",
                default="largest",
            ),
        ),
        FIT_OPTIONS,
        FIT_USAGE,
    ),
    Subcommand(
        "bench",
        "bench:run_bench",
        "Measure a few real steps of a plan on this machine.",
        (
            Own(
                "--seconds N",
                "Time limit in seconds, 10 to 600 (default: 60; with --choose 240).",
                float,
                least=10,
                most=600,
            ),
            Own(
                "--choose",
                "Measure attention, optimizer, bf16 and torch.compile against the plan's own, and report what to set.",
            ),
        ),
        BENCH_OPTIONS,
        BENCH_USAGE,
    ),
    Subcommand(
        "monitor",
        "monitor:run_monitor",
        "Monitor training: a run, the folder of another tool, or a process.",
        (
            Own(
                "[WHAT]",
                "Run name, folder, metrics file, process ID or gpu:0. Default: what is running, or the list.",
                parameter="text",
            ),
            Own("--once", "Print the current state once and exit."),
            JSON,
            Own("--plain", "Plain lines only, for pipes and screen readers."),
            Own(
                "--every S",
                "Seconds between readings (default: 1; with --plain: 5).",
                float,
                parameter="interval_s",
                least=0.1,
                most=86_400,
            ),
            Own("--readonly", "Read-only: no key changes the run."),
            Own(
                "--replay SPEED",
                "Replay a run that has ended, at SPEED times real time (default: 60).",
                bare=f"{REPLAY_SPEED:g}",
                follows=r"-?[0-9.]+(e[0-9]+)?x?$",
            ),
        ),
    ),
    Subcommand(
        "diagnose",
        "diagnose:run_diagnose",
        "Diagnose why training ended: cause, evidence and fixes.",
        (Own("WHAT", "Run name or folder, log file, output folder of a Trainer, or - to read a log from stdin."), JSON),
    ),
    Subcommand(
        "import",
        "exchange:run_import",
        "Create a profile from existing settings and report what became of each.",
        (
            Own(
                "[FILE...]",
                "TrainingArguments (Python, YAML, JSON), an accelerate config, a DeepSpeed JSON, a launch script, "
                "a quoted launch command, or - for stdin. Several are merged.",
                parameter="given",
            ),
            Own("--name NAME", "Profile name. Default: from the file name."),
            Own("--replace", "Overwrite your profile of that name."),
            Own("--dry-run", "Show the report without writing a profile."),
            JSON,
        ),
    ),
    Subcommand(
        "export",
        "exchange:run_export",
        "Print the launch commands for several nodes, or an sbatch file for a Slurm cluster.",
        (
            Own("RUN", "Run name, the start of it, or the run folder (--dry-run creates one)."),
            Own("--script", "The launch command of each node."),
            Own("--slurm", "A complete sbatch file."),
            Own("--main HOST:PORT", "Address of node 0, for --script."),
            Own("--account NAME", "Slurm account."),
            Own("--partition NAME", "Slurm partition."),
            Own("--qos NAME", "Slurm quality of service."),
            Own("--time D-HH:MM:SS", "Time limit. Default: from the plan, with a margin."),
            Own("--output FILE", "Output file; default: print to the terminal."),
        ),
    ),
    Subcommand(
        "data show",
        "data:run_show",
        "Show a row as tokens, and which of them are trained on.",
        (
            Own("DATA", "Sample name, file, folder or Hub ID.", parameter="source"),
            Own("--row N", "Row number, from 1 (default: 1).", int, 1, least=1),
        ),
        DATA_OPTIONS,
        DATA_USAGE,
    ),
    Subcommand("model chat", "model:run_chat", "Chat with a causal language model, in its own chat template.", SPEECH),
    Subcommand("model fill", "model:run_fill", "Fill in masks with a masked language model.", SPEECH),
    Subcommand("model translate", "model:run_translate", "Run a sequence-to-sequence model on source texts.", SPEECH),
    Subcommand(
        "model merge",
        "model_files:run_merge",
        "Merge an adapter into its base model, check the result, and write a full model.",
        (
            PATH,
            Own("--to FOLDER", "A new folder for the full model.", default=...),
            Own("--dtype T", "bf16, fp16 or fp32; default: that of the base model."),
            BASE,
            JSON,
        ),
    ),
    Subcommand(
        "model card",
        "model_files:run_card",
        "Print the model card (README.md) from the records of the run.",
        (PATH, TO),
    ),
    Subcommand(
        "model export",
        "model_files:run_model_export",
        "Print what another program needs to run the model, and the conditions to meet first.",
        (
            PATH,
            Own("--ollama", "A Modelfile: template, stop tokens, parameters."),
            Own("--vllm", "Command that serves it with vLLM."),
            Own("--gguf", "GGUF for llama.cpp: with --to FILE.gguf the file itself, else the command that converts."),
            Own("--mlx", "Command that converts it for Apple's MLX."),
            Own("--merged FOLDER", "Folder of the merged model, existing or future."),
            TO,
        ),
    ),
    Subcommand(
        "model push",
        "model_files:run_push",
        "Upload a model and its model card to the Hub in one commit.",
        (
            PATH,
            Own("REPO", "OWNER/NAME on the Hugging Face Hub."),
            Own("--public", "Make it public; default: private."),
            RUN_YES,
            Own("--base OWNER/NAME", "Hub ID of the adapter's base model."),
        ),
    ),
    Subcommand(
        "profiles list",
        "profiles:run_list",
        "List the profiles and which of them fit this machine.",
        (
            Own(
                "[WORD...]",
                "Words to search for: GPU, model or task, such as 4090 or lora; default: all profiles.",
                parameter="words",
            ),
            Own("--guides", "Also list the profiles that follow the guides exactly."),
            JSON,
        ),
    ),
    Subcommand(
        "profiles show", "profiles:run_show", "Show all values of a profile with their reasons.", (PROFILE, JSON)
    ),
    Subcommand(
        "profiles use", "profiles:run_use", "Make a profile the default for later commands in this folder.", (PROFILE,)
    ),
    Subcommand("profiles current", "profiles:run_current", "Show the profile in use in this folder.", (JSON,)),
    Subcommand(
        "profiles diff",
        "profiles:run_diff",
        "Show where two profiles differ.",
        (Own("A", "A profile."), Own("B", "Another profile."), JSON),
    ),
    Subcommand(
        "profiles validate",
        "profiles:run_validate",
        "Check profile files; every error is reported with its file and line.",
        (Own("[FILE...]", "Files; default: all profiles.", parameter="files"), JSON),
    ),
    Subcommand(
        "profiles save",
        "profiles:run_save",
        "Save options as your own profile.",
        (
            Own("NAME", "Name of the new profile."),
            Own("--extends PROFILE", "Build on this profile; default: the one in use in this folder."),
        ),
        SAVE_OPTIONS,
        SAVE_USAGE,
    ),
    Subcommand(
        "runs list",
        "runs:run_list",
        "List the runs in ./runs, newest first.",
        (JSON, Own("--all", "Also list runs in other folders.", parameter="everywhere")),
    ),
    Subcommand("runs show", "runs:run_show", "Show one run: state, progress, settings, how it ended.", (RUN, JSON)),
    Subcommand(
        "runs stop",
        "runs:run_stop",
        "Finish the current step, save a checkpoint and stop.",
        (Own("RUN...", "One or more runs.", parameter="runs"), Own("--now", "Stop immediately, without a checkpoint.")),
    ),
    Subcommand(
        "runs resume",
        "runs:run_resume",
        "Resume from the newest complete checkpoint.",
        (
            RUN,
            Own("--detach", "Print the run folder and exit."),
            Own(
                "--accept PART",
                "Resume although this differs from what the run began with: data, model, tokenizer, batch, "
                "processes, training, engine or all.",
                repeated=True,
            ),
        ),
    ),
    Subcommand(
        "runs join",
        "runs:run_join",
        "Join a run on several nodes: this machine is node N.",
        (
            RUN,
            Own("--node N", "Node number of this machine, from 0; set automatically in Slurm.", int),
            Own("--main HOST:PORT", "Address of node 0 (default port: 29500)."),
        ),
    ),
    Subcommand(
        "runs compare",
        "runs:run_compare",
        "Show how runs differ in settings and results.",
        (Own("RUN RUN...", "Two or more runs.", parameter="runs"), JSON),
    ),
    Subcommand("runs remove", "runs:run_remove", "Delete a run folder, after confirmation.", (RUN, RUN_YES)),
    Subcommand(
        "hardware",
        "hardware:run_hardware",
        "Show the hardware of this machine: GPUs, cores, RAM, disk and measured performance.",
        (
            Own(
                "--measure",
                "Benchmark this machine for a few seconds and save the result, for better time estimates in plans.",
            ),
            JSON,
        ),
    ),
    Subcommand(
        "doctor",
        "hardware:run_doctor",
        "Show what is missing on this machine, which feature needs it, and how to get it.",
        (JSON,),
    ),
    Subcommand(
        "completion",
        "completion:run_completion",
        "Print the completion script of a shell: commands, options, profiles, runs and GPUs.",
        (Own("SHELL", "bash, zsh or fish."),),
    ),
    Subcommand(
        "schema",
        "agent_docs:run_schema",
        "Print a JSON schema: of a profile, of run.yaml, or of the output of a command.",
        (
            Own(
                "[WHAT]",
                "profile (default), run, plan, fit, diagnose, monitor, runs-list, runs-show, hardware or failure.",
                default="profile",
            ),
        ),
    ),
    Subcommand(
        "agent-docs",
        "agent_docs:run_agent_docs",
        "Print a reference for programs: commands, JSON schemas, exit codes, recipes.",
    ),
    Subcommand(
        "mcp",
        "mcp_server:run_mcp",
        "Serve plan, fit, diagnose, runs and monitor to an agent over stdio (MCP).",
        (
            Own(
                "[FOLDER]",
                "Folder of runs and data; paths outside it are refused. Default: the current folder.",
                default=".",
            ),
            Own("--allow-start", "Offer a tool that starts runs."),
            Own("--allow-stop", "Offer a tool that stops runs."),
        ),
    ),
)
BY_WORDS: dict[str, Subcommand] = {command.words: command for command in COMMANDS}


def top_commands() -> dict[str, str]:
    """The first word of each command -> what it does, or the words that may follow."""
    words = (command.words.partition(" ")[0] for command in COMMANDS)
    return {
        name: f"{', '.join(inner for inner, _ in below(name))}." if name in GROUPS else BY_WORDS[name].says
        for name in words
    }


def below(group: str) -> Iterator[tuple[str, str]]:
    for command in COMMANDS:
        name, _, inner = command.words.partition(" ")
        if name == group:
            yield inner, command.says


# Their help, in the reader's language.


def help_of(words: str) -> str:
    """The help of a command, of a group of them, or (empty) of trainwiz itself."""
    common = lines_of(COMMON)
    if not words:
        more = lines_of([("--version", mark("Print the version.")), ("--help", mark("Print this help."))])
        return "\n".join(
            [tr(USAGE), *lines_of(top_commands().items()), help_for(OPTIONS), "", *more, "", tr(EXIT_CODES)]
        )
    if words in GROUPS:
        usage, says, own = [f"trainwiz {words} {tr('COMMAND')} ..."], GROUPS[words], lines_of(below(words))
        own.append("")
    else:
        command = BY_WORDS[words]
        arguments = lines_of((one.metavar, one.help) for one in command.arguments)
        options = lines_of((one.synopsis, one.help) for one in command.options)
        if command.usage:
            return "\n".join([tr(command.usage), "", *options, help_for(command.choices)])
        usage = [f"trainwiz {words}", tr("[OPTIONS]"), *(one.synopsis for one in command.arguments)]
        says, own = command.says, [*arguments, *options]
    return "\n".join([tr("Usage: {command}", command=" ".join(usage)), "", tr(says), "", *own, *common])
