"""What a plan is of: model, task, data, first weights and rate, and the machine that it is made for."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import UsageError
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.gather import choose_target, gather_config, plan_run
from trainwiz.core.plan.result import Plan
from trainwiz.core.profile.store import load_profile
from trainwiz.tui.plan_words import method_words

from tests.core.plan.machines import GIB, codes, finding, machine, real
from tests.each import each

CPU, CARD, NO_CARD = real(machine(None, cores=4), deepspeed="0.18"), machine(), machine(None)
PROFILE = load_profile("2080super")


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with weights, as far as a plan looks."""
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2, "n_embd": 64, "n_head": 2}
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, "vocab_size": 500, "n_positions": 512}))
    (tmp_path / "model" / "model.safetensors").touch()
    (tmp_path / "model" / "tokenizer.json").touch()
    return tmp_path / "model"


def planned(profile: str | None = None, here: Machine = NO_CARD, mode: Any = "train", **values: Any) -> Plan:
    overrides = {key.replace("__", "."): value for key, value in values.items()}
    return plan_run(PlanRequest(profile=profile, mode=mode, overrides=overrides), here)


def severe(plan: Plan, severity: str = "error") -> set[str]:
    return {found.code for found in plan.findings if found.severity == severity}


def test_a_profile_without_its_card_is_planned_for_that_card() -> None:
    here, (found,) = choose_target(PlanRequest(profile="2080super"), PROFILE, CPU)
    assert here.gpus[0].catalogue_name == "RTX 2080 Super" and here.ram_total_bytes == 64 * GIB
    assert (found.code, found.severity) == ("missing_hardware", "error")
    assert any("--smoke" in (one.command or "") for one in found.remedies)
    for own in (PlanRequest(mode="smoke"), PlanRequest(overrides={"engine.device": "cpu"})):
        assert choose_target(own, PROFILE, CPU) == (CPU, ())
    made = planned("2080super", CPU)
    assert {"missing_hardware", "missing_data", "takes_years"} <= codes(made)
    assert made.memory.verdict == "fits" and made.batch.effective_tokens == 1_999_872
    smoke = planned("2080super", CPU, "smoke")
    engine = smoke.config.engine
    assert (engine.strategy, engine.offload, engine.precision) == ("zero2", "optimizer", "fp32")
    assert not smoke.errors and smoke.config.model.name == "esm2-tiny"


def test_the_card_that_is_here() -> None:
    right, other, mac = (real(machine(gpu)) for gpu in ("RTX 2080 Super", "RTX 3090", "Apple M1 Max"))
    assert choose_target(PlanRequest(), PROFILE, right) == (right, ())
    assert choose_target(PlanRequest(), PROFILE, other) == (other, ())
    (found,) = choose_target(PlanRequest(), PROFILE, replace(CPU, accelerator="mps"))[1]
    assert found.code == "missing_hardware" and "Apple" in found.message
    assert choose_target(PlanRequest(), load_profile("lora-r64-mps"), mac) == (mac, ())


def test_another_machine_by_name_and_by_hand() -> None:
    named = choose_target(PlanRequest(gpu="RTX 3080 10GB", num_gpus=3, ram_bytes=12 * GIB), None, CPU)[0]
    assert (len(named.gpus), named.ram_total_bytes, named.hypothetical) == (3, 12 * GIB, True)
    by_hand = choose_target(PlanRequest(gpu_memory_bytes=20 * GIB, tflops=80, capability="8.9"), PROFILE, CPU)[0]
    assert (by_hand.gpus[0].catalogue_name, by_hand.gpus[0].compute_capability) == (None, "8.9")
    wrong = {"engine.precison": "fp16", "batch.micro_batch_size": "0"}
    for request in (PlanRequest(gpu="RTX 3081"), PlanRequest(profile="2080-super"), PlanRequest(overrides=wrong)):
        with pytest.raises(UsageError) as caught:
            plan_run(request, CPU)
        assert caught.value.exit_code == 2


def test_without_its_model_nothing_is_said_that_hangs_on_the_task(tmp_path: Path) -> None:
    rows = tmp_path / "chat.jsonl"
    rows.write_text('{"prompt": "who?", "response": "me."}\n')
    chosen = {"model.name": "nosuch", "peft.method": "lora", "data.sources": [{"name": str(rows)}]}
    plan = planned(here=CARD, **chosen)
    assert method_words(plan) == "unknown until the model is found"
    assert [error.code for error in plan.errors] == ["missing_model"] and not plan.errors[0].remedies[0].command


