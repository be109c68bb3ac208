"""accelerate files of all ages -> values of a run, and a place in the report for every key."""

import json
from typing import Any

import yaml
from trainwiz.core.importing import gather
from trainwiz.core.importing.gather import checked, merge
from trainwiz.core.importing.report import Imported

from tests.core.importing.told import codes, names, whole
from tests.each import each


def read(**settings: Any) -> Imported:
    document = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU", **settings}
    return gather.read(yaml.safe_dump(document, sort_keys=False), "a.yaml")


def deepspeed(**section: Any) -> dict[str, Any]:
    return {"distributed_type": "DEEPSPEED", "deepspeed_config": section}


def fsdp(**section: Any) -> dict[str, Any]:
    return {"distributed_type": "FSDP", "fsdp_config": section}


ZERO = {
    "zero_stage": 3, "offload_optimizer_device": "cpu", "offload_param_device": "cpu", "gradient_accumulation_steps": 8,
    "gradient_clipping": 0.5, "zero3_init_flag": True, "deepspeed_hostfile": "/job/hostfile",
}  # fmt: skip


@each(("settings", "values"), [
    ({"distributed_type": "NO", "num_processes": 1}, {"engine.strategy": "single", "engine.processes": 1}),
    ({"num_processes": 4}, {"engine.strategy": "ddp", "engine.processes": 4}),
    ({"distributed_type": "FSDP"}, {"engine.strategy": "fsdp"}),
    ({"distributed_type": "DEEPSPEED"}, {"engine.strategy": "zero2"}),
    ({"distributed_type": "MULTI_XPU"}, {"engine.strategy": "ddp"}),
    ({"mixed_precision": "BF16"}, {"engine.strategy": "ddp", "engine.precision": "bf16"}),
    ({"fp16": True}, {"engine.strategy": "ddp", "engine.precision": "fp16"}),
    *(({"gpu_ids": gpus}, {"engine.strategy": "ddp", "engine.gpus": ["0", "2"]}) for gpus in ("0,2", [0, 2])),
    ({"gpu_ids": "all", "use_cpu": False}, {"engine.strategy": "ddp"}),
    ({"use_cpu": True}, {"engine.strategy": "ddp", "engine.device": "cpu"}),
    ({"num_cpu_threads_per_process": 4}, {"engine.strategy": "ddp", "engine.cpu_threads": 4}),
    ({"num_processes": 16, "num_machines": 2, "machine_rank": 1, "rdzv_backend": "c10d"},
     {"engine.strategy": "ddp", "engine.processes": 8, "engine.nodes": 2}),
    (deepspeed(**ZERO), {"engine.strategy": "zero3", "engine.offload": "all", "batch.gradient_accumulation_steps": 8,
                         "training.max_grad_norm": 0.5}),
    (deepspeed(gradient_accumulation_steps="auto", offload_optimizer_device="none", zero_stage=1),
     {"engine.strategy": "zero1"}),
    ({"deepspeed_config": ZERO}, {"engine.strategy": "ddp"}),
    (fsdp(fsdp_sharding_strategy=1, fsdp_offload_params=True), {"engine.strategy": "fsdp", "engine.offload": "all"}),
    (fsdp(fsdp_version=2, fsdp_reshard_after_forward=True, fsdp_activation_checkpointing=True),
     {"engine.strategy": "fsdp", "engine.checkpointing": True}),
    # The first files had no prefix.
    (fsdp(min_num_params=2000, offload_params=False, sharding_strategy="FULL_SHARD"), {"engine.strategy": "fsdp"}),
    ({"dynamo_config": {"dynamo_backend": "INDUCTOR", "dynamo_mode": "default"}},
     {"engine.strategy": "ddp", "engine.compile": True}),
    ({"dynamo_backend": "NO"}, {"engine.strategy": "ddp", "engine.compile": False}),
])  # fmt: skip
def test_what_a_file_comes_to(settings: dict[str, Any], values: dict[str, Any]) -> None:
    imported = read(**settings)
    assert whole(imported) == values
    assert imported.unknown == []


@each(("settings", "said", "key", "value"), [
    ({"mixed_precision": "fp8", "fp8_config": {"backend": "TE"}}, "no such precision", "engine.precision", None),
    ({"num_processes": 5, "num_machines": 2}, "not a multiple", "engine.processes", None),
    ({"distributed_type": "NO", "num_processes": 4}, "starts one process, whatever", "engine.processes", None),
    ({"distributed_type": "NO", "num_processes": 1, "gpu_ids": "0,2"}, "DataParallel", "engine.processes", 2),
    (deepspeed(zero_stage=4), "must be one of", "engine.strategy", "zero2"),
    (fsdp(fsdp_sharding_strategy="SHARD_GRAD_OP"), "must be one of", "engine.strategy", "fsdp"),
    (fsdp(fsdp_reshard_after_forward=False), "must be one of", "engine.strategy", "fsdp"),
    ({"num_processes": "$WORLD_SIZE"}, "must be a whole number", "engine.processes", None),
    ({"num_processes": None}, "It is not set", "engine.processes", None),
])  # fmt: skip
def test_what_is_said_and_not_guessed(settings: dict[str, Any], said: str, key: str, value: Any) -> None:
    imported = merge([read(**settings)])
    assert said in " ".join([*(one.why for one in imported.dropped), *(one.message for one in imported.findings)])
    assert imported.values.get(key) == value
    told = names(imported.mapped) | names(imported.dropped) | names(imported.unknown)
    inside = {f"{name}.{key}" for name, inner in settings.items() if isinstance(inner, dict) for key in inner}
    plain = {name for name, inner in settings.items() if not isinstance(inner, dict)}
    assert told == {"compute_environment", "distributed_type"} | plain | inside, "every key is somewhere"


