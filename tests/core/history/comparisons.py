"""Comparisons made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainwiz.core.history.comparison import Alternative, Comparison
from trainwiz.core.history.device import device_key

from tests.core.history.measurements import HERE


def faster(key: str, value: Any, base: Any, gain: float = 1.4, **changes: Any) -> Alternative:
    """An alternative that is taken."""
    plain = Alternative(
        {key: value}, {key: base}, "faster", gain=gain, gain_low=gain - 0.1, gain_high=gain + 0.1, turns=8, taken=True
    )
    return replace(plain, **changes)


def comparison(**changes: Any) -> Comparison:
    """On the CPU of HERE: eager attention is faster."""
    plain = Comparison(
        measured_at="2026-11-21T10:00:00+00:00",
        machine=device_key(HERE, "cpu") or "",
        model="0123456789abcdef",
        model_name="esm2-8m",
        task="masked-lm",
        precision="fp32",
        strategy="single",
        offload="none",
        world_size=1,
        lora_rank=0,
        checkpointing=False,
        micro_batch=8,
        accumulation=2,
        length=64,
        threads=8,
        step_s=2.0,
        alternatives=(faster("engine.attention", "eager", "sdpa"),),
        versions={"torch": "2.13.0"},
    )
    return replace(plain, **changes)
