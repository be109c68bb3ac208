"""Rows end to end: separate, equal to padded rows, with the gradient of every step, and refused where they are not."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from trainwiz.core.errors import UsageError
from trainwiz.core.plan.data_findings import TRIED
from trainwiz.core.training import packed_attention
from trainwiz.core.training.batches import FILLER_TOKENS, IGNORED, FillerRow, PaddedBatch
from trainwiz.core.training.packed_attention import PACKED, ROW_ENDS, ROW_LENGTHS, attend_in_rows
from trainwiz.core.training.packing import Comparison, PackedBatch, compared, first_rows, for_attention
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel

from tests.core.training.runs import metrics, tiny_config, write_run
from tests.core.training.test_recovered import launch, samples

ROOT = Path(__file__).parents[3]
VOCABULARY = 40
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 400,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GPT = {"n_embd": 32, "n_layer": 1, "n_head": 4, "vocab_size": VOCABULARY, "n_positions": 400}
ESM = {"position_embedding_type": "rotary", "token_dropout": True, "mask_token_id": 32, "pad_token_id": 1}
OWN: dict[str, dict[str, Any]] = {
    "gpt2": GPT,
    **{kind: {**SMALL, "head_dim": 8} for kind in ("helium", "ministral")},
    "gpt_bigcode": GPT,
    "esm": {**SMALL, **ESM},
    "opt": {**SMALL, "ffn_dim": 32, "word_embed_proj_dim": 32},
}
OFTEN = ("esm", "gemma3_text", "gpt2", "qwen3")


def rows_of(*lengths: int) -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(3)
    return [(random.integers(4, VOCABULARY, n), random.integers(4, VOCABULARY, n)) for n in lengths]


def tiny_model(kind: str) -> PreTrainedModel:
    values = OWN.get(kind, SMALL)
    maker: Any = AutoModelForMaskedLM if kind == "esm" else AutoModelForCausalLM
    torch.manual_seed(0)
    model: PreTrainedModel = maker.from_config(AutoConfig.for_model(kind, **values), attn_implementation="sdpa")
    with torch.no_grad():
        for weight in model.parameters():
            # Attention of a new model is all but uniform: what it sees would hardly matter.
            weight.mul_(3 if weight.ndim > 1 else 1)
    return model


def trainer_of(model: PreTrainedModel, lengths: tuple[int, ...] = (200, 150, 90, 60)) -> Any:
    """As much of a trainer as the check asks for."""
    rows = rows_of(*lengths)

    class Rows(list):  # type: ignore[type-arg]
        def __getitem__(self, key: Any) -> Any:
            return rows[key[1]]

    parts = SimpleNamespace(train=Rows(rows), collate=PaddedBatch(0), inputs=lambda batch, model: dict(batch))
    return SimpleNamespace(
        model=model,
        parts=parts,
        _prepare_inputs=lambda batch: batch,
        compute_loss_context_manager=contextlib.nullcontext,
    )


def check(model: PreTrainedModel) -> Comparison:
    from trainwiz.core.training.packed_attention import scale_in_rows

    attend_in_rows(model)
    scale_in_rows(model)
    return compared(trainer_of(model))


@pytest.mark.parametrize(
    "kind", [one if one in OFTEN else pytest.param(one, marks=pytest.mark.all) for one in sorted(TRIED)]
)
def test_every_type_that_may_pack_gives_the_logits_of_padded_rows(kind: str) -> None:
    model = tiny_model(kind)
    found = check(model)
    assert model.config._attn_implementation == PACKED and PACKED not in json.dumps(model.config.to_dict())
    assert found.logits < 1e-5 and found.loss < 1e-5 and found.neighbours == 0.0, found
    assert found.problem("fp32") is None
    assert model.training


def test_a_model_that_loses_the_ends_of_its_rows_is_found_out() -> None:
    found = check(tiny_model("stablelm"))
    assert found.neighbours > 1e-2 and found.logits > 1e-2
    assert "neighbours" in str(found.problem("bf16")) and "stablelm" not in TRIED


def test_what_rows_would_lose_is_said_in_a_sentence() -> None:
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model("mistral", **SMALL, sliding_window=100), attn_implementation="sdpa"
    )
    with pytest.raises(UsageError, match=r"does not take rows end to end.*sliding_window=100\. .*data\.packing=false"):
        check(model)


def test_mixed_precision_is_half_precision_to_the_kernel_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rotary positions leave queries and keys in fp32 under autocast, for which there is no such kernel."""
    asked: set[torch.dtype] = set()
    monkeypatch.setattr(
        packed_attention, "has_variable_lengths", lambda device, dtype, width: bool(asked.add(dtype)) and False
    )
    model = tiny_model("llama")
    attend_in_rows(model)
    batch = for_attention(PackedBatch()(rows_of(9, 5)))
    with torch.autocast("cpu", torch.bfloat16):
        model(**{**batch, "labels": None}, use_cache=False).logits.sum().backward()
    assert asked == {torch.bfloat16}


