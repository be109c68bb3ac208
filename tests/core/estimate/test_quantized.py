"""The bytes of a base in 4 or 8 bits: those of live tensors, and of a traced step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.peak import peak_of
from trainwiz.core.estimate.states import base_bytes, packed_bytes
from trainwiz.core.estimate.trace.step import statistics_of
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.training.model import build_model

from tests.core.estimate.trace.requests import LLAMA, request, traced
from tests.core.training.runs import text_config
from tests.core.training.tokenizers_for_tests import small_tokenizer
from tests.each import each

QWEN3 = {**LLAMA, "model_type": "qwen3", "head_dim": 32, "tie_word_embeddings": False}


def work_of(config: dict[str, Any], **settings: Any) -> Workload:
    architecture, _ = read_architecture(config)
    assert architecture is not None
    return Workload(
        architecture=architecture,
        **{"micro_batch": 1, "length": 128, "target_length": 128, "precision": "bf16", "lora_rank": 8, **settings},
        lora_targets=architecture.linear_names(),
    )


def test_half_a_byte_a_weight_and_4_127_bits_with_all_scales() -> None:
    """QLoRA counts 0.127 bits a weight for the scales of double quantisation (section 3); the tables are small."""
    assert packed_bytes(4096, 4096, "nf4") * 8 / 4096**2 == pytest.approx(4.127, abs=0.001)
    assert packed_bytes(4096, 14336, "int8") == 4096 * 14336 + 4 * 14336


@each("kind", ["nf4", "int8"])
@each(("name", "precision"), [("qwen2-tiny", "bf16"), ("llama-tiny", "bf16-true"), ("gpt2-tiny", "fp32")])
def test_the_live_model_takes_what_the_plan_says_to_the_byte(
    name: str, precision: str, kind: str, tmp_path: Path
) -> None:
    settings = {"engine__base_precision": kind, "engine__precision": precision, "peft__method": "lora"}
    config = text_config(name, **settings)
    live: Any = build_model(config, None, tmp_path, small_tokenizer(tmp_path / "tokenizer"))
    held = {parameter for name, parameter in live.named_parameters() if "lora_" not in name}
    tensors = [tensor for parameter in held for tensor in (parameter, *statistics_of(parameter))]
    planned = base_bytes(work_of(config.model.architecture or {}, precision=precision, base_precision=kind))
    assert sum(tensor.numel() * tensor.element_size() for tensor in tensors) == planned


@each(("config", "kind", "checkpointing"), [(LLAMA, "nf4", True), (LLAMA, "int8", False), (QWEN3, "nf4", False)])
def test_formulas_come_near_a_traced_step(config: dict[str, Any], kind: str, checkpointing: bool) -> None:
    work = work_of(config, micro_batch=4, base_precision=kind, checkpointing=checkpointing)
    settings = {"half_weights": True, "lora_rank": 8, "lora_targets": work.lora_targets}
    trace = traced(request(config, **settings, base_precision=kind, checkpointing=checkpointing))
    peak = peak_of(work).allocated_bytes
    assert peak == pytest.approx(trace.allocated_bytes, rel=0.06)
    assert trace.parameters == work.architecture.parameters + work.adapter_parameters
    if config is QWEN3:
        return
    # In 16 bits the same step holds more weights.
    plain = traced(request(config, **settings, checkpointing=checkpointing))
    assert trace.training[0].parts["weights"] < plain.training[0].parts["weights"]


def test_a_traced_base_is_packed_as_a_real_one() -> None:
    """The parameters that stand for bitsandbytes' own hold the very tensors that it makes."""
    from bitsandbytes.functional import quantize_4bit
    from trainwiz.core.estimate.trace.step import pack_without_numbers

    config = text_config("qwen2-tiny", peft__method="lora", engine__base_precision="nf4")
    weight = torch.randn(96, 64, dtype=torch.bfloat16)
    made: Any = pack_without_numbers(weight, config)
    packed, state = quantize_4bit(weight, compress_statistics=True, quant_type="nf4")
    real: Any = torch.nn.Parameter(packed, requires_grad=False)
    real.quant_state = state
    shapes = [[(tensor.shape, tensor.dtype) for tensor in (one, *statistics_of(one))] for one in (made, real)]
    assert shapes[0] == shapes[1]


@each(
    ("extra", "error"),
    [
        ({"dora": True, "base_precision": "nf4"}, 0.12),
        ({"modules_to_save": ("embed_tokens", "lm_head")}, 0.03),
        ({"modules_to_save": ("lm_head", "norm"), "base_precision": "nf4", "loss_chunk": 64}, 0.08),
    ],
)
def test_what_trains_beside_adapters_is_counted_as_it_is_traced(extra: dict[str, Any], error: float) -> None:
    config = {**LLAMA, "tie_word_embeddings": "loss_chunk" in extra}
    work = work_of(config, micro_batch=4, checkpointing="dora" in extra, **extra)
    settings = {"half_weights": True, "lora_rank": 8, "lora_targets": work.lora_targets, **extra}
    trace = traced(request(config, **settings, checkpointing=work.checkpointing))
    assert trace.trainable_parameters == work.trainable_parameters
    assert peak_of(work).allocated_bytes == pytest.approx(trace.allocated_bytes, rel=error)
