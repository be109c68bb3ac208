"""Arguments of the Trainer in files: every name of every version has a place or a reason, and values keep their meaning."""

import ast
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from trainwiz.core.config.run import RunConfig
from trainwiz.core.export.training_arguments import training_arguments as exported
from trainwiz.core.importing import gather
from trainwiz.core.importing.gather import merge
from trainwiz.core.importing.names import CANONICAL
from trainwiz.core.importing.report import Imported, Setting
from trainwiz.core.importing.trainer import RULES, fill

from tests.core.importing.told import codes, names, unknown
from tests.each import each

BASE = {"per_device_train_batch_size": 4, "num_train_epochs": 1}


def read(settings: dict[str, Any]) -> Imported:
    return gather.read(yaml.safe_dump(settings), "args.yaml")


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


def test_every_argument_of_the_installed_transformers_has_a_place_or_a_reason() -> None:
    """Old names and aliases lead to places."""
    installed = fields_of("training_args.py", "TrainingArguments")
    installed |= fields_of("training_args_seq2seq.py", "Seq2SeqTrainingArguments")
    assert {name for name in installed if CANONICAL.get(name, name) not in RULES} == set()
    assert set(CANONICAL.values()) <= set(RULES)


@each(("given", "expected"), [
    ({"learning_rate": "2e-5"}, {"training.learning_rate": 2e-5}), ({"warmup_ratio": 0.06}, {"training.warmup": 0.06}),
    ({"warmup_steps": 500}, {"training.warmup": 500}), ({"evaluation_strategy": "epoch"}, {"evaluation.every_epoch": True}),
    ({"eval_strategy": "steps", "logging_steps": 25}, {"evaluation.every_steps": 25}),
    ({"per_gpu_eval_batch_size": 3}, {"batch.eval_micro_batch_size": 3}),
    ({"gradient_checkpointing": True}, {"engine.checkpointing": True}),
    ({"activation_checkpointing": "false"}, {"engine.checkpointing": False}), ({"no_cuda": True}, {"engine.device": "cpu"}),
    ({"adafactor": True}, {"engine.optimizer": "adafactor"}), ({"optim": "adamw_hf"}, {"engine.optimizer": "adamw_torch"}),
    ({"optim": "OptimizerNames.ADAMW_BNB"}, {"engine.optimizer": "adamw_bnb_8bit"}),
    ({"pure_bf16": True}, {"engine.precision": "bf16-true"}), ({"neat_packing": True}, {"data.packing": True}),
    ({"torchdynamo": "inductor"}, {"engine.compile": True}), ({"group_by_length": True}, {"data.group_by_length": True}),
    ({"train_sampling_strategy": "SamplingStrategy.GROUP_BY_LENGTH"}, {"data.group_by_length": True}),
    ({"train_sampling_strategy": "random"}, {"data.group_by_length": False}),
    ({"lr_scheduler_type": "constant_with_warmup"}, {"training.schedule": "constant"}),
    ({"lr_scheduler_type": "cosine_with_min_lr", "learning_rate": 1e-3, "lr_scheduler_kwargs": {"min_lr_rate": 0.1}},
     {"training.final_learning_rate": 1e-4}),
    ({"lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": {"lr_end": 1e-6}}, {"training.final_learning_rate": 1e-6}),
    ({"bf16": True}, {"engine.precision": "bf16"}),
    ({"bf16": True, "torch_dtype": "bfloat16"}, {"engine.precision": "bf16-true"}),
    ({"bf16": True, "torch_dtype": "bfloat16", "use_peft": True}, {"engine.precision": "bf16"}),
    ({"metric_for_best_model": "bleu"}, {"evaluation.metric": "eval_bleu"}),
    ({"report_to": "none"}, {"logging.report_to": ["none"]}),
    ({"report_to": ["wandb", "tensorboard"]}, {"logging.report_to": ["wandb", "tensorboard"]}),
    ({"fsdp": "full_shard auto_wrap"}, {"engine.strategy": "fsdp"}), ({"fsdp": True}, {"engine.strategy": "fsdp"}),
    ({"model_name_or_path": "gpt2"}, {"model.init": "pretrained"}), ({"config_name": "gpt2"}, {"model.init": "scratch"}),
    ({"dataset_name": "a/b", "dataset_config": "de"}, {"data.sources.0.subset": "de"}),
    ({"dataset_name": "a/b, c/d"}, {"data.sources": [{"name": "a/b"}, {"name": "c/d"}]}),
    ({"lora_r": 16}, {"peft.method": "lora"}), ({"predict_with_generate": True}, {"task": "seq2seq"}),
    ({"stage": "sft"}, {"task": "causal-lm"}),
    # What is learnt of chats.
    ({"assistant_only_loss": True}, {"training.train_on": "answers"}),
    ({"completion_only_loss": False}, {"training.train_on": "everything"}),
    ({"train_on_inputs": True}, {"training.train_on": "everything"}), ({"mask_history": True}, {"training.train_on": "last_answer"}),
    ({"chat_template": "chatml"}, {"model.chat_template": "chatml"}), ({"chat_template": "llama3"}, {"model.chat_template": None}),
    ({"chat_template_path": "b.jinja"}, {"model.chat_template": "b.jinja"}), ({"chat_template_path": "o/m"}, {"model.chat_template": None}),
    ({"datasets": [{"path": "o/a", "split": "train[:9]"}, {"path": "o/b", "name": "en"}]},
     {"data.sources": [{"name": "o/a", "split": "train[:9]"}, {"name": "o/b", "subset": "en"}]}),
    # Fewer bits, and what trains beside adapters.
    ({"use_peft": True, "load_in_4bit": True, "use_rslora": True}, {"engine.base_precision": "nf4", "peft.rslora": True}),
    ({"finetuning_type": "lora", "quantization_bit": 8, "use_dora": True}, {"engine.base_precision": "int8", "peft.dora": True}),
    ({"adapter": "lora", "lora_model_dir": "./out"}, {"peft.method": "lora", "peft.adapter": "./out"}),
    ({"lora_r": 8, "load_in_8bit": True, "lora_modules_to_save": ["embed_tokens", "lm_head"], "bnb_4bit_quant_type": "nf4"},
     {"engine.base_precision": "int8", "peft.modules_to_save": ["embed_tokens", "lm_head"]}),
    ({"load_in_4bit": True}, {"engine.base_precision": "nf4"}),  # Nothing could train: the plan refuses it.
    ({"use_peft": True, "load_in_4bit": False, "modules_to_save": None}, {"engine.base_precision": None, "peft.modules_to_save": None}),
])  # fmt: skip
def test_settings_keep_their_meaning(given: dict[str, Any], expected: dict[str, Any]) -> None:
    imported = read({**BASE, **given})
    assert {key: imported.values.get(key) for key in expected} == expected and not unknown(imported)


