"""Advice with numbers: applying a remedy gives exactly the peak, the fit, the time and the batch that it promises."""

import re
from dataclasses import replace
from typing import Any

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.config.build import build_config
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.words import gib, not_said_twice
from trainwiz.core.profile.store import load_profile
from trainwiz.core.tracing.chats import ChatLook

from tests.core.plan.machines import GIB, codes, config, finding, machine, plan, real, rows
from tests.each import each

FULL: dict[str, Any] = {"engine__checkpointing": False}
CAUSAL: dict[str, Any] = {"task": "causal-lm", "target": 64}
LORA: dict[str, Any] = {**CAUSAL, "peft__method": "lora", "model__init": "pretrained"}
CASES: dict[str, tuple[str, int, str, dict[str, Any], set[tuple[str, Any]]]] = {
    "given micro-batch": ("RTX 3080 10GB", 1, "esm2-650m", {"micro": 20, "target": 3900, **FULL}, set()),
    "open micro-batch, no target": ("RTX 3090", 1, "qwen2.5-1.5b", {"task": "causal-lm"}, {("peft.method", "lora")}),
    "token target": ("RTX 3090", 1, "qwen2.5-1.5b", {"tokens": 65536, "task": "causal-lm", "micro": 8}, set()),
    "pretrained": ("RTX 4090", 1, "mistral-7b", {**LORA, "peft__method": "none"}, {("peft.method", "lora")}),
    "two cards": ("RTX 2080 Super", 2, "esm2-650m", {"micro": 8, "target": 256, **FULL}, {("engine.strategy", "fsdp")}),
    "given evaluation": ("RTX 4080 Super", 1, "nllb-600m", {"micro": 32, "target": 96, "task": "seq2seq", "eval": 256}, set()),
    "adapters": ("RTX 3090", 1, "qwen2.5-3b", {"micro": 96, "task": "causal-lm", "peft__method": "lora"}, set()),
    "a demo in fp32": ("RTX 4090", 1, "mistral-7b", {**LORA, **FULL, "engine__precision": "fp32", "micro": 32, "length": 64},
        {("engine.precision", "bf16"), ("batch.micro_batch_size", 8)}),
    "1.5B in fp32": ("RTX 3060 12GB", 1, "qwen2.5-1.5b", {**CAUSAL, **FULL, "micro": 32, "engine__precision": "fp32"},
        {("peft.method", "lora"), ("engine.precision", "bf16")}),
    "8B LoRA in 16 bits on two 3060": ("RTX 3060 12GB", 2, "llama-3.1-8b", {**LORA, "engine__base_precision": "none"},
        {("engine.strategy", "zero3"), ("engine.base_precision", "nf4")}),
    "7B on a 3090": ("RTX 3090", 1, "qwen2.5-7b", {**LORA, "peft__method": "none"},
        {("peft.method", "lora"), ("model.name", "qwen2.5-0.5b")}),
}  # fmt: skip
"""What does not fit, and something of what must be among the remedies."""
SHORT = {
    "micro": "batch__micro_batch_size", "target": "batch__target_samples", "tokens": "batch__target_tokens",
    "accumulation": "batch__gradient_accumulation_steps", "eval": "batch__eval_micro_batch_size",
    "length": "batch__sequence_length",
}  # fmt: skip


def asked(model: str, **values: Any) -> RunConfig:
    return config(model, **{SHORT.get(key, key): value for key, value in values.items()})


def case(name: str) -> tuple[RunConfig, Plan]:
    gpu, count, model, values, _ = CASES[name]
    request = asked(model, **values)
    return request, plan(machine(gpu, count), request)


def apply(request: RunConfig, remedy: Remedy) -> RunConfig:
    return request.with_values(dict(remedy.changes), "you")


def too_large(made: Plan) -> Finding:
    return next(one for one in made.findings if one.code in ("does_not_fit", "tight"))


