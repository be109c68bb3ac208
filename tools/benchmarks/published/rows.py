"""The published memory figures as workloads: the table of this folder and ../shared/data/measurements/memory.csv."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from math import exp, log, sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any

from trainwiz.core.estimate.architecture import is_target
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.workload import Workload

from tools.benchmarks.family_traces import attention_projections
from tools.benchmarks.published.configs import config_of

TABLE = Path(__file__).parent / "table.csv"
SHARED = Path(__file__).parents[3].parent / "shared" / "data"
TASKS = {"question-answering (SQuAD)": "sequence-classification", "fill-mask": "masked-lm"}
"""A span of an answer has two scores a position, of no weight beside the model: the nearest that can be planned."""
PRECISIONS = {"bf16-true (adapters fp32: autocast_adapter_dtype)": "bf16-true"}
KNOWN_PRECISIONS = ("fp32", "fp16", "bf16", "bf16-true")
UNITS = {"MiB": 2**20, "GiB": 2**30, "10^9": 10**9, "GB": 10**9}
EXACT_UNIT = "10^9 or GiB (page writes G)"


def quantiles(mean: float, deviation: float) -> tuple[int, ...]:
    """65 of the lengths of rows that are log-normal: what a page says of its data, in a form that such data mostly have."""
    square = log(1 + (deviation / mean) ** 2)
    normal = NormalDist(log(mean) - square / 2, sqrt(square))
    return tuple(round(exp(normal.inv_cdf(min(0.999, max(0.001, place / 64))))) for place in range(65))


ROWS_OF = {
    # MetaMathQA: about 212 tokens, sorted within 20 batches; the deviation is a guess that leaves one of 10,000 above 768.
    **dict.fromkeys(("M027", "M029"), quantiles(212, 85)),
    # cls-fudan-news-zh: 3234.4 +- 2547.5 by the page, truncated.
    **dict.fromkeys(("M046", "M047", "M048", "M049", "M060", "M065", "M066", "M067"), quantiles(3234.4, 2547.5)),
    # run_squad.py fills every row up to max_seq_length.
    **dict.fromkeys(("M114", "M119"), (384, 384)),
}
"""Lengths of the rows of which pages tell; of all others each page or its code packs, pads or makes up rows of one length."""


@dataclass(frozen=True)
class PublishedRow:
    """One published figure: `left_out` says why there is nothing to compare it with, else there is a workload."""

    id: str
    words: str
    comparable: str
    """ "table" for ESTIMATOR's own rows, else what memory.csv says: yes, partly, no."""
    figure: str
    """ "allocated", "reserved", "device used" or "unknown"."""
    measured: int
    """Bytes, by the unit of the row; by 10^9 where it may be either."""
    either_unit: bool
    """10^9 or 2^30 bytes: the page does not say."""
    framework: str
    source: str
    quoted: str
    smi: int
    """What nvidia-smi showed more than before the run, where the row has that too, else 0."""
    left_out: str = ""
    work: Workload | None = None
    assumed: tuple[str, ...] = ()
    """Settings that the row does not give."""


def read_rows(table: Path = TABLE, shared: Path = SHARED) -> list[PublishedRow]:
    """All rows of both; those of memory.csv only where it is here."""
    rows = [_row(values, shared, "table") for values in _read(table)]
    measurements = shared / "measurements" / "memory.csv"
    if measurements.is_file():
        rows += [_row(values, shared, values["comparable_to_hf_trainer"]) for values in _read(measurements)]
    return rows


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _row(values: dict[str, str], shared: Path, comparable: str) -> PublishedRow:
    either = values["unit"] == EXACT_UNIT or values["unit"] == "GB or GiB (page writes G)"
    unit = next((size for name, size in UNITS.items() if values["unit"].startswith(name)), 10**9)
    base: dict[str, Any] = {
        "id": values["id"],
        "words": _words(values),
        "comparable": comparable,
        "figure": figure_of(values["what_is_measured"]),
        "measured": round(float(values["measured_gb"]) * unit),
        "either_unit": either,
        "framework": values["framework"],
        "source": values["source"],
        "quoted": values["quote_of_numbers"],
        "smi": _smi(values["quote_of_numbers"]),
    }
    why = _not_expressed(values)
    if why:
        return PublishedRow(**base, left_out=why)
    config = config_of(values["model"], shared)
    if config is None:
        return PublishedRow(**base, left_out="its config is not available")
    architecture, reason = read_architecture(config)
    if architecture is None:
        return PublishedRow(**base, left_out=reason)
    assumed: list[str] = []
    rank = int(values["lora_rank"].split(" ")[0]) if values["training"] in ("lora", "qlora") else 0
    targets = targets_of(values["lora_targets"]) if rank else ()
    if values["training"] == "qlora" and targets not in (("all-linear",), ("all", "linear")):
        targets = tuple(name for name in targets if is_target(name, architecture.linear_names()))
    if rank and not targets:
        targets = attention_projections(architecture)
    elif rank and targets in (("all-linear",), ("all", "linear")):
        targets = architecture.linear_names()
    without_logits = "no logits tensor" in values["notes"]
    if without_logits:
        assumed.append("CutCrossEntropy as a loss in slices of 64 tokens")
    work = Workload(
        architecture=architecture,
        micro_batch=int(values["micro_batch"]),
        length=_length(values),
        target_length=_length(values),
        accumulation=int(values["grad_accum"] or 1),
        world_size=int(values["world_size"]),
        precision=_precision(values, assumed),
        attention=_attention(values["attention"]),
        checkpointing=values["checkpointing"].startswith("yes"),
        optimizer=optimizer_of(values["optimizer"]),
        strategy=values["strategy"].split(" ")[0],
        offload="none",
        lora_rank=rank,
        lora_targets=targets,
        base_precision="nf4" if values["training"] == "qlora" else "none",
        loss_chunk=64 if without_logits else None,
        task=TASKS.get(values["task"], "causal-lm" if values["task"].startswith("seq2seq-style") else values["task"]),
        model_config=json.dumps(config, sort_keys=True),
        capability="7.0" if values["gpu"].startswith("V100") else "8.0",
        # Packed rows, dummy rows and rows of one length carry no mask.
        padded=values["framework"].startswith("native") or "swift" in values["framework"],
        row_lengths=ROWS_OF.get(values["id"], ()),
        longest_of=1 if values["id"] in ("M027", "M029") else 0,
    )
    return PublishedRow(**base, work=work, assumed=tuple(assumed))