def test_data_and_tasks_that_were_asked_for_stay_and_name_the_run(tmp_path: Path) -> None:
    def subject(profile: str | None = None, **overrides: Any) -> tuple[str | None, str, str]:
        values = {key.replace("__", "."): value for key, value in overrides.items()}
        own = load_profile(profile) if profile else None
        config, _, _ = gather_config(PlanRequest(profile=profile, overrides=values), own)
        return config.task, config.data.sources[0].name, config.name

    assert subject(model__name="gpt2-tiny") == ("causal-lm", "sample-text", "gpt2-tiny-sample-text")
    assert subject("cpu-demo", model__name="gpt2-tiny")[:2] == ("causal-lm", "sample-text")
    file = tmp_path / "mine.tsv"
    file.write_text("source\ttarget\n" + "ein Haus\ta house\n" * 300)
    own = {"data__sources__0__name": str(file), "name": "mine"}
    assert subject(model__name="opus-mt-tiny", **own) == ("seq2seq", str(file), "mine")
    theirs = load_profile("4080s").values["data.sources"][0]["name"]
    assert subject("4080s", model__name="gpt2-tiny")[:2] == ("causal-lm", theirs)
    assert subject(model__name="gpt2-tiny", task="masked-lm")[0] == "masked-lm"
    assert subject("cpu-demo")[2] == "cpu-demo"
    assert subject(model__name="Qwen/Qwen2.5-0.5B", data__sources__0__name="rows.jsonl")[2] == "Qwen2.5-0.5B-rows"


def test_a_task_of_another_kind_of_model_is_an_error_with_its_cure() -> None:
    found = finding(planned(here=CARD, model__name="gpt2-tiny", task="seq2seq"), "task_of_another_model")
    assert found.severity == "error" and "gpt2-tiny" in found.message and "seq2seq" in found.message
    cured = planned(here=CARD, model__name="gpt2-tiny", **found.remedies[0].changes)
    assert not cured.errors and re.search(rf"task[ =]{cured.task}", found.remedies[0].command or "")


def test_what_a_run_begins_with(folder: Path) -> None:
    for profile, model, init, words in (
        (None, f"{folder}", "pretrained", f"fine-tunes the weights in {folder}"),
        (None, f"{folder}/config.json", "scratch", "from scratch"),
        (None, "Qwen/Qwen2.5-0.5B", "pretrained", "the published weights of Qwen/Qwen2.5-0.5B"),
        ("2080super", "esm2-8m", "pretrained", "facebook/esm2_t6_8M_UR50D"),
        ("2080super", "esm2-650m", "scratch", "from scratch"),
    ):
        plan = planned(profile, model__name=model)
        assert plan.config.model.init == init and words in plan.model.learnt


def test_the_recipe_of_a_profile_does_not_stick_to_another_model_or_kind(folder: Path) -> None:
    assert planned("cpu-demo").config.training.learning_rate == 1e-3
    other = planned("cpu-demo", model__name=str(folder))
    assert other.config.training.learning_rate == 5e-5 and other.config.training.final_learning_rate == 0
    assert planned("full-4090", peft__method="lora").config.training.learning_rate == 2e-4
    assert planned("2080super", model__init="pretrained").config.training.learning_rate == 5e-5
    # A fine-tuning is three epochs long.
    for init, epochs in (("pretrained", 3.0), ("scratch", 1.0)):
        values = {"model__name": "gpt2-tiny", "model__init": init, "data__sources__0__name": "sample-text"}
        assert planned(**values).config.training.epochs == epochs


@each(("profile", "model", "said"), [
    (None, "", True), (None, "config.json", False), ("cpu-demo", "", True), ("2080super", "qwen2.5-0.5b", True),
    ("2080super", "esm2-8m", False),
])  # fmt: skip
def test_a_fine_tuning_says_that_nobody_named_its_data(folder: Path, profile: Any, model: str, said: bool) -> None:
    """Where the weights are random it is a try; a profile keeps its data for its own task. Nothing is counted by a sample."""
    name = model if "-" in model else str(folder / model)
    unnamed = planned(profile, model__name=name)
    assert ("no_data_named" in severe(unnamed)) is said
    assert not said or (unnamed.data, unnamed.to_json()["batch"]["real_tokens"]) == (None, None)
    assert "no_data_named" not in severe(planned(profile, model__name=name, data__sources__0__name="sample-text"))


def test_the_batch_of_a_fine_tuning_follows_its_rows_and_not_the_card(folder: Path, tmp_path: Path) -> None:
    def samples(rows: int, gpu: str | None, **values: Any) -> int:
        data = tmp_path / f"{rows}.txt"
        data.write_text("".join(f"a line of text, number {row}\n" for row in range(rows)))
        named = {"model.name": str(folder), "data.sources.0.name": str(data), "data.concatenate": False}
        request = PlanRequest(gpu=gpu, overrides={**named, "data.validation_rows": 0, **values})
        return plan_run(request).batch.effective_samples

    assert [samples(2000, gpu) for gpu in (None, "RTX 3080 10GB", "H100 80GB")] == [16, 16, 16]
    assert [samples(45, gpu) for gpu in (None, "H100 80GB")] == [4, 4]
    assert samples(2000, "H100 80GB", **{"batch.micro_batch_size": 2}) == 2
    assert samples(2000, "H100 80GB", **{"batch.target_samples": 64}) == 64
    assert samples(2000, "H100 80GB", **{"model.init": "scratch"}) > 16


