"""What LoRA adapters keep, counted by hand for one block."""

from dataclasses import replace

import pytest
from trainwiz.core.estimate.activations import adapter_bytes
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.states import states_of
from trainwiz.core.estimate.workload import Workload

from tests.core.estimate.test_peak import DOCUMENT

LLAMA, _ = read_architecture(DOCUMENT["models"]["llama2_7b"]["config"])
NLLB, _ = read_architecture(DOCUMENT["models"]["nllb600"]["config"])
assert LLAMA is not None and NLLB is not None
WORK = Workload(LLAMA, 2, 128, 128, precision="bf16", lora_rank=64, lora_targets=("q_proj", "v_proj"))
TOKENS = 2 * 128


def test_under_autocast_each_adapter_has_its_own_half_copy_and_half_weights() -> None:
    inputs, middle, weights = 2 * TOKENS * 4096 * 2, 2 * TOKENS * 64 * 2, 2 * (64 * 8192) * 2
    assert adapter_bytes(WORK, LLAMA.blocks[0], 128) == inputs + middle + weights


def test_with_half_precision_weights_each_adapter_has_its_own_fp32_copy() -> None:
    work = replace(WORK, precision="bf16-true")
    assert adapter_bytes(work, LLAMA.blocks[0], 128) == 2 * TOKENS * 4096 * 4 + 2 * TOKENS * 64 * 4


@pytest.mark.parametrize(("precision", "strategy", "element"), [("fp32", "single", 4), ("bf16", "zero2", 2)])
def test_in_one_format_the_products_of_one_input_share_it(precision: str, strategy: str, element: int) -> None:
    work = replace(WORK, precision=precision, strategy=strategy)
    assert adapter_bytes(work, LLAMA.blocks[0], 128) == TOKENS * 4096 * element + 2 * TOKENS * 64 * element


def test_dropout_keeps_a_mask_for_each_adapter() -> None:
    more = adapter_bytes(replace(WORK, lora_dropout=True), LLAMA.blocks[0], 128)
    assert more - adapter_bytes(WORK, LLAMA.blocks[0], 128) == 2 * TOKENS * 4096


def test_keys_and_values_of_cross_attention_have_the_sources_length() -> None:
    work = Workload(NLLB, 1, 100, 10, precision="bf16-true", lora_rank=8, lora_targets=("k_proj",))
    encoder, decoder = NLLB.blocks
    assert adapter_bytes(work, encoder, 100) == 100 * (1024 + 8) * 4
    assert adapter_bytes(work, decoder, 10) == (10 + 100) * (1024 + 8) * 4


def test_no_adapters_no_bytes() -> None:
    assert adapter_bytes(replace(WORK, lora_rank=0, lora_targets=()), LLAMA.blocks[0], 128) == 0


def test_the_frozen_base_is_in_half_precision_and_the_adapters_in_fp32() -> None:
    adapters = 32 * 2 * 64 * 8192
    states = states_of(WORK)
    assert states.weights == 2 * LLAMA.parameters + 4 * adapters
    assert states.gradients == 4 * adapters
    assert states.optimizer == 8 * adapters
    assert states_of(replace(WORK, precision="fp32")).weights == 4 * LLAMA.parameters + 4 * adapters
    deepspeed = states_of(replace(WORK, strategy="zero2"))
    assert deepspeed.weights == 2 * (LLAMA.parameters + adapters)
