"""Advice with numbers: applying a remedy gives exactly the peak, the fit and the batch that it promises."""

import re
from dataclasses import replace
from typing import Any

import pytest
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig
from trainwiz.core.errors import Finding
from trainwiz.core.plan.make import make_plan
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.words import gib

from tests.core.plan.machines import GIB, codes, config, finding, machine, plan, rows
from tests.each import each

FULL: dict[str, Any] = {"engine__checkpointing": False}
CASES: dict[str, tuple[str, int, str, dict[str, Any]]] = {
    "given micro-batch": ("RTX 3080 10GB", 1, "esm2-650m", {"micro": 20, "target": 3900, **FULL}),
    "given sizes, no target": ("RTX 3080 10GB", 1, "esm2-650m", {"micro": 24, "accumulation": 5, **FULL}),
    "open micro-batch": ("RTX 3080 10GB", 1, "qwen2.5-0.5b", {"target": 64, "task": "causal-lm"}),
    "open micro-batch, no target": ("RTX 3090", 1, "qwen2.5-1.5b", {"task": "causal-lm"}),
    "token target": ("RTX 3090", 1, "qwen2.5-1.5b", {"tokens": 65536, "task": "causal-lm", "micro": 8}),
    "pretrained": ("RTX 4090", 1, "mistral-7b", {"target": 32, "task": "causal-lm", "model__init": "pretrained"}),
    "two cards": ("RTX 2080 Super", 2, "esm2-650m", {"micro": 8, "target": 256, **FULL}),
    "given evaluation": ("RTX 4080 Super", 1, "nllb-600m", {"micro": 32, "target": 96, "task": "seq2seq", "eval": 256}),
    "eager": ("RTX 3090", 1, "esm2-150m", {"micro": 16, "target": 64, "engine__attention": "eager", "length": 2048}),
    "adapters": ("RTX 3090", 1, "qwen2.5-3b", {"micro": 32, "task": "causal-lm", "peft__method": "lora"}),
}
SHORT = {
    "micro": "batch__micro_batch_size",
    "target": "batch__target_samples",
    "tokens": "batch__target_tokens",
    "accumulation": "batch__gradient_accumulation_steps",
    "eval": "batch__eval_micro_batch_size",
    "length": "batch__sequence_length",
}


def case(name: str) -> tuple[RunConfig, Plan]:
    gpu, count, model, values = CASES[name]
    request = config(model, **{SHORT.get(key, key): value for key, value in values.items()})
    return request, plan(machine(gpu, count), request)


def too_large(made: Plan) -> Finding:
    return next(one for one in made.findings if one.code in ("does_not_fit", "tight"))


def said_time(text: str) -> int:
    """How much longer a sequence takes by the words of a remedy, in %; 0 where they name no figure."""
    found = re.search(r"about (\d+) % (more|less) time", text)
    return 0 if found is None else int(found[1]) * (1 if found[2] == "more" else -1)


def slower_by(made: Plan, after: Plan) -> float:
    """The same, of the two plans."""
    before, then = made.time.step_s, after.time.step_s
    assert before is not None and then is not None
    return 100 * (then / after.batch.effective_samples / (before / made.batch.effective_samples) - 1)


@each("name", CASES)
def test_a_remedy_keeps_its_promise(name: str) -> None:
    request, made = case(name)
    gpu, count, _, _ = CASES[name]
    remedies = too_large(made).remedies
    assert remedies
    # Another model has traces of its own.
    promises = iter(made.candidates)
    for remedy in remedies:
        after = plan(machine(gpu, count), request.with_values(dict(remedy.changes), "you"))
        promised = after.work if "model.name" in remedy.changes else next(promises)
        assert after.memory.verdict in ("fits", "tight"), remedy.text
        assert f": {gib(after.memory.device_used_bytes)}" in remedy.text
        assert after.work == promised
        assert said_time(remedy.text) == pytest.approx(slower_by(made, after), abs=2), remedy.text
        assert not {one.code for one in after.errors} - {one.code for one in made.errors}, remedy.text
        now, then = made.batch, after.batch
        if now.target_tokens:
            assert abs(then.effective_tokens - now.effective_tokens) <= 0.02 * now.effective_tokens, remedy.text
        else:
            assert abs(then.effective_samples - now.effective_samples) <= 0.02 * now.effective_samples, remedy.text


@each("name", CASES)
def test_what_changes_the_training_comes_last(name: str) -> None:
    _, made = case(name)
    others = [
        any(key in one.changes for key in ("batch.sequence_length", "peft.method", "model.name"))
        or one.changes.get("engine.optimizer") == "adafactor"
        or one.changes.get("engine.precision") == "bf16-true"
        for one in too_large(made).remedies
    ]
    assert others == sorted(others)


def test_adapters_are_offered_for_weights_that_are_there_alone() -> None:
    _, pretrained = case("pretrained")
    assert any("peft.method" in one.changes for one in too_large(pretrained).remedies)
    values = {**CASES["pretrained"][3], "model__init": "scratch"}
    values["batch__target_samples"] = values.pop("target")
    scratch = plan(machine("RTX 4090"), config("mistral-7b", **values))
    assert not any("peft.method" in one.changes for one in too_large(scratch).remedies)


