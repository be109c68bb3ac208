"""A model as a GGUF file for llama.cpp and Ollama, where its family and its tokenizer are known for certain.

As llama.cpp's own converter writes it (conversion/llama.py and base.py, 2026): the `gguf` package has the names of
tensors and keys; the rows of Llama's queries and keys lie in the order of its rotation.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from trainwiz.core.errors import usage_error
from trainwiz.core.hardware.install import need
from trainwiz.core.language import tr
from trainwiz.core.model.export import GGUF_FAMILIES
from trainwiz.core.model.found import FoundModel
from trainwiz.core.training.chats import end_of_turn
from trainwiz.core.training.model_loading import Json, config_of, load_tokenizer, writing_to
from transformers import AutoConfig, PreTrainedTokenizerBase
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

CUT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _split(regex: str) -> Json:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def _byte_level(*, use_regex: bool) -> Json:
    return {"type": "ByteLevel", "add_prefix_space": False, "use_regex": use_regex}


PRE_TOKENIZERS: tuple[tuple[str, list[Json]], ...] = (
    ("llama-bpe", [_split(CUT % r"\p{N}{1,3}"), _byte_level(use_regex=False)]),
    ("qwen2", [_split(CUT % r"\p{N}"), _byte_level(use_regex=False)]),
    ("smollm", [{"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True)]),
    ("gpt-2", [_byte_level(use_regex=True)]),
)
"""llama.cpp's name of how a tokenizer cuts a text before its merges -> its steps. An unknown one is never guessed."""
FORMATS = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}
FILE_TYPES = {"BF16": "MOSTLY_BF16", "F16": "MOSTLY_F16", "F32": "ALL_F32"}


def write_gguf(model: FoundModel, place: Path, name: str) -> Json:
    """Writes `place`, which must not be there: weights in the model's own format, norms and biases in fp32.

    Returns {"tensors": their number, "bytes", "dtype", "stops": texts of the tokens that end an answer}. Raises
    UsageError for a model that is not known for certain, CannotRunError without the `gguf` package.
    """
    need(("gguf",))
    with writing_to(place) as partial:
        found = _write(partial, model, name)
        return {**found, "bytes": partial.stat().st_size}


def _write(path: Path, model: FoundModel, name: str) -> Json:
    """See `write_gguf`. Tensors are read from their mapped files as they are written; those that change are in memory."""
    import gguf

    logging.getLogger("gguf").setLevel(logging.ERROR)
    folder = model.path
    config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
    tokenizer = load_tokenizer(model, config_of(model))
    cut = _pre_tokenizer(tokenizer)
    check_known(config, cut, folder)
    family = GGUF_FAMILIES[config.model_type]
    arch = gguf.MODEL_ARCH[family]
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    if (factors := rope_factors(config)) is not None:
        writer.add_tensor("rope_freqs.weight", factors.numpy())
    shards: list[Any] = [safe_open(file, "pt") for file in sorted(folder.glob("model*.safetensors"))]
    stored = {str(key): shard for shard in shards for key in shard.keys()}  # noqa: SIM118
    for key, shard in stored.items():
        to, tensor = names.get_name(key, try_suffixes=(".weight", ".bias")), shard.get_tensor(key)
        if to is None:
            raise usage_error("gguf_unsupported", key, tr("GGUF has no name for the tensor {name}.", name=key))
        if family == "LLAMA" and key.rpartition(".")[0].endswith(("q_proj", "k_proj")):
            tensor = rotated(tensor, config.num_attention_heads if "q_proj" in key else config.num_key_value_heads)
        tensor = tensor.float() if tensor.ndim == 1 or to.endswith("_norm.weight") else tensor
        # As bytes: numpy has no bf16.
        bytes_of_rows = tensor.contiguous().view(torch.uint8).numpy()
        writer.add_tensor(to, bytes_of_rows, raw_dtype=gguf.GGMLQuantizationType[FORMATS[tensor.dtype]])
    embedding = "model.embed_tokens.weight"
    main = FORMATS[stored[embedding].get_tensor(embedding).dtype]
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(gguf.LlamaFileType[FILE_TYPES[main]])
    writer.add_name(name)
    _add_settings(writer, config)
    stops = _add_tokens(writer, tokenizer, model.tokenizer, config.vocab_size, str(cut))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {"tensors": len(stored), "dtype": main.lower(), "stops": stops}