def said_time(text: str) -> int:
    """How much longer a sequence takes by the words of a remedy, in %; 0 where they name no figure."""
    found = re.search(r"about (\d+)% (more|less) time", text)
    return 0 if found is None else int(found[1]) * (1 if found[2] == "more" else -1)


def slower_by(made: Plan, after: Plan) -> float:
    """The same, of the two plans."""
    before, then = made.time.step_s, after.time.step_s
    assert before is not None and then is not None
    return 100 * (then / after.batch.effective_samples / (before / made.batch.effective_samples) - 1)


@each("name", CASES)
def test_a_remedy_keeps_its_promise(name: str) -> None:
    """And the sentence that no setting will do stands where all of them change what is learnt, and nowhere else."""
    request, made = case(name)
    gpu, count, _, _, wanted = CASES[name]
    if name == "pretrained":
        # Adapters are offered for weights that are there alone.
        scratch = plan(machine(gpu), request.with_values({"model.init": "scratch"}, "you"))
        assert not any("peft.method" in one.changes for one in too_large(scratch).remedies)
    found = too_large(made)
    assert 1 <= len(found.remedies) <= 4 and found.severity == ("error" if found.code == "does_not_fit" else "warning")
    offered = {pair for one in found.remedies for pair in one.changes.items() if isinstance(pair[1], str | int)}
    assert wanted <= offered, [one.text for one in found.remedies]
    # Another model has traces of its own.
    promises, learnt_otherwise = iter(made.candidates), []
    for remedy in found.remedies:
        after = plan(machine(gpu, count), apply(request, remedy))
        assert after.memory.verdict in ("fits", "tight"), remedy.text
        assert f": {gib(after.memory.judged_bytes)}" in remedy.text
        assert after.work == (after.work if "model.name" in remedy.changes else next(promises))
        assert said_time(remedy.text) == pytest.approx(slower_by(made, after), abs=2), remedy.text
        assert not {one.code for one in after.errors} - {one.code for one in made.errors}, remedy.text
        unit = "effective_tokens" if made.batch.target_tokens else "effective_samples"
        assert getattr(after.batch, unit) == pytest.approx(getattr(made.batch, unit), rel=0.02), remedy.text
        learnt_otherwise.append(
            bool({"batch.sequence_length", "peft.method", "model.name"} & set(remedy.changes))
            or "bf16-true" in {str(value) for value in remedy.changes.values()}
        )
    assert learnt_otherwise == sorted(learnt_otherwise), "what changes the training comes last"
    none_will_do = found.code == "does_not_fit" and all(learnt_otherwise)
    assert ("No engine setting makes it fit." in found.message) == none_will_do