def test_references_words_and_lines() -> None:
    # Beside a file accelerate reads nothing of the section.
    section = read(**deepspeed(deepspeed_config_file="ds.json", zero_stage=3, gradient_clipping=1.0))
    assert {"deepspeed_config.zero_stage", "deepspeed_config.gradient_clipping"} <= names(section.dropped)
    assert not {"engine.strategy", "training.max_grad_norm"} & set(whole(section))
    named = read(distributed_type="DEEPSPEED", deepspeed_config="ds.json")
    assert [(one.name, one.value) for one in (*section.references, *named.references)] == [("deepspeed", "ds.json")] * 2
    imported = gather.read("distributed_type: NO\nmixed_precision: no\nuse_cpu: no\n", "a.yaml")
    assert imported.values == {"engine.strategy": "single", "engine.precision": "fp32"}
    imported = gather.read("# first\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 1\n", "a.yaml")
    assert imported.place_of("engine.strategy") == "a.yaml:4"
    assert gather.read('{"distributed_type": "MULTI_GPU", "fp16": true}', "a.json").values["engine.precision"] == "fp16"


# DeepSpeed JSON, with comments too -> values of a run, and a place in the report for every key.


def read_json(**settings: Any) -> Imported:
    return gather.read(json.dumps({"zero_optimization": {"stage": 2}, **settings}, indent=1), "ds.json")


def zero(**section: Any) -> dict[str, Any]:
    return {"zero_optimization": section}


CPU = {"device": "cpu", "pin_memory": True}


@each(("settings", "values"), [
    (zero(stage=0), {"engine.strategy": "ddp"}), (zero(stage=1), {"engine.strategy": "zero1"}),
    (zero(stage=2, offload_optimizer=CPU), {"engine.strategy": "zero2", "engine.offload": "optimizer"}),
    (zero(stage=3, offload_optimizer=CPU, offload_param=CPU), {"engine.strategy": "zero3", "engine.offload": "all"}),
    (zero(stage=1, offload_param=CPU), {"engine.strategy": "zero1"}),
    ({"fp16": {"enabled": True}}, {"engine.strategy": "zero2", "engine.precision": "fp16"}),
    ({"bfloat16": {"enabled": True}}, {"engine.strategy": "zero2", "engine.precision": "bf16"}),
    ({"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}, {"engine.strategy": "zero2"}),
    ({"fp16": {"enabled": False}}, {"engine.strategy": "zero2", "engine.precision": "fp32"}),
    ({"fp16": {"enabled": False}, "bf16": {"enabled": "auto"}}, {"engine.strategy": "zero2"}),
    ({"fp16": {"enabled": True}, "bf16": {"enabled": False}}, {"engine.strategy": "zero2", "engine.precision": "fp16"}),
])  # fmt: skip
def test_sharding_offload_and_precision(settings: dict[str, Any], values: dict[str, Any]) -> None:
    imported = read_json(**settings)
    assert imported.values == values
    assert imported.unknown == []


def test_optimizer_and_scheduler() -> None:
    decay = {"warmup_max_lr": 2e-5, "warmup_num_steps": 100, "total_num_steps": 1000, "warmup_type": "linear"}
    imported = read_json(
        optimizer={"type": "AdamW", "params": {"lr": 2e-5, "betas": [0.9, 0.95], "eps": "1e-8", "weight_decay": 0.1}},
        scheduler={"type": "WarmupDecayLR", "params": decay},
    )
    assert imported.values == {
        "engine.strategy": "zero2", "engine.optimizer": "adamw_torch", "training.learning_rate": 2e-5,
        "training.adam_beta1": 0.9, "training.adam_beta2": 0.95, "training.adam_epsilon": 1e-8, "training.weight_decay":
        0.1, "training.schedule": "linear", "training.warmup": 100.0, "training.max_steps": 1000,
    }  # fmt: skip
    assert not codes(imported, "warning")
    # The scheduler overrules the optimizer whichever stands first, and both places are named.
    sections = {
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 5e-5}},
    }
    for order in (sections, dict(reversed(sections.items()))):
        overruled = read_json(**order)
        assert overruled.values["training.learning_rate"] == 5e-5
        assert codes(merge([overruled]), "warning") == ["contradiction"]


def test_the_batch_that_no_number_of_gpus_makes_true() -> None:
    batch = {"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 3}
    imported = checked(merge([read_json(train_batch_size=104, **batch)]))
    assert imported.values["batch.micro_batch_size"] == 8
    assert "batch.target_samples" not in imported.values and "train_batch_size" in names(imported.dropped)


@each(("settings", "code"), [
    (zero(stage=2, offload_optimizer={"device": "nvme", "nvme_path": "/x"}), "bad_value"),
    ({"scheduler": {"type": "OneCycle"}}, "bad_value"), ({"optimizer": {"type": "Lion"}}, "bad_value"),
    ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, "contradiction"),
    (zero(stage=3, fp16={"enabled": True}), None),  # DeepSpeed refuses it there: it is not taken for what it is elsewhere.
])  # fmt: skip
def test_what_is_said(settings: dict[str, Any], code: str | None) -> None:
    imported = merge([read_json(**settings)])
    assert codes(imported, "warning") == ([code] if code else [])
    assert not {"engine.optimizer", "training.schedule"} & set(imported.values)
    assert ("engine.precision" in imported.values) is (code == "contradiction")


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
