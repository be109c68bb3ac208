"""Arguments of the Trainer in Python source: read from its syntax tree, and never run."""

import time
from pathlib import Path
from typing import Any

from trainwiz.core.importing import python_source
from trainwiz.core.importing.report import Imported

from tests.core.importing.told import codes, unknown
from tests.each import each


def read(source: str) -> Imported:
    return python_source.read_python(source, "train.py")


def rate(expression: str, before: str = "") -> Any:
    """The learning rate of a script, or what is said of it."""
    imported = read(f"{before}\nargs = TrainingArguments('out', learning_rate={expression})")
    return imported.values.get("training.learning_rate", unknown(imported).get("learning_rate"))


@each(("expression", "before", "value"), [
    ("1e-4", "", 1e-4), ("LR", "LR = 3e-4", 3e-4), ("LR * 2", "LR = 4e-4", "LR * 2"), ("a", "a, b = 1e-4, 2", "a"),
    ("args.lr", "p.add_argument('--lr', type=float, default=2e-4)", "args.lr"),
    ("lr", "def train(lr=1e-4):\n    pass", "lr"), ("LR", "LR = 1e-4\nLR = 2e-4", "LR"),
    ("LR", "for LR in rates:\n    pass", "LR"), ("LR", "LR = 1e-4\nLR *= 2", "LR"), ("compute()", "", "compute()"),
    ("x", "x = y\ny = x", "x"),
])  # fmt: skip
def test_values_are_those_that_can_be_read(expression: str, before: str, value: Any) -> None:
    assert rate(expression, before) == value


def test_a_script_of_the_guides() -> None:
    imported = read(
        """
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
from peft import LoraConfig, TaskType, get_peft_model

DEV = "/data/dev.json"
NAME = "gpt2"
SETTINGS = {"weight_decay": 0.1, "warmup_ratio": 0.1}
model = AutoModelForCausalLM.from_pretrained(NAME, torch_dtype=torch.bfloat16, attn_implementation="sdpa")
tokenizer = AutoTokenizer.from_pretrained(NAME)
data = load_dataset("json", data_files={"train": "/data/train.json", "validation": DEV})
config = LoraConfig(task_type=TaskType.CAUSAL_LM, r=16, lora_alpha=32, target_modules=["q_proj", "v_proj"])
args = TrainingArguments(
    output_dir="out", per_device_train_batch_size=8, evaluation_strategy=IntervalStrategy.EPOCH, bf16=True,
    save_steps=1_000, deepspeed={"zero_optimization": {"stage": 2}}, **SETTINGS, **unknown_settings,
)
"""
    )
    values = imported.values
    assert values["model.name"] == "gpt2" and values["task"] == "causal-lm"
    assert values["data.sources.0.name"] == "/data/train.json"
    assert values["data.validation_sources"] == [{"name": "/data/dev.json"}]
    assert (values["peft.method"], values["peft.rank"], values["peft.alpha"]) == ("lora", 16, 32)
    assert values["peft.targets"] == ["q_proj", "v_proj"]
    assert values["batch.micro_batch_size"] == 8 and values["checkpoint.every_steps"] == 1000
    assert values["evaluation.every_epoch"] is True and values["training.warmup"] == 0.1
    assert values["engine.precision"] == "bf16" and imported.inner[0].values["engine.strategy"] == "zero2"
    assert unknown(imported) == {"**unknown_settings": "unknown_settings"}
    assert imported.place_of("batch.micro_batch_size") == "train.py:13"


def test_the_class_of_the_model_names_the_task() -> None:
    for model, task in {
        "EsmForMaskedLM": "masked-lm", "GPT2LMHeadModel": "causal-lm", "AutoModel": None, "BertForTokenClassification":
        "token-classification", "T5ForConditionalGeneration": "seq2seq",
    }.items():  # fmt: skip
        imported = read(f"m = {model}.from_pretrained('x/y')\na = TrainingArguments('a', seed=1)")
        assert imported.values.get("task") == task and "other_training" not in codes(imported)
    assert "other_training" in codes(read("DPOTrainer(args=DPOConfig('x'))"))


def test_what_is_said_twice_or_changed_one_by_one_is_told() -> None:
    imported = read("a = TrainingArguments('a', seed=1)\nb = TrainingArguments('b', seed=2)")
    assert imported.values["training.seed"] == 1
    assert "several_trainings" in codes(imported)
    mapping = read(
        'kwargs = {"output_dir": "x", "learning_rate": 1e-4, "seed": 1}\nkwargs["learning_rate"] = 5e-5\n'
        "args = TrainingArguments(**kwargs)\n"
    )
    assert (mapping.values["training.seed"], unknown(mapping)) == (1, {"learning_rate": "kwargs['learning_rate']"})
    changed = read("args = TrainingArguments('x', seed=1, max_steps=9)\nargs.seed = 3\nargs.other = 4\n")
    assert (changed.values["training.max_steps"], unknown(changed)) == (9, {"seed": "args.seed"})
    assert codes(changed, "warning") == ["changed_later"]


def test_nothing_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    read(
        f"open({str(marker)!r}, 'w').write('x')\n__import__('os').system('touch {marker}')\n"
        f"a = TrainingArguments('out', seed=__import__('pathlib').Path({str(marker)!r}).touch() or 3)"
    )
    assert not marker.exists()


HOSTILE = [
    "a0 = 1\n" + "".join(f"a{n + 1} = [a{n}, a{n}]\n" for n in range(60)) + "TrainingArguments('x', seed=a60)",
    "TrainingArguments('x', seed=" + "[" * 80 + "]" * 80 + ")",
    "".join(f"a{n} = {n}\n" for n in range(20_000)) + "TrainingArguments('x', seed=a7)",
]


@each("source", HOSTILE)
def test_a_hostile_script_costs_little(source: str) -> None:
    start = time.process_time()
    read(source)
    assert time.process_time() - start < 15