def test_where_nothing_fits_or_only_what_is_far_smaller() -> None:
    def on_a_card_of(memory: int) -> Finding:
        small = catalogue_machine(gpu="RTX 2080 Super", num_gpus=1, ram_bytes=64 * GIB, gpu_memory_bytes=memory)
        return finding(plan(small, config("esm2-650m")), "does_not_fit")

    found = on_a_card_of(GIB)
    assert "No engine setting makes it fit." in found.message
    assert [one.changes["model.name"] for one in found.remedies] == ["esm2-8m"]
    assert not on_a_card_of(GIB // 3).remedies
    # Far shorter sequences are offered only where nothing else helps.
    here = machine("RTX 2080 Super")
    remedies = too_large(plan(here, asked("esm2-650m", length=65536, micro=1, peft__method="none"))).remedies
    assert remedies and all(one.changes.get("batch.sequence_length", 65536) < 65536 for one in remedies)


def test_tight_is_a_warning_and_processes_on_a_cpu_are_refused_with_what_all_of_them_need() -> None:
    base = asked("esm2-150m", micro=16, **FULL)
    need, here = plan(machine("H100 SXM"), base).memory, real(machine("RTX 3090"))
    between = (need.needed_bytes + need.needed_high_bytes) // 2
    made = plan(replace(here, gpus=(replace(here.gpus[0], memory_free_bytes=between),)), base)
    assert made.memory.verdict == "tight" and finding(made, "tight").severity == "warning"
    # They share one RAM: what one of them needs would be less than there is, and no reason to refuse.
    made = plan(machine(None, ram_gib=24), asked("qwen2.5-0.5b", micro=8, engine__processes=8, task="causal-lm"))
    said = re.search(r"at least ([\d.]+) GiB, .* has 24.0 GiB", finding(made, "does_not_fit").message)
    assert said is not None and float(said[1]) > 24


def test_a_command_says_a_section_or_its_keys() -> None:
    section, part = {"data.sources": []}, {"data.sources.0.name": "x", "seed": 1}
    assert not_said_twice({**section, **part}, {}) == {**section, "seed": 1}
    assert not_said_twice({**section, **part}, part) == {**section, **part}, "what is to change is said after it"


def test_room() -> None:
    here, request = machine("RTX 3090"), asked("esm2-150m", micro=2, target=64)
    remedy = finding(plan(here, request), "room").remedies[0]
    after = plan(here, apply(request, remedy))
    assert after.batch.micro_batch > 4 and after.batch.effective_samples == 64
    assert after.memory.verdict == "fits" and gib(after.memory.judged_bytes) in remedy.text
    assert "room" not in codes(plan(here, asked("esm2-150m", target=64)))


def test_a_profile_for_any_machine_takes_the_cpu_where_torch_misses_the_gpu() -> None:
    here = replace(real(machine()), torch_cuda=None, unavailable={"torch_cuda": "torch 2.13.0+cpu is a CPU build"})
    profile = load_profile("cpu-demo")
    made = plan(here, build_config(profile, {}), profile=profile)
    found = finding(made, "torch_without_cuda")
    assert found.severity == "warning" and "stays idle" in found.message
    assert made.config.engine.device == "cpu" and made.memory.device == "host RAM"


def test_nothing_moves_to_a_host_that_has_no_room_for_it() -> None:
    profile, card = load_profile("3x3080-20g"), {"gpu": "RTX 3080 20GB", "num_gpus": 3, "gpu_memory_bytes": 6 * GIB}
    request, here = build_config(profile, {}), catalogue_machine(**card, ram_bytes=12 * GIB, cpu_cores=8)
    remedies = finding(plan(here, request, profile=profile), "does_not_fit").remedies
    assert remedies
    for remedy in remedies:
        assert "host_ram" not in codes(plan(here, apply(request, remedy), profile=profile)), remedy.text


def test_a_loss_in_slices_is_chosen_where_it_pays_and_offered_where_it_was_refused() -> None:
    def sliced(asked: RunConfig, data: DataSummary | None = None) -> int | None:
        return plan(machine("RTX 3090"), asked, data).config.training.loss_chunk

    crowded = asked("qwen2.5-0.5b", task="causal-lm", micro=32, target=512, engine__checkpointing=True)
    made = plan(machine("RTX 3090"), crowded)
    assert made.memory.verdict == "fits" and made.config.training.loss_chunk == 512
    assert made.config.origin("training.loss_chunk").reason.startswith("full logits would take")
    at_once = crowded.with_values({"training.loss_chunk": None}, "you", {})
    remedies = finding(plan(machine("RTX 3090"), at_once), "does_not_fit").remedies
    assert any("training.loss_chunk" in one.changes for one in remedies)
    roomy = asked("qwen2.5-0.5b", task="causal-lm", micro=4, target=64, length=1024, engine__checkpointing=True)
    whole = ((1024,) * 9,)
    most, few = (
        replace(rows(length=1024), chats=ChatLook("generation", "", whole, ((learnt,) * 9,), whole, ()))
        for learnt in (1000, 300)
    )
    assert [sliced(roomy), sliced(roomy, most), sliced(roomy, few)] == [None, None, 512]
    assert sliced(roomy.with_values({"engine.compile": True}, "you", {}), few) is None
