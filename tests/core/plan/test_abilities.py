"""Plans of models that transformers has no sdpa, FlashAttention-2 or checkpointing for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.config import RunConfig
from trainwiz.core.config.values import Task
from trainwiz.core.hardware.machine import Libraries
from trainwiz.core.importing.names import CANONICAL, TRAINER
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.result import Plan

from tests.core.plan.machines import codes, config, finding, machine, plan, real
from tests.each import each

DECODER = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4}
DECODER |= {"head_dim": 64, "intermediate_size": 2048, "vocab_size": 8000}
T5 = {"d_model": 512, "num_layers": 6, "num_heads": 8, "d_kv": 64, "d_ff": 2048, "vocab_size": 8000}
ALBERT = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
MODELS: dict[str, tuple[Task, dict[str, Any]]] = {
    "llama": ("causal-lm", DECODER),
    "gemma2": ("causal-lm", DECODER),
    "t5": ("seq2seq", T5),
    "albert": ("sequence-classification", {**ALBERT, "embedding_size": 128, "vocab_size": 30000}),
}


def request_for(kind: str, **values: Any) -> RunConfig:
    changes = {key.replace("__", "."): value for key, value in values.items()}
    return RunConfig().with_values(
        {"model.name": kind, "task": MODELS[kind][0], "model.init": "scratch", **changes}, "you"
    )


def made(kind: str, request: RunConfig | None = None, gpu: str = "RTX 3090", flash: bool = False) -> Plan:
    task, values = MODELS[kind]
    model = ModelSpec(kind, {"model_type": kind, **values}, task, source="config")
    here = real(machine(gpu), flash_attn="2.8") if flash else machine(gpu)
    return make_plan(here, request or request_for(kind), model=model, data=None)


@each(
    ("kind", "flash", "expected"),
    [
        ("llama", False, "sdpa"),
        ("llama", True, "flash_attention_2"),
        ("gemma2", False, "eager"),
        ("t5", True, "sdpa"),
    ],
)
def test_the_attention_that_is_chosen_is_one_that_the_model_has(kind: str, flash: bool, expected: str) -> None:
    plan = made(kind, flash=flash)
    assert plan.config.engine.attention == expected
    assert "attention_unsupported" not in codes(plan)
    assert plan.work is not None and plan.work.attention == expected
    reason = plan.config.origin("engine.attention").reason
    assert (f"for {kind} models" in reason) is (expected != ("flash_attention_2" if flash else "sdpa")), reason


@each(("kind", "asked", "then"), [("gemma2", "sdpa", "eager"), ("t5", "flash_attention_2", "sdpa")])
def test_attention_of_the_users_own_that_cannot_be_is_an_error_with_a_way_out(kind: str, asked: str, then: str) -> None:
    found = finding(made(kind, request_for(kind, engine__attention=asked), flash=True), "attention_unsupported")
    assert found.severity == "error" and asked in found.message and kind in found.message
    assert found.remedies[0].changes == {"engine.attention": then}
    assert "attention_unsupported" not in codes(made(kind, request_for(kind, engine__attention=then)))
    plan = made("gemma2", request_for("gemma2", engine__attention="flash_attention_2"), gpu="RTX 2080 Super")
    assert finding(plan, "flash_attention_missing").remedies[0].changes == {"engine.attention": "eager"}


def test_a_model_without_checkpointing() -> None:
    large = {"batch__micro_batch_size": 64, "batch__sequence_length": 512}
    plan = made("albert", request_for("albert", **large))
    assert plan.config.engine.checkpointing is False
    assert "albert" in plan.config.origin("engine.checkpointing").reason
    crowded = finding(plan, "does_not_fit")
    assert crowded.remedies and not any(one.changes.get("engine.checkpointing") for one in crowded.remedies)
    asked = made("albert", request_for("albert", **large, engine__checkpointing=True))
    found = finding(asked, "checkpointing_unsupported")
    assert found.severity == "error" and found.remedies[0].changes == {"engine.checkpointing": False}


def test_sdpa_is_no_advice_for_a_model_without_it() -> None:
    crowded = {"batch__micro_batch_size": 64, "batch__sequence_length": 2048, "batch__target_samples": 64}
    for kind, advised in (("llama", True), ("gemma2", False)):
        plan = made(kind, request_for(kind, engine__attention="eager", engine__checkpointing=False, **crowded))
        found = finding(plan, "does_not_fit")
        assert any(one.changes.get("engine.attention") == "sdpa" for one in found.remedies) is advised


def test_the_trainers_liger_kernels_are_imported() -> None:
    assert TRAINER[CANONICAL["enable_liger_kernel"]][0] == "engine.liger"


def test_the_light_core_plans_as_if_the_extras_were_here() -> None:
    """Of this machine with a GPU, before torch is installed: a start asks for it, a plan does not."""
    here = replace(real(machine("RTX 3090")), torch_cuda=None, libraries=Libraries({"torch": None, "deepspeed": None}))
    missing = {"torch_without_cuda", "deepspeed_missing", "bitsandbytes_missing", "triton_missing"}
    for wanted in ({"engine__strategy": "zero2"}, {"engine__optimizer": "paged_adamw_8bit"}, {"engine__compile": True}):
        made = plan(here, config("qwen2.5-0.5b", **wanted))
        assert made.devices.device == "cuda" and not missing & codes(made)
