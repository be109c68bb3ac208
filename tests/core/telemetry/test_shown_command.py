"""Command lines without secrets, and with everything else."""

from __future__ import annotations

import shlex

from trainwiz.core.telemetry.words import short_command, shown_command

from tests.each import each

SECRET = "s3cr3tvalue0123456789"


@each(
    "command",
    [
        f"python train.py --hf_token {SECRET}",
        f"python train.py --hub-token={SECRET}",
        f"python train.py --wandb_api_key {SECRET}",
        f"python train.py --password {SECRET} --epochs 3",
        f"python train.py wandb.api_key={SECRET}",
        f"python train.py --auth {SECRET}",
        f"env HF_TOKEN={SECRET} python train.py",
        f"bash -c 'HF_TOKEN={SECRET} python train.py'",
        f"bash -c 'cd /x && AWS_SECRET_ACCESS_KEY={SECRET} python train.py --lr 3'",
        f"bash -c 'python train.py --hub_token {SECRET} --lr 3'",
        "python train.py hf_" + SECRET,
        "python train.py --x=sk-" + SECRET,
        "python train.py ghp_" + SECRET,
        f"python train.py --data https://me:{SECRET}@host/data",
        f"""python train.py '{{"token": "{SECRET}", "lr": 3}}'""",
        "python train.py " + "0123456789abcdef" * 2 + SECRET.encode().hex(),
    ],
)
def test_secrets_are_not_shown(command: str) -> None:
    shown = shown_command(shlex.split(command))
    assert SECRET not in shown
    assert SECRET.encode().hex() not in shown
    assert "***" in shown
    assert "train.py" in shown


@each(
    "command",
    [
        "python train.py --max_tokens 2000000 --num_tokens 3",
        "python train.py --pad_token x --eos_token y --mask-token z",
        "python train.py --text_key text --label-key label",
        "python train.py --tokenizer esm2 --key_dim 64 --monkey 3",
        "python train.py --keys a,b",
        "accelerate launch --num_processes 2 train.py --data https://host/a@b",
    ],
)
def test_ordinary_words_stay(command: str) -> None:
    assert shown_command(shlex.split(command)) == command


def test_words_are_quoted_as_a_shell_reads_them() -> None:
    words = ["python", "train.py", "--name", "a b", "--note", "it's"]
    assert shlex.split(shown_command(words)) == words


def test_escape_codes_and_line_breaks_are_gone() -> None:
    shown = shown_command(["python", "\x1b[31mred\x1b[0m\n[bold]"])
    assert "\x1b" not in shown
    assert "\n" not in shown
    assert "[bold]" in shown


def test_an_option_without_value_hides_nothing_that_follows() -> None:
    assert shown_command(["python", "t.py", "--use_token", "--lr", "3"]) == "python t.py --use_token --lr 3"


def test_the_short_form_names_programs_without_folders() -> None:
    assert short_command(["/opt/bin/python3", "/home/me/x/train.py", "--lr", "3"]) == "python3 train.py --lr 3"
    launched = ["/opt/bin/python3", "/opt/bin/accelerate", "launch", "/home/me/train.py"]
    assert short_command(launched) == "accelerate launch /home/me/train.py"
    assert short_command([]) == ""


@each(
    ("command", "left_out"),
    [
        (["bash", "-c", "python t.py --password 'my secret phrase' --epochs 3"], ["my", "secret phrase", "phrase"]),
        (["bash", "-c", 'PASSWORD="my secret phrase" python t.py --epochs 3'], ["my", "phrase"]),
        (["bash", "-c", "set -e\nHF_TOKEN=abc\tpython t.py --epochs 3"], ["abc"]),
        (["python", "t.py", "--options", "{'hf_token': 'abc', 'x': 1}", "--epochs", "3"], ["abc"]),
        (["python", "t.py", "--header", "Authorization: Bearer abc", "--epochs", "3"], ["Bearer", "abc"]),
        (["bash", "-c", "curl -H 'X-Api-Key: abc' host; python t.py --epochs 3"], ["abc"]),
        (["sh", "-c", 'srun bash -c "python t.py --epochs 3 --token abc"'], ["abc"]),
    ],
)
def test_a_secret_of_several_words_goes_as_a_whole(command: list[str], left_out: list[str]) -> None:
    shown = shown_command(command)
    assert "***" in shown and "t.py" in shown and "--epochs 3" in shown
    assert not [part for part in left_out if part in shown], shown
