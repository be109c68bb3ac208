"""Commands of programs that start their processes by themselves, and options that several programs share."""

from __future__ import annotations

from typing import Any

import pytest
from trainwiz.core.importing import command_line
from trainwiz.core.importing.report import Imported, NotImportable, engine_values

from tests.each import each


def read(command: str) -> Imported:
    return command_line.read(command, "command")


def test_a_bare_deepspeed_is_a_switch_beside_the_option_that_names_the_file() -> None:
    imported = read("deepspeed train.py --deepspeed --deepspeed_config conf/ds.json --epochs 2")
    assert [(one.role, one.path) for one in imported.references if one.role == "deepspeed"] == [
        ("deepspeed", "conf/ds.json")
    ]
    assert {one.name: one.why for one in imported.report.dropped}["deepspeed"].startswith(
        "It only switches DeepSpeed on"
    )
    assert imported.report.unknown == ()


def engine(command: str) -> dict[str, Any]:
    return engine_values(read(command).setup)


@each(
    ("command", "expected"),
    [
        (
            "FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=4 llamafactory-cli train a.yaml",
            {"engine.nodes": 2, "engine.processes": 4, "engine.strategy": "ddp"},
        ),
        ("NPROC_PER_NODE=1 swift sft --model m", {"engine.processes": 1, "engine.strategy": "single"}),
        (
            "CUDA_VISIBLE_DEVICES=0,1 fairseq-train data --lr 1",
            {"engine.processes": 2, "engine.strategy": "ddp", "engine.gpus": ["0", "1"]},
        ),
        ("NNODES=$N llamafactory-cli train a.yaml", {}),
        ("NNODES=2 axolotl train a.yaml", {}),
    ],
)
def test_processes_of_programs_that_start_them_by_themselves(command: str, expected: dict[str, Any]) -> None:
    assert engine(command) == expected


def test_what_fairseq_shares_with_others() -> None:
    imported = read(
        "fairseq-train d --lr 5e-4 --update-freq 2 --max-epoch 10 --clip-norm 0.1 --warmup-updates 4000 "
        "--tokens-per-sample 256 --log-interval 100 --save-interval-updates 500 --label-smoothing 0.1 --max-sentences 8"
    )
    assert imported.values == {
        "training.learning_rate": 5e-4,
        "batch.gradient_accumulation_steps": 2,
        "training.epochs": 10.0,
        "training.max_grad_norm": 0.1,
        "training.warmup": 4000.0,
        "batch.sequence_length": 256,
        "logging.every_steps": 100,
        "checkpoint.every_steps": 500,
        "training.label_smoothing": 0.1,
        "batch.micro_batch_size": 8,
    }
    assert imported.defaults == {}


def test_other_commands_of_these_programs_are_no_training() -> None:
    for command in (
        "llamafactory-cli chat a.yaml",
        "axolotl preprocess a.yml",
        "swift export --ckpt x",
        "fairseq-train",
    ):
        with pytest.raises(NotImportable):
            read(command)


def test_settings_of_axolotl_behind_its_file() -> None:
    imported = read("axolotl train c.yml --learning-rate 1e-4 --micro-batch-size 2 --sequence-len 512")
    assert [one.path for one in imported.references] == ["c.yml"]
    assert imported.values["batch.micro_batch_size"] == 2
    assert imported.values["batch.sequence_length"] == 512


def test_the_adapter_of_swift_is_one() -> None:
    assert read("swift sft --train_type lora --lora_rank 8").values["peft.method"] == "lora"


def test_a_token_of_the_text_is_no_password() -> None:
    dropped = read("trl sft --eos_token '<|im_end|>' --hub_token hf_x --learning_rate 1e-4").report.dropped
    assert {one.name: one.value for one in dropped} == {"eos_token": "<|im_end|>", "hub_token": "***"}