def check_known(config: Any, cut: str | None, folder: Path) -> None:
    """Raises UsageError with all that is not known of the model."""
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    problems = {
        tr("the model type {type}", type=config.model_type): config.model_type not in GGUF_FAMILIES,
        tr("the RoPE type {type}", type=rope): rope not in ("default", "llama3"),
        tr("a tokenizer of another kind"): cut is None,
        tr("quantized weights"): getattr(config, "quantization_config", None) is not None,
        tr("no safetensors"): not any(folder.glob("model*.safetensors")),
    }
    if found := [words for words, wrong in problems.items() if wrong]:
        message = tr(
            "trainwiz writes GGUF for Llama, Mistral, Qwen2 and Qwen3 models with a byte-level BPE tokenizer; this "
            "model has {found}. Without --to, this command prints the one of llama.cpp's converter.",
            found=", ".join(found),
        )
        raise usage_error("gguf_unsupported", str(folder), message)


def _pre_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str | None:
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    told = json.loads(backend.to_str())
    before = told["pre_tokenizer"] or {}
    # Where offsets begin changes no token.
    steps = [
        {key: value for key, value in step.items() if key != "trim_offsets"}
        for step in before.get("pretokenizers", [before])
    ]
    model, written = told["model"], (told["normalizer"] or {"type": "NFC"})["type"]
    # llama.cpp changes no text before it cuts; NFC, which Qwen has, does so to hardly any.
    plain = model["type"] == "BPE" and not model.get("byte_fallback") and written == "NFC"
    return next((name for name, known in PRE_TOKENIZERS if plain and steps == known), None)


def rotated(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of a projection of Llama [heads x head_dim, ...]: halves of a head (transformers) become pairs (llama.cpp)."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def rope_factors(config: Any) -> torch.Tensor | None:
    """[head_dim / 2] fp32: what each frequency of Llama 3's longer context is divided by; None for another rotation."""
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") != "llama3":
        return None
    steps = torch.arange(0, _head_dim(config), 2, dtype=torch.float32)
    plain = 1.0 / rope["rope_theta"] ** (steps / _head_dim(config))
    changed, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    factors: torch.Tensor = plain / changed
    return factors


def _head_dim(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _add_settings(writer: Any, config: Any) -> None:
    """Under the keys of gguf.constants.Keys."""
    size = _head_dim(config)
    numbers = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        **dict.fromkeys(("attention.key_length", "attention.value_length", "rope.dimension_count"), size),
        "vocab_size": config.vocab_size,
    }
    for key, number in numbers.items():
        writer.add_uint32(f"{writer.arch}.{key}", number)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)


def _add_tokens(writer: Any, tokenizer: Any, folder: Path, rows: int, cut: str) -> list[str]:
    """The tokenizer, its template and what ends an answer; returns the texts of the latter. `rows` of the embedding:
    those without a token are named [PAD<row>]."""
    import gguf

    texts = {row: text for text, row in tokenizer.get_vocab().items()}
    added = tokenizer.added_tokens_decoder
    kinds = gguf.TokenType
    types = []
    for row in range(rows):
        kind = kinds.NORMAL if row in texts else kinds.UNUSED
        if row in added:
            marks = texts[row].startswith("<|") and texts[row].endswith("|>")
            kind = kinds.CONTROL if added[row].special or marks else kinds.USER_DEFINED
        types.append(kind)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(cut)
    writer.add_token_list([texts.get(row, f"[PAD{row}]") for row in range(rows)])
    writer.add_token_types(types)
    gguf.SpecialVocab(folder, load_merges=True).add_to_gguf(writer, quiet=True)
    turn, end = end_of_turn(tokenizer), tokenizer.eos_token_id
    if turn is not None and turn != end:
        # llama.cpp stops at both.
        writer.add_eot_token_id(turn)
    return [str(tokenizer.convert_ids_to_tokens(row)) for row in dict.fromkeys((turn, end)) if row is not None]