def test_old_names_are_told_with_the_new_ones_and_secrets_are_not_repeated() -> None:
    secrets = {"hub_token": "hf_secret", "push_to_hub_token": None, "my_api_key": "k123"}
    imported = read({**BASE, "evaluation_strategy": "epoch", "no_cuda": False, "optim": "adamw_hf", **secrets})
    old = [(one.old, one.new, one.line) for one in imported.renamed]
    assert old == [("evaluation_strategy", "eval_strategy", 1), ("no_cuda", "use_cpu", 4)]
    # A renamed setting is under mapped too, as it stands in the file.
    mapped = {one.name: (one.value, one.line) for one in imported.mapped}
    assert mapped["evaluation_strategy"] == ("epoch", 1)
    assert mapped["optim"][0] == "adamw_hf"
    text = json.dumps(imported.to_json())
    assert "hf_secret" not in text and "k123" not in text


def test_what_is_left_out_has_the_librarys_defaults_but_for_what_nobody_can_know() -> None:
    imported = read(dict(BASE))
    library = {"training.learning_rate": 5e-5, "training.weight_decay": 0.0, "engine.precision": "fp32"}
    assert library.items() <= imported.defaults.items() and "training.epochs" not in imported.defaults
    assert "library_defaults" in codes(imported)
    imported = read({**BASE, "learning_rate": "${oc.env:LR}", "bf16": "{{ half }}"})
    assert set(unknown(imported)) == {"learning_rate", "bf16"}
    assert not {"training.learning_rate", "engine.precision"} & set({**imported.defaults, **imported.values})


