"""The command line: help, every wrong option in one sentence, exit codes. Through `main`, as the shell calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from trainwiz.tui.cli import main, take_lang
from trainwiz.tui.options import OPTIONS, PLAN_OPTIONS, plan_help, root_help

from tests.each import each


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_help_without_and_with_typer_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    quick = run(capsys, "--help")
    by_typer = run(capsys, "--yes", "--help")
    assert quick == by_typer
    assert quick[0] == 0
    for option in OPTIONS:
        assert option.flag in quick[1]
        assert option.help in quick[1]


def test_help_groups_come_in_order() -> None:
    text = root_help()
    titles = ["What is trained:", "How it is computed:", "Where it runs:", "The run:", "Modes:"]
    places = [text.index(title) for title in titles]
    assert places == sorted(places)


def test_plan_help_leaves_out_what_only_starts_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plan", "--help")
    assert code == 0
    assert out.strip() == plan_help().strip()
    for flag in ("--yes", "--detach", "--resume", "--dry-run", "--force"):
        assert f"  {flag}" not in out
    assert "--gpu NAME" in out


@pytest.mark.parametrize("arguments", [("runs", "--help"), ("profiles", "--help"), ("monitor", "--help")])
def test_help_of_the_other_commands(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    assert "Usage: trainwiz" in out


def test_help_lists_only_commands_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    from trainwiz.tui.command import app
    from trainwiz.tui.options import COMMANDS
    from typer.main import get_command

    assert set(COMMANDS) == set(get_command(app).commands)  # type: ignore[attr-defined]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--version")
    assert code == 0
    assert out.startswith("trainwiz 0.")


@each(
    ("arguments", "words"),
    [
        (("--micro-bacth", "3"), "did you mean --micro-batch?"),
        (("plan", "--epoch", "3"), "did you mean --epochs?"),
        (("plna",), "did you mean plan?"),
        (("profiles", "lst"), "did you mean list?"),
        (("2080super",), "trainwiz --profile 2080super --yes"),
        (("profiles",), "needs a command: list, show"),
        (("--profile",), "needs a value"),
        (("plan", "extra"), "extra"),
        (("runs", "show"), "RUN"),
        (("monitor", "--every", "soon"), "--every"),
        (("--micro-batch", "3", "runs", "list"), "Write --micro-batch after the command"),
        (("--micro-batch", "six", "--yes"), "--micro-batch: 'six' is not a whole number."),
        (("--micro-batch", "0", "--yes"), "--micro-batch: 0 must be above 0."),
        (("--epochs", "-1", "--yes"), "--epochs: -1 must be above 0."),
        (("--target-tokens", "2.5", "--yes"), "is not a whole number"),
        (("--precision", "fp8", "--yes"), "there is no 'fp8', choose auto or fp32 or tf32 or fp16"),
        (("--precision", "bf_16", "--yes"), "did you mean bf16?"),
        (("plan", "--tier", "ful"), "did you mean full?"),
        (("--strategy", "zero9", "--yes"), "--strategy: there is no 'zero9'"),
        (("--task", "masked", "--yes"), "did you mean masked-lm?"),
        (("--ram", "lots", "--yes"), "--ram: 'lots' is not a size, write it like 64G or 512M."),
        (("--set", "training.seed", "--yes"), "has no key=value"),
        (("--seed", "3"), "There is no option --seed"),
        (("--model", "", "--yes"), "--model: give a value"),
        (("--smoke", "--dev-run", "--yes"), "--smoke and --dev-run are different modes"),
        (
            ("--target-tokens", "2M", "--target-samples", "64", "--yes"),
            "--target-tokens and --target-samples are different targets; keep one.",
        ),
        (("--micro-batch", "4", "--set", "batch.micro_batch_size=8", "--yes"), "also set by its own option"),
        (("--gpu", "H100", "--gpus", "0", "--yes"), "keep one"),
        (("--resume", "--yes"), "name the run folder"),
        (("--resume", "--dry-run", "--output-dir", "x"), "keep one"),
        (("--detach", "--dry-run"), "starts nothing"),
        (("--lang", "de", "--yes"), "there is no 'de'"),
        (("--json",), "add --yes"),
        (("--detach",), "add --yes"),
    ],
)
def test_wrong_command_lines(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str) -> None:
    code, out, err = run(capsys, *arguments)
    text = out + err
    assert code == 2, text
    assert words in text
    assert "Traceback" not in text
    assert not list(Path.cwd().iterdir())


def test_all_wrong_values_are_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--micro-batch", "six", "--precision", "fp8", "--ram", "lots", "--set", "x", "--yes")
    assert code == 2
    assert len(err.strip().splitlines()) == 4


@pytest.mark.parametrize("option", ["--model", "--dataset"])
def test_a_name_too_long_for_any_file(capsys: pytest.CaptureFixture[str], option: str) -> None:
    code, out, err = run(capsys, "plan", option, "x" * 600)
    assert code == 2
    assert "too long" in err and "characters)" in err
    assert "Errno" not in out + err and len(err) < 300


@pytest.mark.parametrize(
    "arguments",
    [("--profile", "cpu-demo", "--yes", "--output-dir"), ("monitor",), ("runs", "show")],
    ids=["output-dir", "monitor", "runs show"],
)
def test_a_folder_name_too_long_for_any_file(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], tmp_path: Path
) -> None:
    code, out, err = run(capsys, *arguments, "x" * 600)
    assert code == 2
    words = {"monitor": "There is no run, file or process", "runs": "There is no run"}
    assert words.get(arguments[0], "cannot be a folder: File name too long.") in err
    # The monitor also names what trains on this machine, however long the paths of that are.
    assert "Errno" not in out + err and "x" * 200 not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("encoding", "words"), [("ascii", "Usage: "), ("latin-1", "Usage: "), ("gbk", "用法：")])
def test_where_chinese_cannot_be_written_there_is_english(encoding: str, words: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainwiz.tui", "--lang", "zh", "--help"],
        env={**os.environ, "PYTHONIOENCODING": encoding}, cwd=tmp_path, capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout.decode(encoding).startswith(words)


def test_what_follows_two_dashes_is_no_language() -> None:
    assert take_lang(["plan", "--lang", "en", "--lang=zh"]) == ("zh", ["plan"])
    assert take_lang(["monitor", "--", "--lang", "zh"]) == (None, ["monitor", "--", "--lang", "zh"])


def test_errors_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "plan", "--micro-batch", "six", "--json")
    document = json.loads(out)
    assert code == document["exit_code"] == 2
    assert document["findings"][0]["where"] == "--micro-batch"
    assert not err


def test_no_terminal_names_the_headless_form(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--profile", "2080super")
    assert code == 2
    assert "trainwiz --profile 2080super --yes" in err
    assert len(err.strip().splitlines()) == 1


def test_escape_codes_of_arguments_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("\x1b[31mred",), ("--\x1b[2Jx",), ("--precision", "\x1b[31mfp8", "--yes")):
        code, out, err = run(capsys, *arguments)
        assert code == 2
        assert "\x1b" not in out + err


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
        "✗ RuntimeError: the [bold]sky fell on us. Run the same command with --debug to see where it happened."
    )
    code, _, err = run(capsys, "--yes", "--debug")
    assert code == 1
    assert "Traceback" in err


def test_a_closed_pipe_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "trainwiz.tui.cli", "--help"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
    )
    os.close(write)
    assert done.stderr == ""
    assert done.returncode == 141


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, trainwiz.tui.cli as cli; cli.main(['--help']);"
        "heavy = {'typer', 'rich', 'pydantic', 'yaml', 'textual', 'torch', 'psutil'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


def test_plan_options_are_a_part_of_all_options() -> None:
    assert set(PLAN_OPTIONS) < set(OPTIONS)


def test_the_way_to_a_monitor_loads_no_typer_and_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("no-such-run", "99999999999", "-"):
        code, out, err = run(capsys, "monitor", word)
        assert (code, out, err) == run(capsys, "monitor", word, "--readonly")
        assert code == 2
    script = (
        "import sys; from trainwiz.tui.cli import main; main(['monitor', '.']);"
        "print([name for name in ('typer', 'pydantic', 'psutil', 'yaml', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_a_stream_that_the_caller_closed_is_no_terminal(closed: str) -> None:
    words = [sys.executable, "-m", "trainwiz.tui.cli"]
    done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "needs a terminal" in done.stderr


def test_a_working_folder_that_was_deleted_is_a_sentence(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = [sys.executable, "-P", "-m", "trainwiz.tui.cli", "--profile", "cpu-demo", "--yes"]
    script = 'cd "$0" && rmdir "$0" && exec "$@"'
    done = subprocess.run(["sh", "-c", script, str(gone), *command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is gone; go to another one" in done.stderr
