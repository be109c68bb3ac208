"""What the pages say about profiles, samples, options and files is what the product has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer
from trainwiz.core.config.build import build_config
from trainwiz.core.config.keys import is_settable
from trainwiz.core.data.formats import SAMPLES
from trainwiz.core.profile import Profile, list_profiles
from trainwiz.tui.command import app
from trainwiz.tui.options import OPTIONS

from tests.conftest import REPOSITORY
from tests.each import each

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
OF_THE_CAMPAIGN = {"--faults", "--seed", "--jobs", "--list", "--only", "--keep", "--patience", "--report"}
OF_SLURM = {"--requeue", "--signal", "--time"}
OF_OTHERS = {"--no-index", "--user", "--shm-size", "--enable-lora", *OF_SLURM, *OF_THE_CAMPAIGN}
"""Options of pip, systemctl, docker, vLLM and sbatch, and of the fault campaign; with an underscore they are the launchers'."""
TASK_WORDS = {
    "masked-lm": "masked LM",
    "causal-lm": "causal LM",
    "seq2seq": "seq2seq",
    "sequence-classification": "text classification",
}
SECTIONS = "batch|checkpoint|data|engine|evaluation|logging|mode|model|peft|planning|recovery|training"


def flags_of(command: Any) -> Iterator[str]:
    """The options of a command and of those below it."""
    yield "--help"
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for below in getattr(command, "commands", {}).values():
        yield from flags_of(below)


def setups() -> list[Profile]:
    """The built-in profiles that are one setup, guides to the letter left out."""
    return [
        profile
        for profile in list_profiles()
        if profile.origin == "builtin" and not profile.variants and not profile.name.endswith("-guide")
    ]


def row_of(profile: Profile) -> str:
    """The line of docs/profiles.md about a profile."""
    config, hardware = build_config(profile, {}), profile.hardware
    several = f"{hardware.num_gpus} × " if hardware.num_gpus > 1 else ""
    gpus = "any machine" if hardware.gpu is None else several + hardware.gpu
    how = f"LoRA rank {config.peft.rank}" if config.peft.method == "lora" else TASK_WORDS[config.task]
    start = "from scratch" if config.model.init == "scratch" else "pretrained"
    micro, accumulation = config.batch.micro_batch_size or 1, config.batch.gradient_accumulation_steps or 1
    sequences = micro * accumulation * max(1, hardware.num_gpus)
    tokens = f"{sequences * config.batch.sequence_length:,} tokens"
    step = tokens if config.batch.target_tokens else f"{config.batch.target_samples} sequences"
    return f"| `{profile.name}` | {gpus} | {config.model.name}, {how}, {start} | {step} |"


def test_the_table_of_profiles_is_the_profiles() -> None:
    text = (REPOSITORY / "docs" / "profiles.md").read_text()
    table = [line for line in text.splitlines() if line.startswith("| `")]
    assert table == [row_of(profile) for profile in setups()]


def test_the_readme_names_profiles_that_exist() -> None:
    names = {profile.name for profile in list_profiles()}
    text = (REPOSITORY / "README.md").read_text()
    table = [line for line in text.splitlines() if line.startswith("|") and line.count("|") == 4]
    named = {name for line in table for name in re.findall(r"`([\w.-]+)`", line)}
    assert named and named <= names, named - names
    assert {profile.name for profile in setups()} - named <= {"3080-10g", "3080-12g"}


def test_every_sample_is_described() -> None:
    text = (REPOSITORY / "docs" / "data.md").read_text()
    assert {name for name in SAMPLES if f"`{name}`" in text} == set(SAMPLES)


@each("page", PAGES)
def test_a_page_names_only_what_is_there(page) -> None:
    text = page.read_text()
    own = "\n".join(line for line in text.splitlines() if "pip install" not in line)
    known = {option.flag for option in OPTIONS} | set(flags_of(typer.main.get_command(app))) | OF_OTHERS
    assert not set(re.findall(r"(?<![\w-])--[a-z][a-z-]+(?![\w-])", own)) - known
    keys = set(re.findall(rf"\b((?:{SECTIONS})\.[a-z0-9_.]+[a-z0-9_])\b", text))
    files = {
        key for key in keys if key.rpartition(".")[2] in ("json", "jsonl", "yaml", "md", "log", "py", "safetensors")
    }
    unknown = {key for key in keys - files if not is_settable(key) and key != "engine.environment"}
    assert not unknown
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / link).exists(), link