def test_contradictions_are_found() -> None:
    both = read({**BASE, "fp16": True, "bf16": True})
    assert codes(merge([both]), "warning") == ["contradiction"]
    twice = read({**BASE, "evaluation_strategy": "epoch", "eval_strategy": "steps"})
    assert "evaluation.every_epoch" not in twice.values and codes(twice, "warning") == ["contradiction"]
    assert not codes(read({**BASE, "evaluation_strategy": None, "eval_strategy": "no"}), "warning")
    warmups = read({**BASE, "warmup_ratio": 0.1, "warmup_steps": 20})
    assert warmups.values["training.warmup"] == 20 and "contradiction" in codes(merge([warmups]))
    assert gather.read("save_steps: 1\nwarmup_steps: 20\nwarmup_ratio: 0.1\n", "a").values["training.warmup"] == 20
    # 0 steps is the default of transformers 4, which a dump writes beside the ratio.
    dump = read({**BASE, "warmup_ratio": 0.1, "warmup_steps": 0})
    assert dump.values["training.warmup"] == 0.1 and "contradiction" not in codes(merge([dump]))
    dump = read({**BASE, "warmup_ratio": 0.0, "warmup_steps": 20})
    assert dump.values["training.warmup"] == 20 and "contradiction" not in codes(merge([dump]))


def test_what_cannot_be_is_said_and_not_replaced_by_a_guess() -> None:
    wrong = {"optim": "lion_8bit", "lr_scheduler_type": "inverse_sqrt"}
    wrong |= {"learning_rate": "fast", "max_steps": 1.5, "bf16": "perhaps", "lr_scheduler_kwargs": "x", "seed": [1]}
    wrong |= {"warmup_ratio": 5}
    imported = read({**BASE, **wrong})
    assert set(unknown(imported)) == set(wrong) and codes(imported).count("bad_value") == len(wrong)


def test_what_trainwiz_exports_comes_back() -> None:
    values = {
        "batch.micro_batch_size": 6, "batch.gradient_accumulation_steps": 11, "training.max_steps": 1234,
        "training.learning_rate": 3e-4, "training.schedule": "cosine", "training.final_learning_rate": 3e-5,
        "training.warmup": 0.06, "training.weight_decay": 0.1, "training.adam_beta2": 0.98, "training.label_smoothing":
        0.1, "engine.precision": "bf16", "engine.checkpointing": True, "engine.optimizer": "adafactor",
        "engine.strategy": "ddp", "engine.processes": 2, "engine.device": "cuda", "engine.tf32": True,
        "engine.process_timeout_s": 900, "data.workers": 3, "data.prefetch": 5, "data.pin_memory": True,
        "data.persistent_workers": True, "evaluation.every_steps": 77, "checkpoint.every_steps": 154, "checkpoint.keep":
        3, "logging.every_steps": 9, "logging.report_to": ["wandb"],
    }  # fmt: skip
    config = RunConfig().with_values(values, "you")
    imported = gather.read(json.dumps(exported(config)), "training_args.json")
    assert not unknown(imported)
    came_back = {key: value for key, value in imported.values.items() if key in config.origins}
    assert came_back == {key: config.value(key) for key in came_back}
    assert set(config.origins) - set(came_back) == {"engine.strategy", "engine.processes", "engine.device"}


STRANGE: list[Any] = [
    None, True, -1, 2.5, 1e300, 10**30, "", "x", "nan", [], [1], ["a", ["b"]], [{}], [None], {}, {1: 2}, {"stage": 3},
    "{", "\x1b[31mred",
]  # fmt: skip


@each("name", sorted({*RULES, *CANONICAL}))
def test_no_value_breaks_a_place(name: str) -> None:
    for value in STRANGE:
        imported = Imported("training_arguments", "a.yaml")
        fill(imported, [Setting(name, value, 1)], program="TrainingArguments")
        told = [*imported.mapped, *imported.dropped, *imported.unknown]
        assert any(entry.name == name for entry in told), (name, value)
        json.dumps(imported.to_json(), default=str)


