"""The command line: help, every wrong option in one sentence, exit codes. Through `main`, as the shell calls it."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config.keys import is_settable
from trainwiz.core.importing.names import CANONICAL
from trainwiz.core.importing.trainer import RULES
from trainwiz.tui.choices import Choices, parse_choices
from trainwiz.tui.cli import main, no_such_option, parsed, speak
from trainwiz.tui.options import OPTIONS, SAVE_OPTIONS
from trainwiz.tui.subcommands import COMMANDS

from tests.each import each

pytestmark = pytest.mark.usefixtures("here")


LONG = "x" * 600


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_help_names_every_option_and_command_and_each_takes_what_it_is_called_with(
    capsys: pytest.CaptureFixture[str],
) -> None:
    quick = run(capsys, "--help")
    assert quick[0] == 0 and quick == run(capsys, "--yes", "--help", "plan")
    assert not [option.flag for option in OPTIONS if option.flag not in quick[1] or option.help not in quick[1]]
    titles = ["Model, data and training:", "Computation:", "Machine and GPUs:", "The run:", "Modes:"]
    places = [quick[1].index(title) for title in titles]
    assert places == sorted(places)
    for command in COMMANDS:
        assert f"\n  {command.words.partition(' ')[0]} " in quick[1]
        module, _, function = command.calls.partition(":")
        signature = inspect.signature(getattr(import_module(f"trainwiz.tui.commands.{module}"), function))
        signature.bind(*([{}] if command.choices else []), **{own.name: own.absent for own in command.own})
    code, out, _ = run(capsys, "--version")
    assert code == 0 and out.startswith("trainwiz 0.")


@each(
    ("command", "has", "has_not"),
    [
        (("plan",), ("--gpu NAME", "--verbose"), ("--yes", "--detach", "--resume", "--dry-run", "--force")),
        (("bench",), ("at most 60 seconds", "--seconds N", "--micro-batch"), ("--gpu NAME", "--yes")),
        (("profiles", "save"), tuple(option.flag for option in SAVE_OPTIONS), ("--smoke", "--yes", "Modes:")),
    ],
)
def test_help_of_commands(command: tuple[str, ...], has: Any, has_not: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *command, "--help")
    assert code == 0 and not [words for words in has if words not in out]
    assert not [words for words in has_not if f"  {words}" in out or out.startswith(words)]


MEANT = {
    "--lr 3": "--learning-rate", "--batch_size=4": "--micro-batch", "--num_train_epochs 3": "--epochs",
    "--bf16": "--precision bf16", "--bf16 True --yes": "--precision bf16", "--mixed_precision fp16": "--precision",
    "--max-seq-length 9": "--length", "--load_in_4bit --yes": "--base-precision nf4",
    "--seed 3": "--set training.seed=VALUE", "--gradient_checkpointing true": "--checkpointing",
    "--lora_target_linear true": "--lora-targets all-linear", "--train_file a": "--dataset", "--lora": "--lora-rank",
    "--attn_implementation sdpa": "--attention",
}  # fmt: skip


def test_every_name_that_an_import_knows_has_an_answer_as_an_option() -> None:
    options = {option.flag: option for option in OPTIONS}
    for value in ("yes", "no", "3", "{x: [", ""):
        answers = {name: no_such_option(f"--{name}", value, options, "trainwiz") for name in {*RULES, *CANONICAL}}
        keys = {name: answer.split("--set ")[1].split("=")[0] for name, answer in answers.items() if "--set " in answer}
        assert [name for name, key in keys.items() if not is_settable(key)] == []
        assert [name for name, answer in answers.items() if "yes" in answer.lower() or "{" in answer] == []


@each(
    ("arguments", "words"),
    [
        (("--micro-bacth", "3"), "did you mean --micro-batch?"),
        # What the Trainer and programs around it call it.
        *((("plan", *words.split()), f"did you mean {near}?") for words, near in MEANT.items()),
        (("--wandb_watch", "x"), "see `trainwiz --help`"),
        (("--qlora",), "see `trainwiz --help`"),
        (("monitor", "--lr", "3"), "see `trainwiz monitor --help`"),
        (("resume", "x"), "did you mean runs resume?"),
        (("list",), "did you mean profiles list or runs list?"),
        (("train",), "To train: trainwiz --profile NAME --yes"),
        (("plna",), "did you mean plan?"),
        (("profiles", "lst"), "did you mean list?"),
        (("profiles",), "needs a command: list, show"),
        (("--profile",), "--profile needs a value"),
        (("--profile", "--yes"), "--profile needs a value"),
        (("--yes=no",), "unexpected argument --yes=no"),
        (("doctor", "who"), "unexpected argument who"),
        *(
            (("monitor", "--every", seconds), f"--every: '{seconds}' is not a number")
            for seconds in ("soon", "nan", "inf")
        ),
        *((("monitor", "--every", seconds), "must be at least 0.1") for seconds in ("0", "-1")),
        *((("monitor", "--every", seconds), "must be at most 86400") for seconds in ("86401", "1e9")),
        (("--micro-batch", "3", "runs", "list"), "Put --micro-batch after the command"),
        (("--micro-batch", "six", "--yes"), "--micro-batch: 'six' is not a whole number."),
        (("--micro-batch", "0", "--yes"), "--micro-batch: 0 must be greater than 0."),
        *((("--learning-rate", text, "--yes"), "--learning-rate") for text in ("nan", "1e400", "four")),
        (("--precision", "bf_16", "--yes"), "Did you mean bf16?"),
        (("--ram", "lots", "--yes"), "--ram: 'lots' is not a size; examples: 64G, 512M."),
        (("--seed", "3"), "has no option --seed"),
        (("--model", "", "--yes"), "--model: a value is required"),
        (("--smoke", "--dev-run", "--yes"), "--smoke and --dev-run can't be combined"),
        (
            ("--target-tokens", "2M", "--target-samples", "64", "--yes"),
            "--target-samples can't be combined; use only one.",
        ),
        (("--micro-batch", "4", "--set", "batch.micro_batch_size=8", "--yes"), "also set by its own option"),
        (("--gpu", "H100", "--gpus", "0", "--yes"), "use only one"),
        (("--resume", "--yes"), "specify the run folder"),
        (("--resume", "--output-dir", "nothing"), "not found"),
        (("--resume", "--output-dir", "."), "it contains no run.yaml"),
        (("--resume", "--output-dir", ".", "--micro-batch", "4"), "--micro-batch: a resumed run keeps"),
        (("--yes", "--profile", "2080supr"), "Did you mean 2080super"),
        (("--yes", "--set", "batch.micro_batch=4"), "batch.micro_batch_size"),
        (("--yes", "--name", "../out"), "'../out'"),
        (("--yes", "--gpu", "RTX 3080 10GB"), "use it with `trainwiz plan` or --dry-run"),
        (("--resume", "--dry-run", "--output-dir", "x"), "use only one"),
        (("--detach", "--dry-run"), "use only one"),
        (("--lang", "de", "--yes"), "'de' is not a valid choice"),
        (("\x1b[31mred",), "red"),
        (("--precision", "\x1b[31mfp8", "--yes"), "'fp8' is not a valid choice; use auto or fp32 or tf32 or fp16"),
        (("--json",), "add --yes"),
        (("schema", "plans"), "'plans' is not a valid choice"),
        (("completion", "tcsh"), "SHELL: 'tcsh' is not a valid choice; use bash or zsh or fish."),
        (("mcp", "nowhere"), "'nowhere' is not a folder."),
        (("profiles", "save"), "NAME is missing"),
        (("profiles", "save", "x", "--smoke"), "has no option --smoke"),
        (("profiles", "save", "x", "--set", "model.nam=3"), "model.name"),
        (("bench", "--gpu", "RTX 3090"), "has no option --gpu"),
        (("bench", "--model", "nowhere/nothing"), "The architecture of the model nowhere/nothing is unknown"),
        (("bench", "--model", "esm2-8m", "--seconds", "1"), "--seconds"),
        # Names too long for any file; the monitor also names what trains here, however long the paths of that are.
        *((("plan", option, LONG), "too long") for option in ("--model", "--dataset")),
        (("--profile", "cpu-demo", "--yes", "--output-dir", LONG), "cannot be a folder: File name too long."),
        (("monitor", LONG), "There is no run, file or process"),
        (("runs", "show", LONG), "not found"),
        (("--profile", "2080super"), "needs a terminal. Without one, run: trainwiz --profile 2080super --yes"),
    ],
)
def test_wrong_command_lines(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str) -> None:
    code, out, err = run(capsys, *arguments)
    text = out + err
    assert code == 2 and words in text, text
    assert not [bad for bad in ("Traceback", "\x1b", "Errno", LONG[:300]) if bad in text]
    assert not list(Path.cwd().iterdir())


def test_all_wrong_values_are_named_at_once_also_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ("--micro-batch", "six", "--precision", "fp8", "--ram", "lots", "--set", "x")
    code, _, err = run(capsys, *wrong, "--yes")
    assert code == 2 and len(err.strip().splitlines()) == 4
    code, out, err = run(capsys, "plan", *wrong, "--json")
    document = json.loads(out)
    assert code == document["exit_code"] == 2 and not err
    assert {found["where"] for found in document["findings"]} == {"--micro-batch", "--precision", "--ram", "--set"}


def test_unforeseen_failure_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Raised where the command line is read: nothing can have started.
    import trainwiz.tui.choices as choices

    def broken(folder: Path) -> str:
        raise RuntimeError("the [bold]sky\x1b[31m fell\non us")

    monkeypatch.setattr(choices, "default_profile", broken)
    code, _, err = run(capsys, "--yes")
    assert code == 1
    assert err.strip() == (
        "✗ RuntimeError: the [bold]sky fell on us. Run the command again with --debug for the traceback."
    )
    code, _, err = run(capsys, "--yes", "--debug")
    assert code == 1 and "Traceback" in err


def test_a_closed_pipe_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "trainwiz.tui.cli", "--help"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def loads(arguments: list[str], *heavy: str) -> list[str]:
    """Which of these modules a command loads."""
    code = (
        f"import sys; from trainwiz.tui.cli import main; main({arguments});"
        f"print('loads', *[name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()[1:]


def test_the_help_and_the_way_to_a_monitor_load_nothing_heavy() -> None:
    assert loads(["--help"], "typer", "rich", "pydantic", "yaml", "textual", "torch", "psutil") == []
    assert loads(["monitor", "."], "typer", "pydantic", "psutil", "yaml", "torch") == []


def choices(**values: Any) -> Choices:
    return parse_choices(values)


def test_choices_set_keys() -> None:
    assert all(is_settable(option.key) for option in OPTIONS if option.key)
    typed = {"micro_batch": "6", "target_tokens": "1.5k", "learning_rate": "4e-4", "gpus": "0, 1"}
    asked = choices(
        **typed, dataset="my.fasta", attention="auto", checkpointing=False, set=["training.seed=7", "model.name=a=b"]
    )
    assert asked.request.overrides == {
        "batch.micro_batch_size": 6, "batch.target_tokens": 1_500, "training.learning_rate": 4e-4,
        "engine.attention": None, "engine.checkpointing": False, "engine.gpus": ["0", "1"],
        "data.sources.0.name": "my.fasta", "training.seed": "7", "model.name": "a=b",
    }  # fmt: skip


def test_another_machine_and_modes() -> None:
    request = choices(gpu="RTX 3080 10GB", num_gpus="3", ram="64G", gpu_memory="10 GiB", tflops="59.5").request
    assert (request.gpu, request.num_gpus, request.ram_bytes) == ("RTX 3080 10GB", 3, 64 * 2**30)
    assert (request.gpu_memory_bytes, request.tflops, request.mode) == (10 * 2**30, 59.5, "train")
    assert choices(smoke=True).request.mode == "smoke" and choices(dev_run=True).request.mode == "dev-run"
    overfit, benchmark = choices(overfit="10").request, choices(benchmark="30").request
    assert (overfit.mode, overfit.overfit_batches) == ("overfit", 10)
    assert (benchmark.mode, benchmark.benchmark_steps) == ("benchmark", 30)


def test_the_profile_is_the_one_in_use_else_the_demo() -> None:
    assert (choices().request.profile, choices(model="esm2-8m").request.profile) == ("cpu-demo", None)
    Path(".trainwiz.yaml").write_text("profile: 2080super\n")
    assert choices().request.profile == choices(model="esm2-8m").request.profile == "2080super"


@each(
    ("line", "words", "given"),
    [
        ("--resume", "", {"resume": "auto"}),
        ("--resume --yes", "", {"resume": "auto", "yes": True}),
        ("--resume checkpoint-60 --set=a=b --set c", "", {"resume": "checkpoint-60", "set": ["a=b", "c"]}),
        ("--no-checkpointing --json", "", {"checkpointing": False, "json": True}),
        ("monitor --replay run", "monitor", {"replay": "60", "text": "run"}),
        ("monitor run --replay", "monitor", {"replay": "60", "text": "run"}),
        ("monitor --replay 0.5x -- --run", "monitor", {"replay": "0.5x", "text": "--run"}),
        ("monitor --replay -1 --every 1.5", "monitor", {"replay": "-1", "interval_s": 1.5}),
        ("diagnose -", "diagnose", {"what": "-"}),
        ("model fill --prompt a --prompt -b c", "model fill", {"prompts": ["a", "-b"], "path": "c"}),
        ("runs compare a --json b", "runs compare", {"runs": ["a", "b"], "as_json": True}),
        ("import --dry-run A=1 python a.py --b", "import", {"dry_run": True, "given": ["A=1 python a.py --b"]}),
        ("profiles --help", "profiles", {"help": True}),
    ],
)
def test_what_is_given(line: str, words: str, given: dict[str, Any]) -> None:
    assert parsed(line.split()) == (words, given)


def test_the_language_is_taken_before_the_options() -> None:
    assert speak(["plan", "--lang", "zh", "--lang=en"]) == ["plan"]
    assert speak(["monitor", "--", "--lang", "zh"]) == ["monitor", "--", "--lang", "zh"]
