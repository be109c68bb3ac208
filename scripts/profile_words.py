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
            "en": "AdamW's states in 8 bits instead of 32 (bitsandbytes): with whole ones it takes up to {needed} of {free} GiB",
            "zh": "AdamW 的状态用 8 位而不是 32 位（bitsandbytes）：用完整的状态最多需要 {needed} GiB，而显存只有 {free} GiB",
        }
    },
)
IN_HOST_RAM = Measure(
    {"en": "the optimizer in host RAM", "zh": "优化器放在主机内存"},
    {"engine.strategy": "zero2", "engine.offload": "optimizer", "engine.optimizer": "adamw_torch"},
    {
        "engine.strategy": {"en": "the engine that can keep the optimizer in host RAM"},
        "engine.offload": {
            "en": "with AdamW's states on the card, in 8 bits too, it takes up to {needed} of {free} GiB",
            "zh": "AdamW 的状态放在显卡上，即使用 8 位，最多也需要 {needed} GiB，而显存只有 {free} GiB",
        },
        "engine.optimizer": {"en": "DeepSpeed's AdamW on the CPU takes its place"},
    },
)
MEASURES = (Measure({"en": "", "zh": ""}), EIGHT_BITS, IN_HOST_RAM)
"""From what changes nothing of the training to what costs most time."""

OWN_ATTENTION: Text = {
    "en": "comes with torch and has a flash kernel of its own; nothing needs to be installed",
    "zh": "随 torch 提供，自带 flash 内核，无需另外安装",
}
FIRST_MODEL: Mapping[str, Text] = {
    "causal-lm": {"en": "a base of this size that the hub gives to everyone, without a licence to accept first"},
    "masked-lm": {"en": "the model of the guides for smaller cards", "zh": "指南中较小显卡所用的模型"},
}
SMALLER_MODEL: Text = {
    "en": "the largest of its family that runs here: {model}{with} {why}",
    "zh": "同系列中这里能运行的最大模型：{model} {with}{why}",
}
WITH: Text = {"en": ", even with {measure},", "zh": "（即使{measure}）"}
TOO_LARGE: Text = {"en": "takes up to {needed} of {free} GiB", "zh": "最多需要 {needed} GiB，而显存只有 {free} GiB"}
TOO_MUCH_RAM: Text = {
    "en": "takes {needed} of {free} GiB of host RAM",
    "zh": "需要主机内存 {needed} GiB，而只有 {free} GiB",
}
TOO_OFTEN_ROUNDED: Text = {
    "en": "would sum {accumulation} micro-batches in half precision",
    "zh": "会用半精度累加 {accumulation} 个微批次",
}
WITHOUT: Text = {"en": "without it the run {why}", "zh": "不用它，这次运行{why}"}
NOT_NEEDED: Text = {
    "en": "off: micro-batches of {micro} fit without it, and recomputing would take {percent} % more time",
    "zh": "关闭：不用它就放得下大小为 {micro} 的微批次，重算会多用 {percent} % 的时间",
}
QUICKER_WITH: Text = {
    "en": "micro-batches of {micro} fit instead of {other}, which takes {percent} % less time",
    "zh": "放得下大小为 {micro} 的微批次，而不是 {other}，时间少用 {percent} %",
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
