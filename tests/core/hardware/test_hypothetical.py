"""Machines that are not here."""

from __future__ import annotations

from typing import Any

import pytest
from trainwiz.core.catalog.gpus import GIB, load_gpus, spec_of
from trainwiz.core.errors import UsageError
from trainwiz.core.hardware.read import catalogue_machine

from tests.each import each


def machine(**given: Any) -> Any:
    return catalogue_machine(**({"gpu": None, "num_gpus": 1, "ram_bytes": 64 * GIB} | given))


def test_cards_of_the_catalogue() -> None:
    planned = machine(gpu="RTX 3080 20GB", num_gpus=3, ram_bytes=12 * GIB, cpu_cores=12)
    assert planned.description == "3 x RTX 3080 20GB, 12 cores, 12.0 GiB RAM"
    assert planned.hypothetical
    assert planned.accelerator == "cuda"
    assert [gpu.cuda_index for gpu in planned.visible_gpus] == [0, 1, 2]
    card = planned.gpus[0]
    assert card.memory_total_bytes == 20 * GIB
    assert 19 * GIB < card.memory_free_bytes < 20 * GIB
    assert spec_of(card) is load_gpus()["RTX 3080 20GB"]
    apple = machine(gpu="M2 Max", ram_bytes=64 * GIB)
    assert (apple.accelerator, apple.gpus[0].memory_total_bytes, apple.gpus[0].capability) == ("mps", 48 * GIB, None)
    (by_hand,) = machine(gpu="RTX 9999", gpu_memory_bytes=24 * GIB, tflops=71.0, capability="8.6").gpus
    assert (by_hand.name, by_hand.capability, by_hand.given_tflops) == ("RTX 9999", (8, 6), 71.0)


@each(("given", "said"), [
    ({"gpu": "RTX 3080"}, ["Which one: RTX 3080 10GB", "RTX 3080 12GB", "RTX 3080 20GB"]),
    ({"gpu": "nothing like it"}, ["has no GPU named", "--gpu-memory"]),
    ({}, ["Specify the GPU to"]),
    ({"tflops": 71.0}, ["--gpu-memory", "--capability"]),
    ({"gpu": "T4", "num_gpus": -1, "ram_bytes": 0, "capability": "sm86"}, ["-1", "ram is 0", '"sm86"']),
    ({"gpu": "T4", "tflops": float("nan")}, ["tflops is nan"]),
])  # fmt: skip
def test_what_is_wrong_is_said_all_at_once(given: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        machine(**given)
    for words in said:
        assert words in str(caught.value)