def test_far_shorter_sequences_are_offered_only_where_nothing_else_helps() -> None:
    request = config("esm2-650m", batch__sequence_length=65536, batch__micro_batch_size=1, peft__method="none")
    remedies = too_large(plan(machine("RTX 2080 Super"), request)).remedies
    lengths = [one.changes.get("batch.sequence_length") for one in remedies]
    assert lengths and all(length is not None and length < 65536 for length in lengths)
    _, made = case("given micro-batch")
    assert all(one.changes.get("batch.sequence_length", 512) >= 128 for one in too_large(made).remedies)


def test_room_is_offered_at_the_same_batch() -> None:
    request = config("esm2-150m", batch__micro_batch_size=2, batch__target_samples=64)
    made = plan(machine("A100 80GB SXM"), request)
    remedy = finding(made, "room").remedies[0]
    after = plan(machine("A100 80GB SXM"), request.with_values(dict(remedy.changes), "you"))
    assert after.batch.micro_batch > 4 and after.batch.effective_samples == 64
    assert after.memory.verdict == "fits" and gib(after.memory.device_used_bytes) in remedy.text
    assert "room" not in codes(plan(machine("A100 80GB SXM"), config("esm2-150m", batch__target_samples=64)))


def test_room_without_a_batch_to_keep_is_the_largest_that_fits() -> None:
    request = config("esm2-650m", batch__micro_batch_size=2, engine__checkpointing=False)
    made = plan(machine("RTX 3090"), request)
    remedy = finding(made, "room").remedies[0]
    micro = remedy.changes["batch.micro_batch_size"]
    after = plan(machine("RTX 3090"), request.with_values(dict(remedy.changes), "you"))
    assert after.memory.verdict == "fits" and after.batch.micro_batch == micro
    more = request.with_values({"batch.micro_batch_size": micro + 3}, "you")
    assert plan(machine("RTX 3090"), more).memory.verdict != "fits"


def test_checkpointing_that_is_not_needed() -> None:
    request = config("esm2-150m", batch__micro_batch_size=4, batch__target_samples=4, engine__checkpointing=True)
    remedy = finding(plan(machine("A100 80GB SXM"), request), "room").remedies[0]
    assert dict(remedy.changes) == {"engine.checkpointing": False} and "less time" in remedy.text


def test_lengths_of_the_data_bound_what_is_shorter() -> None:
    """Rows of at most 600 tokens: cutting at 1,000 would change nothing."""
    request = config("esm2-650m", batch__micro_batch_size=64, batch__sequence_length=2048, engine__checkpointing=False)
    made = plan(machine("RTX 2080 Super"), request, rows(count=3))
    for remedy in too_large(made).remedies:
        assert remedy.changes.get("batch.sequence_length", 0) < 600


def test_every_catalogue_model_is_planned_without_a_wrong_promise() -> None:
    """Each on a card that is too small for it: whatever is offered holds."""
    offered = 0
    for name, spec in load_models().items():
        request = config(name, task=spec.task, batch__micro_batch_size=96, batch__target_samples=192, **FULL)
        made = plan(machine("RTX 2080 Super"), request)
        for one in made.findings:
            if one.code not in ("does_not_fit", "tight"):
                continue
            for remedy in one.remedies:
                after = plan(machine("RTX 2080 Super"), request.with_values(dict(remedy.changes), "you"))
                assert after.memory.verdict in ("fits", "tight"), (name, remedy.text)
                assert f": {gib(after.memory.device_used_bytes)}" in remedy.text, name
                offered += 1
    assert offered > 10


def test_several_processes_on_a_cpu_are_refused_with_what_all_of_them_need() -> None:
    """They share one RAM: what one of them needs would be less than there is, and no reason to refuse."""
    values = {"engine__processes": 8, "batch__micro_batch_size": 8, "task": "causal-lm"}
    made = plan(machine(None, ram_gib=24), config("qwen2.5-0.5b", **values))
    message = finding(made, "does_not_fit").message
    needed, capacity, states = map(float, re.search(r"at least ([\d.]+) GiB, .* has ([\d.]+) GiB.*take ([\d.]+) GiB", message).groups())  # fmt: skip
    assert made.memory.capacity_bytes is not None
    assert needed > capacity == pytest.approx(made.memory.capacity_bytes / 2**30, abs=0.1)
    parts = ("weights", "gradients", "optimizer")
    assert sum(made.memory.breakdown[part] for part in parts) / 2**30 <= states + 0.1


