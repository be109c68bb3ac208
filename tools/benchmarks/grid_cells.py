"""The cells of the GPU grid: which model is measured with which settings, and which half a cell belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Half = Literal["fit", "report"]
LLM = "llama-1.1b"
CONFIGS: dict[str, dict[str, Any]] = {
    # TinyLlama-1.1B's sizes: a language model of a billion parameters that the catalogue does not have.
    LLM: {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32000, "hidden_size": 2048,
        "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4,
        "max_position_embeddings": 2048, "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    },
}  # fmt: skip
LORA = {"peft.method": "lora", "peft.rank": 8, "peft.targets": ["q_proj", "v_proj"]}
SMALL_LARGE: dict[str, tuple[int, int]] = {
    "esm2-8m": (8, 128), "esm2-35m": (8, 64), "esm2-150m": (4, 32), "esm2-650m": (2, 8),
    "nllb-600m": (4, 16), "opus-mt-zh-en": (16, 96), "t5-chat-0.2b": (8, 32), LLM: (1, 4),
}  # fmt: skip
"""Micro-batches: one whose kernels are short, one that fills the card. The large ones fit 24 GB."""


@dataclass(frozen=True)
class Cell:
    """One setting of one model, measured several times."""

    model: str
    task: str
    precision: str = "bf16"
    attention: str = "sdpa"
    checkpointing: bool = False
    micro_batch: int = 1
    accumulation: int = 1
    length: int = 512
    target_length: int = 0
    changes: dict[str, Any] = field(default_factory=dict, hash=False)
    """Further keys of the config."""
    half: Half = "fit"

    @property
    def name(self) -> str:
        words = [self.model, self.precision, self.attention, f"{self.micro_batch}x{self.length}"]
        words += [f"times {self.accumulation}"] if self.accumulation > 1 else []
        words += ["checkpointed"] if self.checkpointing else []
        words += ["lora"] if self.changes.get("peft.method") == "lora" else []
        words += [f"loss by {chunk}"] if (chunk := self.changes.get("training.loss_chunk")) else []
        return " ".join(words)

    def overrides(self, name: str, device: str) -> dict[str, Any]:
        """Of the config; `name` is what model.name must be."""
        return {
            "task": self.task,
            "model.name": name,
            "batch.micro_batch_size": self.micro_batch,
            "batch.gradient_accumulation_steps": self.accumulation,
            "batch.sequence_length": self.length,
            **({"batch.target_length": self.target_length} if self.target_length else {}),
            "engine.device": device,
            "engine.strategy": "single",
            "engine.processes": 1,
            "engine.precision": self.precision,
            "engine.attention": self.attention,
            "engine.checkpointing": self.checkpointing,
            "data.workers": 0,
            "logging.report_to": ["none"],
            **self.changes,
        }


def cells() -> list[Cell]:
    """Neighbours in this list, which differ in one setting, go to different halves."""
    return [
        Cell(**{**vars(cell), "half": "fit" if number % 2 == 0 else "report"}) for number, cell in enumerate(_cells())
    ]


def _cells() -> Iterator[Cell]:
    for size in ("8m", "35m", "150m", "650m"):
        yield from _proteins(f"esm2-{size}")
    for model, length, target in (("nllb-600m", 128, 128), ("t5-chat-0.2b", 256, 256), ("opus-mt-zh-en", 128, 128)):
        yield from _pairs(model, length, target)
    yield from _language_model()


def _proteins(model: str) -> Iterator[Cell]:
    for micro_batch in SMALL_LARGE[model]:
        for attention, checkpointing in (("sdpa", False), ("eager", False), ("sdpa", True)):
            yield Cell(model, "masked-lm", "bf16", attention, checkpointing, micro_batch)
    small, _ = SMALL_LARGE[model]
    for precision in ("fp32", "fp16"):
        for accumulation in (1, 2):
            yield Cell(model, "masked-lm", precision, "sdpa", False, small, accumulation)


def _pairs(model: str, length: int, target: int) -> Iterator[Cell]:
    small, large = SMALL_LARGE[model]
    for precision in ("fp32", "bf16", "fp16"):
        yield Cell(model, "seq2seq", precision, "sdpa", False, small, 1, length, target)
    yield Cell(model, "seq2seq", "bf16", "sdpa", False, small, 2, length, target)
    yield Cell(model, "seq2seq", "bf16", "sdpa", False, large, 1, length, target)
    yield Cell(model, "seq2seq", "bf16", "eager", False, small, 1, length, target)
    yield Cell(model, "seq2seq", "bf16", "sdpa", True, large, 2, length, target)
    yield Cell(model, "seq2seq", "bf16", "sdpa", False, large, 1, length, target, {"training.loss_chunk": 512})


def _language_model() -> Iterator[Cell]:
    small, large = SMALL_LARGE[LLM]
    for changes in ({}, LORA):
        yield Cell(LLM, "causal-lm", "bf16", "sdpa", False, small, 1, 1024, 0, changes)
        yield Cell(LLM, "causal-lm", "bf16", "sdpa", True, small, 1, 1024, 0, changes)
        yield Cell(LLM, "causal-lm", "bf16", "sdpa", True, large, 1, 1024, 0, changes)
        yield Cell(LLM, "causal-lm", "bf16", "sdpa", True, large, 2, 1024, 0, changes)
        yield Cell(LLM, "causal-lm", "bf16-true", "sdpa", True, small, 1, 1024, 0, changes)
        yield Cell(LLM, "causal-lm", "fp32", "sdpa", True, small, 1, 512, 0, changes)
        yield Cell(LLM, "causal-lm", "bf16", "sdpa", True, large, 1, 1024, 0, {**changes, "training.loss_chunk": 512})


def tiny_cells() -> list[Cell]:
    """For a try of the grid itself, on any machine."""
    return [
        Cell("esm2-tiny", "masked-lm", "fp32", micro_batch=2, length=64, half="fit"),
        Cell("opus-mt-tiny", "seq2seq", "fp32", micro_batch=2, length=32, target_length=32, half="report"),
    ]
