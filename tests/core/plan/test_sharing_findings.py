"""What FSDP and ZeRO cannot do on a machine, or with another choice, is an error with a change that works."""

from typing import Any

from trainwiz.core.plan.devices import choose_devices
from trainwiz.core.plan.workload import host_needs

from tests.core.plan.machines import codes, config, finding, machine, plan
from tests.each import each

FSDP = {"engine__strategy": "fsdp"}
CODES = {"shared_table", "fsdp_needs_gpus", "offload_not_supported", "optimizer_not_shared", "deepspeed_needs_cuda"}
CASES = [
    ("shared_table", "RTX 3090", 2, {**FSDP, "model": "opus-mt-tiny", "task": "seq2seq"}, {"engine.strategy": "zero3"}),
    ("fsdp_needs_gpus", None, 0, {**FSDP, "engine__processes": 2}, {"engine.strategy": "zero3"}),
    ("fsdp_needs_gpus", "RTX 3090", 1, FSDP, {"engine.strategy": "single"}),
    (
        "fsdp_needs_gpus", "RTX 3090", 1, {**FSDP, "engine__offload": "all"},
        {"engine.strategy": "zero2", "engine.offload": "optimizer"},
    ),
    ("offload_not_supported", "RTX 3090", 2, {**FSDP, "engine__offload": "optimizer"}, {"engine.strategy": "zero3"}),
    (
        "optimizer_not_shared", "RTX 3090", 2, {**FSDP, "engine__optimizer": "adamw_bnb_8bit"},
        {"engine.optimizer": "adamw_torch_fused"},
    ),
]  # fmt: skip


@each(("code", "gpu", "count", "values", "changes"), CASES)
def test_refused_with_a_change_that_works(
    code: str, gpu: str | None, count: int, values: dict[str, Any], changes: dict[str, Any]
) -> None:
    here, request = machine(gpu, count), config(**{"model": "esm2-tiny", **values})
    found = finding(plan(here, request), code)
    assert found.severity == "error"
    assert dict(found.remedies[0].changes) == changes
    for remedy in found.remedies:
        assert code not in codes(plan(here, request.with_values(dict(remedy.changes), "you")))


@each("strategy", ["fsdp", "zero1", "zero2", "zero3"])
@each("offload", ["none", "all"])
def test_several_gpus_have_no_such_error(strategy: str, offload: str) -> None:
    made = plan(machine("RTX 3090", 2), config(engine__strategy=strategy, engine__offload=offload))
    assert not CODES & codes(made)
    assert (made.config.engine.strategy, made.config.engine.offload) == (strategy, offload)
    assert not made.errors


def test_zero_shares_out_on_a_cpu() -> None:
    made = plan(machine(None), config("esm2-tiny", engine__strategy="zero3", engine__processes=2))
    assert not CODES & codes(made)
    assert (
        "nothing"
        in finding(plan(machine(None), config("esm2-tiny", **FSDP, engine__processes=2)), "fsdp_needs_gpus").message
    )


def test_a_smoke_run_without_gpus_goes_on_without_fsdp_and_says_so() -> None:
    request = config("esm2-tiny", **FSDP, engine__processes=2, mode__kind="smoke")
    made = plan(machine(None), request)
    assert made.config.engine.strategy == "ddp"
    assert "FSDP" in finding(made, "engine_not_exercised").message
    assert not CODES & codes(made)


def test_a_whole_checkpoint_of_fsdp_passes_through_the_host_ram_of_one_process() -> None:
    """Eight bytes of moments for each parameter, where ZeRO-3 writes them in parts and gathers four of weights."""
    here, saved = machine("RTX 3090", 4, ram_gib=512), []
    for name in ("fsdp", "zero3"):
        made = plan(here, config("qwen2.5-1.5b", task="causal-lm", engine__strategy=name))
        devices, _ = choose_devices(here, made.config)
        saved.append(host_needs(devices, made.config, made.work, None, (0, 0, 0)).saved_bytes)
    assert made.work is not None
    assert saved == [8 * made.work.trainable_parameters, 4 * made.work.trainable_parameters]
