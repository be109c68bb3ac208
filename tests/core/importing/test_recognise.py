"""Which reader a text is for, and one sentence for all that is none of the kinds."""

from __future__ import annotations

import pytest
from trainwiz.core.importing import recognise
from trainwiz.core.importing.gather import Text, decoded, gather, texts_of
from trainwiz.core.importing.report import NotImportable

from tests.each import each

ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 2\n"


@each(
    ("text", "kind"),
    [
        (ACCELERATE, "accelerate"),
        ("\ufeff" + ACCELERATE, "accelerate"),
        ('{"distributed_type": "NO"}', "accelerate"),
        ('// mine\n{"zero_optimization": {"stage": 1}}', "deepspeed"),
        ('{"train_batch_size": 8, "fp16": {"enabled": true}}', "deepspeed"),
        ("learning_rate: 2.0e-5\nper_device_train_batch_size: 4\nfp16: true\n", "training_arguments"),
        ('{"output_dir": "x", "num_train_epochs": 3}', "training_arguments"),
        ("from transformers import TrainingArguments\nTrainingArguments('x', max_steps=5)\n", "training_arguments"),
        ("accelerate launch --num_processes 2 train.py", "launch_command"),
        ("CUDA_VISIBLE_DEVICES=0 python3 train.py --fp16", "launch_command"),
        ("#!/bin/bash\nset -e\ntorchrun --nproc_per_node=2 train.py\n", "launch_command"),
    ],
)
def test_by_what_it_holds(text: str, kind: str) -> None:
    assert recognise.read(text, "file").kind == kind


@each(
    ("text", "hint"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        ("hello world", "settings"),
        ('{"name": "left-pad", "version": "1.0.0"}', "none of the kinds"),
        ('{"log_history": [], "global_step": 4}', "trainwiz monitor"),
        ('{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}', "--model"),
        ("name: x\nvalues:\n  task: causal-lm\n", "--profile"),
        ("base_model: x\ndatasets: []\nlearning_rate: 1\n", "axolotl"),
        ("[1, 2]", "settings"),
    ],
)
def test_what_is_something_else_is_refused_in_one_sentence(text: str, hint: str) -> None:
    with pytest.raises(NotImportable) as caught:
        recognise.read(text, "file.yaml")
    (finding,) = caught.value.findings
    assert hint in finding.message
    assert "\n" not in finding.message


def test_nothing_of_a_yaml_file_is_built_or_run(tmp_path: pytest.TempPathFactory) -> None:
    evil = 'distributed_type: NO\nx: !!python/object/apply:os.system ["exit 1"]\n'
    with pytest.raises(NotImportable, match="line 2"):
        recognise.read(evil, "a.yaml")


def test_aliases_that_stand_for_billions_are_refused() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in zip("abcdefgh", "bcdefghi", strict=True)]
    with pytest.raises(NotImportable, match="aliases"):
        recognise.read("\n".join(lines), "a.yaml")


def test_files_as_windows_writes_them() -> None:
    assert decoded(ACCELERATE.encode("utf-16"), "a.yaml") == ACCELERATE
    assert decoded(ACCELERATE.encode("utf-8-sig"), "a.yaml") == ACCELERATE


@pytest.mark.parametrize("data", [b"\xff\x00\x80", b"a\0b", b"x" * (2**20 + 1)])
def test_what_is_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(NotImportable, match=r"^a\.yaml "):
        decoded(data, "a.yaml")


@each("argument", ["", " ", "no-such-file.yaml", "/dev/zero", "a\0b", "x" * 5000, "~nobody-of-that-name/a.yaml"])
def test_arguments_that_are_neither_file_nor_command(argument: str) -> None:
    with pytest.raises(NotImportable) as caught:
        texts_of([argument])
    assert len(caught.value.findings) == 1


def test_every_refusal_of_several_files_is_said() -> None:
    from pathlib import Path

    with pytest.raises(NotImportable) as caught:
        gather([Text("a", "", Path()), Text("b", "hello", Path()), Text("c", ACCELERATE, Path())])
    assert [finding.where for finding in caught.value.findings] == ["a", "b"]


@each(
    ("text", "file"),
    [
        ('[tool.poetry.dependencies]\npython = "^3.9"\ndeepspeed = "*"\n', "pyproject.toml"),
        ('python = "^3.9"\n', "notes.txt"),
        ("torch>=2.1\naccelerate\ndeepspeed\ntrl\n", "requirements.txt"),
        ("FROM x\nRUN pip install transformers accelerate deepspeed trl\n", "Dockerfile"),
        ("[deepspeed]\nzero = 2\n", "setup.cfg"),
        ("train:\n\ttorchrun --nproc_per_node=2 train.py\n", "sub/Makefile"),
        ("Start it:\n\n```bash\ntorchrun train.py --learning_rate 1e-4\n```\n", "README.md"),
    ],
)
def test_what_only_holds_or_names_a_command_is_refused_in_one_sentence(text: str, file: str) -> None:
    with pytest.raises(NotImportable) as caught:
        recognise.read(text, file)
    assert len(caught.value.findings) == 1
    assert caught.value.findings[0].message.startswith(file)
