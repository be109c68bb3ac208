"""accelerate files of all ages -> values of a run, and a place in the report for every key."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from trainwiz.core.importing import accelerate
from trainwiz.core.importing.report import Imported, NotImportable

from tests.each import each


def read(**settings: Any) -> Imported:
    document = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU", **settings}
    return accelerate.read(yaml.safe_dump(document, sort_keys=False), "a.yaml")


def names(entries: Any) -> set[str]:
    return {getattr(entry, "name", None) or entry.old for entry in entries}


def codes(imported: Imported) -> set[str]:
    return {finding.code for finding in imported.findings}


@each(
    ("kind", "processes", "strategy"),
    [
        ("NO", 1, "single"),
        ("MULTI_GPU", 4, "ddp"),
        ("MULTI_GPU", 1, "single"),
        ("multi_gpu", 2, "ddp"),
        ("DistributedType.MULTI_GPU", 2, "ddp"),
        ("FSDP", 4, "fsdp"),
        ("DEEPSPEED", 4, "zero2"),
        ("MULTI_XPU", 2, "ddp"),
    ],
)
def test_distributed_type_becomes_the_strategy(kind: str, processes: int, strategy: str) -> None:
    imported = read(distributed_type=kind, num_processes=processes)
    assert imported.values["engine.strategy"] == strategy
    assert imported.values["engine.processes"] == processes


def test_no_without_quotes_is_false_for_yaml_and_still_no() -> None:
    imported = accelerate.read("distributed_type: NO\nmixed_precision: no\nuse_cpu: no\n", "a.yaml")
    assert imported.values == {"engine.strategy": "single", "engine.precision": "fp32"}


@pytest.mark.parametrize(
    ("written", "precision"), [("no", "fp32"), ("fp16", "fp16"), ("bf16", "bf16"), ("BF16", "bf16")]
)
def test_mixed_precision(written: str, precision: str) -> None:
    assert read(mixed_precision=written).values["engine.precision"] == precision


@pytest.mark.parametrize(("fp16", "precision"), [(True, "fp16"), (False, "fp32"), ("True", "fp16")])
def test_the_old_fp16_is_renamed(fp16: Any, precision: str) -> None:
    imported = read(fp16=fp16)
    assert imported.values["engine.precision"] == precision
    assert [(one.old, one.new) for one in imported.renamed] == [("fp16", "mixed_precision")]


def test_fp8_is_told_and_not_called_something_else() -> None:
    imported = read(mixed_precision="fp8", fp8_config={"backend": "TE", "margin": 0})
    assert imported.values["engine.precision"] == "bf16"
    assert "not_offered" in codes(imported)
    assert {"fp8_config.backend", "fp8_config.margin"} <= names(imported.dropped)


def test_processes_of_each_node() -> None:
    imported = read(num_processes=16, num_machines=2, machine_rank=1, main_process_ip="10.0.0.1", rdzv_backend="c10d")
    assert (imported.values["engine.processes"], imported.values["engine.nodes"]) == (8, 2)
    assert {"machine_rank", "main_process_ip", "rdzv_backend"} <= names(imported.dropped)


def test_processes_that_nodes_cannot_share_are_a_contradiction() -> None:
    imported = read(num_processes=5, num_machines=2)
    assert "engine.processes" not in imported.values
    assert "contradiction" in codes(imported)


def test_no_with_several_processes_starts_one() -> None:
    imported = read(distributed_type="NO", num_processes=4)
    assert imported.values["engine.processes"] == 1
    assert "contradiction" in codes(imported)


@pytest.mark.parametrize(("written", "gpus"), [("0,2", ["0", "2"]), ("all", None), (0, ["0"]), (None, None)])
def test_gpu_ids(written: Any, gpus: list[str] | None) -> None:
    assert read(gpu_ids=written, num_processes=2).values.get("engine.gpus") == gpus


def test_use_cpu() -> None:
    assert read(use_cpu=True, num_processes=2).values["engine.device"] == "cpu"
    assert "engine.device" not in read(use_cpu=False).values


ZERO = {
    "zero_stage": 3,
    "offload_optimizer_device": "cpu",
    "offload_param_device": "cpu",
    "gradient_accumulation_steps": 8,
    "gradient_clipping": 0.5,
    "zero3_init_flag": True,
    "deepspeed_hostfile": "/job/hostfile",
}


def test_the_deepspeed_section() -> None:
    imported = read(distributed_type="DEEPSPEED", num_processes=8, deepspeed_config=ZERO)
    assert imported.values == {
        "engine.strategy": "zero3",
        "engine.processes": 8,
        "engine.offload": "all",
        "batch.gradient_accumulation_steps": 8,
        "training.max_grad_norm": 0.5,
    }
    assert {one.set_to for one in imported.mapped if one.key == "engine.offload"} == {"all"}
    assert {"deepspeed_config.zero3_init_flag", "deepspeed_config.deepspeed_hostfile"} <= names(imported.dropped)


def test_auto_and_none_set_nothing() -> None:
    section = {"gradient_accumulation_steps": "auto", "offload_optimizer_device": "none", "zero_stage": 1}
    imported = read(distributed_type="DEEPSPEED", deepspeed_config=section)
    assert imported.values == {"engine.strategy": "zero1"}


def test_parameters_are_offloaded_by_zero3_only() -> None:
    section = {"zero_stage": 2, "offload_param_device": "cpu"}
    imported = read(distributed_type="DEEPSPEED", deepspeed_config=section)
    assert "engine.offload" not in imported.values
    assert "contradiction" in codes(imported)


def test_a_stage_that_there_is_not_is_kept_as_unknown() -> None:
    imported = read(distributed_type="DEEPSPEED", deepspeed_config={"zero_stage": 4})
    assert "engine.strategy" not in imported.values
    assert "deepspeed_config.zero_stage" in names(imported.unknown)


def test_the_stage_of_a_deepspeed_file_is_not_guessed() -> None:
    section = {"deepspeed_config_file": "ds.json", "zero_stage": 2}
    imported = read(distributed_type="DEEPSPEED", deepspeed_config=section)
    assert "engine.strategy" not in imported.values
    assert [(one.role, one.path) for one in imported.references] == [("deepspeed", "ds.json")]
    assert "contradiction" in codes(imported)


def test_a_section_of_another_type_is_not_read() -> None:
    imported = read(deepspeed_config=ZERO, num_processes=2)
    assert imported.values == {"engine.strategy": "ddp", "engine.processes": 2}
    assert "deepspeed_config.zero_stage" in names(imported.dropped)


def test_fsdp_of_version_one_and_two() -> None:
    first = {"fsdp_sharding_strategy": 1, "fsdp_offload_params": True, "fsdp_backward_prefetch_policy": "BACKWARD_PRE"}
    imported = read(distributed_type="FSDP", fsdp_config=first)
    assert imported.values == {"engine.strategy": "fsdp", "engine.offload": "all"}
    assert "fsdp_config.fsdp_backward_prefetch_policy" in names(imported.renamed)
    second = {"fsdp_version": 2, "fsdp_reshard_after_forward": True, "fsdp_activation_checkpointing": True}
    imported = read(distributed_type="FSDP", fsdp_config=second)
    assert imported.values == {"engine.strategy": "fsdp", "engine.checkpointing": True}
    assert not imported.renamed


def test_fsdp_of_the_first_files_has_no_prefix() -> None:
    section = {"min_num_params": 2000, "offload_params": False, "sharding_strategy": "NO_SHARD"}
    imported = read(distributed_type="FSDP", fsdp_config=section)
    assert imported.values["engine.strategy"] == "ddp"
    assert not imported.unknown


@pytest.mark.parametrize("sharding", ["SHARD_GRAD_OP", 2, "HYBRID_SHARD", False])
def test_less_sharding_than_trainwiz_does_is_told(sharding: Any) -> None:
    name = "fsdp_reshard_after_forward" if sharding is False else "fsdp_sharding_strategy"
    imported = read(distributed_type="FSDP", fsdp_config={name: sharding})
    assert imported.values["engine.strategy"] == "fsdp"
    assert "not_offered" in codes(imported)


@pytest.mark.parametrize(
    ("settings", "compiled"),
    [
        ({"dynamo_config": {"dynamo_backend": "INDUCTOR", "dynamo_mode": "default"}}, True),
        ({"dynamo_config": {"backend": "inductor"}}, True),
        ({"dynamo_backend": "NO"}, False),
        ({"dynamo_backend": "INDUCTOR"}, True),
    ],
)
def test_torch_compile(settings: dict[str, Any], compiled: bool) -> None:
    assert read(**settings).values["engine.compile"] is compiled


def test_tensor_parallelism_changes_the_batch() -> None:
    imported = read(distributed_type="FSDP", parallelism_config={"parallelism_config_tp_size": 2})
    assert any("2 times" in finding.message for finding in imported.findings)
    quiet = read(distributed_type="FSDP", parallelism_config={"parallelism_config_tp_size": 1})
    assert not quiet.findings


def test_megatron_and_tpus_are_told() -> None:
    megatron = read(distributed_type="MEGATRON_LM", megatron_lm_config={"megatron_lm_tp_degree": 2})
    assert "engine.strategy" not in megatron.values
    assert "megatron_lm_config.megatron_lm_tp_degree" in names(megatron.dropped)
    tpu = read(distributed_type="TPU", tpu_name="v3", downcast_bf16="no")
    for imported in (megatron, tpu):
        assert "not_offered" in codes(imported)


def test_what_accelerate_does_not_know_is_kept_and_flagged() -> None:
    imported = read(surprise=3, num_processes="$WORLD_SIZE")
    assert {"surprise", "num_processes"} == names(imported.unknown)
    assert {"unknown_key", "bad_value"} <= codes(imported)


def test_every_key_is_somewhere_in_the_report() -> None:
    settings = {"num_processes": 2, "mixed_precision": "bf16", "debug": False, "tpu_env": [], "x": 1, "use_cpu": False}
    report = read(**settings)
    told = names(report.mapped) | names(report.dropped) | names(report.unknown)
    assert told == {"compute_environment", "distributed_type", *settings}


def test_lines_are_those_of_the_file() -> None:
    text = (
        "# first\ncompute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 1\n"
    )
    imported = accelerate.read(text, "a.yaml")
    assert imported.place_of("engine.strategy") == "a.yaml:5"


def test_a_key_that_stands_twice_is_told() -> None:
    text = "distributed_type: MULTI_GPU\nnum_processes: 2\nnum_processes: 4\n"
    imported = accelerate.read(text, "a.yaml")
    assert imported.values["engine.processes"] == 4
    assert "contradiction" in codes(imported)


@each(
    "text",
    [
        "compute_environment: LOCAL_MACHINE\nnum_machines: 1\n",
        "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: 'NO'\nec2_instance_type: ml.p3.2xlarge\n",
        "distributed_type: HOROVOD\n",
        "distributed_type: [",
        "",
    ],
)
def test_what_is_refused_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(NotImportable) as caught:
        accelerate.read(text, "a.yaml")
    (finding,) = caught.value.findings
    assert finding.message.startswith("a.yaml")
    assert "\n" not in finding.message


def test_json_of_the_first_versions() -> None:
    text = '{"compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_GPU", "fp16": true, "num_processes": 2}'
    assert accelerate.read(text, "default_config.json").values["engine.precision"] == "fp16"


def test_one_process_on_several_gpus_is_told_as_data_parallel() -> None:
    imported = read(distributed_type="NO", num_processes=1, gpu_ids="0,1,2,3")
    assert codes(imported) == {"data_parallel"}
    assert (imported.values["engine.strategy"], imported.values["engine.processes"]) == ("ddp", 4)
