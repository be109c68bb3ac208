"""A base in 4 bits: chosen where nothing else fits, offered, and refused where it does not work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainwiz.core.catalog.models import load_models
from trainwiz.core.plan.make import make_plan

from tests.core.plan.machines import config, finding, machine, plan, real, rows
from tests.each import each

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


@each(
    ("gpu", "asked", "method", "base"),
    [
        ("H100 SXM", {"peft__method": "lora"}, "lora", "none"),  # Fits in 16 bits.
        (SMALL, {"peft__method": "none"}, "none", None),  # As it was asked for.
        (SMALL, {"engine__base_precision": "none"}, "lora", "none"),
        (SMALL, {"model__init": "scratch"}, "none", None),  # Random weights are not worth adapters.
        (SMALL, {"model__init": "scratch", "peft__method": "lora"}, "lora", "none"),
        (SMALL, {"engine__strategy": "zero3", "engine__offload": "all"}, "none", None),
    ],
)
def test_nothing_is_chosen_against_what_was_asked_or_without_need(
    gpu: str, asked: dict[str, Any], method: str, base: str | None
) -> None:
    made = plan(machine(gpu), config("llama-3.1-8b", **asked), rows())
    assert (made.config.peft.method, made.config.engine.base_precision) == (method, base)


def test_without_bitsandbytes_it_is_a_way_out_that_names_the_extra() -> None:
    here = real(machine(SMALL), torch="2.13.0", peft="0.21.2")
    made = plan(here, config("llama-3.1-8b", peft__method="lora"), rows())
    way = next(remedy for remedy in finding(made, "does_not_fit").remedies if remedy.changes.get(BASE) == "nf4")
    assert "once bitsandbytes is installed" in way.text and "not installed" in reasons(made)[BASE]
    made = plan(here, made.asked.with_values(dict(way.changes), "you"), rows())
    assert finding(made, "bitsandbytes_missing").remedies[0].command == "pip install 'trainwiz[qlora]'"


def test_experts_stay_in_16_bits_and_it_is_said() -> None:
    like = load_models()["mistral-7b"]
    sparse = {**like.architecture, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    request = config("mistral-7b", peft__method="lora", engine__base_precision="nf4")
    made = make_plan(machine("H200", 1), request, model=replace(like, architecture=sparse), data=rows())
    assert (
        "97% of its weights" in finding(made, "experts_not_quantized").message
        and made.memory.breakdown["weights"] > 85 * 2**30
    )