LORA: dict[str, Any] = {"peft__method": "lora", "task": "causal-lm", "model__init": "pretrained"}
WIDE: dict[str, dict[str, Any]] = {
    "llama-2-13b": {"of": "llama-3.1-8b", "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40,
                    "num_key_value_heads": 40, "intermediate_size": 13824, "vocab_size": 32000},
    "esm2-3b": {"of": "esm2-650m", "hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 40,
                "intermediate_size": 10240},
    "nllb-3.3b": {"of": "nllb-600m", "d_model": 2048, "encoder_layers": 24, "decoder_layers": 24, "encoder_ffn_dim": 8192,
                  "decoder_ffn_dim": 8192},
    "gpt-oss-20b": {"of": "mistral-7b", "model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24,
                    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880,
                    "num_local_experts": 32, "num_experts_per_tok": 4, "vocab_size": 201088},
}  # fmt: skip
"""Models of no catalogue: what differs from one that is in it."""
IN_RAM, SHARED = ("engine.offload", "all"), ("engine.strategy", "fsdp")
CHECKED = ("engine.checkpointing", True)
JOBS: dict[str, tuple[str, int, int, str, dict[str, Any], set[tuple[str, Any]]]] = {
    "7B LoRA on a 4090, from a demo in fp32": ("RTX 4090", 1, 64, "mistral-7b", {**LORA, "engine__precision": "fp32", "micro": 32,
        "target": 64, "length": 64, "engine__checkpointing": False}, {("engine.precision", "bf16"), ("batch.micro_batch_size", 8)}),
    "7B LoRA on a 3080": ("RTX 3080 10GB", 1, 64, "mistral-7b", {**LORA, "target": 64}, {IN_RAM}),
    "13B LoRA on two 3090": ("RTX 3090", 2, 64, "llama-2-13b", {**LORA, "target": 64}, {SHARED}),
    "1.5B on a 3060": ("RTX 3060 12GB", 1, 64, "qwen2.5-1.5b", {"task": "causal-lm", "target": 64}, {IN_RAM}),
    "1.5B in fp32, at 32 by hand": ("RTX 3060 12GB", 1, 24, "qwen2.5-1.5b", {"task": "causal-lm", "target": 64, "micro": 32,
        "engine__precision": "fp32", "engine__checkpointing": False}, {("engine.precision", "bf16-true")}),
    "ESM-2 3B on a 2080": ("RTX 2080 Super", 1, 128, "esm2-3b", {"target": 64}, {IN_RAM}),
    "NLLB 3.3B on two cards": ("RTX 3090", 2, 128, "nllb-3.3b", {"task": "seq2seq", "target": 96}, {("engine.strategy", "zero3")}),
    "gpt-oss on a 4090": ("RTX 4090", 1, 128, "gpt-oss-20b", {**LORA, "target": 16}, {IN_RAM}),
    "7B on a 3090": ("RTX 3090", 1, 64, "qwen2.5-7b", {"task": "causal-lm", "target": 64, "model__init": "pretrained"},
        {("peft.method", "lora"), ("model.name", "qwen2.5-1.5b")}),
}  # fmt: skip
"""What does not fit, and something of what must be among the remedies."""


def job(name: str) -> tuple[RunConfig, Any]:
    gpu, count, ram, model, values, _ = JOBS[name]
    models = dict(load_models())
    for wide, keys in WIDE.items():
        like = models[keys["of"]]
        own = {key: value for key, value in keys.items() if key != "of"}
        models[wide] = replace(like, name=wide, architecture={**like.architecture, **own})
    request = config(model, **{SHORT.get(key, key): value for key, value in values.items()})
    here = machine(gpu, count, ram_gib=ram)
    return request, lambda one: make_plan(here, one, model=models[one.model.name], data=rows())


@each("name", JOBS)
def test_settings_are_tried_together_before_it_is_said_that_none_will_do(name: str) -> None:
    """Each remedy is replayed; the sentence stands where all of them change what is learnt, and nowhere else."""
    request, planned = job(name)
    made = planned(request)
    found = finding(made, "does_not_fit")
    offered = {
        (key, value) for one in found.remedies for key, value in one.changes.items() if isinstance(value, str | int)
    }
    assert JOBS[name][5] <= offered, [one.text for one in found.remedies]
    same = 0
    for remedy in found.remedies:
        after = planned(request.with_values(dict(remedy.changes), "you"))
        assert after.memory.verdict in ("fits", "tight"), remedy.text
        assert f": {gib(after.memory.device_used_bytes)}" in remedy.text
        assert not {one.code for one in after.errors} - {one.code for one in made.errors}, remedy.text
        learnt = (after.config.engine.precision == "bf16-true", after.config.engine.optimizer == "adafactor")
        now, then = request, after.config
        kept = (now.model.name, now.peft.method, made.batch.sequence_length) == (
            then.model.name,
            then.peft.method,
            after.batch.sequence_length,
        )
        same += kept and not any(learnt)
    assert ("No engine setting makes it fit." in found.message) == (same == 0)


def test_the_known_case_of_seven_billion_on_a_4090() -> None:
    request, planned = job("7B LoRA on a 4090, from a demo in fp32")
    first = finding(planned(request), "does_not_fit").remedies[0]
    after = planned(request.with_values(dict(first.changes), "you"))
    assert set(first.changes) == {"engine.precision", "batch.micro_batch_size", "batch.gradient_accumulation_steps"}
    assert after.batch.effective_samples == 64 and after.memory.verdict == "fits"
    assert 17 * GIB < after.memory.device_used_bytes < 20 * GIB
