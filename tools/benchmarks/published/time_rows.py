"""The published paces as workloads: ../shared/data/measurements/throughput.csv."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainwiz.core.catalog.gpus import GpuSpec, find_gpu
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.time import LAUNCH_S, NVLINK, Range, Rate, gpu_rate, step_time
from trainwiz.core.estimate.workload import HALF, Formats, Workload

from tools.benchmarks.family_traces import attention_projections
from tools.benchmarks.published.configs import config_of
from tools.benchmarks.published.rows import SHARED, optimizer_of, targets_of

CARDS = {
    "A10": "A10", "A6000": "RTX A6000", "A100-40GB SXM": "A100 40GB SXM", "A100-40GB": "A100 40GB SXM",
    "A100-80GB": "A100 80GB SXM", "A100-SXM4-80G": "A100 80GB SXM", "H100-80GB": "H100 SXM", "2x TITAN RTX 24GB": "TITAN RTX",
    "V100 16GB": "V100 SXM2 16GB", "V100 SXM2 32GB": "V100 SXM2 32GB",
}  # fmt: skip
MPT = {"model_type": "mpt", "vocab_size": 50368, "n_heads": 16, "d_model": 2048, "n_layers": 24, "max_seq_len": 2048}
CONFIGS: dict[str, dict[str, Any]] = {
    # llm-foundry, scripts/train/yamls/pretrain/mpt-1b.yaml and mpt-3b.yaml.
    "mpt-1b": MPT,
    "mpt-3b": {**MPT, "n_heads": 20, "d_model": 2560, "n_layers": 32},
    # jzhang38/TinyLlama, README.
    "TinyLlama-1.1B": {
        "model_type": "llama", "vocab_size": 32000, "hidden_size": 2048, "num_hidden_layers": 22, "intermediate_size": 5632,
        "num_attention_heads": 32, "num_key_value_heads": 4, "tie_word_embeddings": False,
    },
    "t5-base": {
        "model_type": "t5", "vocab_size": 32128, "d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12,
        "decoder_start_token_id": 0, "pad_token_id": 0,
    },
}  # fmt: skip
ALIASES = {"gpt2": "openai-community/gpt2"}
WMT16 = 50
"""Tokens of the longest row of a batch of T5's WMT16 rows, assumed; the page gives the limit of 512 only."""
INFINIBAND = 25e9
"""Bytes a second between the two machines of T113."""
APEX_O2 = Formats(HALF, HALF, autocast=False, residual=HALF)
"""Weights in half precision beside the optimizer's fp32 ones (NVIDIA's DeepLearningExamples)."""


@dataclass(frozen=True)
class TimeRow:
    """One published pace: `left_out` says why there is nothing to compare it with, else there is a workload and a card."""

    id: str
    words: str
    comparable: str
    source: str
    step_s: float = 0.0
    """Of one optimizer step of every process."""
    precision: str = ""
    """Of the matrix products: "fp32", "tf32", "fp16" or "bf16"."""
    left_out: str = ""
    work: Workload | None = None
    card: GpuSpec | None = None


def read_time_rows(shared: Path = SHARED) -> list[TimeRow]:
    """All rows; none where the table is not here."""
    path = shared / "measurements" / "throughput.csv"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [_row(values, shared) for values in csv.DictReader(file)]


def source_of(values: dict[str, str]) -> str:
    """Who measured: a laboratory counts once, however many cards it has."""
    words = values["source"].removeprefix("https://github.com/").split()[0].split("/")
    return "/".join(words[:2]).partition("#")[0]


