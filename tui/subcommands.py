"""Every command of `trainwiz`: what it says of itself, what it takes, and the function that it calls."""

from __future__ import annotations

from typing import NamedTuple

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


class Subcommand(NamedTuple):
    words: str
    calls: str
    """Module below commands/ and function, which gets what is given by name; the choices before, in a mapping."""
    says: str
    own: tuple[Option, ...] = ()
    choices: tuple[Option, ...] = ()
    """Those of a plan that it takes too."""
    usage: str = ""
    """What its help begins with, where that says more than `says`."""

    @property
    def arguments(self) -> list[Option]:
        return [one for one in self.own if not one.is_option]

    @property
    def options(self) -> list[Option]:
        return [one for one in self.own if one.is_option]


JSON = Option("--json", "Print JSON instead of text.", called="as_json")
PROFILE = Option("NAME", "Name or file of a profile.")
RUN = Option("RUN", "Name of a run, the start of its name, or its folder.")
RUN_YES = Option("--yes", "Do not ask for confirmation.")
PATH = Option("PATH", "A run, or a folder with a model or an adapter.")
BASE = Option("--base FOLDER", "Base model of the adapter, if it has moved.")
TO = Option("--to FILE", "Output file; default: print to the terminal.")
SPEECH = (
    PATH,
    Option("--prompt TEXT", "Ask this and exit; can be repeated, one turn each.", kind="repeated", called="prompts"),
    Option("--compare", "Also ask the base model."),
    Option("--plain", "Continue the text, without a chat template."),
    Option("--system TEXT", "System prompt."),
    Option("--max-tokens N", "Maximum answer length in tokens (default: 512).", "integer", 512, least=1),
    Option("--temperature T", "0: greedy; default: the model's own settings.", "number", least=0),
    Option("--seed N", "Sampling seed.", "integer", least=0),
    Option("--bits N", "Load the adapter's base model in 4, 8 or 16 bits; default: as it was trained.", "integer"),
    BASE,
    Option("--source-language CODE", "For multilingual models."),
    Option("--target-language CODE", "For multilingual models."),
    Option("--cpu", "Do not use a GPU."),
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
        (Option("--verbose", "All settings with their reasons."),),
        PLAN_OPTIONS,
        PLAN_USAGE,
    ),
    Subcommand(
        "fit",
        "fit:run_fit",
        "Find the models that fit the machine, the data and the time limit.",
        (
            Option("--until TIME", "When it must be finished: 08:00 (the next one), or 2026-12-01 08:00."),
            Option("--hours H", "How long it may take, in hours.", "number", least=0.01, most=100_000),
            Option("--budget AMOUNT", "What it may cost, such as 5EUR."),
            Option("--per-hour AMOUNT", "Rental price of the machine per hour."),
            Option("--model NAME", "Only these models; can be repeated.", kind="repeated", called="models"),
            Option(
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
            Option(
                "--seconds N",
                "Time limit in seconds, 10 to 600 (default: 60; with --choose 240).",
                "number",
                least=10,
                most=600,
            ),
            Option(
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
            Option(
                "[WHAT]",
                "Run name, folder, metrics file, process ID or gpu:0. Default: what is running, or the list.",
                called="text",
            ),
            Option("--once", "Print the current state once and exit."),
            JSON,
            Option("--plain", "Plain lines only, for pipes and screen readers."),
            Option(
                "--every S",
                "Seconds between readings (default: 1; with --plain: 5).",
                "number",
                called="interval_s",
                least=0.1,
                most=86_400,
            ),
            Option("--readonly", "Read-only: no key changes the run."),
            Option(
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
        (
            Option("WHAT", "Run name or folder, log file, output folder of a Trainer, or - to read a log from stdin."),
            JSON,
        ),
    ),
    Subcommand(
        "import",
        "exchange:run_import",
        "Create a profile from existing settings and report what became of each.",
        (
            Option(
                "[FILE...]",
                "TrainingArguments (Python, YAML, JSON), an accelerate config, a DeepSpeed JSON, a launch script, "
                "a quoted launch command, or - for stdin. Several are merged.",
                called="given",
            ),
            Option("--name NAME", "Profile name. Default: from the file name."),
            Option("--replace", "Overwrite your profile of that name."),
            Option("--dry-run", "Show the report without writing a profile."),
            JSON,
        ),
    ),
    Subcommand(
        "export",
        "exchange:run_export",
        "Print the launch commands for several nodes, or an sbatch file for a Slurm cluster.",
        (
            Option("RUN", "Run name, the start of it, or the run folder (--dry-run creates one)."),
            Option("--script", "The launch command of each node."),
            Option("--slurm", "A complete sbatch file."),
            Option("--main HOST:PORT", "Address of node 0, for --script."),
            Option("--account NAME", "Slurm account."),
            Option("--partition NAME", "Slurm partition."),
            Option("--qos NAME", "Slurm quality of service."),
            Option("--time D-HH:MM:SS", "Time limit. Default: from the plan, with a margin."),
            Option("--output FILE", "Output file; default: print to the terminal."),
        ),
    ),
    Subcommand(
        "data show",
        "data:run_show",
        "Show a row as tokens, and which of them are trained on.",
        (
            Option("DATA", "Sample name, file, folder or Hub ID.", called="source"),
            Option("--row N", "Row number, from 1 (default: 1).", "integer", 1, least=1),
        ),
        DATA_OPTIONS,
        DATA_USAGE,
    ),
    Subcommand("model chat", "model:run_chat", "Chat with a causal language model, in its own chat template.", SPEECH),
    Subcommand("model fill", "model:run_fill", "Fill in masks with a masked language model.", SPEECH),
    Subcommand("model translate", "model:run_translate", "Run a sequence-to-sequence model on source texts.", SPEECH),
    Subcommand(
        "model merge",
        "model:run_merge",
        "Merge an adapter into its base model, check the result, and write a full model.",
        (
            PATH,
            Option("--to FOLDER", "A new folder for the full model.", default=...),
            Option("--dtype T", "bf16, fp16 or fp32; default: that of the base model."),
            BASE,
            JSON,
        ),
    ),
    Subcommand(
        "model card",
        "model:run_card",
        "Print the model card (README.md) from the records of the run.",
        (PATH, TO),
    ),
    Subcommand(
        "model export",
        "model:run_model_export",
        "Print what another program needs to run the model, and the conditions to meet first.",
        (
            PATH,
            Option("--ollama", "A Modelfile: template, stop tokens, parameters."),
            Option("--vllm", "Command that serves it with vLLM."),
            Option(
                "--gguf", "GGUF for llama.cpp: with --to FILE.gguf the file itself, else the command that converts."
            ),
            Option("--mlx", "Command that converts it for Apple's MLX."),
            Option("--merged FOLDER", "Folder of the merged model, existing or future."),
            TO,
        ),
    ),
    Subcommand(
        "model push",
        "model:run_push",
        "Upload a model and its model card to the Hub in one commit.",
        (
            PATH,
            Option("REPO", "OWNER/NAME on the Hugging Face Hub."),
            Option("--public", "Make it public; default: private."),
            RUN_YES,
            Option("--base OWNER/NAME", "Hub ID of the adapter's base model."),
        ),
    ),
    Subcommand(
        "profiles list",
        "profiles:run_list",
        "List the profiles and which of them fit this machine.",
        (
            Option(
                "[WORD...]",
                "Words to search for: GPU, model or task, such as 4090 or lora; default: all profiles.",
                called="words",
            ),
            Option("--guides", "Also list the profiles that follow the guides exactly."),
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
        (Option("A", "A profile."), Option("B", "Another profile."), JSON),
    ),
    Subcommand(
        "profiles validate",
        "profiles:run_validate",
        "Check profile files; every error is reported with its file and line.",
        (Option("[FILE...]", "Files; default: all profiles.", called="files"), JSON),
    ),
    Subcommand(
        "profiles save",
        "profiles:run_save",
        "Save options as your own profile.",
        (
            Option("NAME", "Name of the new profile."),
            Option("--extends PROFILE", "Build on this profile; default: the one in use in this folder."),
        ),
        SAVE_OPTIONS,
        SAVE_USAGE,
    ),
    Subcommand(
        "runs list",
        "runs:run_list",
        "List the runs in ./runs, newest first.",
        (JSON, Option("--all", "Also list runs in other folders.", called="everywhere")),
    ),
    Subcommand("runs show", "runs:run_show", "Show one run: state, progress, settings, how it ended.", (RUN, JSON)),
    Subcommand(
        "runs stop",
        "runs:run_stop",
        "Finish the current step, save a checkpoint and stop.",
        (
            Option("RUN...", "One or more runs.", called="runs"),
            Option("--now", "Stop immediately, without a checkpoint."),
        ),
    ),
    Subcommand(
        "runs resume",
        "runs:run_resume",
        "Resume from the newest complete checkpoint.",
        (
            RUN,
            Option("--detach", "Print the run folder and exit."),
            Option(
                "--accept PART",
                "Resume although this differs from what the run began with: data, model, tokenizer, batch, "
                "processes, training, engine or all.",
                kind="repeated",
            ),
        ),
    ),
    Subcommand(
        "runs join",
        "runs:run_join",
        "Join a run on several nodes: this machine is node N.",
        (
            RUN,
            Option("--node N", "Node number of this machine, from 0; set automatically in Slurm.", "integer", least=0),
            Option("--main HOST:PORT", "Address of node 0 (default port: 29500)."),
        ),
    ),
    Subcommand(
        "runs compare",
        "runs:run_compare",
        "Show how runs differ in settings and results.",
        (Option("RUN RUN...", "Two or more runs.", called="runs"), JSON),
    ),
    Subcommand("runs remove", "runs:run_remove", "Delete a run folder, after confirmation.", (RUN, RUN_YES)),
    Subcommand(
        "hardware",
        "hardware:run_hardware",
        "Show the hardware of this machine: GPUs, cores, RAM, disk and measured performance.",
        (
            Option(
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
        (Option("SHELL", "bash, zsh or fish."),),
    ),
    Subcommand(
        "schema",
        "agent_docs:run_schema",
        "Print a JSON schema: of a profile, of run.yaml, or of the output of a command.",
        (
            Option(
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
            Option(
                "[FOLDER]",
                "Folder of runs and data; paths outside it are refused. Default: the current folder.",
                default=".",
            ),
            Option("--allow-start", "Offer a tool that starts runs."),
            Option("--allow-stop", "Offer a tool that stops runs."),
        ),
    ),
)
BY_WORDS: dict[str, Subcommand] = {command.words: command for command in COMMANDS}


def below(group: str) -> dict[str, str]:
    """The words that may follow a group, or (empty) trainwiz itself -> what the command does, or the words that follow."""
    found: dict[str, str] = {}
    for command in COMMANDS:
        name, _, word = command.words.rpartition(" ")
        if name == group:
            found[word] = command.says
        elif not group:
            found[name] = f"{', '.join(below(name))}."
    return found


# Their help, in the reader's language.


def help_of(words: str) -> str:
    """The help of a command, of a group of them, or (empty) of trainwiz itself."""
    if not words:
        common = lines_of([("--version", mark("Print the version.")), ("--help", mark("Print this help."))])
        commands = lines_of(below("").items())
        return "\n".join([tr(USAGE), *commands, help_for(OPTIONS), "", *common, "", tr(EXIT_CODES)])
    if words in GROUPS:
        usage, says, own = f"trainwiz {words} {tr('COMMAND')} ...", GROUPS[words], [*below(words).items()]
    else:
        command = BY_WORDS[words]
        options = [(one.synopsis, one.help) for one in command.options]
        if command.usage:
            return "\n".join([tr(command.usage), "", *lines_of(options), help_for(command.choices)])
        usage = " ".join([f"trainwiz {words}", tr("[OPTIONS]"), *(one.synopsis for one in command.arguments)])
        says, own = command.says, [*((one.metavar, one.help) for one in command.arguments), *options]
    return "\n".join([tr("Usage: {command}", command=usage), "", tr(says), "", *lines_of([*own, *COMMON])])
