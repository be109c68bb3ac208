"""What command lines say: launchers, trainings, wrappers, keepers."""

from __future__ import annotations

import shlex

from trainwiz.core.telemetry.words import is_keeper, is_launcher, is_python, is_wrapper, program_of, trains_by_its_words

from tests.each import each


@each(
    "command",
    [
        "accelerate launch train.py",
        "/opt/env/bin/python3.11 /opt/env/bin/accelerate launch --cpu train.py",
        "python -m accelerate.commands.launch train.py",
        "/opt/env/bin/python /opt/env/bin/torchrun --nproc_per_node 2 train.py",
        "python -m torch.distributed.run --standalone train.py",
        "python -u /opt/env/lib/python3.11/site-packages/torch/distributed/launch.py train.py",
        "python /opt/env/bin/deepspeed --num_gpus 4 train.py",
        "/usr/bin/python -u -m deepspeed.launcher.launch --world_info=abc train.py",
        "mpirun -np 4 python train.py",
    ],
)
def test_launchers(command: str) -> None:
    assert is_launcher(shlex.split(command))


@each(
    "command",
    [
        "python train.py",
        "accelerate config",
        "python /opt/env/bin/accelerate env",
        "python -c pass torchrun.txt",
        "bash",
        "",
    ],
)
def test_no_launchers(command: str) -> None:
    assert not is_launcher(shlex.split(command))


@each(
    "command",
    [
        "python train.py",
        "python3 -u src/pretrain_bert.py --lr 1e-4",
        "python -m my.package.training",
        "/opt/env/bin/python run_mlm.py --output_dir out",
        "python examples/finetune_lora.py",
        "python fine-tuning.py",
        "python scripts/sft.py",
        "python /opt/env/bin/axolotl train config.yaml",
        "python /opt/env/bin/llamafactory-cli train args.yaml",
        "python /opt/env/bin/trl sft --model x",
        "python main.py --per_device_train_batch_size 8",
        "python -X dev -W ignore main.py --num_train_epochs=3",
        r"C:\Python311\python.exe D:\work\train.py",
    ],
)
def test_trainings(command: str) -> None:
    words = command.split() if "\\" in command else shlex.split(command)
    assert trains_by_its_words(words)


@each(
    "command",
    [
        "python",
        "python app.py",
        "python constrained.py",
        "python restrain.py",
        "python -c 'import train'",
        "python -m pytest tests/test_train.py",
        "python -m trainwiz.core.supervise runs/x",
        "python /opt/env/bin/trainwiz monitor",
        "python /opt/env/bin/tensorboard --logdir train",
        "python -m ipykernel_launcher -f kernel.json",
        "vim train.py",
        "bash train.sh",
        "",
    ],
)
def test_no_trainings(command: str) -> None:
    assert not trains_by_its_words(shlex.split(command))


def test_the_program_is_the_script_or_module() -> None:
    assert program_of(["python3.12", "-u", "-W", "ignore", "/a/b/train.py", "--x"]) == "train.py"
    assert program_of(["python", "-m", "a.b", "c"]) == "a.b"
    assert program_of(["python", "-c", "print()"]) == ""
    assert program_of(["python", "-m"]) == ""
    assert program_of(["/usr/bin/tee", "log"]) == "tee"
    assert program_of([]) == ""


def test_pythons_shells_and_keepers() -> None:
    assert is_python(["/usr/bin/python3.13t"])
    assert not is_python(["pythonista"])
    assert is_wrapper(["-bash"])
    assert is_wrapper(["tmux: server"])
    assert not is_wrapper(["python"])
    assert is_keeper(["python", "-P", "-m", "trainwiz.core.supervise", "/runs/x"])
    assert not is_keeper(["grep", "trainwiz.core.supervise"])
