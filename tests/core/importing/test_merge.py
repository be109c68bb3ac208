"""Several files and commands together: who wins, and a finding for what they say differently."""

from pathlib import Path
from typing import Any

from trainwiz.core.importing.gather import Text, import_together
from trainwiz.core.importing.report import Imported

from tests.each import each

ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""
ZERO = """distributed_type: DEEPSPEED
deepspeed_config:
  deepspeed_config_file: ds.json
num_processes: 4
"""
DEEPSPEED = '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}'
SOURCE = """from transformers import TrainingArguments
args = TrainingArguments("out", per_device_train_batch_size=4, gradient_accumulation_steps=8, fp16=True)
"""


def together(folder: Path, *texts: tuple[str, str]) -> Imported:
    return import_together([Text(name, text, folder) for name, text in texts])


def found(merged: Imported, code: str) -> list[tuple[str, str]]:
    return [(one.severity, one.message) for one in merged.findings if one.code == code]


def test_the_command_overrides_the_file_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(ACCELERATE)
    merged = together(tmp_path, ("command", "accelerate launch --config_file a.yaml --num_processes 4 x.py"))
    assert [part.kind for part in merged.parts] == ["launch_command", "accelerate"]
    assert merged.values["engine.processes"] == 4
    assert merged.values["engine.precision"] == "bf16"
    ((severity, message),) = found(merged, "contradiction")
    assert severity == "note"
    assert "a.yaml:5" in message and "8" in message
    assert ("num_processes", 8) in [(one.name, one.value) for one in merged.dropped]


def test_the_machines_of_the_command_share_the_processes_of_the_file(tmp_path: Path) -> None:
    merged = together(tmp_path, ("a.yaml", ACCELERATE), ("command", "accelerate launch --num_machines 2 x.py"))
    assert (merged.values["engine.processes"], merged.values["engine.nodes"]) == (4, 2)
    assert ("num_processes", 4) in [(one.name, one.set_to) for one in merged.mapped]


def test_the_trainer_decides_the_batch_and_deepspeed_the_stage(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(DEEPSPEED)
    merged = together(tmp_path, ("a.yaml", ZERO), ("x.py", SOURCE))
    assert merged.values["engine.strategy"] == "zero3"
    assert merged.values["batch.gradient_accumulation_steps"] == 8
    assert merged.values["batch.target_samples"] == 4 * 8 * 4
    assert len(found(merged, "contradiction")) == 1
    # A launcher that names no stage says nothing against the file.
    launcher = "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 2\n"
    stage = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'
    merged = together(tmp_path, ("a.yaml", launcher), ("ds.json", stage))
    assert merged.values["engine.strategy"] == "zero3" and found(merged, "contradiction") == []


def test_the_batch_of_deepspeed_must_be_that_of_the_processes(tmp_path: Path) -> None:
    for total in (64, 128):
        text = DEEPSPEED.replace("}, ", f'}}, "train_batch_size": {total}, ', 1)
        (tmp_path / "ds.json").write_text(text)
        merged = together(tmp_path, ("a.yaml", ZERO.replace("4", "8")))
        assert merged.values["batch.target_samples"] == 64
        assert bool(found(merged, "contradiction")) is (total != 64)
    # Alone it says how many there are.
    assert together(tmp_path, ("ds.json", text)).values["engine.processes"] == 16


def test_files_that_are_named_and_are_not_here_broken_or_read_already(tmp_path: Path) -> None:
    merged = together(tmp_path, ("a.yaml", ZERO))
    assert "engine.strategy" not in merged.values and found(merged, "missing_file")
    (tmp_path / "ds.json").write_text('{"zero_optimization": {')
    merged = together(tmp_path, ("a.yaml", ZERO))
    assert merged.values["engine.processes"] == 4
    assert "ds.json" in found(merged, "broken_file")[0][1]
    (tmp_path / "a.yaml").write_text(ZERO.replace("ds.json", "a.yaml"))
    assert len(together(tmp_path, ("a.yaml", (tmp_path / "a.yaml").read_text())).parts) == 1


@each(("key", "value"), [("train_micro_batch_size_per_gpu", -4), ("gradient_accumulation_steps", 10**9)])
def test_values_that_no_run_can_have_are_kept_as_unknown(key: str, value: Any, tmp_path: Path) -> None:
    merged = together(tmp_path, ("ds.json", f'{{"zero_optimization": {{"stage": 2}}, "{key}": {value}}}'))
    assert merged.values == {"engine.strategy": "zero2"}
    assert [one.name for one in merged.unknown] == [key]
    assert [severity for severity, _ in found(merged, "bad_value")] == ["warning"]


@each(("command", "said"), [
    ("CUDA_VISIBLE_DEVICES=0,1,2 python {}", "8 x 3 = 24"), ("python {}", "16 with 4"),
    ("CUDA_VISIBLE_DEVICES=1 python {}", None), ("CUDA_VISIBLE_DEVICES='' python {}", None),
    ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 {}", None), ("accelerate launch {}", None),
    ("srun python {}", None),
])  # fmt: skip
def test_plain_python_on_several_gpus_is_data_parallel(command: str, said: str | None, tmp_path: Path) -> None:
    arguments = "train.py --per_device_train_batch_size 4 --gradient_accumulation_steps 2"
    messages = [message for _, message in found(together(tmp_path, ("c", command.format(arguments))), "data_parallel")]
    assert all("DataParallel" in message for message in messages)
    assert len(messages) == (1 if said else 0)
    # Where GPUs are named each gets a process, so the batch of a step is that of all of them.
    assert said is None or said in messages[0] or "4 x GPUs" in messages[0] or "8 x GPUs" in messages[0]
