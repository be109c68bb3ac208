"""What command lines say: launchers, trainings, wrappers, keepers."""

import shlex

from trainwiz.core.telemetry.words import (
    is_keeper,
    is_launcher,
    is_python,
    is_wrapper,
    program_of,
    short_command,
    shown_command,
    trains_by_its_words,
)

from tests.each import each

LAUNCHES = {
    "accelerate launch train.py": True,
    "/opt/env/bin/python /opt/env/bin/torchrun --nproc_per_node 2 train.py": True,
    "python /opt/env/bin/deepspeed --num_gpus 4 train.py": True,
    "/usr/bin/python -u -m deepspeed.launcher.launch --world_info=abc train.py": True,
    **dict.fromkeys(("python train.py", "accelerate config", "python /opt/env/bin/accelerate env", "bash", ""), False),
    "python -c pass torchrun.txt": False,
}
TRAINS = {
    "python train.py": True,
    "python3 -u src/pretrain_bert.py --lr 1e-4": True,
    "python -m my.package.training": True,
    "python /opt/env/bin/axolotl train config.yaml": True,
    "python main.py --per_device_train_batch_size 8": True,
    "python -X dev -W ignore main.py --num_train_epochs=3": True,
    r"C:\Python311\python.exe D:\work\train.py": True,
    **dict.fromkeys(("python", "python app.py", "python constrained.py", "vim train.py", "bash train.sh", ""), False),
    "python -c 'import train'": False,
    "python -m pytest tests/test_train.py": False,
    "python -m trainwiz.core.supervise runs/x": False,
    "python /opt/env/bin/trainwiz monitor": False,
    "python /opt/env/bin/tensorboard --logdir train": False,
}


def test_launchers_and_trainings() -> None:
    assert {command: is_launcher(shlex.split(command)) for command in LAUNCHES} == LAUNCHES
    split = {command: command.split() if "\\" in command else shlex.split(command) for command in TRAINS}
    assert {command: trains_by_its_words(words) for command, words in split.items()} == TRAINS


def test_programs_pythons_shells_and_keepers() -> None:
    assert program_of(["python3.12", "-u", "-W", "ignore", "/a/b/train.py", "--x"]) == "train.py"
    assert program_of(["python", "-m", "a.b", "c"]) == "a.b"
    assert program_of(["/usr/bin/tee", "log"]) == "tee"
    assert [program_of(words) for words in (["python", "-c", "print()"], ["python", "-m"], [])] == ["", "", ""]
    assert is_python(["/usr/bin/python3.13t"]) and not is_python(["pythonista"])
    assert is_wrapper(["-bash"]) and is_wrapper(["tmux: server"]) and not is_wrapper(["python"])
    assert is_keeper(["python", "-P", "-m", "trainwiz.core.supervise", "/runs/x"])
    assert not is_keeper(["grep", "trainwiz.core.supervise"])
    assert short_command(["/opt/bin/python3", "/home/me/x/train.py", "--lr", "3"]) == "python3 train.py --lr 3"
    launched = ["/opt/bin/python3", "/opt/bin/accelerate", "launch", "/home/me/train.py"]
    assert short_command(launched) == "accelerate launch /home/me/train.py"
    assert short_command([]) == ""


SECRET = "s3cr3tvalue0123456789"
SECRETS = (
    f"--hf_token {SECRET}", f"--hub-token={SECRET}", f"--password {SECRET} --epochs 3", f"wandb.api_key={SECRET}",
    f"HF_TOKEN={SECRET}", "hf_" + SECRET, f"--data https://me:{SECRET}@host/data",
    "0123456789abcdef" * 2 + SECRET.encode().hex(),
    # A text within a word goes as a whole.
    f"""'{{"token": "{SECRET}", "lr": 3}}'""", f"--header 'Authorization: Bearer {SECRET}'",
    f"""--options "{{'hf_token': '{SECRET}', 'x': 1}}" """, f"-c 'cd /x && AWS_SECRET_ACCESS_KEY={SECRET} python t.py'",
    f"""-c "python t.py --password 'my {SECRET} phrase' --epochs 3" """, f"-c 'python t.py --password {SECRET} TOKEN=x'",
    f"""-c 'PASSWORD="my {SECRET} phrase" python t.py' """, f"-c $'set -e\nHF_TOKEN={SECRET}\tpython t.py'",
    f"""-c 'srun bash -c "python t.py --token {SECRET}"' """,
)  # fmt: skip
ORDINARY = (
    "python train.py --max_tokens 2000000 --num_tokens 3",
    "python train.py --pad_token x --eos_token y --mask-token z",
    "python train.py --text_key text --label-key label",
    "accelerate launch --num_processes 2 train.py --data https://host/a@b",
    "bash -c 'cd /x && python train.py --pad_token x'",
)


@each("words", SECRETS)
def test_secrets_are_not_shown(words: str) -> None:
    shown = shown_command(shlex.split(f"python train.py {words}"))
    assert SECRET not in shown and SECRET.encode().hex() not in shown and "phrase" not in shown
    assert "***" in shown and "train.py" in shown


@each("command", ORDINARY)
def test_ordinary_words_stay(command: str) -> None:
    assert shown_command(shlex.split(command)) == command
