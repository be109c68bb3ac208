"""Model configs of the published rows, by the names that the tables use."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

MODELS = Path(__file__).parent / "models.json"
FILES = {
    "bigcode/gpt_bigcode-santacoder": "measurements/configs/bigcode__gpt_bigcode-santacoder.json",
    "google-bert/bert-base-uncased": "measurements/configs/google-bert__bert-base-uncased.reconstructed.json",
    "bert-base-uncased": "measurements/configs/google-bert__bert-base-uncased.reconstructed.json",
    "meta-llama/Llama-3.2-3B": "measurements/configs/meta-llama__Llama-3.2-3B.json",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "measurements/configs/mistralai__Mixtral-8x7B.json",
    "Qwen/Qwen-7B-Chat": "measurements/configs/Qwen__Qwen-7B.json",
    "meta-llama/Llama-3.1-8B": "wild/configs/llama-3.1-8b.json",
    "meta-llama/Llama-2-7b-hf": "wild/configs/llama-2-7b.json",
    "meta-llama/Llama-2-13b-hf": "wild/configs/llama-2-13b.json",
    "meta-llama/Llama-2-70b-hf": "wild/configs/llama-2-70b.json",
}
ALIASES = {"roberta-large based": "roberta-large", "qwen-1_8b-chat": "Qwen/Qwen-1_8B-Chat", "chatglm3-6b": "THUDM/chatglm3-6b"}  # fmt: skip
CHANGES: dict[str, dict[str, Any]] = {
    # The file has Mixtral of the 4.36 development branch with as many key heads as heads; the weights have 8 (arXiv 2401.04088).
    "mistralai/Mixtral-8x7B-Instruct-v0.1": {"num_key_value_heads": 8, "max_position_embeddings": 32768},
    # The file is of a fine-tuned model with 16 more tokens and longer positions.
    "meta-llama/Llama-2-13b-hf": {"vocab_size": 32000, "max_position_embeddings": 4096},
}


def config_of(model: str, shared: Path) -> dict[str, Any] | None:
    """None where it is nowhere; the files of `shared` may not be here."""
    name = ALIASES.get(model, model)
    if name in FILES:
        path = shared / FILES[name]
        return {**json.loads(path.read_text(encoding="utf-8")), **CHANGES.get(name, {})} if path.is_file() else None
    known = _models().get(name)
    return None if known is None else dict(known["config"])


@cache
def _models() -> dict[str, dict[str, Any]]:
    models: dict[str, dict[str, Any]] = json.loads(MODELS.read_text(encoding="utf-8"))
    return models
