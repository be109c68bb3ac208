"""Tiny chat models and adapters with random weights, as folders and as runs."""

import json
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from trainwiz.core.training.chats import CHATML
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from tests.core.training.runs import text_config, write_run
from tests.core.training.tokenizers_for_tests import small_tokenizer


def base_model(folder: Path, *, template: str | None = CHATML % {"end": "</s>"}, hidden: int = 32) -> Path:
    """A qwen2 with its tokenizer."""
    place = folder / f"base-{hidden}"
    tokenizer = small_tokenizer(folder)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(place)
    torch.manual_seed(1)
    sizes: dict[str, Any] = {
        "vocab_size": 400, "hidden_size": hidden, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": 1,
        "eos_token_id": 2, "initializer_range": 0.2,
    }  # fmt: skip
    Qwen2ForCausalLM(Qwen2Config(**sizes)).save_pretrained(place)
    return place


def adapter_on(base: Path, place: Path, **changes: Any) -> Path:
    """LoRA adapters that change what the model says, with the base's tokenizer beside them as a run saves it."""
    model: Any = AutoModelForCausalLM.from_pretrained(base)
    wanted: dict[str, Any] = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"], **changes}
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **wanted))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(place)
    for path in base.glob("*token*"):
        (place / path.name).write_bytes(path.read_bytes())
    if (base / "chat_template.jinja").is_file():
        (place / "chat_template.jinja").write_text((base / "chat_template.jinja").read_text())
    return place


def adapter_run(folder: Path, base: Path, **changes: Any) -> Path:
    """A finished LoRA run on `base`."""
    config = text_config("qwen2-tiny", peft__method="lora", peft__rank=4, **changes).with_values(
        {"model.name": str(base), "model.init": "pretrained", "model.architecture": json.loads((base / "config.json").read_text())}, "you"
    )  # fmt: skip
    run = write_run(folder / "runs" / "tuned", config)
    adapter_on(base, run / "final_model")
    return run
