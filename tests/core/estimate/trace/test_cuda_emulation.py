"""What CUDA and the optimizers do, by the bytes that it costs; and that all of it is put back afterwards."""

import pytest
import torch
from torch.nn import functional
from trainwiz.core.estimate.trace.emulation import emulated
from trainwiz.core.estimate.trace.ledger import Ledger
from trainwiz.core.tracing.request import TraceRequest, TraceResult

from tests.core.estimate.trace.requests import ESM, GPT2, LLAMA, T5, request, traced
from tests.each import each

ELEMENTS = 4 * 128 * 256
"""Of one stream of a request as it is."""
BF16, FP32 = 2, 4


def kept(asked: TraceRequest) -> int:
    """Activations when the model is through with the forward pass."""
    return moment(traced(asked), "the loss")["activations"]


def moment(result: TraceResult, name: str) -> dict[str, int]:
    return next(moment.parts for moment in result.training if moment.name == name)


def of_one_layer(config: dict, **settings: object) -> int:
    """Activations that one layer keeps."""
    key = next(key for key in ("num_hidden_layers", "n_layer") if key in config)
    return kept(request({**config, key: 2}, **settings)) - kept(request({**config, key: 1}, **settings))


def test_a_mask_of_dropout_is_one_byte_an_element_on_cuda() -> None:
    for device, size in (("cuda", 1), ("cpu", BF16)):
        dropped = of_one_layer({**GPT2, "resid_pdrop": 0.1}, device=device)
        # Two of them in a layer, each in the format of the product before it.
        assert dropped - of_one_layer(GPT2, device=device) == 2 * ELEMENTS * size


@each(("device", "dtype"), [("cuda", torch.float32), ("cpu", torch.bfloat16)])
def test_norms_and_softmax_are_in_fp32_under_cuda_autocast(device: str, dtype: torch.dtype) -> None:
    half = torch.ones(2, 8, dtype=torch.bfloat16)
    with emulated(device, Ledger(512)), torch.autocast("cpu", dtype=torch.bfloat16):
        assert functional.layer_norm(half, (8,)).dtype == dtype
        assert half.sum(-1).dtype == dtype
        assert (half**2).dtype == dtype
        assert functional.linear(half.float(), torch.ones(8, 8)).dtype == torch.bfloat16


def test_attention() -> None:
    """Fused it keeps no scores; eager, and on Apple GPUs, it does; FlashAttention-2 needs no package."""
    masked = {"task": "masked-lm", "length": 512, "micro_batch": 1}
    long = of_one_layer(ESM, **masked)
    scores, logarithms = 8 * 512 * 512, 8 * 512
    assert of_one_layer(ESM, **masked, attention="eager") - long == scores * (FP32 + BF16) - logarithms * FP32
    assert of_one_layer(ESM, **masked, device="mps") - long > 0.75 * scores * BF16
    flash, sdpa = (traced(request(LLAMA, attention=name, padded=False)) for name in ("flash_attention_2", "sdpa"))
    assert flash.allocated_bytes == pytest.approx(sdpa.allocated_bytes, rel=0.02)


