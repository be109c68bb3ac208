"""LoRA: what trains, what stays, what comes back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AutoPeftModelForCausalLM, PeftModel
from trainwiz.core.errors import UsageError
from trainwiz.core.training.model import build_model
from trainwiz.core.training.weights import merged
from transformers import (
    AutoModelForCausalLM,
    PreTrainedTokenizerBase,
)

from tests.core.training.runs import text_config, tiny_config
from tests.core.training.test_model import TINY_TEXT_MODELS, same_tensors
from tests.core.training.tokenizers_for_tests import small_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    return small_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def lora(name: str, folder: Path, tokenizer: PreTrainedTokenizerBase, **changes: Any) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    return build_model(text_config(name, peft__method="lora", **changes), None, folder, tokenizer)


def train_a_little(model: Any, steps: int = 3) -> None:
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=0.05)
    for _ in range(steps):
        inputs = torch.randint(5, 60, (2, 9))
        model(input_ids=inputs, labels=inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def base_tensors(model: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items() if "lora_" not in name}


@pytest.mark.parametrize("name", TINY_TEXT_MODELS)
def test_training_moves_the_adapters_and_nothing_else(
    name: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    model = lora(name, tmp_path, tokenizer)
    before = base_tensors(model)
    adapters = {key: weight.clone() for key, weight in model.named_parameters() if weight.requires_grad}
    train_a_little(model)
    after = base_tensors(model)
    assert len(before) > 15 and [key for key in before if not torch.equal(before[key], after[key])] == []
    moved = [
        key for key, weight in model.named_parameters() if key in adapters and not torch.equal(weight, adapters[key])
    ]
    assert sorted(moved) == sorted(adapters)


@pytest.mark.parametrize(
    ("name", "its_own"), [("qwen2-tiny", "q_proj"), ("gpt2-tiny", "c_attn"), ("t5-chat-tiny", "wo")]
)
def test_a_target_that_the_model_lacks_is_told_with_the_names_that_it_has(
    name: str, its_own: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=rf"no module 'query', 'nope'; .*\b{its_own}\b") as caught:
        lora(name, tmp_path, tokenizer, peft__targets=["query", its_own, "nope"])
    assert caught.value.findings[0].code == "unknown_lora_target"


def test_a_checkpoint_holds_the_adapter_alone_and_resumes_on_the_saved_base(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    model = lora("qwen2-tiny", tmp_path, tokenizer)
    train_a_little(model)
    checkpoint = tmp_path / "checkpoint-3"
    model.save_pretrained(checkpoint)
    weights = [path.name for path in checkpoint.iterdir() if path.suffix in (".safetensors", ".bin")]
    assert weights == ["adapter_model.safetensors"]
    config = text_config("qwen2-tiny", peft__method="lora", training__seed=99)
    torch.manual_seed(4)
    again: Any = build_model(config, checkpoint, tmp_path, tokenizer)
    assert same_tensors(again, model)
    assert [n for n, w in again.named_parameters() if w.requires_grad] == [
        n for n, w in model.named_parameters() if w.requires_grad
    ]


def test_without_its_base_a_checkpoint_is_refused(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    lora("qwen2-tiny", tmp_path, tokenizer).save_pretrained(tmp_path / "checkpoint-3")
    shutil.rmtree(tmp_path / "base_model")
    config = text_config("qwen2-tiny", peft__method="lora")
    with pytest.raises(UsageError, match=r"base_model is missing: the adapters of checkpoint-3"):
        build_model(config, tmp_path / "checkpoint-3", tmp_path, tokenizer)


def test_another_base_moves_the_first_one_aside(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    torch.manual_seed(0)
    first = lora("qwen2-tiny", tmp_path, tokenizer)
    torch.manual_seed(0)
    lora("qwen2-tiny", tmp_path, tokenizer)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base_model"]
    torch.manual_seed(1)
    lora("qwen2-tiny", tmp_path, tokenizer)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base_model", "base_model.old-1"]
    old = AutoModelForCausalLM.from_pretrained(tmp_path / "base_model.old-1")
    assert torch.equal(old.lm_head.weight, first.get_base_model().lm_head.weight)


@pytest.mark.parametrize("name", ["qwen2-tiny", "gpt2-tiny"])
def test_merged_and_unmerged_load_back_with_the_same_logits(
    name: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    model = lora(name, tmp_path, tokenizer)
    train_a_little(model)
    model.eval()
    inputs = torch.randint(5, 60, (2, 9))
    with torch.no_grad():
        live = model(input_ids=inputs).logits
        with model.disable_adapter():
            base = model(input_ids=inputs).logits
    model.save_pretrained(tmp_path / "alone")
    whole = merged(model)
    assert not isinstance(whole, PeftModel)
    whole.save_pretrained(tmp_path / "merged")
    loaded = [
        AutoPeftModelForCausalLM.from_pretrained(tmp_path / "alone"),
        AutoModelForCausalLM.from_pretrained(tmp_path / "alone"),
        AutoModelForCausalLM.from_pretrained(tmp_path / "merged"),
    ]
    with torch.no_grad():
        logits = [one.eval()(input_ids=inputs).logits for one in loaded]
    assert (live - base).abs().max() > 0.01
    assert torch.equal(logits[0], live) and torch.equal(logits[1], live)
    assert torch.allclose(logits[2], live, atol=1e-5)


def test_a_cached_hub_model_is_named_by_its_hub_id(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    snapshot = tmp_path / "hub" / "models--some--model" / "snapshots" / "abc"
    build_model(text_config("gpt2-tiny"), None, tmp_path, tokenizer).save_pretrained(snapshot)
    changes = {"model__name": "some/model", "model__init": "pretrained", "model__architecture": None}
    model = lora("gpt2-tiny", tmp_path, tokenizer, **changes)
    assert model.peft_config["default"].base_model_name_or_path == "some/model"


def test_alpha_is_twice_the_rank_where_nothing_is_said(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    settings = lora("qwen2-tiny", tmp_path, tokenizer, peft__rank=6).peft_config["default"]
    assert (settings.r, settings.lora_alpha, settings.lora_dropout) == (6, 12, 0.0)
    changes = {"peft__rank": 6, "peft__alpha": 3.5, "peft__dropout": 0.1}
    settings = lora("qwen2-tiny", tmp_path, tokenizer, **changes).peft_config["default"]
    assert (settings.r, settings.lora_alpha, settings.lora_dropout) == (6, 3.5, 0.1)


@pytest.mark.parametrize(
    ("precision", "held_in"),
    [("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16), ("bf16-true", torch.bfloat16)],
)
def test_the_frozen_base_is_held_in_the_type_that_it_computes_in(
    precision: str, held_in: torch.dtype, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    model = lora("llama-tiny", tmp_path, tokenizer, engine__precision=precision)
    assert {weight.dtype for weight in model.parameters() if not weight.requires_grad} == {held_in}
    assert {weight.dtype for weight in model.parameters() if weight.requires_grad} == {torch.float32}
    assert {weight.dtype for weight in AutoModelForCausalLM.from_pretrained(tmp_path / "base_model").parameters()} == {
        held_in
    }


def test_masked_lm_has_no_adapters(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="masked-LM training has no adapters"):
        build_model(tiny_config(peft__method="lora"), None, tmp_path, None)
