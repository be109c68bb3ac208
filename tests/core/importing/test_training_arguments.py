"""Arguments of the Trainer in files: every name of every version has a place or a reason, and values keep their meaning."""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from trainwiz.core.config.run import RunConfig
from trainwiz.core.export.training_arguments import training_arguments as exported
from trainwiz.core.importing import training_arguments
from trainwiz.core.importing.report import Collector, Imported, NotImportable
from trainwiz.core.importing.settings import Setting
from trainwiz.core.importing.training_arguments import PLACES, REASONS, fill
from trainwiz.core.importing.training_arguments_names import CANONICAL, REMOVED, RENAMED, TODAY, todays_name

from tests.each import each

BASE = {"per_device_train_batch_size": 4, "num_train_epochs": 1}


def read(settings: dict[str, Any]) -> Imported:
    return training_arguments.read(yaml.safe_dump(settings), "args.yaml")


def unknown(imported: Imported) -> set[str]:
    return {one.name for one in imported.report.unknown}


def dropped(imported: Imported) -> set[str]:
    return {one.name for one in imported.report.dropped}


def codes(imported: Imported) -> list[str]:
    return [finding.code for finding in imported.report.findings]


def fields_of(file: str, name: str) -> set[str]:
    """The fields of a dataclass of the installed transformers, read from its source: importing it takes seconds."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("transformers is not installed")
    tree = ast.parse((Path(spec.submodule_search_locations[0]) / file).read_text(encoding="utf-8"))
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name]
    return {
        statement.target.id
        for statement in classes[0].body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }


def test_names_of_today_are_those_of_the_installed_transformers() -> None:
    installed = fields_of("training_args.py", "TrainingArguments")
    installed |= fields_of("training_args_seq2seq.py", "Seq2SeqTrainingArguments")
    aliases = {old for old, new in RENAMED.items() if new in installed}
    assert installed - aliases == TODAY
    assert set(RENAMED.values()) <= TODAY


@each("name", sorted(TODAY | set(RENAMED) | REMOVED))
def test_every_argument_has_a_place_or_a_reason(name: str) -> None:
    today = todays_name(name) or name
    assert today in PLACES or today in REASONS


def test_aliases_lead_to_places() -> None:
    assert {name for name in CANONICAL.values() if name not in PLACES and name not in REASONS} == set()


@each(
    ("setting", "key", "value"),
    [
        ({"learning_rate": "2e-5"}, "training.learning_rate", 2e-5),
        ({"warmup_ratio": 0.06}, "training.warmup", 0.06),
        ({"warmup_steps": 500}, "training.warmup", 500),
        ({"evaluation_strategy": "epoch"}, "evaluation.every_epoch", True),
        ({"eval_strategy": "steps", "logging_steps": 25}, "evaluation.every_steps", 25),
        ({"evaluate_during_training": True, "eval_steps": 7}, "evaluation.every_steps", 7),
        ({"per_gpu_train_batch_size": 3}, "batch.micro_batch_size", 3),
        ({"gradient_checkpointing": True}, "engine.checkpointing", True),
        ({"activation_checkpointing": "false"}, "engine.checkpointing", False),
        ({"no_cuda": True}, "engine.device", "cpu"),
        ({"adafactor": True}, "engine.optimizer", "adafactor"),
        ({"optim": "adamw_hf"}, "engine.optimizer", "adamw_torch"),
        ({"optim": "OptimizerNames.ADAMW_BNB"}, "engine.optimizer", "adamw_bnb_8bit"),
        ({"sharded_ddp": "zero_dp_3 offload"}, "engine.offload", "all"),
        ({"torchdynamo": "inductor"}, "engine.compile", True),
        ({"group_by_length": True}, "data.group_by_length", True),
        ({"train_sampling_strategy": "SamplingStrategy.GROUP_BY_LENGTH"}, "data.group_by_length", True),
        ({"train_sampling_strategy": "random"}, "data.group_by_length", False),
        ({"save_steps": 0.1, "max_steps": 1000}, "checkpoint.every_steps", 100),
        ({"lr_scheduler_type": "constant_with_warmup"}, "training.schedule", "constant"),
        (
            {
                "lr_scheduler_type": "cosine_with_min_lr",
                "learning_rate": 1e-3,
                "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
            },
            "training.final_learning_rate",
            1e-4,
        ),
        ({"lr_scheduler_type": "polynomial"}, "training.final_learning_rate", 1e-7),
        ({"bf16": True}, "engine.precision", "bf16"),
        ({"bf16": True, "torch_dtype": "bfloat16"}, "engine.precision", "bf16-true"),
        ({"bf16": True, "torch_dtype": "bfloat16", "use_peft": True}, "engine.precision", "bf16"),
        ({"metric_for_best_model": "bleu"}, "evaluation.metric", "eval_bleu"),
        ({"report_to": "none"}, "logging.report_to", ["none"]),
        ({"report_to": ["wandb", "tensorboard"]}, "logging.report_to", ["wandb", "tensorboard"]),
        ({"fsdp": "full_shard auto_wrap"}, "engine.strategy", "fsdp"),
        ({"fsdp": True}, "engine.strategy", "fsdp"),
        ({"deepspeed": {"zero_optimization": {"stage": 3}}}, "engine.strategy", "zero3"),
        ({"model_name_or_path": "gpt2"}, "model.init", "pretrained"),
        ({"config_name": "gpt2"}, "model.init", "scratch"),
        ({"dataset_name": "a/b", "dataset_config": "de"}, "data.sources.0.subset", "de"),
        ({"dataset_mixer": {"a/b": 1.0, "c/d": 0.5}}, "data.sources", [{"name": "a/b"}, {"name": "c/d"}]),
        ({"lora_r": 16}, "peft.method", "lora"),
        ({"predict_with_generate": True}, "task", "seq2seq"),
        ({"stage": "sft"}, "task", "causal-lm"),
    ],
)
def test_a_setting_keeps_its_meaning(setting: dict[str, Any], key: str, value: Any) -> None:
    imported = read({**BASE, **setting})
    assert imported.values[key] == value
    assert not unknown(imported)


def test_old_names_are_told_with_the_new_ones() -> None:
    imported = read({**BASE, "evaluation_strategy": "epoch", "no_cuda": False, "optim": "adamw_hf"})
    renamed = {(one.old, one.new) for one in imported.report.renamed}
    assert renamed == {
        ("evaluation_strategy", "eval_strategy"),
        ("no_cuda", "use_cpu"),
        ("optim=adamw_hf", "optim=adamw_torch"),
    }
    # A renamed setting is under mapped too, as it stands in the file.
    mapped = {one.name: (one.value, one.line) for one in imported.report.mapped}
    assert mapped["evaluation_strategy"] == ("epoch", 1)
    assert mapped["optim"][0] == "adamw_hf"


def test_what_is_left_out_has_the_librarys_defaults() -> None:
    imported = read(dict(BASE))
    assert imported.defaults["training.learning_rate"] == 5e-5
    assert imported.defaults["training.weight_decay"] == 0.0
    assert imported.defaults["engine.precision"] == "fp32"
    assert "training.epochs" not in imported.defaults
    assert "library_defaults" in codes(imported)


def test_a_value_that_nobody_can_know_has_no_default_and_is_kept() -> None:
    imported = read({**BASE, "learning_rate": "${oc.env:LR}", "bf16": "{{ half }}"})
    assert unknown(imported) == {"learning_rate", "bf16"}
    assert "training.learning_rate" not in {**imported.defaults, **imported.values}
    assert "engine.precision" not in imported.defaults


def test_contradictions_are_found() -> None:
    both = read({**BASE, "fp16": True, "bf16": True})
    assert "engine.precision" not in both.values and "contradiction" in codes(both)
    warmups = read({**BASE, "warmup_ratio": 0.1, "warmup_steps": 20})
    assert warmups.values["training.warmup"] == 20 and "contradiction" in codes(warmups)
    # 0 steps is the default of transformers 4, which a dump writes beside the ratio.
    dump = read({**BASE, "warmup_ratio": 0.1, "warmup_steps": 0})
    assert dump.values["training.warmup"] == 0.1 and "contradiction" not in codes(dump)


def test_what_trainwiz_does_not_have_is_said_and_not_replaced_by_a_guess() -> None:
    imported = read({**BASE, "optim": "lion_8bit", "lr_scheduler_type": "inverse_sqrt", "load_in_4bit": True})
    assert not {"engine.optimizer", "training.schedule"} & set(imported.values)
    assert {"unsupported_optimizer", "unsupported_schedule", "not_quantized"} <= set(codes(imported))


@each(
    ("name", "value"),
    [("learning_rate", "fast"), ("max_steps", 1.5), ("bf16", "perhaps"), ("lr_scheduler_kwargs", "x"), ("seed", [1])],
)
def test_a_value_that_cannot_be_is_a_finding(name: str, value: Any) -> None:
    imported = read({**BASE, name: value})
    assert name in unknown(imported)
    assert "bad_value" in codes(imported)


def test_secrets_are_not_repeated() -> None:
    imported = read({**BASE, "hub_token": "hf_secret", "push_to_hub_token": None, "my_api_key": "k123"})
    text = json.dumps(imported.report.to_json())
    assert "hf_secret" not in text and "k123" not in text


def test_sections_of_a_file_are_read_with_their_lines() -> None:
    text = (
        "model:\n  model_name_or_path: gpt2\ntraining:\n  learning_rate: 1e-4\n  num_train_epochs: 2\nlora:\n  r: 4\n"
    )
    imported = training_arguments.read(text, "conf.yaml")
    assert imported.values["training.learning_rate"] == 1e-4
    assert imported.values["peft.rank"] == 4
    assert imported.place_of("training.learning_rate") == "conf.yaml:4"


def test_printed_arguments_are_read() -> None:
    text = (
        "INFO - __main__ - Training parameters Seq2SeqTrainingArguments(\n_n_gpu=2,\nadam_beta2=0.98,\nadafactor=False,\n"
        "evaluation_strategy=IntervalStrategy.STEPS,\neval_steps=500,\nhub_token=<HUB_TOKEN>,\nlearning_rate=3e-05,\n"
        "lr_scheduler_type=SchedulerType.COSINE,\nlogging_dir=out/runs/Jan 01,\noptim=OptimizerNames.ADAMW_HF,\n"
        "per_device_train_batch_size=6,\nsharded_ddp=[],\n)\nmore of the log\n"
    )
    imported = training_arguments.read(text, "train.log")
    assert imported.values["training.learning_rate"] == 3e-5
    assert imported.values["training.schedule"] == "cosine"
    assert imported.values["evaluation.every_steps"] == 500
    assert imported.values["task"] == "seq2seq"
    assert imported.values["engine.optimizer"] == "adamw_torch"
    assert imported.place_of("training.learning_rate") == "train.log:8"


def test_half_a_print_and_other_files_are_refused_in_a_sentence() -> None:
    for text in ("TrainingArguments(\nlearning_rate=1e-4,\n", "color: red\n", "[1, 2]", "", "a: [1"):
        with pytest.raises(NotImportable) as refused:
            training_arguments.read(text, "x.yaml")
        assert len(refused.value.findings) == 1
        assert refused.value.findings[0].message.startswith("x.yaml")


def test_what_trainwiz_exports_comes_back() -> None:
    config = RunConfig().with_values(
        {
            "batch.micro_batch_size": 6,
            "batch.gradient_accumulation_steps": 11,
            "training.max_steps": 1234,
            "training.learning_rate": 3e-4,
            "training.schedule": "cosine",
            "training.final_learning_rate": 3e-5,
            "training.warmup": 0.06,
            "training.weight_decay": 0.1,
            "training.adam_beta2": 0.98,
            "training.label_smoothing": 0.1,
            "engine.precision": "bf16",
            "engine.checkpointing": True,
            "engine.optimizer": "adafactor",
            "engine.strategy": "ddp",
            "engine.processes": 2,
            "engine.device": "cuda",
            "engine.tf32": True,
            "engine.process_timeout_s": 900,
            "data.workers": 3,
            "data.prefetch": 5,
            "data.pin_memory": True,
            "data.persistent_workers": True,
            "evaluation.every_steps": 77,
            "checkpoint.every_steps": 154,
            "checkpoint.keep": 3,
            "logging.every_steps": 9,
            "logging.report_to": ["wandb"],
        },
        "you",
    )
    imported = training_arguments.read(json.dumps(exported(config)), "training_args.json")
    assert not unknown(imported)
    came_back = {key: value for key, value in imported.values.items() if key in config.origins}
    assert came_back == {key: config.value(key) for key in came_back}
    assert set(config.origins) - set(came_back) == {"engine.strategy", "engine.processes", "engine.device"}


STRANGE: list[Any] = [
    None, True, 0, -1, 2.5, 1e300, 10**30, "", "x", "nan", "a,b", [], [1], ["a", ["b"]], [{}], [None], {}, {"a": 1},
    {1: 2}, {"stage": 3}, "{", "\x1b[31mred", "x" * 5000,
]  # fmt: skip


@each("name", sorted(set(PLACES) | set(CANONICAL) | set(RENAMED)))
def test_no_value_breaks_a_place(name: str) -> None:
    for value in STRANGE:
        collector = Collector("training_arguments", "a.yaml")
        fill(collector, [Setting(name, value, 1)], program="TrainingArguments")
        report = collector.done().report
        told = [*report.mapped, *report.dropped, *report.unknown]
        assert any(one.name == name for one in told), (name, value)
        json.dumps(report.to_json(), default=str)


def test_what_a_llama_factory_file_means_elsewhere_is_said() -> None:
    """Names of its own list, its templates and its packing; its rate is the Trainer's where it names none."""
    imported = read(
        yaml.safe_load(
            "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: lora\nlora_target: all\n"
            "dataset: identity,alpaca_en_demo\ntemplate: qwen\ncutoff_len: 512\npacking: true\n"
            "per_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nnum_train_epochs: 3.0\nbf16: true\n"
        )
    )
    codes = [finding.code for finding in imported.report.findings]
    assert codes.count("unknown_data") == 2 and {"no_template", "packing_counts_rows"} <= set(codes)
    assert (imported.values["peft.targets"], imported.values["data.packing"]) == (["all-linear"], True)
    assert "data.concatenate" not in imported.values
    assert imported.defaults["training.learning_rate"] == 5e-5