def test_a_padded_batch_keeps_a_mask_for_each_layer() -> None:
    padded, joined = (of_one_layer(LLAMA, padded=padded) for padded in (True, False))
    grouped = 2 * 4 * 128 * 8 * 32 * BF16
    # Grouped heads are repeated where there is a mask, and the mask is made into a bias of half precision.
    assert padded - joined == pytest.approx(4 * 128 * 128 * BF16 + grouped // 2, rel=0.02)
    assert kept(request(LLAMA, padded=True, micro_batch=1)) == kept(request(LLAMA, padded=False, micro_batch=1))
    # Checkpointing keeps one stream for each layer and no mask.
    assert of_one_layer(LLAMA, checkpointing=True, padded=True) == ELEMENTS * FP32


def test_autocast_copies_weights_until_the_forward_pass_ends_and_logits_to_fp32() -> None:
    end = "the end of the forward pass"
    deep = {**LLAMA, "num_hidden_layers": 4}
    linear = 4 * (256 * (256 + 128 + 128 + 256) + 3 * 256 * 688) + 2000 * 256
    copies = moment(traced(request(deep, checkpointing=True)), end)["temporary"]
    assert copies == pytest.approx(linear * BF16, rel=0.01)
    assert moment(traced(request(LLAMA, precision="fp32")), end)["temporary"] == 0
    logits = moment(traced(request(LLAMA)), end)["logits"]
    assert logits == pytest.approx(4 * 128 * 2000 * (BF16 + FP32), rel=0.001)


def test_logits_in_slices_are_never_whole_and_targets_have_their_own_length() -> None:
    large = {**LLAMA, "vocab_size": 50_000}
    whole, sliced = (
        max(moment.parts["logits"] for moment in traced(request(large, loss_chunk=chunk)).training)
        for chunk in (None, 64)
    )
    assert whole > 2 * FP32 * 4 * 128 * 50_000 and sliced < 0.6 * FP32 * 4 * 128 * 50_000
    long, short = (
        moment(traced(request(T5, task="seq2seq", target_length=target)), "the loss")["logits"] for target in (128, 64)
    )
    assert long == pytest.approx(2 * short, rel=0.01)


STEP = "the optimizer step"
UNTIED = {**LLAMA, "tie_word_embeddings": False}
LORA = {"lora_rank": 8, "lora_targets": ("q_proj", "v_proj"), "half_weights": True}


@each(
    ("optimizer", "states", "temporary"),
    [("adamw_torch_fused", 2, 0), ("adamw_torch", 2, 1), ("adafactor", 0.015, None), ("sgd", 0, None)],
)
def test_states_and_copies_of_optimizers_beside_fp32_weights(
    optimizer: str, states: float, temporary: float | None
) -> None:
    parts = moment(traced(request(UNTIED, optimizer=optimizer)), STEP)
    assert parts["optimizer"] == pytest.approx(states * parts["weights"], rel=0.01, abs=0.015 * parts["weights"])
    if temporary is not None:
        assert parts["temporary"] == pytest.approx(temporary * parts["weights"], abs=0.02 * parts["weights"])


def test_8_bit_adam_keeps_two_bytes_but_for_embeddings() -> None:
    table, norms = 2000 * 256, 5 * 256
    eight_bit = traced(request(UNTIED)).parameters - table - norms
    usual, paged = (
        moment(traced(request(UNTIED, optimizer=name)), STEP)["optimizer"]
        for name in ("adamw_bnb_8bit", "paged_adamw_8bit")
    )
    assert usual == pytest.approx(8 * (table + norms) + 2 * eight_bit * (1 + 4 / 256), rel=0.01)
    assert paged < 0.2 * usual, "pages are not counted"


def test_whose_gradients_there_are() -> None:
    forward = traced(request(UNTIED, accumulation=2)).training[0]
    assert forward.name == "the forward pass", "those of earlier micro-batches are there from the start"
    assert forward.parts["gradients"] == pytest.approx(forward.parts["weights"], rel=0.01)
    assert traced(request(UNTIED)).training[0].parts["gradients"] == 0
    adapted = traced(request(UNTIED, **LORA, lora_dropout=True))
    assert adapted.trainable_parameters == 2 * (8 * (256 + 256) + 8 * (256 + 128))
    assert moment(adapted, STEP)["gradients"] == pytest.approx(4 * adapted.trainable_parameters, rel=0.01)
    # DeepSpeed holds everything in half precision and needs no autocast.
    usual, half = (moment(traced(request(LLAMA, **LORA, deepspeed=one)), STEP)["gradients"] for one in (False, True))
    assert usual == pytest.approx(2 * half, rel=0.1)


def evaluated(asked: TraceRequest) -> dict[str, dict[str, int]]:
    return {moment.name: moment.parts for moment in traced(asked).evaluation}


def test_an_evaluation_has_weights_and_states_but_no_gradients_and_no_activations_of_layers() -> None:
    assert evaluated(request(LLAMA)) == {}, "nothing held out is nothing to evaluate"
    parts = evaluated(request(ESM, task="masked-lm", eval_micro_batch=8))["an evaluation"]
    assert parts["gradients"] == 0
    assert parts["optimizer"] == pytest.approx(2 * parts["weights"], rel=0.01)
    flat, deep = (
        evaluated(request({**LLAMA, "num_hidden_layers": layers}, eval_micro_batch=8, precision="fp32"))
        for layers in (2, 4)
    )
    assert flat["an evaluation"]["activations"] == deep["an evaluation"]["activations"]


def test_logits_of_an_evaluation() -> None:
    sliced, whole = (
        evaluated(request({**LLAMA, "vocab_size": 50_000}, eval_micro_batch=8, loss_chunk=chunk))
        for chunk in (128, None)
    )
    name = "the logits of an evaluation"
    assert sliced[name]["logits"] < 0.3 * whole[name]["logits"] and whole[name]["logits"] > 4 * 8 * 128 * 50_000


def test_nothing_of_the_emulation_stays() -> None:
    def seen() -> list[object]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            norm = functional.layer_norm(torch.nn.Linear(8, 8)(torch.ones(2, 8)), (8,))
        return [
            norm.dtype, functional.dropout, functional.softmax, functional.rms_norm, torch.dropout,
            functional.scaled_dot_product_attention, torch.nn.Module._apply,
        ]  # fmt: skip

    before = seen()
    # Of no other test here, so that it is really traced now.
    traced(request(LLAMA, length=40))
    assert seen() == before and before[0] == torch.bfloat16
