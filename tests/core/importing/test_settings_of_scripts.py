"""Settings that a script puts together, and files with sections of their own."""

from __future__ import annotations

from typing import Any

import pytest
from trainwiz.core.config.sections import EngineSection
from trainwiz.core.importing import accelerate, deepspeed, python_source, training_arguments
from trainwiz.core.importing.report import Imported
from trainwiz.core.importing.training_arguments_schedule import LONGEST_TIMEOUT_S

DICT = 'kwargs = {"output_dir": "x", "learning_rate": 1e-4, "seed": 1}\n'


def python(text: str) -> Imported:
    return python_source.read(text, "train.py")


def unknown(imported: Imported) -> dict[str, Any]:
    return {one.name: one.value for one in imported.report.unknown}


def test_a_mapping_that_its_own_call_takes_the_name_of() -> None:
    imported = python(DICT + "kwargs = TrainingArguments(**kwargs)\nTrainer(args=kwargs)\n")
    assert imported.values["training.learning_rate"] == 1e-4
    assert unknown(imported) == {}


def test_what_is_put_into_a_mapping_before_the_call_counts() -> None:
    imported = python(
        DICT + 'kwargs["learning_rate"] = 5e-5\nkwargs["max_steps"] = 7\nif fast:\n    kwargs["seed"] = 2\n'
        'TrainingArguments(**kwargs)\nkwargs["max_steps"] = 9\n'
    )
    assert imported.values["training.learning_rate"] == 5e-5
    assert imported.values["training.max_steps"] == 7
    assert unknown(imported) == {"seed": "2"}
    assert "training.seed" not in imported.values


def test_what_is_changed_in_the_arguments_counts() -> None:
    imported = python(
        "args = TrainingArguments('x', seed=1, learning_rate=1e-4)\nargs.seed = 3\nargs.no_such_thing = 4\n"
        "for i in range(3):\n    args.learning_rate = i\nother.seed = 5\n"
    )
    assert imported.values["training.seed"] == 3
    assert unknown(imported) == {"learning_rate": "i"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"model": {"name": "gpt2", "max_length": 512}, "seed": 1}',
            {"model.name": "gpt2", "batch.sequence_length": 512},
        ),
        ('{"dataset": {"path": "a.jsonl"}, "seed": 1}', {"data.sources.0.name": "a.jsonl"}),
        (
            '{"qlora": {"r": 8, "lora_alpha": 16}, "seed": 1}',
            {"peft.rank": 8, "peft.alpha": 16.0, "peft.method": "lora"},
        ),
        ('{"dataset": {"a": 0.5, "b": 1}, "seed": 1}', {"data.sources": [{"name": "a"}, {"name": "b"}]}),
    ],
)
def test_sections_with_the_names_of_settings(text: str, expected: dict[str, Any]) -> None:
    imported = training_arguments.read(text, "a.json")
    assert expected.items() <= imported.values.items()
    assert not imported.report.unknown and "bad_value" not in {one.code for one in imported.report.findings}


def test_the_keys_of_a_section_are_no_data_sets() -> None:
    imported = training_arguments.read('{"dataset": {"labeled_path": "a.yaml"}, "seed": 1}', "a.json")
    assert not any(key.startswith("data.") for key in imported.values)
    assert unknown(imported) == {"labeled_path": "a.yaml"}


def test_a_timeout_of_years_is_none() -> None:
    EngineSection(process_timeout_s=LONGEST_TIMEOUT_S)
    with pytest.raises(ValueError, match="process_timeout_s"):
        EngineSection(process_timeout_s=LONGEST_TIMEOUT_S + 1)
    imported = training_arguments.read("ddp_timeout: 180000000\nseed: 1\n", "a.yaml")
    assert [one.name for one in imported.report.dropped] == ["ddp_timeout"]
    assert not unknown(imported)


def test_keys_of_deepspeeds_json_in_accelerates_section_are_misplaced_and_not_unknown() -> None:
    text = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n  overlap_comm: true\n  no_such: 1\n"
    imported = accelerate.read(text, "a.yaml")
    assert list(unknown(imported)) == ["deepspeed_config.no_such"]
    assert "misplaced" in {one.code for one in imported.report.findings}


def test_a_device_that_deepspeed_does_not_have_is_not_called_nvme() -> None:
    imported = deepspeed.read('{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cuda"}}}', "d.json")
    assert unknown(imported) == {"zero_optimization.offload_optimizer.device": "cuda"}
    assert not any("NVMe" in one.why for one in imported.report.dropped)
