"""Adapters merged: the same logits, also after 4 bits; refused where they do not fit; never over anything."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from trainwiz.core.errors import UsageError
from trainwiz.core.model.found import find_model
from trainwiz.core.training.model_loading import merge
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.core.model.models import adapter_on, adapter_run, base_model
from tests.each import each


def merged_of(adapter: Path, to: Path, dtype: str = "fp32", base: Path | None = None) -> dict[str, Any]:
    model = find_model(str(adapter), None if base is None else str(base))
    return merge(model, to, dtype, lambda _: None)


@each("changes", [{}, {"use_dora": True, "use_rslora": True}, {"modules_to_save": ["lm_head"]}])
def test_merged_and_unmerged_agree_and_the_folder_is_whole(changes: dict[str, Any], tmp_path: Path) -> None:
    base = base_model(tmp_path)
    adapter = adapter_on(base, tmp_path / "adapter", **changes)
    found = merged_of(adapter, tmp_path / "merged")
    assert 0 < found["merged_difference"] <= 1e-5 * found["largest_logit"] and found["rounding_difference"] == 0
    whole: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path / "merged")
    from peft import AutoPeftModelForCausalLM

    apart: Any = AutoPeftModelForCausalLM.from_pretrained(adapter)
    tokens = torch.tensor([tokenizer("the old fox sees")["input_ids"]])
    with torch.no_grad():
        assert (whole(tokens).logits - apart(tokens).logits).abs().max() < 1e-4
    assert tokenizer.chat_template and whole.generation_config.eos_token_id == 2
    assert sorted(path.name for path in tmp_path.glob("merged*")) == ["merged"]
    assert str(tmp_path) not in (tmp_path / "merged" / "config.json").read_text()
    with pytest.raises(UsageError, match="Nothing is overwritten"):
        merged_of(adapter, tmp_path / "merged")


def test_after_4_bits_the_16_bit_base_is_taken_and_the_difference_told(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    base = base_model(tmp_path)
    run = adapter_run(tmp_path, base, engine__base_precision="nf4", engine__precision="bf16")
    found = merged_of(run, tmp_path / "merged", "bf16")
    assert found["merged_difference"] <= 1e-5 * found["largest_logit"] and found["rounding_difference"] > 0
    trained = found["trained"]
    assert trained["bits"] == 4 and trained["difference"] > 0 and 0 < trained["same_next_token"] <= 1
    name = "model.layers.0.self_attn.q_proj"
    adapter = load_file(run / "final_model" / "adapter_model.safetensors")
    a, b = (adapter[f"base_model.model.{name}.lora_{part}.weight"] for part in "AB")
    weight = load_file(base / "model.safetensors")[f"{name}.weight"]
    result = load_file(tmp_path / "merged" / "model.safetensors")[f"{name}.weight"]
    # Of the weights as they were before they were packed, rounded once.
    assert torch.equal(result, (weight + 2 * (b @ a)).to(torch.bfloat16))


def test_an_adapter_of_another_base_is_refused(tmp_path: Path) -> None:
    base, wider = base_model(tmp_path), base_model(tmp_path, hidden=48)
    adapter = adapter_on(base, tmp_path / "adapter")
    with pytest.raises(UsageError, match=r"does not match the base .*size mismatch"):
        merged_of(adapter, tmp_path / "merged", base=wider)
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps({**config, "target_modules": ["q_proj"]}))
    with pytest.raises(UsageError, match=r"does not match the base .* tensors are in only one of them"):
        merged_of(adapter, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