def _row(values: dict[str, str], shared: Path) -> TimeRow:
    adapters = f" r{values['lora_rank']}" if values["lora_rank"] else ""
    ticks = ", checkpointing" if values["checkpointing"] == "yes" else ""
    many = f", {values['strategy']} x{values['world_size']}" if values["world_size"] != "1" else ""
    name, training = values["model"].rpartition("/")[2], values["training"]
    batch = f"{values['micro_batch']}x{values['seq_len'].split(' ')[0]}"
    words = f"{name}, {training}{adapters}, {values['precision'].split(' (')[0][:12]}, {batch}{ticks}{many}, {values['gpu']}"
    base: dict[str, Any] = {
        "id": values["id"], "words": words, "comparable": values["comparable_to_hf_trainer"], "source": source_of(values)
    }  # fmt: skip
    if why := _not_expressed(values):
        return TimeRow(**base, left_out=why)
    config = CONFIGS.get(values["model"]) or config_of(ALIASES.get(values["model"], values["model"]), shared)
    architecture = read_architecture(config)[0] if config is not None else None
    card = find_gpu(CARDS.get(values["gpu"], values["gpu"]))
    if architecture is None or card is None or config is None:
        return TimeRow(**base, left_out="its config is not available" if card is not None else "a card of no catalogue")
    micro, length = int(values["micro_batch"]), _length(values)
    accumulation, world = int(values["grad_accum"]), int(values["world_size"])
    step = float(values["step_s"] or 0) or (
        micro * accumulation / float(values["samples_per_s"])
        if values["samples_per_s"]
        else micro * accumulation * length / float(values["tokens_per_s_per_gpu"])
    )
    rank = {"lora": 16, "qlora": 16}.get(training, 0) if not values["lora_rank"] else int(values["lora_rank"])
    rank = _peft_rank(values) or rank
    targets = targets_of(values["lora_targets"] or _peft_targets(values)) if rank else ()
    precision = _precision(values["precision"], card)
    work = Workload(
        architecture=architecture,
        micro_batch=micro,
        length=length,
        target_length=length,
        accumulation=accumulation,
        world_size=world,
        precision=precision,
        attention="flash_attention_2" if values["attention"].startswith("flash") else values["attention"] or "eager",
        checkpointing=values["checkpointing"] == "yes",
        optimizer=optimizer_of(values["optimizer"]),
        strategy=values["strategy"],
        lora_rank=rank,
        lora_targets=targets or (attention_projections(architecture) if rank else ()),
        base_precision="nf4" if training == "qlora" else "none",
        task="seq2seq" if architecture.kind == "encoder-decoder" else "causal-lm",
        model_config=json.dumps(config, sort_keys=True),
        padded=False,
    )
    if "apex O2" in values["precision"]:
        object.__setattr__(work, "formats", APEX_O2)
    return TimeRow(**base, step_s=step, precision=precision.removesuffix("-true"), work=work, card=card)


def _not_expressed(values: dict[str, str]) -> str:
    for wrong, why in (
        (values["architecture"] == "timm-vit", "image models are not supported"),
        ("gptq" in values["precision"], "a GPTQ base is not supported"),
        (values["framework"] == "torchtune", "settings that are not given: checkpointing, compiled, optimizer in the backward pass"),
        (not values["micro_batch"].isdigit(), "the batch is not stated"),
    ):  # fmt: skip
        if wrong:
            return why
    return ""


def _length(values: dict[str, str]) -> int:
    if values["model"] == "t5-base":
        return WMT16
    if "bucketed" in values["seq_len"]:
        return 212  # the mean that the row's note gives: its tokens a second are real ones
    return int(values["seq_len"])


def _precision(words: str, card: GpuSpec) -> str:
    if "TF32 matmul likely" in words:
        return "tf32" if card.tf32_flops else "fp32"
    if words.startswith(("tf32/bf16", "bf16 amp")):
        return "bf16"
    return "fp16" if words.startswith("fp16") else "bf16" if words.startswith("amp_bf16") else words.split(" ")[0]


def _peft_rank(values: dict[str, str]) -> int:
    return {"T095": 32, "T096": 10}.get(values["id"], 0)


def _peft_targets(values: dict[str, str]) -> str:
    return {"T095": "q_proj v_proj", "T096": "gate_proj up_proj down_proj"}.get(values["id"], "")


def planned(row: TimeRow) -> Range:
    """What a plan says of a step of the row, with the optimizer that was measured."""
    assert row.work is not None and row.card is not None
    step = step_time(row.work, rate_of(row)).step
    return step + Range.around(loop_s(row.id, row.work), step.high / step.likely)


LOOPS = ("T005", "T009", "T011", "T014", "T017", "T028", "T033", "T045", "T046", "T047", "T048", "T060", "T061")
"""Their optimizers (NVIDIA's BertAdam in Python, transformers' adamw_hf) go from one parameter to the next."""
EACH_PARAMETER = 10
"""Kernels that they launch for one."""


def loop_s(row_id: str, work: Workload) -> float:
    tensors = sum(block.layers * 2 * (len(block.linears) + block.norms) for block in work.architecture.blocks)
    return tensors * EACH_PARAMETER * LAUNCH_S if row_id in LOOPS else 0.0


def rate_of(row: TimeRow) -> Rate:
    assert row.card is not None
    rate = gpu_rate(row.card, row.precision, tf32=row.precision == "tf32")
    if row.id == "T060":
        return replace(rate, link=NVLINK)
    return replace(rate, link=NVLINK, network=INFINIBAND) if row.id == "T113" else rate
