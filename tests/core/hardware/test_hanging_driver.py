"""A driver that never comes back from a call, as one that has lost its card."""

from __future__ import annotations

import threading
import time

import pytest
from trainwiz.core.hardware import nvml
from trainwiz.core.hardware.gpus import read_gpus


def test_a_driver_that_hangs_is_left_alone_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    over, asked = threading.Event(), []

    def hang() -> None:
        asked.append("nvmlInit")
        over.wait(30)

    monkeypatch.setattr(nvml.pynvml, "nvmlInit", hang)
    monkeypatch.setattr(nvml, "ANSWER_S", 0.2)
    monkeypatch.setattr(nvml, "_hangs", False)
    began = time.monotonic()
    assert read_gpus().unavailable == {"gpus": "the driver did not respond in time"}
    # The look at the loads would wait for ever too.
    with nvml.NvmlSession() as session:
        assert session.error == "the driver did not respond in time"
    assert time.monotonic() - began < 5
    assert asked == ["nvmlInit"]
    over.set()
