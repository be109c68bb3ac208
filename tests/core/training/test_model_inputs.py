"""What an encoder-decoder reads: our loss is the model's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from trainwiz.core.training.batches import IGNORED
from trainwiz.core.training.evaluation import StepLoss
from trainwiz.core.training.model import build_model, decoder_only, encoder_decoder
from trainwiz.core.training.tokens import next_tokens

from tests.core.training.runs import text_config
from tests.core.training.tokenizers_for_tests import small_tokenizer


def _batch(pad: int) -> dict[str, Any]:
    torch.manual_seed(1)
    batch = {"input_ids": torch.randint(5, 300, (3, 7)), "labels": torch.randint(5, 300, (3, 6))}
    batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    batch["attention_mask"][0, 5:] = 0
    batch["input_ids"][0, 5:] = pad
    batch["labels"][1, 3:] = IGNORED
    return batch


@pytest.mark.parametrize("name", ["t5-chat-tiny", "opus-mt-tiny", "nllb-tiny"])
def test_the_loss_of_an_encoder_decoder_is_its_own(name: str, tmp_path: Path) -> None:
    tokenizer = small_tokenizer(tmp_path, ends_texts=True)
    model: Any = build_model(text_config(name), None, tmp_path, tokenizer).eval()
    batch = _batch(int(tokenizer.pad_token_id))
    inputs = encoder_decoder(batch, model)
    shifted = inputs["decoder_input_ids"]
    assert (shifted[:, 0] == model.config.decoder_start_token_id).all()
    assert shifted[1].tolist()[4:] == [tokenizer.pad_token_id] * 2
    with torch.no_grad():
        own = model(**batch).loss
        labels = inputs.pop("labels")
        ours = StepLoss(0.0, None)(model(**inputs), labels)
    assert ours.item() == pytest.approx(own.item(), rel=1e-5)


@pytest.mark.parametrize("name", ["gpt2-tiny", "qwen2-tiny", "llama-tiny"])
def test_the_loss_of_a_causal_model_is_its_own(name: str, tmp_path: Path) -> None:
    model: Any = build_model(text_config(name), None, tmp_path, small_tokenizer(tmp_path)).eval()
    batch = _batch(0)
    tokens = batch["input_ids"].clone()
    labelled = torch.arange(7) >= 2
    batch["labels"] = torch.where(labelled, tokens, IGNORED)
    with torch.no_grad():
        own = model(**batch).loss
        batch["labels"] = torch.stack([torch.from_numpy(next_tokens(row.numpy(), labelled.numpy())) for row in tokens])
        inputs = decoder_only(batch, model)
        labels = inputs.pop("labels")
        outputs = model(**inputs)
    assert outputs.past_key_values is None
    assert StepLoss(0.0, None)(outputs, labels).item() == pytest.approx(own.item(), rel=1e-5)


def test_a_window_without_a_label_has_no_loss() -> None:
    class Outputs:
        logits = torch.randn(1, 4, 9)

    labels = torch.full((1, 4), IGNORED)
    for count in (None, 0, torch.tensor(0)):
        assert StepLoss(0.1, None)(Outputs(), labels, count).item() == 0.0
