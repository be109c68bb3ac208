"""The loss: that of the models themselves, and in slices of the vocabulary product the same numbers without the logits."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode
from trainwiz.core.errors import UsageError
from trainwiz.core.estimate import activations as logit_slices
from trainwiz.core.training.batches import IGNORED
from trainwiz.core.training.chunked_logits import READER, VocabularyProduct, let_logits_be_read
from trainwiz.core.training.evaluation import StepLoss, batch_sums
from trainwiz.core.training.model import build_model, decoder_only, encoder_decoder
from trainwiz.core.training.tokens import next_tokens
from trainwiz.core.training.weights import MODEL_CLASSES
from transformers import AutoConfig, PreTrainedModel

from tests.core.training.runs import text_config
from tests.core.training.tokenizers_for_tests import small_tokenizer
from tests.each import each

VOCABULARY = 211
WIDTH = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
LAYERS = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
          "encoder_attention_heads": 4, "decoder_attention_heads": 4, "pad_token_id": 0,
          "decoder_start_token_id": 0}  # fmt: skip
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
GQA = {**WIDTH, "num_key_value_heads": 2}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("causal-lm", "llama", GQA),
    "llama, tied": ("causal-lm", "llama", {**GQA, "tie_word_embeddings": True}),
    "gpt2": ("causal-lm", "gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4}),
    "qwen2": ("causal-lm", "qwen2", GQA),
    "phi, bias in the head": ("causal-lm", "phi", WIDTH),
    "gemma2, capped": ("causal-lm", "gemma2", {**GQA, "head_dim": 8, "final_logit_softcapping": 3.0}),
    "cohere, scaled": ("causal-lm", "cohere", {**GQA, "logit_scale": 0.5}),
    "granite, divided": ("causal-lm", "granite", {**GQA, "logits_scaling": 3.0}),
    "t5, tied and scaled": ("seq2seq", "t5", T5),
    "t5, untied": ("seq2seq", "t5", {**T5, "tie_word_embeddings": False, "feed_forward_proj": "gated-gelu"}),
    "marian, bias after the head": ("seq2seq", "marian", LAYERS),
    "m2m_100": ("seq2seq", "m2m_100", LAYERS),
    "esm, bias after the head": ("masked-lm", "esm", {**WIDTH, "pad_token_id": 1, "mask_token_id": 5}),
}


def tiny_model(name: str, seed: int = 0) -> PreTrainedModel:
    """Without dropout; every bias is drawn, since models start with zeros, which hide a bias that is left out."""
    task, kind, values = MODELS[name]
    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind, vocab_size=VOCABULARY, **values)
    model: PreTrainedModel = MODEL_CLASSES[task].from_config(config).eval()
    for key, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if key.endswith("bias") or key == "final_logits_bias":
            tensor.data.normal_(std=0.5)
    return model


def batch_of(model: Any, rows: int = 3, length: int = 11) -> tuple[dict[str, Any], torch.Tensor]:
    """Inputs with padding, and labels of which some rows have few."""
    tokens = torch.randint(6, VOCABULARY, (rows, length))
    labels = torch.randint(6, VOCABULARY, (rows, length))
    labels[0, 2:], labels[1, :3] = IGNORED, IGNORED
    tokens[1, :4] = 5
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    inputs["attention_mask"][0, 8:] = 0
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(6, VOCABULARY, (rows, length))
    return inputs, labels


def step(model: Any, chunk: int | None, smoothing: float = 0.0) -> tuple[float, dict[str, Any]]:
    """Loss and gradients of one batch."""
    let_logits_be_read(model, chunk)
    torch.manual_seed(3)
    inputs, labels = batch_of(model)
    loss = StepLoss(smoothing, chunk)
    outputs = model(**inputs, **loss.keywords(labels))
    value = loss(outputs, labels, torch.tensor(40))
    value.backward()
    return value.item(), {name: weight.grad for name, weight in model.named_parameters()}


def difference(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """Norm of the difference as a share of the norm; the same weights must have a gradient."""
    learnt = [name for name, grad in theirs.items() if grad is not None]
    assert learnt and learnt == [name for name, grad in ours.items() if grad is not None]
    one, two = (torch.cat([side[name].double().flatten() for name in learnt]) for side in (ours, theirs))
    return float((one - two).norm() / two.norm())


@each("name", MODELS)
def test_loss_gradients_and_evaluation_are_those_of_the_whole_logits_and_no_more_than_a_slice_is_made(
    name: str,
) -> None:
    model: Any = tiny_model(name)
    for smoothing, chunks in ((0.0, (4,)), (0.1, (1, 1000))):
        plain, gradients = step(copy.deepcopy(model), None, smoothing)
        for chunk in chunks:
            sliced, ours = step(copy.deepcopy(model), chunk, smoothing)
            assert sliced == pytest.approx(plain, rel=1e-6)
            assert difference(ours, gradients) < 1e-6
    inputs, labels = batch_of(model)
    sums = []
    for whole_or_slice, rows in ((None, 33), (4, 4)):
        let_logits_be_read(model, whole_or_slice)
        loss = StepLoss(0.1, whole_or_slice)
        with Largest(model) as training:
            loss(model(**inputs, **loss.keywords(labels)), labels).backward()
        with Largest(model) as evaluation, torch.no_grad():
            sums.append(batch_sums(model, inputs, labels))
        assert training.elements == evaluation.elements == rows * VOCABULARY
    assert torch.allclose(*sums, rtol=1e-5)


@each("targets", [["q_proj", "v_proj"], ["q_proj", "lm_head"]])
def test_adapters_also_on_the_last_layer_itself(targets: list[str]) -> None:
    torch.manual_seed(1)
    settings = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=targets, init_lora_weights=False)
    model = get_peft_model(tiny_model("llama"), settings)
    plain, gradients = step(copy.deepcopy(model), None)
    sliced, ours = step(copy.deepcopy(model), 4)
    assert any("lora_A" in name and grad is not None for name, grad in ours.items())
    assert all(grad is None for name, grad in ours.items() if "lora_" not in name)
    assert sliced == pytest.approx(plain, rel=1e-6)
    assert difference(ours, gradients) < 1e-6


class Largest(TorchDispatchMode):
    """Most elements of a tensor of VOCABULARY columns that any operation makes, transposed weights aside."""

    def __init__(self, model: torch.nn.Module, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.dtype = dtype
        self.weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
        self.elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if not isinstance(tensor, torch.Tensor) or tensor.ndim < 2 or tensor.shape[-1] != VOCABULARY:
                continue
            if self.dtype in (None, tensor.dtype) and tensor.untyped_storage().data_ptr() not in self.weights:
                self.elements = max(self.elements, tensor.numel())
        return made


def test_a_batch_without_labels_has_a_loss_of_zero_and_gradients() -> None:
    model: Any = tiny_model("esm, bias after the head")
    inputs, labels = batch_of(model)
    labels[:] = IGNORED
    let_logits_be_read(model, 4)
    loss = StepLoss(0.0, 4)
    value = loss(model(**inputs, **loss.keywords(labels)), labels)
    value.backward()
    assert value.item() == 0.0
    # Nor has a window of them.
    outputs: Any = type("Outputs", (), {"logits": torch.randn(3, 11, 9)})
    assert [StepLoss(0.1, None)(outputs, labels, count).item() for count in (None, 0, torch.tensor(0))] == [0.0] * 3
    assert not model.lm_head.bias.grad.any() and not model.lm_head.decoder.weight.grad.any()


def test_what_is_not_known_is_refused_in_one_sentence() -> None:
    head = torch.nn.Linear(4, 9)
    product = VocabularyProduct(head, torch.zeros(2, 3, 4), 2)
    for use in (
        lambda: product[:, 0],
        lambda: product[..., 0],
        lambda: product.softmax(-1),
        lambda: product + torch.zeros(2, 3, 9),
        lambda: torch.softmax(product, -1),  # type: ignore[call-overload]
    ):
        with pytest.raises(UsageError, match=r"Linear cannot be computed in chunks .* remove training\.loss_chunk"):
            use()
    bare: Any = torch.nn.Module()
    bare.get_output_embeddings = lambda: None
    with pytest.raises(UsageError, match="loss_chunk"):
        let_logits_be_read(bare, 4)


@each("reentrant", [False, True])
def test_with_recomputed_activations(reentrant: bool) -> None:
    model = tiny_model("llama").train()
    model.config.use_cache = False
    plain, gradients = step(copy.deepcopy(model), None)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    sliced, ours = step(model, 4)
    assert sliced == pytest.approx(plain, rel=1e-6)
    assert difference(ours, gradients) < 1e-6


def test_the_head_is_called_equally_often_however_many_slices_there_are() -> None:
    """Each call gathers its weights from all processes under ZeRO-3."""
    model: Any = tiny_model("llama")
    seen: list[str] = []
    model.lm_head.register_forward_pre_hook(lambda head, given: seen.append("called"))
    counts = []
    for chunk in (1, 4, 1000):
        seen.clear()
        step(model, chunk)
        training = len(seen)
        inputs, labels = batch_of(model)
        with torch.no_grad():
            batch_sums(model, inputs, labels)
        counts.append((training, len(seen) - training))
    assert counts == [(2, 2)] * 3


def test_types_that_cannot_be_sliced_are_known_beforehand() -> None:
    assert logit_slices.slicing_problem("llama") is None
    assert "fsmt" in (logit_slices.slicing_problem("fsmt") or "")
    config = AutoConfig.for_model("fsmt", src_vocab_size=50, tgt_vocab_size=50, langs=["en", "de"], **LAYERS)
    model = MODEL_CLASSES["seq2seq"].from_config(config)
    with pytest.raises(UsageError, match=r"remove training\.loss_chunk"):
        let_logits_be_read(model, 4)
        tokens = torch.ones(1, 3, dtype=torch.int64)
        model(input_ids=tokens, decoder_input_ids=tokens, **{READER: lambda logits: logits})


def test_evaluation_in_half_precision_makes_no_float32_copy_of_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """accelerate copies what comes out of a model to float32: the logits must not come out."""
    model = tiny_model("qwen2")
    inputs, labels = batch_of(model)
    let_logits_be_read(model, None)
    prepared: Any = Accelerator(cpu=True, mixed_precision="bf16").prepare_model(model, evaluation_mode=True)
    monkeypatch.setattr(logit_slices, "EVALUATION_SLICE_BYTES", 5 * logit_slices.COPY_BYTES * VOCABULARY)
    with Largest(model, torch.float32) as without, torch.no_grad():
        sums = batch_sums(prepared, inputs, labels)
    with Largest(model, torch.float32) as usual, torch.no_grad():
        logits = prepared(**inputs).logits
    assert (without.elements, usual.elements) == (5 * VOCABULARY, 33 * VOCABULARY)
    expected = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), labels.flatten(), reduction="sum")
    assert sums[0].item() == pytest.approx(expected.item(), rel=1e-3)


@each("name", ["t5-chat-tiny", "opus-mt-tiny", "nllb-tiny", "gpt2-tiny", "llama-tiny"])
def test_the_loss_is_that_of_the_model_itself(name: str, tmp_path: Path) -> None:
    config = text_config(name)
    pairs = config.task == "seq2seq"
    tokenizer = small_tokenizer(tmp_path, ends_texts=pairs)
    pad = int(tokenizer.pad_token_id)
    model: Any = build_model(config, None, tmp_path, tokenizer).eval()
    torch.manual_seed(1)
    batch = {"input_ids": torch.randint(5, 300, (3, 7)), "labels": torch.randint(5, 300, (3, 6))}
    batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    batch["attention_mask"][0, 5:], batch["input_ids"][0, 5:] = 0, pad
    batch["labels"][1, 3:] = IGNORED
    labelled = torch.arange(7) >= 2
    if not pairs:
        batch["labels"] = torch.where(labelled, batch["input_ids"], IGNORED)
    with torch.no_grad():
        own = model(**batch).loss
        if pairs:
            inputs = encoder_decoder(batch, model)
            shifted = inputs["decoder_input_ids"]
            assert (shifted[:, 0] == model.config.decoder_start_token_id).all()
            assert shifted[1].tolist()[4:] == [pad] * 2
        else:
            rows = [next_tokens(row.numpy(), labelled.numpy()) for row in batch["input_ids"]]
            inputs = decoder_only({**batch, "labels": torch.stack([torch.from_numpy(row) for row in rows])}, model)
        labels = inputs.pop("labels")
        outputs = model(**inputs)
    assert pairs or outputs.past_key_values is None
    assert StepLoss(0.0, None)(outputs, labels).item() == pytest.approx(own.item(), rel=1e-5)
