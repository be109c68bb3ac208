"""build_model for every tiny model of the catalogue: from scratch, from a folder, from a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from trainwiz.core.catalog.models import load_models
from trainwiz.core.errors import UsageError
from trainwiz.core.training.model import build_model, may_skip_weights
from trainwiz.core.training.tokens import check_vocabulary, with_token_ids
from transformers import PreTrainedTokenizerBase

from tests.core.training.runs import text_config, tiny_config
from tests.core.training.tokenizers_for_tests import small_tokenizer

TINY_TEXT_MODELS = [
    name for name in load_models() if name.endswith("-tiny") and load_models()[name].task != "masked-lm"
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    return small_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def same_tensors(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    one, two = first.state_dict(), second.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("name", TINY_TEXT_MODELS)
def test_from_scratch_and_back_from_its_checkpoint(
    name: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    config = text_config(name)
    model = build_model(config, None, tmp_path, tokenizer)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert not (tmp_path / "base_model").exists()
    settings = model.generation_config
    assert (settings.pad_token_id, settings.eos_token_id) == (tokenizer.pad_token_id, tokenizer.eos_token_id)
    assert not may_skip_weights(model)
    model.save_pretrained(tmp_path / "checkpoint-1")
    assert same_tensors(build_model(config, tmp_path / "checkpoint-1", tmp_path, tokenizer), model)


def test_token_numbers_follow_the_tokenizer(tokenizer: PreTrainedTokenizerBase) -> None:
    marian = {"pad_token_id": 299, "eos_token_id": 0, "decoder_start_token_id": 299, "forced_eos_token_id": 0}
    changed = with_token_ids({**marian, "is_encoder_decoder": True}, tokenizer)
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    assert (changed["decoder_start_token_id"], changed["forced_eos_token_id"]) == (pad, eos)
    several_ends = with_token_ids({"eos_token_id": [eos, 77]}, tokenizer)
    assert several_ends["eos_token_id"] == [eos, 77]
    assert "decoder_start_token_id" not in with_token_ids({"pad_token_id": 5}, tokenizer)
    assert with_token_ids({"is_encoder_decoder": True}, tokenizer)["decoder_start_token_id"] == pad


def test_a_tokenizer_larger_than_the_vocabulary_is_one_sentence(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    entries = len(tokenizer)
    config = text_config(
        "gpt2-tiny", model__architecture={**text_config("gpt2-tiny").model.architecture, "vocab_size": 9}
    )
    with pytest.raises(UsageError, match=rf"has {entries:,} entries and the model embeds 9;"):
        build_model(config, None, tmp_path, tokenizer)
    check_vocabulary(entries, tokenizer)
    with pytest.raises(UsageError):
        check_vocabulary(entries - 1, tokenizer)


def test_weights_of_a_folder_named_from_the_run_folder(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    model = build_model(text_config("gpt2-tiny"), None, tmp_path, tokenizer)
    model.save_pretrained(tmp_path / "weights")
    run = tmp_path / "run"
    run.mkdir()
    config = text_config("gpt2-tiny", model__name="../weights", model__init="pretrained", model__architecture=None)
    assert same_tensors(build_model(config, None, run, tokenizer), model)
    config = text_config("gpt2-tiny", model__name="../elsewhere", model__init="pretrained", model__architecture=None)
    with pytest.raises(UsageError, match="elsewhere"):
        build_model(config, None, run, tokenizer)


def test_a_checkpoint_that_lacks_a_tensor_is_refused(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    config = text_config("qwen2-tiny")
    checkpoint = tmp_path / "checkpoint-3"
    build_model(config, None, tmp_path, tokenizer).save_pretrained(checkpoint)
    tensors = load_file(checkpoint / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, checkpoint / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"lacks 1 tensors, for example model\.layers\.1\.mlp\.up_proj\.weight"):
        build_model(config, checkpoint, tmp_path, tokenizer)


def test_esm_leaves_weights_without_a_gradient(tmp_path: Path) -> None:
    """Its contact head; DistributedDataParallel stops at the second step when it is not told."""
    model = build_model(tiny_config(), None, tmp_path, None)
    assert may_skip_weights(model)
    model(input_ids=torch.tensor([[0, 5, 6, 2]])).logits.sum().backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] != []


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("fp16", torch.float32), ("bf16-true", torch.bfloat16)]
)
def test_weights_that_train_are_float32_under_mixed_precision(
    precision: str, dtype: torch.dtype, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    config = text_config("gpt2-tiny", engine__precision=precision)
    assert {parameter.dtype for parameter in build_model(config, None, tmp_path, tokenizer).parameters()} == {dtype}
