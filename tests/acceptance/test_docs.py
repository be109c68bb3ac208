"""What the pages say about profiles, samples, options and files is what the product has; their commands are run."""

from __future__ import annotations

import doctest
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from trainwiz.core.config.build import build_config
from trainwiz.core.config.keys import is_settable
from trainwiz.core.data.formats import SAMPLES
from trainwiz.core.profile.profile import Profile
from trainwiz.core.profile.store import list_profiles
from trainwiz.tui.choices import parse_choices
from trainwiz.tui.cli import main, parsed
from trainwiz.tui.options import BY_NAME, OPTIONS, off
from trainwiz.tui.subcommands import COMMANDS

from scripts import card_pages
from tests.conftest import REPOSITORY
from tests.each import each

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
OF_OTHERS = {
    "--faults", "--seed", "--jobs", "--list", "--only", "--keep", "--patience", "--report", "--requeue", "--signal",
    "--time", "--index-url", "--torch-backend", "--from", "--no-index", "--user", "--shm-size", "--enable-lora",
}  # fmt: skip
"""Options of the fault campaign, sbatch, pip, uv, systemctl, docker and vLLM; with an underscore they are the launchers'."""
TASK_WORDS = {
    "masked-lm": "masked LM",
    "causal-lm": "causal LM",
    "seq2seq": "seq2seq",
    "sequence-classification": "text classification",
}
SECTIONS = "batch|checkpoint|data|engine|evaluation|logging|mode|model|peft|planning|recovery|training"
OF_FILES = ("json", "jsonl", "yaml", "md", "log", "py", "safetensors", "gguf")
KNOWN = {"--help", "--version", *(one.flag for command in COMMANDS for one in command.options)}
KNOWN |= {flag for option in OPTIONS for flag in (option.flag, off(option.flag))} | OF_OTHERS


def setups() -> list[Profile]:
    """The built-in profiles that are one setup, guides to the letter left out."""
    return [
        profile for profile in list_profiles() if profile.origin == "builtin" and not profile.name.endswith("-guide")
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


def test_profiles_and_samples_are_those_of_the_product() -> None:
    docs, readme = REPOSITORY / "docs", (REPOSITORY / "README.md").read_text()
    table = [line for line in (docs / "profiles.md").read_text().splitlines() if line.startswith("| `")]
    assert table == [row_of(profile) for profile in setups()]
    rows = [line for line in readme.splitlines() if line.startswith("|") and line.count("|") == 4]
    named = {name for line in rows for name in re.findall(r"`([\w.-]+)`", line)}
    assert named and not named - {profile.name for profile in list_profiles()}
    assert {profile.name for profile in setups()} <= named
    assert not [name for name in SAMPLES if f"`{name}`" not in (docs / "data.md").read_text()]


def anchors_of(page: Path) -> set[str]:
    """What a link can name of a page: its headings, as GitHub and the site write them."""
    headings = [re.sub(r"[`*]|\]\([^)]*\)|\[", "", found) for found in re.findall(r"^#+ (.+)$", prose(page), re.M)]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)


@each("page", PAGES)
def test_a_page_names_only_what_is_there_and_its_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    own = "\n".join(line for line in text.splitlines() if "pip install" not in line)
    assert not set(re.findall(r"(?<![\w-])--[a-z][a-z-]+(?![\w-])", own)) - KNOWN
    keys = set(re.findall(rf"\b((?:{SECTIONS})\.[a-z0-9_.]+[a-z0-9_])\b", text)) - {"engine.environment"}
    assert not [key for key in keys if key.rpartition(".")[2] not in OF_FILES and not is_settable(key)]
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose(page)):
        path, _, anchor = link.partition("#")
        target = page if not path else page.parent / path
        assert target.exists() and (not anchor or anchor in anchors_of(target)), link


def test_every_page_is_on_the_site_once() -> None:
    nav = str(yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())["nav"])
    named = [name for name in re.findall(r"'([^']+\.md)'", nav) if name != "tools/benchmarks/README.md"]
    assert sorted(named) == sorted(page.relative_to(REPOSITORY).as_posix() for page in PAGES)


