"""validate: every finding of every profile at once, each with file, line and key."""

from __future__ import annotations

from pathlib import Path

from trainwiz.core.errors import Finding
from trainwiz.core.profile import user_folder, validate_profiles


def own(name: str, text: str) -> Path:
    user_folder().mkdir(parents=True, exist_ok=True)
    path = user_folder() / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def by_place(findings: list[Finding]) -> dict[str, str]:
    return {finding.where: finding.message for finding in findings}


def test_all_profiles_at_once() -> None:
    first = own("first", "extends: cpu-demo\nvalues:\n  batch:\n    micro_batch: 3\n  data.workers: many\n")
    second = own("second", "hardware:\n  gpu: RTX 309\nvalues:\n  model:\n    name: not a model\n")
    third = own("third", "extends: cpu-demo\nvalues:\n  training.learning_rate: 1.0e-5\n")
    found = by_place(validate_profiles())
    assert "batch.micro_batch" in found[f"{first}:4"] and "Did you mean" in found[f"{first}:4"]
    assert "data.workers" in found[f"{first}:5"]
    assert "Did you mean RTX 3090" in found[f"{second}:2"]
    assert "neither in the model catalogue" in found[f"{second}:5"]
    # The final rate comes from the parent; the line is that of the key above it that is in this file.
    ((place, message),) = [(where, text) for where, text in found.items() if "final_learning_rate" in text]
    assert place.startswith(f"{third}:") and message.startswith(place)
    assert len(found) == 5
    assert all(where in message for where, message in found.items())


def test_a_mistake_in_a_parent_is_named_in_both() -> None:
    parent = own("parent", "values:\n  engine.precison: fp16\n")
    child = own("child", "extends: parent\n")
    found = by_place(validate_profiles())
    assert set(found) == {f"{parent}:2", f"{child}:1"}
    assert f"`extends: parent`: {parent}:2:" in found[f"{child}:1"]


def test_targets_that_the_model_does_not_have() -> None:
    path = own("mine", "extends: lora-r64-3090\nvalues:\n  peft:\n    targets: [q_proj, c_attn]\n")
    ((place, message),) = by_place(validate_profiles()).items()
    assert place == f"{path}:4" and "qwen2.5-7b has no module c_attn" in message
    assert "it has q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj" in message


def test_a_task_that_the_model_is_not_made_for() -> None:
    path = own("mine", "extends: cpu-demo\nvalues:\n  model.name: gpt2-medium\n  task: seq2seq\n")
    ((place, message),) = by_place(validate_profiles()).items()
    assert place == f"{path}:4" and "(causal-lm)" in message


def test_an_override_that_the_architecture_does_not_have() -> None:
    path = own("mine", "extends: cpu-demo\nvalues:\n  model.architecture_overrides: {num_layer: 2}\n")
    ((place, message),) = by_place(validate_profiles()).items()
    assert place == f"{path}:3" and "num_layer" in message


def test_variants_that_are_not_there() -> None:
    path = own("mine", "description: x\nvariants:\n  - 2080supr\n  - '3080'\n")
    findings = validate_profiles()
    assert {finding.where for finding in findings} == {f"{path}:2"}
    assert "Did you mean 2080super" in findings[0].message and "stands for several itself" in findings[1].message


def test_a_name_of_a_built_in_profile() -> None:
    path = own("2080super", "extends: cpu-demo\n")
    assert by_place(validate_profiles())[str(path)].endswith("rename this file.")


def test_advice_of_a_guide() -> None:
    path = own("mine", "claims:\n  remedies:\n    - {text: x, micro: 3}\n  total_tme: 3 h\n  launch: python train.py\n")
    found = by_place(validate_profiles())
    assert "remedies" in found[f"{path}:2"] or "remedies" in found.get(f"{path}:3", "")
    assert any("total_time" in message for message in found.values())
    assert any("`accumulation`" in message for message in found.values())