@pytest.mark.parametrize("wrong", [float("nan"), 0.3])
def test_unequal_is_never_taken_for_equal(wrong: float) -> None:
    assert Comparison(wrong, 0.0, 0.0).problem("bf16") and Comparison(0.0, wrong, 0.0).problem("bf16")
    assert Comparison(0.0, 0.0, wrong).problem("bf16") and not Comparison(4e-2, 1e-3, 0.0).problem("bf16")
    assert Comparison(4e-2, 0.0, 0.0).problem("fp32")


def test_a_batch_end_to_end() -> None:
    first, second, third = rows_of(3, 1, 2)
    filler = FillerRow((first[0], np.full(3, IGNORED)))
    batch = PackedBatch()([first, filler, second, third])
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 0, 1]] and batch[ROW_ENDS].tolist() == [0, 3, 4, 6]
    assert batch["labels"].tolist() == [[*first[1], *second[1], *third[1]]] and FILLER_TOKENS not in batch
    halved = first_rows(batch, 2)
    plain = PackedBatch()([first, second])
    assert halved[ROW_LENGTHS] == plain[ROW_LENGTHS] == [3, 1]
    assert all(torch.equal(halved[name], plain[name]) for name in ("input_ids", "labels", "position_ids", ROW_ENDS))
    nothing = PackedBatch()([filler, filler])
    assert nothing[ROW_LENGTHS] == [3] and int(nothing[FILLER_TOKENS]) == 3


@pytest.mark.real
def test_the_gradient_of_a_step_is_that_of_padded_rows(tmp_path: Path) -> None:
    """fp32, dropout off, two processes with DistributedDataParallel, masked and causal."""
    launched = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    words = [*launched, "-m", "tests.core.training.packed_gradients", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    for model, found in json.loads((tmp_path / "gradients.json").read_text()).items():
        assert found["norm"] > 0 and found["apart"] <= 1e-5, (model, found)
        assert found["packed"] < 0.95 * found["padded"], f"{model}: nothing was packed"


@pytest.mark.real
def test_a_packed_run_keeps_the_rows_of_each_step_and_counts_what_is_real(tmp_path: Path) -> None:
    """Two epochs with steps of one micro-batch, resumed in the middle of the second with half the micro-batch."""
    steps = 2 * -(-107 // 8)
    sizes = {"batch__micro_batch_size": 8, "batch__gradient_accumulation_steps": 1, "batch__sequence_length": 300}
    config = tiny_config(training__max_steps=steps, checkpoint__every_steps=20, data__packing=True, **sizes)
    folder = write_run(tmp_path / "packed", config)
    assert launch(folder, config) == 0, (folder / "train.log").read_text()[-3000:]
    assert "packing: rows end to end equal padded rows" in (folder / "train.log").read_text()
    assert json.loads((folder / "engine.json").read_text())["attention"] == "sdpa"
    whole = samples(folder)
    losses = {line["step"]: line["loss"] for line in metrics(folder) if "loss" in line}
    assert sorted(whole) == list(range(1, steps + 1)) and sum(len(one["rows"]) for one in whole.values()) == 2 * 107
    half = {"batch.micro_batch_size": 4, "batch.gradient_accumulation_steps": 2}
    smaller = config.with_values(half, "you")
    again = write_run(tmp_path / "again", smaller)
    (folder / "checkpoint-20").rename(again / "checkpoint-20")
    assert launch(again, smaller, "--resume", "checkpoint-20") == 0, (again / "train.log").read_text()[-3000:]
    resumed = samples(again)
    assert resumed == {step: whole[step] for step in range(21, steps + 1)}
    lines = [line for line in metrics(again) if "loss" in line]
    assert [line["loss"] for line in lines] == pytest.approx([losses[line["step"]] for line in lines], rel=1e-4)
    assert all(line["tokens"] == line["real_tokens"] for line in lines)
