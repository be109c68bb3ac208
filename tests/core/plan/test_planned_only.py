"""What is planned and not trained, models that only a config describes, and data that nobody named."""

import json
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.gather import gather, plan_run, probe_here
from trainwiz.core.plan.result import Plan

from tests.core.plan.machines import codes, finding

SIZES: dict[str, Any] = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
}


def planned(tmp_path: Path, document: dict[str, Any] | str, **overrides: Any) -> Plan:
    path = tmp_path / "config.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    values = {"model.name": str(path), "batch.micro_batch_size": 4, **overrides}
    return plan_run(PlanRequest(overrides=values, gpu="RTX 3090", num_gpus=1))


def test_a_classifier_is_planned_and_not_trained(tmp_path: Path) -> None:
    made = planned(tmp_path, {"model_type": "bert", "architectures": ["BertForSequenceClassification"], **SIZES})
    assert made.task == "sequence-classification"
    assert made.memory.verdict == "fits" and made.memory.breakdown["logits"] < 2**20
    found = finding(made, "task_not_trained")
    assert found.severity == "error" and "planned, not trained" in found.message


def test_a_language_model_can_be_planned_as_a_classifier(tmp_path: Path) -> None:
    document = {"model_type": "bert", "architectures": ["BertForMaskedLM"], **SIZES}
    made = planned(tmp_path, document, task="sequence-classification")
    assert made.task == "sequence-classification"
    assert "task_of_another_model" not in codes(made)
    assert finding(made, "task_not_trained").remedies[0].changes == {"task": "masked-lm"}
    as_language_model = planned(tmp_path, document)
    assert made.memory.allocated_bytes < as_language_model.memory.allocated_bytes


def test_the_lengths_of_a_classifiers_rows_are_read(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\n" + "a few words,1\n" * 50)
    document = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], **SIZES}
    made = planned(tmp_path, document, **{"data.sources.0.name": str(rows)})
    assert made.data is not None and made.data.rows + made.data.validation_rows == 50
    assert {one.code for one in made.errors} == {"task_not_trained"}


@pytest.mark.parametrize(
    ("kind", "task"), [("phi", "causal-lm"), ("llama", "causal-lm"), ("roberta", "masked-lm"), ("bart", "seq2seq")]
)
def test_a_config_that_names_no_class_is_of_the_task_of_its_blocks(tmp_path: Path, kind: str, task: str) -> None:
    bart = {"d_model": 128, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
    bart |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256, "is_encoder_decoder": True}
    made = planned(tmp_path, {"model_type": kind, **SIZES, **(bart if kind == "bart" else {})})
    assert made.task == task and made.memory.verdict == "fits"


def test_a_model_for_something_else_is_refused(tmp_path: Path) -> None:
    made = planned(tmp_path, {"model_type": "vit", "architectures": ["ViTForImageClassification"], **SIZES})
    assert "ViTForImageClassification" in finding(made, "unsupported_model").message


def test_a_model_type_without_formulas_of_its_own_is_planned_with_a_note(tmp_path: Path) -> None:
    made = planned(tmp_path, {"model_type": "fooformer", "architectures": ["FooForCausalLM"], **SIZES})
    assert finding(made, "approximate_architecture").severity == "note"
    assert made.memory.verdict == "fits"


def test_masked_lm_of_other_families_is_planned_and_not_trained(tmp_path: Path) -> None:
    made = planned(tmp_path, {"model_type": "roberta", "architectures": ["RobertaForMaskedLM"], **SIZES})
    assert made.memory.verdict == "fits"
    assert "model_not_supported" in {one.code for one in made.errors}


def test_without_named_data_a_plan_for_another_machine_takes_full_lengths() -> None:
    values = {"model.name": "gpt2-tiny", "peft.method": "lora", "batch.sequence_length": 1024}
    elsewhere = plan_run(PlanRequest(overrides=values, gpu="RTX 3090", num_gpus=1))
    assert finding(elsewhere, "no_data_named").severity == "note"
    assert elsewhere.work is not None and elsewhere.work.length == 1024
    named = {**values, "data.sources.0.name": "sample-chat"}
    with_data = plan_run(PlanRequest(overrides=named, gpu="RTX 3090", num_gpus=1))
    assert "no_data_named" not in codes(with_data)
    assert with_data.work is not None and with_data.work.length < 1024
    smoke = plan_run(PlanRequest(overrides=values, gpu="RTX 3090", num_gpus=1, mode="smoke"))
    assert "no_data_named" not in codes(smoke)


def test_here_the_sample_is_what_is_trained() -> None:
    request = PlanRequest(overrides={"model.name": "gpt2-tiny"})
    here: Machine = probe_here(request)
    assert gather(request, here).data is not None


def test_a_loss_that_cannot_be_sliced_is_refused(tmp_path: Path) -> None:
    sizes = {"d_model": 128, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
    sizes |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256, "is_encoder_decoder": True}
    document = {"model_type": "fsmt", "architectures": ["FSMTForConditionalGeneration"], "vocab_size": 1000, **sizes}
    assert "loss_not_sliceable" not in codes(planned(tmp_path, document))
    found = finding(planned(tmp_path, document, **{"training.loss_chunk": 64}), "loss_not_sliceable")
    assert found.severity == "error" and dict(found.remedies[0].changes) == {"training.loss_chunk": None}
