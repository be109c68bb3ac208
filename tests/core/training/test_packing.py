"""Rows end to end: what transformers makes of them equals the same rows apart, and a run keeps the rows of each step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from trainwiz.core.catalog.model_config import TRIED
from trainwiz.core.training.batches import (
    FILLER_TOKENS,
    IGNORED,
    LONGEST,
    ROW_ENDS,
    FillerRow,
    packed_batch,
)
from trainwiz.core.training.chunked_logits import let_logits_be_read
from trainwiz.core.training.evaluation import StepLoss
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    PreTrainedModel,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import flash_attention_mask

from tests.core.training.recording import samples
from tests.core.training.runs import CHAT, losses, resumed, steps_of, text_config, train, write_run

VOCABULARY = 40
SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 32, "vocab_size": VOCABULARY, "max_position_embeddings": 400, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY, "n_positions": 400}
OWN: dict[str, dict[str, Any]] = {
    "gpt2": GPT,
    **{kind: {**SMALL, "head_dim": 8} for kind in ("helium", "ministral")},
    "gpt_bigcode": GPT,
    "esm": {**SMALL, "position_embedding_type": "rotary", "mask_token_id": 32, "pad_token_id": 1},
}
OFTEN = ("gpt2", "qwen3")
Row = tuple[np.ndarray, np.ndarray]


def by_the_ends_of_rows(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: None, **kwargs: Any
) -> tuple[torch.Tensor, None]:
    """What FlashAttention does with the keywords that a model hands on to it."""
    assert mask is None
    if "cu_seq_lens_q" not in kwargs:
        return sdpa_attention_forward(module, query, key, value, None, **kwargs)
    assert torch.equal(kwargs["cu_seq_lens_q"], kwargs["cu_seq_lens_k"])
    lengths = kwargs["cu_seq_lens_q"].diff().tolist()
    assert kwargs["max_length_q"] == kwargs["max_length_k"] == max(lengths)
    rows = zip(*(part.split(lengths, dim=2) for part in (query, key, value)), strict=True)
    return torch.cat([sdpa_attention_forward(module, *row, None, **kwargs)[0] for row in rows], dim=1), None


AttentionInterface.register("by_the_ends_of_rows", by_the_ends_of_rows)
AttentionMaskInterface.register("by_the_ends_of_rows", flash_attention_mask)


def rows_of(*lengths: int) -> list[Row]:
    random = np.random.default_rng(3)
    return [(random.integers(4, VOCABULARY, n), random.integers(4, VOCABULARY, n)) for n in lengths]


def tiny_model(kind: str, attention: str, **changes: Any) -> PreTrainedModel:
    values = {**OWN.get(kind, SMALL), **changes}
    maker: Any = AutoModelForMaskedLM if kind == "esm" else AutoModelForCausalLM
    torch.manual_seed(0)
    model: PreTrainedModel = maker.from_config(AutoConfig.for_model(kind, **values), attn_implementation=attention)
    with torch.no_grad():
        for weight in model.parameters():
            # Attention of a new model is all but uniform: what it sees would hardly matter.
            weight.mul_(3 if weight.ndim > 1 else 1)
    return model.eval()


def learnt(model: PreTrainedModel, batches: list[dict[str, Any]]) -> tuple[torch.Tensor, torch.Tensor]:
    """(losses of all tokens in their order, gradient of their sum) with `batches` computed one by one."""
    model.zero_grad()
    losses = []
    for batch in batches:
        inputs = dict(batch)
        labels = inputs.pop("labels").flatten()
        logits = model(**inputs, use_cache=False).logits.flatten(0, 1).float()
        losses.append(cross_entropy(logits, labels, reduction="none"))
        losses[-1].sum().backward()
    gradients = [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
    return torch.cat(losses).detach(), torch.cat(gradients)


def apart(model: PreTrainedModel) -> tuple[float, float]:
    """Relative difference of losses and gradients, packed against the same rows each by itself."""
    rows = rows_of(40, 25, 3, 60)
    pairs = [(torch.from_numpy(tokens)[None], torch.from_numpy(labels)[None]) for tokens, labels in rows]
    alone = [{"input_ids": tokens, "labels": labels} for tokens, labels in pairs]
    expected, packed = learnt(model, alone), learnt(model, [packed_batch(rows)])
    one, two = (float((a - b).norm() / b.norm()) for a, b in zip(packed, expected, strict=True))
    return one, two


@pytest.mark.parametrize("attention", ["eager", "sdpa", "by_the_ends_of_rows"])
@pytest.mark.parametrize(
    "kind", [one if one in OFTEN else pytest.param(one, marks=pytest.mark.all) for one in sorted(TRIED)]
)
def test_packed_rows_learn_what_the_same_rows_learn_apart(kind: str, attention: str) -> None:
    try:
        model = tiny_model(kind, attention)
    except ValueError as error:
        pytest.skip(f"{kind}: {error}"[:100])
    losses, gradients = apart(model)
    assert losses < 1e-5 and gradients < 1e-4
    # The plan chooses slices of the logits for them by itself.
    whole: Any = model
    tokens, found = torch.randint(4, VOCABULARY, (3, 11)), []
    for chunk in (None, 4) if attention == "sdpa" else ():
        let_logits_be_read(whole, chunk)
        loss = StepLoss(0.0, chunk)
        found.append(loss(whole(input_ids=tokens, **loss.keywords(tokens)), tokens, torch.tensor(33)))
    assert not found or torch.allclose(*found, rtol=1e-5)


def test_a_window_counts_from_the_beginning_of_its_own_row_and_a_model_that_looks_both_ways_may_not_pack() -> None:
    losses, gradients = apart(tiny_model("mistral", "sdpa", sliding_window=10))
    assert losses < 1e-5 and gradients < 1e-4
    losses, _ = apart(tiny_model("esm", "sdpa", token_dropout=False))
    assert losses > 1e-2 and "esm" not in TRIED


@pytest.mark.real
def test_a_packed_run_keeps_the_rows_of_each_step_and_counts_what_is_real(tmp_path: Path) -> None:
    """Steps of one micro-batch, resumed with half the micro-batch."""
    steps = 8
    sizes = {"batch__micro_batch_size": 8, "batch__gradient_accumulation_steps": 1, "batch__sequence_length": 300}
    rows = {"data__sources": [{**CHAT[0], "max_rows": 60}], "data__concatenate": False, "data__packing": True}
    config = text_config("gpt2-tiny", training__max_steps=steps, checkpoint__every_steps=5, **rows, **sizes)
    folder = write_run(tmp_path / "packed", config)
    train(folder, config, recording=True)
    assert json.loads((folder / "engine.json").read_text())["attention"] == "sdpa"
    whole = samples(folder)
    assert sorted(whole) == list(range(1, steps + 1)) and max(len(one["rows"]) for one in whole.values()) == 8
    half = {"batch.micro_batch_size": 4, "batch.gradient_accumulation_steps": 2}
    smaller = config.with_values(half, "you")
    again = resumed(folder, tmp_path / "again", smaller, 5, recording=True)
    assert samples(again) == {step: whole[step] for step in range(6, steps + 1)}
    assert losses(again) == pytest.approx(losses(folder, after=5), rel=1e-4)
    assert all(line["tokens"] == line["real_tokens"] for line in steps_of(again).values())


def test_a_batch_end_to_end() -> None:
    first, second, third = rows_of(3, 1, 2)
    filler = FillerRow((first[0], np.full(3, IGNORED)))
    batch = packed_batch([first, filler, second, third])
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 0, 1]] and batch[ROW_ENDS[1]].tolist() == [0, 3, 4, 6]
    assert batch["labels"].tolist() == [[*first[1], *second[1], *third[1]]] and FILLER_TOKENS not in batch
    assert [batch[name] for name in LONGEST] == [3, 3]
    nothing = packed_batch([filler, filler])
    assert nothing[ROW_ENDS[0]].tolist() == [0, 3] and int(nothing[FILLER_TOKENS]) == 3
