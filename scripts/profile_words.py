"""Ways to need less memory, and the sentences about what was solved, in English and in Chinese."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainwiz.core.language import language
from trainwiz.core.plan.result import Plan

GIB = 2**30

Text = Mapping[str, str]
"""Language -> text. A text that the catalogue has already is there in English alone."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A way to need less memory, with what it is called and why it is taken."""

    name: Text
    changes: Mapping[str, Any] = field(default_factory=dict)
    why: Mapping[str, Text] = field(default_factory=dict)


EIGHT_BITS = Measure(
    {"en": "8-bit AdamW", "zh": "用 8 位 AdamW"},
    {"engine.optimizer": "adamw_bnb_8bit"},
    {
        "engine.optimizer": {
            "en": "8-bit AdamW states (bitsandbytes): with 32 bits it needs up to {needed} GiB, the GPU has {free} GiB",
            "zh": "AdamW 状态用 8 位（bitsandbytes）：用 32 位最多需要 {needed} GiB，而显存只有 {free} GiB",
        }
    },
)
IN_HOST_RAM = Measure(
    {"en": "the optimizer in host RAM", "zh": "把优化器放到内存"},
    {"engine.strategy": "zero2", "engine.offload": "optimizer", "engine.optimizer": "adamw_torch"},
    {
        "engine.strategy": {"en": "the engine that can offload the optimizer to RAM"},
        "engine.offload": {
            "en": "with AdamW states on the GPU it needs up to {needed} GiB even in 8 bits, the GPU has {free} GiB",
            "zh": "AdamW 状态放在 GPU 上，即使用 8 位也最多需要 {needed} GiB，而显存只有 {free} GiB",
        },
        "engine.optimizer": {
            "en": "replaced by DeepSpeed's AdamW on the CPU",
            "zh": "由 CPU 上的 DeepSpeed AdamW 代替",
        },
    },
)
MEASURES = (Measure({"en": "", "zh": ""}), EIGHT_BITS, IN_HOST_RAM)
"""From what changes nothing of the training to what costs most time."""

OWN_ATTENTION: Text = {
    "en": "included in torch, with its own flash kernel; no extra package needed",
    "zh": "torch 自带，含 flash 内核，无需另外安装",
}
FIRST_MODEL: Mapping[str, Text] = {
    "causal-lm": {"en": "a base model of this size that is on the Hub without a license to accept first"},
    "masked-lm": {"en": "the model of the guides for smaller cards", "zh": "与小显存显卡的指南相同的模型"},
}
SMALLER_MODEL: Text = {
    "en": "the largest model of its family that runs on this hardware: {model}{with} {why}",
    "zh": "在此硬件上能运行的同系列最大模型：{model}{with}{why}",
}
WITH: Text = {"en": ", even with {measure},", "zh": " 即使{measure}也"}
ALONE: Text = {"en": "", "zh": " "}
TOO_LARGE: Text = {
    "en": "needs up to {needed} GiB, the GPU has {free} GiB",
    "zh": "最多需要 {needed} GiB，而显存只有 {free} GiB",
}
TOO_MUCH_RAM: Text = {
    "en": "needs {needed} GiB of host RAM, the machine has {free} GiB",
    "zh": "需要内存 {needed} GiB，而机器只有 {free} GiB",
}
TOO_OFTEN_ROUNDED: Text = {
    "en": "would accumulate {accumulation} micro-batches in half precision",
    "zh": "会用半精度累加 {accumulation} 个微批",
}
WITHOUT: Text = {"en": "without gradient checkpointing the run {why}", "zh": "不用激活重算时，运行{why}"}
NOT_NEEDED: Text = {
    "en": "off: a micro-batch of {micro} fits without it, and it would take {percent}% more time",
    "zh": "关闭：不用激活重算也放得下微批 {micro}，重算会多用 {percent}% 的时间",
}
QUICKER_WITH: Text = {
    "en": "a micro-batch of {micro} fits instead of {other}, which takes {percent}% less time",
    "zh": "微批可从 {other} 增至 {micro}，时间减少 {percent}%",
}


def sizes(plan: Plan) -> dict[str, str]:
    """What a card would need at most, and what it has."""
    return {"needed": gib(plan.memory.judged_high_bytes), "free": gib(plan.memory.capacity_bytes or 0)}


def gib(size_bytes: int) -> str:
    """Without the unit."""
    return f"{size_bytes / GIB:.1f}"


def said(text: Text, **values: str) -> str:
    """The text in the language of the moment; "" in Chinese where the catalogue has it."""
    return text.get(language(), "").format(**values)
