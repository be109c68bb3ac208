"""Adapters on a base in 4 or 8 bits: what is held how, trained, resumed and merged. bitsandbytes computes on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from trainwiz.core.training.model import build_model
from transformers import PreTrainedTokenizerBase

from tests.core.training.runs import different_tensors, metrics, text_config, train, write_run
from tests.core.training.tokenizers_for_tests import small_tokenizer
from tests.each import each

LORA: dict[str, Any] = {"peft__method": "lora", "engine__base_precision": "nf4"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    return small_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@each("precision", ["bf16", "bf16-true", "fp32"])
def test_linear_layers_of_the_blocks_are_packed_and_norms_follow_the_precision(
    precision: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    model: Any = build_model(text_config("qwen2-tiny", **LORA, engine__precision=precision), None, tmp_path, tokenizer)
    half = torch.float32 if precision == "fp32" else torch.bfloat16
    kinds = {name.replace("base_layer.", "").rsplit(".", 2)[-2]: kind.dtype for name, kind in model.named_parameters()}
    packed = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    base = {name: value for name, value in model.get_base_model().named_parameters() if "lora_" not in name}
    assert {name.split(".")[-3] for name, value in base.items() if value.dtype == torch.uint8} == packed
    assert kinds["embed_tokens"] == half and model.get_output_embeddings().weight.dtype == half
    assert kinds["input_layernorm"] == kinds["norm"] == (half if precision == "bf16-true" else torch.float32)
    assert {value.dtype for value in model.parameters() if value.requires_grad} == {torch.float32}
    # The base is saved whole before it is packed: adapters are added to that one at the end.
    saved = load_file(tmp_path / "base_model" / "model.safetensors")
    assert {tensor.dtype for tensor in saved.values()} == {half}


@pytest.mark.real
def test_a_run_in_4_bits_learns_resumes_bit_for_bit_and_is_merged_into_16_bits(tmp_path: Path) -> None:
    settings = {**LORA, "engine__precision": "bf16", "peft__merge": True, "data__validation_rows": 10}
    config = text_config("qwen2-tiny", **settings, evaluation__every_steps=4, training__learning_rate=0.02)
    whole = write_run(tmp_path / "whole", config)
    train(whole, config)
    losses = [line["loss"] for line in metrics(whole) if "loss" in line]
    # Evaluated in between: bitsandbytes packs weights anew for that on some CPUs, after which nothing would be learnt.
    assert losses[-1] < losses[3] < losses[0]
    resumed = write_run(tmp_path / "resumed", config)
    for name in ("base_model", "tokenizer", "checkpoint-4", "identity.json"):
        if (whole / name).exists():
            (resumed / name).symlink_to(whole / name)
    train(resumed, config, "--resume", "checkpoint-4")
    assert different_tensors(whole / "checkpoint-8", resumed / "checkpoint-8") == []
    adapters = load_file(whole / "checkpoint-8" / "adapter_model.safetensors")
    assert all("lora_" in name for name in adapters)
    name = "model.layers.0.self_attn.q_proj"
    a, b = (adapters[f"base_model.model.{name}.lora_{part}.weight"] for part in "AB")
    base = load_file(whole / "base_model" / "model.safetensors")[f"{name}.weight"]
    merged = load_file(whole / "final_model" / "model.safetensors")[f"{name}.weight"]
    assert merged.dtype == torch.bfloat16 and torch.equal(merged, (base + 2 * (b @ a)).to(torch.bfloat16))


@pytest.mark.real
@each("kind", ["nf4", "int8"])
def test_two_processes_train_one_base_each(kind: str, tmp_path: Path) -> None:
    config = text_config(
        "llama-tiny", peft__method="lora", engine__base_precision=kind, engine__strategy="ddp", engine__processes=2
    )
    folder = write_run(tmp_path / kind, config)
    assert train(folder, config)["outcome"] == "finished"


@pytest.mark.real
def test_dora_and_a_head_trained_whole_on_4_bits_resume_bit_for_bit(tmp_path: Path) -> None:
    settings = {**LORA, "engine__precision": "bf16", "peft__dora": True, "peft__rslora": True, "peft__rank": 4}
    config = text_config("llama-tiny", **settings, peft__modules_to_save=["lm_head"], training__loss_chunk=32)
    whole = write_run(tmp_path / "whole", config)
    train(whole, config)
    resumed = write_run(tmp_path / "resumed", config)
    for name in ("base_model", "tokenizer", "checkpoint-4", "identity.json"):
        if (whole / name).exists():
            (resumed / name).symlink_to(whole / name)
    train(resumed, config, "--resume", "checkpoint-4")
    assert different_tensors(whole / "checkpoint-8", resumed / "checkpoint-8") == []
    adapters = load_file(whole / "checkpoint-8" / "adapter_model.safetensors")
    base = load_file(whole / "base_model" / "model.safetensors")
    trained = next(value for name, value in adapters.items() if name.endswith("lm_head.weight"))
    assert not torch.equal(trained, base["lm_head.weight"].float())
    assert any("lora_magnitude_vector" in name for name in adapters)
