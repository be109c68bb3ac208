"""Models: from scratch, from a folder, from a checkpoint; with adapters; and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from trainwiz.core.catalog.models import load_models, resolve_model
from trainwiz.core.errors import UsageError
from trainwiz.core.training.model import build_model, may_skip_weights, merged
from trainwiz.core.training.tokens import with_token_ids
from transformers import AutoModelForCausalLM, PreTrainedTokenizerBase

from tests.core.training.runs import different_tensors, losses, resumed, text_config, tiny_config, train, write_run
from tests.each import each

TINY_TEXT_MODELS = [name for name, spec in load_models().items() if name.endswith("-tiny") and spec.task != "masked-lm"]


def same_tensors(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    one, two = first.state_dict(), second.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@each("name", TINY_TEXT_MODELS)
def test_from_scratch_and_back_from_its_checkpoint(
    name: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    config = text_config(name)
    model = build_model(config, None, tmp_path, tokenizer)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
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


def test_a_checkpoint_that_lacks_a_tensor_or_its_base_and_too_small_a_vocabulary_are_refused(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    config = text_config("qwen2-tiny")
    checkpoint = tmp_path / "checkpoint-3"
    build_model(config, None, tmp_path, tokenizer).save_pretrained(checkpoint)
    tensors = load_file(checkpoint / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, checkpoint / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"is missing 1 tensor, for example model\.layers\.1\.mlp\.up_proj\.weight"):
        build_model(config, checkpoint, tmp_path, tokenizer)
    headless = text_config("qwen2-tiny", model__name=str(checkpoint), model__init="pretrained")
    shape = {**json.loads((checkpoint / "config.json").read_text()), "tie_word_embeddings": False}
    (checkpoint / "config.json").write_text(json.dumps(shape))
    build_model(config, None, tmp_path, tokenizer).base_model.save_pretrained(checkpoint)
    (checkpoint / "config.json").write_text(json.dumps(shape))
    with pytest.raises(UsageError, match=r"is missing 1 tensor, for example lm_head\.weight"):
        build_model(headless, None, tmp_path, tokenizer)
    (checkpoint / "config.json").write_text(json.dumps({**shape, "quantization_config": {"quant_method": "gptq"}}))
    with pytest.raises(UsageError, match=r"are quantized \(gptq\)"):
        build_model(headless, None, tmp_path, tokenizer)
    lora("qwen2-tiny", tmp_path, tokenizer).save_pretrained(tmp_path / "checkpoint-4")
    shutil.rmtree(tmp_path / "base_model")
    adapted = text_config("qwen2-tiny", peft__method="lora")
    with pytest.raises(UsageError, match=r"base_model is missing: the adapter of checkpoint-4"):
        build_model(adapted, tmp_path / "checkpoint-4", tmp_path, tokenizer)
    few = text_config("gpt2-tiny", model__architecture={**text_config("gpt2-tiny").model.architecture, "vocab_size": 9})
    with pytest.raises(UsageError, match=rf"has {len(tokenizer):,} entries but the model has 9 embeddings;"):
        build_model(few, None, tmp_path, tokenizer)


def test_esm_is_the_same_from_its_checkpoint_and_leaves_weights_without_a_gradient(tmp_path: Path) -> None:
    """Its contact head; DistributedDataParallel stops at the second step when it is not told."""
    model = build_model(tiny_config(), None, Path(), None)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    model.save_pretrained(tmp_path)
    assert same_tensors(build_model(tiny_config(), tmp_path, Path(), None), model)
    assert may_skip_weights(model)
    model(input_ids=torch.tensor([[0, 5, 6, 2]])).logits.sum().backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] != []


TEXT = {
    "vocab_size": 400, "vocab_size_per_layer_input": 400, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "global_head_dim": 16,
    "hidden_size_per_layer_input": 8, "sliding_window": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 2,
    "linear_key_head_dim": 8, "linear_value_head_dim": 8,
}  # fmt: skip
VISION = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
    "patch_size": 14, "depth": 1, "num_heads": 2, "out_hidden_size": 32, "num_key_value_heads": 2, "head_dim": 8,
}  # fmt: skip


@each("kind", ["gemma3", "gemma4", "qwen3_5"])
def test_of_a_model_that_sees_the_text_part_is_planned_and_loaded(
    kind: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    import transformers

    whole = transformers.AutoConfig.for_model(kind, text_config=TEXT, vision_config=VISION, mm_tokens_per_image=4)
    seeing = transformers.AutoModelForImageTextToText.from_config(whole).eval()
    seeing.save_pretrained(tmp_path)
    config = text_config("qwen2-tiny", model__name=str(tmp_path), model__init="pretrained", model__architecture=None)
    spec, _ = resolve_model(config.model)
    assert spec is not None and spec.task == "causal-lm"
    loaded = build_model(config, None, tmp_path, tokenizer).eval()
    assert spec.architecture["architectures"] == [type(loaded).__name__]
    tokens = torch.arange(5, 25)[None]
    assert torch.equal(loaded(input_ids=tokens).logits, seeing(input_ids=tokens).logits)


class Opens:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.path, "w")


def test_pretrained_weights_from_a_folder_and_from_a_pickle_that_runs_nothing(tmp_path: Path) -> None:
    model = build_model(tiny_config(), None, Path(), None)
    model.save_pretrained(tmp_path)
    own = {"model__init": "pretrained", "model__architecture_overrides": {}}
    # A relative path is from the run folder.
    near = build_model(tiny_config(model__name=f"../{tmp_path.name}", **own), None, tmp_path.parent / "run", None)
    assert same_tensors(near, model)
    with pytest.raises(UsageError, match="elsewhere"):
        build_model(tiny_config(model__name="../elsewhere", **own), None, tmp_path, None)
    config = tiny_config(model__name=str(tmp_path), **own)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    assert torch.equal(build_model(config, None, Path(), None).lm_head.bias, model.lm_head.bias)
    ran = tmp_path / "ran"
    torch.save({**model.state_dict(), "more": Opens(ran)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(UsageError, match="weights contain more than tensors"):
        build_model(config, None, Path(), None)
    assert not ran.exists()


def test_code_that_comes_with_a_model_is_not_run_and_not_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("a question was asked"))
    code = {"AutoConfig": "own.OwnConfig", "AutoModelForMaskedLM": "own.OwnForMaskedLM"}
    document = {"model_type": "of-its-own", "architectures": ["OwnForMaskedLM"], "auto_map": code}
    (tmp_path / "config.json").write_text(json.dumps(document))
    ran = tmp_path / "ran"
    (tmp_path / "own.py").write_text(f"open({str(ran)!r}, 'w').close()")
    config = tiny_config(model__name=str(tmp_path), model__init="pretrained", model__architecture_overrides={})
    with pytest.raises(UsageError, match="cannot be loaded"):
        build_model(config, None, Path(), None)
    assert not ran.exists()
    config.model.trust_remote_code = True
    with pytest.raises(Exception, match="OwnConfig"):
        build_model(config, None, Path(), None)
    assert ran.exists()


def test_other_models_and_alphabets_are_refused(tmp_path: Path) -> None:
    esm: Any = tiny_config().model.architecture
    for changes, words in (
        ({"model.architecture": {"model_type": "bert", "vocab_size": 33}}, "'bert'"),
        ({"model.architecture": {**esm, "vocab_size": 40}}, "vocab_size is 40, not 33"),
        ({"peft.method": "lora"}, "ESM-2 training does not support LoRA"),
    ):
        with pytest.raises(UsageError, match=words):
            build_model(tiny_config().with_values(changes, "you"), None, tmp_path, None)


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


@each(("name", "its_own"), [("qwen2-tiny", "q_proj"), ("gpt2-tiny", "c_attn")])
def test_a_target_that_the_model_lacks_is_told_with_the_names_that_it_has(
    name: str, its_own: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=rf"no module 'query', 'nope'; .*\b{its_own}\b") as caught:
        lora(name, tmp_path, tokenizer, peft__targets=["query", its_own, "nope"])
    assert caught.value.findings[0].code == "unknown_lora_target"


def test_a_run_continues_from_an_adapter(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    first = lora("qwen2-tiny", tmp_path / "first", tokenizer)
    train_a_little(first)
    first.save_pretrained(tmp_path / "adapter")
    second = lora("qwen2-tiny", tmp_path / "second", tokenizer, peft__adapter="../adapter")
    kept, loaded = first.state_dict(), second.state_dict()
    adapters = [name for name in kept if "lora_" in name]
    assert adapters and all(torch.equal(kept[name], loaded[name]) for name in adapters)
    assert any(parameter.requires_grad for parameter in second.parameters())


def test_another_base_moves_the_first_one_aside(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    torch.manual_seed(0)
    first = lora("qwen2-tiny", tmp_path, tokenizer)
    torch.manual_seed(1)
    lora("qwen2-tiny", tmp_path, tokenizer)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base_model", "base_model.old-1"]
    old = AutoModelForCausalLM.from_pretrained(tmp_path / "base_model.old-1")
    assert torch.equal(old.lm_head.weight, first.get_base_model().lm_head.weight)


def test_merged_and_unmerged_load_back_with_the_same_logits(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    """Of GPT-2, whose matrices lie the other way round; tests/core/model/test_merge.py merges others."""
    model = lora("gpt2-tiny", tmp_path, tokenizer)
    train_a_little(model)
    model.eval()
    inputs = torch.randint(5, 60, (2, 9))
    with torch.no_grad():
        live = model(input_ids=inputs).logits
        with model.disable_adapter():
            base = model(input_ids=inputs).logits
    model.save_pretrained(tmp_path / "alone")
    merged(model).save_pretrained(tmp_path / "merged")
    loaded = [AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in ("alone", "merged")]
    with torch.no_grad():
        logits = [one.eval()(input_ids=inputs).logits for one in loaded]
    assert (live - base).abs().max() > 0.01
    assert torch.equal(logits[0], live) and torch.allclose(logits[1], live, atol=1e-5)


def test_a_cached_hub_model_is_named_by_its_hub_id(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    snapshot = tmp_path / "hub" / "models--some--model" / "snapshots" / "abc"
    build_model(text_config("gpt2-tiny"), None, tmp_path, tokenizer).save_pretrained(snapshot)
    changes = {"model__name": "some/model", "model__init": "pretrained", "model__architecture": None}
    model = lora("gpt2-tiny", tmp_path, tokenizer, **changes)
    assert model.peft_config["default"].base_model_name_or_path == "some/model"


@each(("precision", "trained", "held_in"), [
    ("fp32", torch.float32, torch.float32),
    ("fp16", torch.float32, torch.float16),
    ("bf16", torch.float32, torch.bfloat16),
    ("bf16-true", torch.bfloat16, torch.bfloat16),
])  # fmt: skip
def test_weights_that_train_are_float32_under_mixed_precision_and_a_frozen_base_is_held_as_it_computes(
    precision: str, trained: torch.dtype, held_in: torch.dtype, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    whole = build_model(text_config("gpt2-tiny", engine__precision=precision), None, tmp_path, tokenizer)
    assert {weight.dtype for weight in whole.parameters()} == {trained}
    model = lora("llama-tiny", tmp_path, tokenizer, engine__precision=precision)
    assert {weight.dtype for weight in model.parameters() if not weight.requires_grad} == {held_in}
    assert {weight.dtype for weight in model.parameters() if weight.requires_grad} == {torch.float32}
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "base_model")
    assert {weight.dtype for weight in saved.parameters()} == {held_in}


# Adapters on a base in 4 or 8 bits: what is held how, trained, resumed and merged. bitsandbytes computes on the CPU.

PACKED: dict[str, Any] = {"peft__method": "lora", "engine__base_precision": "nf4"}


@each("precision", ["bf16", "bf16-true", "fp32"])
def test_linear_layers_of_the_blocks_are_packed_and_norms_follow_the_precision(
    precision: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    config = text_config("qwen2-tiny", **PACKED, engine__precision=precision)
    model: Any = build_model(config, None, tmp_path, tokenizer)
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
    settings = {**PACKED, "engine__precision": "bf16", "peft__merge": True, "data__validation_rows": 10}
    # Its answers to prompts come from a model whose norms are in fp32 and whose head is in bf16.
    settings["evaluation__prompts"] = "rows"
    config = text_config("qwen2-tiny", **settings, evaluation__every_steps=4, training__learning_rate=0.02)
    whole = write_run(tmp_path / "whole", config)
    train(whole, config)
    engine = json.loads((whole / "engine.json").read_text())
    assert (engine["actual"], engine["adapter"], engine["model"]) == ("single", "lora", "Qwen2ForCausalLM")
    assert 0 < engine["trainable_parameters"] < engine["parameters"] / 10
    # Evaluated in between: bitsandbytes packs weights anew for that on some CPUs, after which nothing would be learnt.
    assert losses(whole)[8] < losses(whole)[4] < losses(whole)[1]
    again = resumed(whole, tmp_path / "resumed", config, 4)
    assert different_tensors(whole / "checkpoint-8", again / "checkpoint-8") == []
    adapters = load_file(whole / "checkpoint-8" / "adapter_model.safetensors")
    assert all("lora_" in name for name in adapters) and not (whole / "checkpoint-8" / "model.safetensors").exists()
    name = "model.layers.0.self_attn.q_proj"
    a, b = (adapters[f"base_model.model.{name}.lora_{part}.weight"] for part in "AB")
    base = load_file(whole / "base_model" / "model.safetensors")[f"{name}.weight"]
    merged = load_file(whole / "final_model" / "model.safetensors")[f"{name}.weight"]
    assert merged.dtype == torch.bfloat16 and torch.equal(merged, (base + 2 * (b @ a)).to(torch.bfloat16))


def test_dora_and_a_head_trained_whole_on_4_bits_come_back_from_their_checkpoint(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    settings = {**PACKED, "peft__dora": True, "peft__rslora": True, "peft__rank": 4, "training__loss_chunk": 32}
    config = text_config("llama-tiny", **settings, peft__modules_to_save=["lm_head"])
    model = build_model(config, None, tmp_path, tokenizer)
    train_a_little(model)
    model.save_pretrained(tmp_path / "checkpoint-4")
    again = build_model(config, tmp_path / "checkpoint-4", tmp_path, tokenizer)
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    same = dict(again.named_parameters())
    assert all(same[name].requires_grad and torch.equal(same[name], weight) for name, weight in trained.items())
    base = load_file(tmp_path / "base_model" / "model.safetensors")
    head = next(weight for name, weight in trained.items() if "lm_head" in name)
    assert not torch.equal(head, base["lm_head.weight"].float())
    assert any("lora_magnitude_vector" in name for name in trained)