def figure_of(what: str) -> str:
    """Which figure of an estimate was measured."""
    if what == "max_allocated":
        return "allocated"
    if what.startswith("max_reserved"):
        return "reserved"
    return "device used" if what.startswith("nvidia-smi") else "unknown"


def _words(values: dict[str, str]) -> str:
    adapters = f" r{values['lora_rank']}" if values["lora_rank"] else ""
    shared = f", {values['strategy'].split(' ')[0]} x{values['world_size']}" if values["world_size"] != "1" else ""
    name = values["model"].rpartition("/")[2]
    ticks = ", checkpointing" if values["checkpointing"].startswith("yes") else ""
    batch = f"{values['micro_batch'] or '?'}x{values['seq_len'] or '?'}"
    return f"{name}, {values['training']}{adapters}, {values['precision'].split(' (')[0]}, {batch}{ticks}{shared}"


def _length(values: dict[str, str]) -> int:
    """Of a prompt and its answer together; 0 where it is not given."""
    whole = values["seq_len"].rpartition("=")[2]
    return int(whole) if whole.isdigit() else 0


def _smi(quoted: str) -> int:
    _, found, rest = quoted.partition("mem_nvidia_mem_reserved=")
    return int(float(rest.split()[0]) * 2**20) if found else 0


def _not_expressed(values: dict[str, str]) -> str:
    task, optimizer = values["task"], values["optimizer"]
    for wrong, why in (
        ("gptq" in values["precision"], "a GPTQ base is not supported"),
        (values["training"] == "qlora" and values["strategy"] != "single", "sharding a 4-bit base is not supported"),
        (values["training"] == "qlora" and values["architecture"] == "mixtral", "transformers 4 quantized its experts; version 5 keeps them in 16 bits"),
        ("vision" in task or "image" in task, "image models are not supported"),
        (not values["micro_batch"].split(" ")[0].isdigit(), "the batch is not stated"),
        (not _length(values), "the lengths are not stated"),
        ("fp8" in values["precision"], "fp8 is not supported"),
        (values["checkpointing"] in ("config default",), f"settings of {values['framework']} that are not given: checkpointing, optimizer in the backward pass, compiled"),
        ("LayerNorm weights" in values["notes"], "trains only the norms, which is not supported"),
        ("SUM over" in values["notes"], "a sum over processes, apparently"),
        ("fused in backward" in optimizer, "the optimizer steps within the backward pass"),
        (values["strategy"].startswith("zero") and not values["checkpointing"], "checkpointing is not stated"),
    ):  # fmt: skip
        if wrong:
            return why
    return ""


def _precision(values: dict[str, str], assumed: list[str]) -> str:
    name = PRECISIONS.get(values["precision"], values["precision"])
    if values["training"] == "qlora":
        # Products under autocast over packed weights; litgpt holds adapters and norms in bf16 too.
        return "bf16-true" if values["framework"] == "litgpt" else "bf16"
    if name == "bf16" and values["training"] == "full" and "swift" in values["framework"]:
        assumed.append("weights in bf16, as swift loads them")
        return "bf16-true"
    if name in KNOWN_PRECISIONS:
        return name
    if name.startswith("fp16/bf16"):
        return "bf16"
    assumed.append("fp32")
    return "fp32"


def _attention(name: str) -> str:
    return "flash_attention_2" if name.startswith("flash") else "eager" if name.startswith("eager") else "sdpa"


def optimizer_of(name: str) -> str:
    """Loops over one parameter after the other (transformers' own AdamW, NVIDIA's BertAdam) need no more than fused ones."""
    lowered = name.lower()
    if "adafactor" in lowered:
        return "adafactor"
    if "8bit" in lowered or "8-bit" in lowered:
        return "adamw_bnb_8bit"
    if "adamw_hf" in lowered or "bertadam" in lowered or "fused" in lowered:
        return "adamw_torch_fused"
    return "adamw_torch"


def targets_of(names: str) -> tuple[str, ...]:
    """Without the names that the model does not have a weight for: peft takes those that are there."""
    inner = names.replace("DEFAULT", "").replace("default", "").strip(" ()")
    return tuple(inner.split())
