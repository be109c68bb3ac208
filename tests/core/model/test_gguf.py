"""GGUF files, read back with the package of llama.cpp's project: tensors, tokens, template, what ends an answer; and
what is refused because it is not known for certain."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from trainwiz.core.errors import UsageError
from trainwiz.core.model.found import find_model
from trainwiz.core.training.chats import CHATML
from trainwiz.core.training.gguf_file import CUT, write_gguf
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, Qwen3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tests.core.training.tokenizers_for_tests import CHINESE, SENTENCES
from tests.each import each

SIZES: dict[str, Any] = {
    "vocab_size": 412, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512,
}  # fmt: skip
LONG = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64, "rope_theta": 10000.0,
}  # fmt: skip


def byte_level(numbers: str) -> PreTrainedTokenizerFast:
    """Cuts as Llama 3 and Qwen2 do, which differ in how many digits stay together."""
    made = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(CUT % numbers), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )  # type: ignore[assignment]
    made.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    special = ["<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>"]
    letters = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        SENTENCES + CHINESE, trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=letters)
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<|begin|>", eos_token="<|end|>")
    tokenizer.chat_template = CHATML % {"end": "<|im_end|>"}
    return tokenizer


def saved(folder: Path, config: Any, numbers: str, dtype: torch.dtype) -> Path:
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(config).to(dtype).save_pretrained(folder)
    byte_level(numbers).save_pretrained(folder)
    return folder


def written(folder: Path, to: Path) -> dict[str, Any]:
    return write_gguf(find_model(str(folder)), to, "tuned")


def values_of(tensor: Any) -> np.ndarray[Any, Any]:
    """fp32."""
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type)


@each(("config", "numbers", "dtype", "cut"), [
    (LlamaConfig(**SIZES, rope_parameters=LONG, tie_word_embeddings=True), r"\p{N}{1,3}", torch.bfloat16, "llama-bpe"),
    (Qwen3Config(**SIZES, head_dim=32), r"\p{N}", torch.float32, "qwen2"),
])  # fmt: skip
def test_a_written_file_holds_the_model(config: Any, numbers: str, dtype: Any, cut: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / cut, config, numbers, dtype)
    found = written(folder, tmp_path / f"{cut}.gguf")
    assert found["stops"] == ["<|im_end|>", "<|end|>"] and found["bytes"] == (tmp_path / f"{cut}.gguf").stat().st_size
    read = gguf.GGUFReader(tmp_path / f"{cut}.gguf")
    tensors = {one.name: one for one in read.tensors}
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(folder)
    weights = model.state_dict()
    for name, key in (
        ("token_embd.weight", "model.embed_tokens.weight"), ("output_norm.weight", "model.norm.weight"),
        ("blk.1.ffn_down.weight", "model.layers.1.mlp.down_proj.weight"),
        ("blk.1.attn_v.weight", "model.layers.1.self_attn.v_proj.weight"),
    ):  # fmt: skip
        assert np.array_equal(values_of(tensors[name]), weights[key].numpy())
    assert ("output.weight" in tensors) is not model.config.tie_word_embeddings
    keys, rows = values_of(tensors["blk.0.attn_k.weight"]), weights["model.layers.0.self_attn.k_proj.weight"].numpy()
    if config.model_type == "llama":
        # Row 2i of a head is its row i in transformers, row 2i + 1 the one half a head behind it.
        size = config.hidden_size // config.num_attention_heads
        for head in range(config.num_key_value_heads):
            there, here = keys[head * size :][:size], rows[head * size :][:size]
            assert np.array_equal(there[0::2], here[: size // 2]) and np.array_equal(there[1::2], here[size // 2 :])
        plain = 1.0 / 10000.0 ** (torch.arange(0, size, 2) / size)
        wanted, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
        assert np.allclose(plain.numpy() / values_of(tensors["rope_freqs.weight"]), wanted.numpy(), rtol=1e-6)
    else:
        assert np.array_equal(keys, rows) and "rope_freqs.weight" not in tensors
    told = {name: field.contents() for name, field in read.fields.items()}
    assert told["tokenizer.ggml.pre"] == cut and told["tokenizer.chat_template"] == tokenizer.chat_template
    assert told["tokenizer.ggml.eos_token_id"] == 1 and told["tokenizer.ggml.eot_token_id"] == 3
    assert told["tokenizer.ggml.tokens"][: len(tokenizer)] == tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    kinds = told["tokenizer.ggml.token_type"]
    wanted = [gguf.TokenType.CONTROL, gguf.TokenType.NORMAL, gguf.TokenType.UNUSED]
    assert [kinds[place] for place in (0, 10, 405)] == wanted
    assert told[f"{told['general.architecture']}.attention.key_length"] == model.model.layers[0].self_attn.head_dim
    with pytest.raises(UsageError, match="Nothing is overwritten"):
        written(folder, tmp_path / f"{cut}.gguf")


def test_what_is_not_known_is_not_written(tmp_path: Path) -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 128}
    config = Qwen3Config(**SIZES, head_dim=32, rope_parameters=rope)
    folder = saved(tmp_path / "model", config, r"\p{N}{2}", torch.float32)
    with pytest.raises(UsageError, match="this model has the RoPE type yarn, a tokenizer of another kind"):
        written(folder, tmp_path / "model.gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
