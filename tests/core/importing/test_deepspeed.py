"""DeepSpeed JSON, with comments too -> values of a run, and a place in the report for every key."""

from __future__ import annotations

import json
from typing import Any

from trainwiz.core.importing import gather
from trainwiz.core.importing.report import Imported

from tests.core.importing.told import codes, names
from tests.each import each


def read(**settings: Any) -> Imported:
    return gather.read(json.dumps({"zero_optimization": {"stage": 2}, **settings}, indent=1), "ds.json")


def zero(**section: Any) -> dict[str, Any]:
    return {"zero_optimization": section}


CPU = {"device": "cpu", "pin_memory": True}


@each(("settings", "values"), [
    (zero(stage=0), {"engine.strategy": "ddp"}), (zero(stage=1), {"engine.strategy": "zero1"}),
    (zero(stage=2, offload_optimizer=CPU), {"engine.strategy": "zero2", "engine.offload": "optimizer"}),
    (zero(stage=2, cpu_offload=True), {"engine.strategy": "zero2", "engine.offload": "optimizer"}),
    (zero(stage=3, offload_optimizer=CPU, offload_param=CPU), {"engine.strategy": "zero3", "engine.offload": "all"}),
    (zero(stage=3, cpu_offload_params=True, cpu_offload=True), {"engine.strategy": "zero3", "engine.offload": "all"}),
    (zero(stage=2, cpu_offload=False), {"engine.strategy": "zero2"}),
    (zero(stage=2, offload_optimizer={"device": "nvme", "nvme_path": "/x"}), {"engine.strategy": "zero2"}),
    (zero(stage=1, offload_param=CPU), {"engine.strategy": "zero1"}),
    ({"fp16": {"enabled": True}}, {"engine.strategy": "zero2", "engine.precision": "fp16"}),
    ({"bfloat16": {"enabled": True}}, {"engine.strategy": "zero2", "engine.precision": "bf16"}),
    ({"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}, {"engine.strategy": "zero2"}),
    ({"fp16": {"enabled": False}}, {"engine.strategy": "zero2", "engine.precision": "fp32"}),
    ({"fp16": {"enabled": False}, "bf16": {"enabled": "auto"}}, {"engine.strategy": "zero2"}),
    ({"fp16": {"enabled": True}, "bf16": {"enabled": False}}, {"engine.strategy": "zero2", "engine.precision": "fp16"}),
    # Two halves contradict, and neither is taken.
    ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, {"engine.strategy": "zero2"}),
])  # fmt: skip
def test_sharding_offload_and_precision(settings: dict[str, Any], values: dict[str, Any]) -> None:
    imported = read(**settings)
    assert imported.values == values
    assert imported.unknown == []


def test_old_spelling_is_renamed_and_auto_is_dropped() -> None:
    imported = read(zero_optimization={"stage": 2, "cpu_offload": True})
    assert [one.new for one in imported.renamed] == ["zero_optimization.offload_optimizer.device"]
    auto = read(train_batch_size="auto", gradient_clipping="auto", optimizer={"params": {"lr": "auto"}})
    assert auto.values == {"engine.strategy": "zero2"}
    assert {"train_batch_size", "gradient_clipping", "optimizer.params.lr"} <= names(auto.dropped)


def test_optimizer_and_scheduler() -> None:
    decay = {"warmup_max_lr": 2e-5, "warmup_num_steps": 100, "total_num_steps": 1000, "warmup_type": "linear"}
    imported = read(
        optimizer={"type": "AdamW", "params": {"lr": 2e-5, "betas": [0.9, 0.95], "eps": "1e-8", "weight_decay": 0.1}},
        scheduler={"type": "WarmupDecayLR", "params": decay},
    )
    assert imported.values == {
        "engine.strategy": "zero2", "engine.optimizer": "adamw_torch", "training.learning_rate": 2e-5,
        "training.adam_beta1": 0.9, "training.adam_beta2": 0.95, "training.adam_epsilon": 1e-8, "training.weight_decay":
        0.1, "training.schedule": "linear", "training.warmup": 100.0, "training.max_steps": 1000,
    }  # fmt: skip
    assert not codes(imported, "warning")
    # The scheduler overrules the optimizer.
    overruled = read(
        optimizer={"type": "Adam", "params": {"lr": 1e-3}},
        scheduler={"type": "WarmupLR", "params": {"warmup_max_lr": 5e-5}},
    )
    assert overruled.values["training.learning_rate"] == 5e-5
    assert "optimizer.params.lr" in names(overruled.dropped)
    # The cosine ends at a share of the peak.
    cosine = read(
        optimizer={"type": "AdamW", "params": {"lr": 1e-4}},
        scheduler={"type": "WarmupCosineLR", "params": {"cos_min_ratio": 0.1, "total_num_steps": 10}},
    )
    assert cosine.values["training.final_learning_rate"] == 1e-5
    assert cosine.values["training.schedule"] == "cosine"


@each(("kind", "params", "where"), [
    ("Lion", {}, "dropped"), ("PagedAdamW", {}, "dropped"), ("Adam", {"adam_w_mode": False}, "dropped"),
])  # fmt: skip
def test_optimizers_that_a_run_does_not_have(kind: str, params: dict[str, Any], where: str) -> None:
    imported = read(optimizer={"type": kind, "params": params})
    assert "engine.optimizer" not in imported.values
    assert "optimizer.type" in names(getattr(imported, where))
    assert codes(imported, "warning") == ["not_offered"]


def test_the_batch_that_no_number_of_gpus_makes_true() -> None:
    imported = read(train_batch_size=100, train_micro_batch_size_per_gpu=8, gradient_accumulation_steps=3)
    assert imported.values["batch.micro_batch_size"] == 8
    assert "batch.target_samples" not in imported.values and "train_batch_size" in names(imported.dropped)
    fine = read(train_batch_size=96, train_micro_batch_size_per_gpu=8, gradient_accumulation_steps=3)
    assert fine.values["batch.target_samples"] == 96
    assert not codes(fine, "warning")


@each(("settings", "code"), [
    (zero(stage=3, fp16={"enabled": True}), "misplaced"), (zero(stage=3, fp16={"enabled": "auto"}), "misplaced"),
    (zero(stage=2, offload_optimizer={"device": "cuda"}), "bad_value"),
    ({"scheduler": {"type": "OneCycle"}}, "not_offered"),
])  # fmt: skip
def test_what_is_said(settings: dict[str, Any], code: str | None) -> None:
    assert codes(read(**settings), "warning")[:1] == ([code] if code else [])


def test_what_is_no_number_or_no_key_is_kept_as_unknown() -> None:
    zero = {"stage": 1, "surprise": 1, "offload_optimizer": {"device": "cuda"}}
    imported = read(gradient_clipping="high", zero_optimization=zero, max_grad_norm=1.0)
    told = {"gradient_clipping", "max_grad_norm", "zero_optimization.offload_optimizer.device"}
    assert names(imported.unknown) == told and "zero_optimization.surprise" in names(imported.dropped)
    assert "bad_value" in codes(imported, "warning")


COMMENTED = """{
    // Chinese: 阶段
    "zero_optimization": {
        "stage": 2,  # inline
        /* a block
           of lines */
        "offload_optimizer": {"device": "cpu",},
    },
    "train_micro_batch_size_per_gpu": 4, // with "quotes" and { braces
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "note": "http://a#b /* no comment */"}},
}
"""


def test_comments_and_idle_commas() -> None:
    imported = gather.read(COMMENTED, "ds.jsonc")
    assert imported.values["engine.offload"] == "optimizer"
    assert imported.values["training.learning_rate"] == 1e-5
    assert imported.place_of("engine.offload") == "ds.jsonc:7"
    assert imported.place_of("batch.micro_batch_size") == "ds.jsonc:9"
    assert {one.name: one.value for one in imported.dropped}["optimizer.params.note"] == "http://a#b /* no comment */"
    # Of a key that stands twice the last one counts.
    text = '{\n "zero_optimization": {"stage": 1},\n "gradient_clipping": 1,\n "gradient_clipping": 2\n}'
    imported = gather.read(text, "ds.json")
    assert imported.values["training.max_grad_norm"] == 2.0
