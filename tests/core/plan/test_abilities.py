"""Plans of models that transformers has no sdpa, FlashAttention-2 or checkpointing for."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.config import RunConfig
from trainwiz.core.config.values import Task
from trainwiz.core.hardware.machine import Libraries
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.tasks import with_adapter

from tests.core.plan.machines import codes, config, finding, machine, plan, real, rows
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


@each(("kind", "flash", "expected", "refused"), [
    ("llama", False, "sdpa", None), ("llama", True, "flash_attention_2", None), ("gemma2", False, "eager", "sdpa"),
    ("t5", True, "sdpa", "flash_attention_2"),
])  # fmt: skip
def test_the_chosen_attention_is_one_of_the_model(kind: str, flash: bool, expected: str, refused: str | None) -> None:
    """And what it has not is an error with that way out."""
    plan = made(kind, flash=flash)
    assert plan.config.engine.attention == expected
    assert "attention_unsupported" not in codes(plan)
    assert plan.work is not None and plan.work.attention == expected
    assert (f"for {kind} models" in plan.config.origin("engine.attention").reason) is (refused is not None)
    if refused is not None:
        found = finding(made(kind, request_for(kind, engine__attention=refused), flash=flash), "attention_unsupported")
        assert found.severity == "error" and refused in found.message and kind in found.message
        assert found.remedies[0].changes == {"engine.attention": expected}


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


def test_the_light_core_plans_as_if_the_extras_were_here() -> None:
    """Of this machine with a GPU, before torch is installed: a start asks for it, a plan does not."""
    here = replace(real(machine("RTX 3090")), torch_cuda=None, libraries=Libraries({"torch": None, "deepspeed": None}))
    missing = {"torch_without_cuda", "deepspeed_missing", "bitsandbytes_missing", "triton_missing"}
    for wanted in ({"engine__strategy": "zero2"}, {"engine__optimizer": "paged_adamw_8bit"}, {"engine__compile": True}):
        made = plan(here, config("qwen2.5-0.5b", **wanted))
        assert made.devices.device == "cuda" and not missing & codes(made)


# A base in 4 bits: chosen where nothing else fits, offered, and refused where it does not work.


BASE = "engine.base_precision"
SMALL = "RTX 3060 12GB"


def reasons(made: Any) -> dict[str, str]:
    return {choice.key: f"{choice.value}: {choice.reason}" for choice in made.choices}


def test_8b_on_12_gb_is_lora_on_4_bits_with_the_reasons_and_fits() -> None:
    made = plan(machine(SMALL), config("llama-3.1-8b", batch__sequence_length=1024), rows())
    assert made.memory.verdict == "fits" and not made.errors
    assert "lora: training all weights needs 59." in reasons(made)["peft.method"]
    assert "nf4: in bf16 it needs" in reasons(made)[BASE] and "in 4 bits" in reasons(made)[BASE]
    assert made.config.training.learning_rate == 2e-4 and "trains LoRA" in made.model.learnt
    # Weights are read one by one: host RAM does not hold them.
    assert made.memory.host_ram_parts.get("loading", 0) < 2**31


def test_without_bitsandbytes_it_is_a_way_out_that_names_the_extra() -> None:
    here = real(machine(SMALL), torch="2.13.0", peft="0.21.2")
    made = plan(here, config("llama-3.1-8b", peft__method="lora"), rows())
    way = next(remedy for remedy in finding(made, "does_not_fit").remedies if remedy.changes.get(BASE) == "nf4")
    assert "once bitsandbytes is installed" in way.text and "not installed" in reasons(made)[BASE]
    made = plan(here, made.asked.with_values(dict(way.changes), "you"), rows())
    assert finding(made, "bitsandbytes_missing").remedies[0].command == "pip install 'trainwiz[qlora]'"


# Continuing from an adapter: its settings become those of the run, and what contradicts them is refused.


SAVED = {
    "peft_type": "LORA", "r": 16, "lora_alpha": 8, "target_modules": ["v_proj", "q_proj"], "use_rslora": True,
    "modules_to_save": None,
}  # fmt: skip


def asked(folder: Path, **values: Any) -> RunConfig:
    return RunConfig().with_values({"peft.adapter": str(folder), **values}, "you")


def test_rank_scale_and_modules_are_the_adapters(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps(SAVED))
    config, findings = with_adapter(asked(tmp_path, **{"peft.rank": 16}))
    peft = config.peft
    assert not findings and (peft.method, peft.rank, peft.alpha, peft.rslora) == ("lora", 16, 8.0, True)
    assert peft.targets == ["q_proj", "v_proj"] and str(tmp_path) in config.origin("peft.alpha").reason
    config, findings = with_adapter(asked(tmp_path, **{"peft.rank": 32, "peft.method": "lora"}))
    assert [finding.code for finding in findings] == ["adapter_differs"] and config.peft.rank == 32
    again, findings = with_adapter(config.with_values(dict(findings[0].remedies[0].changes), "you"))
    assert not findings and again.peft.rank == 16


@each(("saved", "code"), [
    (None, "missing_adapter"), ("{", "missing_adapter"), ("[]", "missing_adapter"),
    (json.dumps({**SAVED, "peft_type": "IA3"}), "missing_adapter"),
    (json.dumps({**SAVED, "target_modules": ".*proj"}), "missing_adapter"),
])  # fmt: skip
def test_what_is_no_lora_adapter_is_refused(saved: str | None, code: str, tmp_path: Path) -> None:
    if saved is not None:
        (tmp_path / "adapter_config.json").write_text(saved)
    config, findings = with_adapter(asked(tmp_path))
    assert [finding.code for finding in findings] == [code]
    assert with_adapter(config.with_values(dict(findings[0].remedies[0].changes), "you"))[1] == ()
