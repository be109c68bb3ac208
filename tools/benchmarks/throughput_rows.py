"""The published paces of ../shared/data/measurements/throughput.csv as workloads, and which of them can be compared."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.catalog.gpus import load_gpus
from trainwiz.core.estimate.architecture import attention_projections
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.time import Rate, gpu_rate
from trainwiz.core.estimate.workload import Workload

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
BERT: dict[str, Any] = {"model_type": "bert", "vocab_size": 30522, "max_position_embeddings": 512, "hidden_act": "gelu"}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert-base-uncased": {**BERT, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    "bert-large-uncased": {**BERT, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    "gpt2": {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12},
    "TinyLlama-1.1B": {
        "model_type": "llama", "vocab_size": 32000, "hidden_size": 2048, "num_hidden_layers": 22, "num_attention_heads": 32,
        "num_key_value_heads": 4, "intermediate_size": 5632, "max_position_embeddings": 2048, "hidden_act": "silu",
    },
    "mpt-1b": {"model_type": "mpt", "vocab_size": 50368, "d_model": 2048, "n_layers": 24, "n_heads": 16, "max_seq_len": 2048, "expansion_ratio": 4},
    "mpt-3b": {"model_type": "mpt", "vocab_size": 50368, "d_model": 2560, "n_layers": 32, "n_heads": 20, "max_seq_len": 2048, "expansion_ratio": 4},
}  # fmt: skip
"""By the models' published configs."""
FILES = {
    "bigcode/gpt_bigcode-santacoder": "measurements/configs/bigcode__gpt_bigcode-santacoder.json",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "measurements/configs/mistralai__Mixtral-8x7B.json",
    "Qwen/Qwen-7B-Chat": "measurements/configs/Qwen__Qwen-7B.json",
    "meta-llama/Llama-3.1-8B": "wild/configs/llama-3.1-8b.json",
}
CARDS = {
    "V100 16GB": "V100 SXM2 16GB", "A100-80GB": "A100 80GB SXM", "A100-SXM4-80G": "A100 80GB SXM", "A100-40GB": "A100 40GB SXM",
    "H100-80GB": "H100 SXM", "A6000": "RTX A6000",
}  # fmt: skip
"""Names of the table -> of the catalogue, where a name says one card."""
PRECISIONS = {"fp16 (apex O2)": ("fp16", False), "fp32": ("fp32", False), "bf16-true": ("bf16-true", False), "bf16": ("bf16", False), "amp_bf16": ("bf16", False)}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One published pace; `left_out` says why it is none to compare, else there are a workload and a rate."""

    id: str
    words: str
    comparable: str
    left_out: str = ""
    work: Workload | None = None
    rate: Rate | None = None
    step_s: float = 0.0
    """Of one optimizer step, as measured."""


def read_rows() -> list[Row]:
    """All rows of the table; empty where it is not here."""
    path = SHARED / "measurements" / "throughput.csv"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [_row(values) for values in csv.DictReader(file)]


def _row(values: dict[str, str]) -> Row:
    words = f"{values['model']} {values['training']} {values['precision'][:10]} {values['micro_batch']}x{values['seq_len']} on {values['gpu']}"
    base = {"id": values["id"], "words": words, "comparable": values["comparable_to_hf_trainer"]}
    for wrong, why in (
        (not values["seq_len"].isdigit(), "the lengths are not given"),
        (values["training"].startswith("qlora"), "quantised weights are not trained by this product"),
    ):
        if wrong:
            return Row(**base, left_out=why)
    name = CARDS.get(values["gpu"], values["gpu"])
    spec = load_gpus().get(name)
    if spec is None:
        return Row(**base, left_out="the card is not in the catalogue")
    config = CONFIGS.get(values["model"]) or _config_file(values["model"])
    architecture, reason = read_architecture(config) if config else (None, "its config is not here")
    if architecture is None:
        return Row(**base, left_out=reason)
    precision, tf32 = PRECISIONS.get(values["precision"], ("fp32", spec.tf32_flops is not None))
    lora = int(values["lora_rank"] or 8) if values["training"].startswith("lora") else 0
    work = Workload(
        architecture=architecture,
        micro_batch=int(values["micro_batch"]),
        length=int(values["seq_len"]),
        target_length=int(values["seq_len"]),
        accumulation=int(values["grad_accum"] or 1),
        world_size=int(values["world_size"]),
        precision=precision,
        attention="eager" if values["attention"].startswith("eager") else "sdpa",
        checkpointing=values["checkpointing"] == "yes",
        strategy=values["strategy"] if values["strategy"] in ("ddp", "fsdp") else "single",
        lora_rank=lora,
        lora_targets=attention_projections(architecture) if lora else (),
    )
    tokens_per_s = float(values["tokens_per_s_per_gpu"] or 0)
    step_s = work.tokens * work.accumulation / tokens_per_s if tokens_per_s else float(values["step_s"] or 0)
    if not step_s:
        return Row(**base, left_out="no pace is given")
    return Row(**base, work=work, rate=gpu_rate(spec, precision, tf32), step_s=step_s)


def _config_file(model: str) -> dict[str, Any] | None:
    name = FILES.get(model) or next(
        (file for key, file in FILES.items() if key.startswith(re.sub(r"-\w+$", "", model))), None
    )
    if name is None or not (SHARED / name).is_file():
        return None
    return json.loads((SHARED / name).read_text(encoding="utf-8"))
