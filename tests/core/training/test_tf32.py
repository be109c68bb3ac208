"""What is said of products in TF32, however it was switched on."""

import pytest
import torch
from trainwiz.core.training.phases import multiplies_in_tf32
from transformers.utils.import_utils import enable_tf32


@pytest.mark.parametrize("tf32", [True, False])
def test_it_is_read_as_transformers_set_it(tf32: bool) -> None:
    before = torch.backends.fp32_precision
    try:
        enable_tf32(tf32)
        assert multiplies_in_tf32(torch.device("cuda")) is tf32
        assert not multiplies_in_tf32(torch.device("cpu"))
    finally:
        torch.backends.fp32_precision = before
