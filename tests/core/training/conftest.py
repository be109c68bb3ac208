"""accelerate keeps one state for each process of the system: what one test made of it is not for the next."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _own_accelerator_state() -> Iterator[None]:
    yield
    state = sys.modules.get("accelerate.state")
    if state is not None:
        state.AcceleratorState._reset_state(True)
        state.GradientState._reset_state()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.core.training.tokenizers_for_tests import small_tokenizer

    return small_tokenizer(tmp_path_factory.mktemp("tokenizer"))