@each("page", ["8gb", "apple-cpu"])
def test_the_tables_of_cards_are_what_the_plan_says(page: str) -> None:
    """Of two pages: what changes the figures of another changes theirs."""
    text = (card_pages.PAGES / f"{page}.md").read_text(encoding="utf-8")
    assert card_pages.tables(page) in text, "docs/cards are old: run scripts/card_pages.py"


@pytest.mark.usefixtures("here")
def test_the_examples_of_the_python_page() -> None:
    failed, tried = doctest.testfile(str(REPOSITORY / "docs" / "python.md"), module_relative=False)
    assert tried > 5 and not failed


def commands_of(page: Path) -> Iterator[tuple[list[str], bool]]:
    """Every `trainwiz ...` of a page as arguments, and whether it stands in a block of code, where it is whole."""
    text = page.read_text().replace("\\\n", " ")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    # What stands far to the right says what the command does.
    lines = [(re.split(r"\s{3,}", line)[0], True) for block in blocks for line in block.splitlines()]
    lines += [(" ".join(found.split()), False) for found in re.findall(r"(?<!`)`(trainwiz [^`]+)`", text)]
    for line, whole in lines:
        found = re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )*trainwiz( .*)?$", line)
        # What leaves something out, or gives a choice of words, is no command.
        if found and not re.search(r"\.\.\.|…|[{}<[]|\w\\?\|\w", line.partition("  #")[0]):
            words = shlex.split(found[1] or "", comments=True)
            ends = [place for place, word in enumerate(words) if word in ("|", ">", "&&", ";", "&")]
            yield ["1" if word == "N" else word for word in words[: min(ends, default=len(words))]], whole


STANDS_FOR = re.compile(r"[A-Z][A-Z/_:]*(\.\.\.)?|M/N")
"""A word in capitals: NAME, RUN, FILE."""


@each("page", PAGES)
def test_every_command_of_a_page_is_one(page) -> None:
    wrong = []
    for words, whole in commands_of(page):
        if not whole and words[-1:] and words[-1].startswith("--"):
            # In a sentence an option is named without its value.
            option = BY_NAME.get(words[-1].removeprefix("--").replace("-", "_"))
            words = words[:-1] if option is not None and not option.is_flag else words
        try:
            _, values = parsed([word for word in words if word not in ("--help", "--debug", "--version")])
            choices = {name: value for name, value in values.items() if name in BY_NAME}
            if not any(STANDS_FOR.fullmatch(str(value)) for value in choices.values()):
                parse_choices(choices)
        except Exception as error:  # noqa: BLE001 -- all are listed
            if whole or " is missing; " not in str(error):
                wrong.append((" ".join(words), str(error) or type(error).__name__))
    assert not wrong


CHEAP = ("plan", "fit", "hardware", "doctor", "schema", "agent-docs", "completion", "data show", "runs list",
         "profiles list", "profiles show", "profiles diff", "profiles current", "profiles validate")  # fmt: skip
"""They start nothing and ask nobody."""


def is_cheap(words: list[str], folder: Path) -> bool:
    """Whether it can be run here: nothing in it stands for something else, and its files are here."""
    files = [word for word in words if re.search(r"^[./~]|\.(jsonl?|ya?ml|fasta|csv|txt|tsv|parquet|log)$", word)]
    return (
        any(" ".join(words[:2]).startswith(start) for start in CHEAP)
        and not any(STANDS_FOR.fullmatch(word) and not word.startswith("L40") for word in words)
        and all((folder / file).exists() for file in files)
        and "--measure" not in words
    )


def test_the_cheap_commands_of_all_pages_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = '{"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}\n'
    (here / "chats.jsonl").write_text(row * 40)
    whole = [words for page in PAGES for words, is_whole in commands_of(page) if is_whole]
    # What looks at many plans is run once with the same options.
    cheap = [words for words in whole if words and is_cheap(words, here)]
    slow = [words for words in cheap if words[0] == "fit" or words[:2] == ["profiles", "list"]]
    commands = {" ".join(words): words for words in cheap if words not in slow}
    commands |= {" ".join(word for word in words if word.startswith("--")): words for words in slow}
    failed = [(" ".join(words), capsys.readouterr().err) for words in commands.values() if main(words) != 0]
    assert len(commands) > 25 and not failed