SIZES: dict[str, Any] = {
    "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256, "vocab_size": 1000,
    "max_position_embeddings": 512,
}  # fmt: skip
BART: dict[str, Any] = {
    "d_model": 128, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "vocab_size": 1000,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256, "is_encoder_decoder": True,
}  # fmt: skip


def of_config(tmp_path: Path, kind: str, architecture: str | None = None, *, sizes: Any = SIZES, **more: Any) -> Plan:
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"model_type": kind, **({"architectures": [architecture]} if architecture else {}), **sizes})
    )
    values = {"model.name": str(path), "batch.micro_batch_size": 4, **more}
    return plan_run(PlanRequest(overrides=values, gpu="RTX 3090", num_gpus=1))


def test_a_classifier_and_its_classes(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    named = {"data.sources.0.name": str(rows)}
    lines = [json.dumps({"text": f"a few words {n}", "label": int(n % 20 == 0)}) for n in range(400)]
    rows.write_text("\n".join(lines))
    made = of_config(tmp_path, "bert", "BertForSequenceClassification", **named)
    assert made.task == "sequence-classification" and not made.errors
    assert made.memory.verdict == "fits" and made.memory.breakdown["logits"] < 2**20
    labels = made.to_json()["data"]["labels"]
    assert labels["exact"] and list(labels["counts"]) == ["0", "1"]
    assert [labels["counts"][name] + labels["held_out"][name] for name in "01"] == [380, 20]
    assert "0 376, 1 20" in finding(made, "classes_found").message
    assert finding(made, "unbalanced_classes").remedies[0].changes == {"training.class_weights": "balanced"}
    # Any body can be made a classifier, and the head of adapters is kept by merging.
    lora = {"task": "sequence-classification", "peft.method": "lora"}
    other = of_config(tmp_path, "bert", "BertForMaskedLM", **named, **lora)
    assert severe(other) == {"adapters_on_random_weights"} and other.config.peft.merge
    rows.write_text("".join(json.dumps({"text": f"a few words {n}", "label": "same"}) + "\n" for n in range(50)))
    alike = of_config(tmp_path, "bert", "BertForSequenceClassification", **named)
    assert {one.code for one in alike.errors} == {"one_class"} and alike.data is not None


def test_models_that_are_read_refused_or_only_near(tmp_path: Path) -> None:
    masked = of_config(tmp_path, "bert", "BertForMaskedLM")
    assert masked.memory.verdict == "fits" and not masked.errors
    assert masked.config.data.sources[0].name == "sample-text"
    both = of_config(tmp_path, "bart", sizes=BART, task="sequence-classification")
    assert "model_not_supported" in severe(both)
    made = of_config(tmp_path, "vit", "ViTForImageClassification")
    assert "ViTForImageClassification" in finding(made, "unsupported_model").message
    made = of_config(tmp_path, "fooformer", "FooForCausalLM")
    assert finding(made, "approximate_architecture").severity == "note" and made.memory.verdict == "fits"
    for chunk in (None, 64):
        made = of_config(tmp_path, "fsmt", "FSMTForConditionalGeneration", sizes=BART, **{"training.loss_chunk": chunk})
        assert ("loss_not_sliceable" in severe(made)) is (chunk is not None)
    assert dict(finding(made, "loss_not_sliceable").remedies[0].changes) == {"training.loss_chunk": None}


def test_a_plan_for_another_machine() -> None:
    """Without named data it takes full lengths; weights are needed there, not here."""
    values = {"model.name": "gpt2-tiny", "peft.method": "lora", "batch.sequence_length": 1024}

    def elsewhere(mode: Any = "train", **more: Any) -> Plan:
        return plan_run(PlanRequest(overrides={**values, **more}, gpu="RTX 3090", num_gpus=1, mode=mode))

    made, named = elsewhere(), elsewhere(**{"data.sources.0.name": "sample-chat"})
    assert finding(made, "no_data_named").severity == "note" and "no_data_named" not in codes(named)
    assert made.work is not None and named.work is not None and named.work.length < made.work.length == 1024
    assert "no_data_named" not in codes(elsewhere("smoke"))
    assert "missing_model" in severe(planned(model__name="qwen2.5-0.5b"))
    assert finding(elsewhere(**{"model.name": "qwen2.5-0.5b"}), "missing_model").severity == "note"