def test_what_a_llama_factory_file_means_elsewhere_is_said() -> None:
    """Its templates and its packing; its rate is the Trainer's where it names none."""
    imported = gather.read(
        "model_name_or_path: o/Qwen\nstage: sft\nfinetuning_type: lora\nlora_target: all\ntemplate: qwen\npacking: true\n"
        "per_device_train_batch_size: 1\ngradient_accumulation_steps: 8\n", "a.yaml",
    )  # fmt: skip
    assert "packing_counts_rows" in codes(imported) and "template" in unknown(imported)
    assert (imported.values["peft.targets"], imported.values["data.packing"]) == (["all-linear"], True)
    assert imported.defaults["training.learning_rate"] == 5e-5


AXOLOTL = (
    "base_model: o/Llama-3.2-1B\ndatasets: [{path: o/alpaca, type: alpaca}]\nval_set_size: 0.1\nadapter: qlora\n"
    "load_in_4bit: true\nsequence_len: 2048\nsample_packing: true\nlora_target_linear: true\nwandb_project:\n"
    "micro_batch_size: 4\nnum_epochs: 1\noptimizer: adamw_8bit\nlearning_rate: 0.0002\nbf16: auto\n"
    "loss_watchdog_threshold: 5.0\nevals_per_epoch: 4\n"
)


def test_a_file_of_axolotl() -> None:
    imported = gather.read(AXOLOTL, "lora.yml")
    assert imported.values == {
        "model.name": "o/Llama-3.2-1B", "model.init": "pretrained", "data.sources.0.name": "o/alpaca", "data.packing": True, "peft.method": "lora", "peft.targets": ["all-linear"], "batch.sequence_length": 2048,
        "batch.micro_batch_size": 4, "training.epochs": 1.0, "training.learning_rate": 2e-4,
        "engine.optimizer": "adamw_bnb_8bit", "engine.base_precision": "nf4",
    }  # fmt: skip
    # What is not understood is named and not guessed; nothing gets the defaults of another program.
    assert set(unknown(imported)) == {"loss_watchdog_threshold", "datasets.type"}
    assert {"val_set_size", "bf16", "evals_per_epoch", "wandb_project"} <= names(imported.dropped)
    assert imported.defaults == {}
    preference = gather.read(AXOLOTL + "rl: dpo\n", "dpo.yml")
    assert "other_training" in codes(preference) and "rl" in names(preference.dropped)


DOCUMENTED = """
from datasets import load_dataset
from trl import SFTTrainer
from peft import LoraConfig, AutoPeftModelForCausalLM
rows = load_dataset("o/d", split="train")
"""


@each(("call", "expected", "said"), [
    ("SFTTrainer(model='o/m', train_dataset=rows)", {"model.name": "o/m", "batch.sequence_length": 1024}, {"trl_learns_more"}),
    ("SFTTrainer('o/m', train_dataset=rows, peft_config=LoraConfig())", {"model.name": "o/m", "peft.rank": 8, "peft.alpha": 8}, {"other_targets"}),
    ("SFTTrainer('o/m', SFTConfig(max_length=None))", {"model.name": "o/m"}, {"code_not_read"}),
    ("SFTTrainer('o/m', SFTConfig(assistant_only_loss=True))", {"training.train_on": "answers"}, set()),
])  # fmt: skip
def test_the_examples_of_trls_pages(call: str, expected: dict[str, Any], said: set[str]) -> None:
    imported = gather.read(f"{DOCUMENTED}\ntrainer = {call}\n", "a.py")
    assert expected.items() <= {**imported.defaults, **imported.values}.items()
    found = set(codes(imported))
    absent = {"other_targets"} | ({"trl_learns_more"} if "assistant_only_loss" in call else set())
    assert said <= found and not (absent - said) & found


def test_sections_of_a_file_and_a_timeout_of_years() -> None:
    text = "training:\n  learning_rate: 1e-4\n  warmup_steps: 3\ndataset:\n  labeled_path: a.yaml\n"
    imported = gather.read(text, "conf.yaml")
    assert imported.place_of("training.learning_rate") == "conf.yaml:2"
    # The keys of another section are no data sets.
    assert set(unknown(imported)) == {"dataset"} and "training.warmup" in imported.values
    # LLaMA-Factory's examples have 5.7 years.
    assert "ddp_timeout" in unknown(gather.read("ddp_timeout: 180000000\nsave_steps: 1\n", "a.yaml"))
