"""What CUDA does and the CPU does not, by the bytes that it costs; and that all of it is put back afterwards."""

import pytest
import torch
from torch.nn import functional
from trainwiz.core.estimate.trace.emulation import emulated
from trainwiz.core.estimate.trace.ledger import Ledger
from trainwiz.core.estimate.trace.tracker import Tracker
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


def without_layers(config: dict, layers: int) -> dict:
    return {**config, next(key for key in ("num_hidden_layers", "n_layer") if key in config): layers}


def of_one_layer(config: dict, **settings: object) -> int:
    """Activations that one layer keeps."""
    return kept(request(without_layers(config, 3), **settings)) - kept(request(without_layers(config, 2), **settings))


def test_a_mask_of_dropout_is_one_byte_an_element_on_cuda() -> None:
    for device, size in (("cuda", 1), ("cpu", BF16)):
        dropped = of_one_layer({**GPT2, "resid_pdrop": 0.1}, device=device)
        # Two of them in a layer, each in the format of the product before it.
        assert dropped - of_one_layer(GPT2, device=device) == 2 * ELEMENTS * size


@each(("device", "dtype"), [("cuda", torch.float32), ("cpu", torch.bfloat16)])
def test_norms_and_softmax_are_in_fp32_under_cuda_autocast(device: str, dtype: torch.dtype) -> None:
    half = torch.ones(2, 8, dtype=torch.bfloat16)
    with emulated(device, Tracker(Ledger(512))), torch.autocast("cpu", dtype=torch.bfloat16):
        assert functional.layer_norm(half, (8,)).dtype == dtype
        assert half.sum(-1).dtype == dtype
        assert (half**2).dtype == dtype
        assert functional.linear(half.float(), torch.ones(8, 8)).dtype == torch.bfloat16


def test_fused_attention_keeps_no_scores() -> None:
    short = of_one_layer(ESM, task="masked-lm", length=128, micro_batch=1)
    long = of_one_layer(ESM, task="masked-lm", length=512, micro_batch=1)
    assert long == pytest.approx(4 * short, rel=0.01)
    eager = of_one_layer(ESM, task="masked-lm", length=512, micro_batch=1, attention="eager")
    scores, logarithms = 8 * 512 * 512, 8 * 512
    assert eager - long == scores * (FP32 + BF16) - logarithms * FP32


def test_attention_keeps_its_scores_on_apple_gpus() -> None:
    fused, plain = (of_one_layer(ESM, task="masked-lm", length=512, device=device) for device in ("cuda", "mps"))
    assert plain - fused > 3 * 8 * 512 * 512 * BF16


def test_flash_attention_2_needs_no_package_and_costs_what_sdpa_does_without_padding() -> None:
    flash = traced(request(LLAMA, attention="flash_attention_2", padded=False))
    sdpa = traced(request(LLAMA, attention="sdpa", padded=False))
    assert flash.allocated_bytes == pytest.approx(sdpa.allocated_bytes, rel=0.02)


def test_a_padded_batch_keeps_a_mask_for_each_layer() -> None:
    padded, joined = (of_one_layer(LLAMA, padded=padded) for padded in (True, False))
    grouped = 2 * 4 * 128 * 8 * 32 * BF16
    # Grouped heads are repeated where there is a mask, and the mask is made into a bias of half precision.
    assert padded - joined == pytest.approx(4 * 128 * 128 * BF16 + grouped // 2, rel=0.02)
    assert of_one_layer(LLAMA, padded=True, micro_batch=1) == of_one_layer(LLAMA, padded=False, micro_batch=1)


def test_checkpointing_keeps_one_stream_for_each_layer_and_no_mask() -> None:
    for padded in (True, False):
        assert of_one_layer(LLAMA, checkpointing=True, padded=padded) == ELEMENTS * FP32


def test_autocast_holds_copies_of_the_weights_until_the_forward_pass_ends() -> None:
    result = traced(request(LLAMA, checkpointing=True))
    linear = 4 * (256 * (256 + 128 + 128 + 256) + 3 * 256 * 688) + 2000 * 256
    assert moment(result, "the end of the forward pass")["temporary"] == pytest.approx(linear * BF16, rel=0.01)
    assert moment(traced(request(LLAMA, precision="fp32")), "the end of the forward pass")["temporary"] == 0


def test_logits_under_autocast_are_made_in_half_precision_and_copied_to_fp32() -> None:
    logits = 4 * 128 * 2000
    parts = moment(traced(request(LLAMA)), "the end of the forward pass")
    assert parts["logits"] == pytest.approx(logits * (BF16 + FP32), rel=0.001)


def test_a_loss_in_slices_never_has_the_logits_whole() -> None:
    whole = traced(request({**LLAMA, "vocab_size": 50_000}))
    sliced = traced(request({**LLAMA, "vocab_size": 50_000}, loss_chunk=32))
    logits = 4 * 128 * 50_000
    assert max(moment.parts["logits"] for moment in whole.training) > 2 * FP32 * logits
    assert max(moment.parts["logits"] for moment in sliced.training) < 0.2 * FP32 * logits


def test_targets_have_their_own_length() -> None:
    def logits(target: int) -> int:
        return moment(traced(request(T5, task="seq2seq", target_length=target)), "the loss")["logits"]

    assert logits(128) == pytest.approx(2 * logits(64), rel=0.01)


@each("precision", ["fp16", "fp32", "bf16-true"])
def test_gradients_take_the_format_of_their_weights(precision: str) -> None:
    parts = moment(traced(request(LLAMA, precision=precision)), "the optimizer step")
    assert parts["gradients"] == pytest.approx(parts["weights"], rel=0.01)
    assert parts["optimizer"] == pytest.approx(2 * parts["weights"], rel=0.01)


def test_deepspeed_holds_everything_in_half_precision_and_needs_no_autocast() -> None:
    lora = {"lora_rank": 8, "lora_targets": ("q_proj", "v_proj"), "half_weights": True}
    usual, deepspeed = (traced(request(LLAMA, **lora, deepspeed=deepspeed)) for deepspeed in (False, True))
    gradients = [moment(result, "the optimizer step")["gradients"] for result in (usual, deepspeed)]
    assert gradients[0] == pytest.approx(2 * gradients[1], rel=0.1)


def test_nothing_of_the_emulation_stays() -> None:
    def seen() -> list[object]:
        return [
            functional.dropout, functional.softmax, functional.rms_norm, functional.scaled_dot_product_attention,
            torch.dropout, torch.nn.Module._apply,
        ]  # fmt: skip

    def norm() -> torch.dtype:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = torch.nn.Linear(8, 8)(torch.ones(2, 8))
            return functional.layer_norm(half, (8,)).dtype

    before = seen()
    assert norm() == torch.bfloat16
    # Of no other test here, so that it is really traced now.
    traced(request(LLAMA, length=40))
    assert seen() == before
    assert norm() == torch.bfloat16
