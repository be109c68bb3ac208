"""The model catalogue, and what a model name stands for."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.catalog.models import load_models, resolve_model
from trainwiz.core.config.sections import ModelSection
from trainwiz.core.errors import Finding
from trainwiz.core.estimate.families import read_architecture

from tests.each import each

PARAMETERS = {
    "esm2-tiny": 880_178,
    "esm2-8m": 7_512_474,
    "esm2-35m": 33_501_394,
    "esm2-150m": 148_140_154,
    "esm2-650m": 651_043_254,
    "gpt2-tiny": 293_632,
    "gpt2-medium": 354_823_168,
    "qwen2-tiny": 226_880,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "llama-tiny": 354_624,
    "mistral-7b": 7_241_732_096,
    "llama-3.1-8b": 8_030_261_248,
    "nllb-tiny": 361_728,
    "nllb-600m": 615_073_792,
    "opus-mt-tiny": 427_008,
    "opus-mt-zh-en": 77_943_296,
    "t5-chat-tiny": 358_400,
    "t5-chat-0.2b": 187_692_288,
}
"""The full-size ones are the counts that the hub shows for the published weights."""
TINY = [name for name in PARAMETERS if name.endswith("-tiny")]
PUBLISHED = {
    "esm2-8m": "esm2_t6_8M.json",
    "nllb-600m": "nllb-200-distilled-600M.json",
    "llama-3.1-8b": "llama-3.1-8b.json",
}


def meta_model(name: str) -> Any:
    """The model as transformers builds it, on the meta device: no memory, every parameter."""
    import torch
    import transformers

    spec = load_models()[name]
    # transformers writes into nested values (rope_scaling).
    values = copy.deepcopy(spec.architecture)
    config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
    loaders = {
        "masked-lm": transformers.AutoModelForMaskedLM,
        "causal-lm": transformers.AutoModelForCausalLM,
        "seq2seq": transformers.AutoModelForSeq2SeqLM,
    }
    with torch.device("meta"):
        return loaders[spec.task].from_config(config)


def findings_of(name: str, **section: object) -> tuple[Finding, ...]:
    spec, findings = resolve_model(ModelSection.model_validate({"name": name, **section}))
    assert spec is None or findings
    return findings


def hub_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub_id: str, document: object) -> Path:
    """A local Hugging Face cache that holds one model; returns its snapshot."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    root = tmp_path / f"models--{hub_id.replace('/', '--')}"
    snapshot = root / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("abc")
    (snapshot / "config.json").write_text(json.dumps(document))
    return snapshot


def test_every_model_is_counted() -> None:
    assert set(load_models()) == set(PARAMETERS)
    assert all(spec.description for spec in load_models().values())


@each("name", list(PARAMETERS))
def test_architectures_are_those_that_transformers_builds(name: str) -> None:
    model, spec = meta_model(name), load_models()[name]
    assert [type(model).__name__] == spec.architecture["architectures"]
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[name]
    planned, reason = read_architecture(spec.architecture)
    assert planned is not None, reason
    assert planned.parameters == PARAMETERS[name]


@each("name", list(PUBLISHED))
def test_entries_are_the_published_configs(name: str, shared_data: Path) -> None:
    published = json.loads((shared_data / "wild" / "configs" / PUBLISHED[name]).read_text())
    ours = load_models()[name].architecture
    assert {key: published.get(key) for key in ours} == ours


def test_every_sibling_is_of_the_same_task_and_smaller() -> None:
    models = load_models()
    for name, spec in models.items():
        if name in TINY:
            assert spec.smallest_sibling is None and spec.hub_id is None
            continue
        assert spec.smallest_sibling in TINY, name
        sibling = models[str(spec.smallest_sibling)]
        assert sibling.task == spec.task
        assert PARAMETERS[sibling.name] < PARAMETERS[name] / 8
        family = {sibling.architecture["model_type"], spec.architecture["model_type"]}
        assert len(family) == 1 or family == {"llama", "mistral"}


def test_a_catalogue_name_and_its_hub_id_are_the_same_model() -> None:
    by_name, none = resolve_model(ModelSection(name="esm2-8m", init="scratch"))
    by_id, also_none = resolve_model(ModelSection(name="facebook/esm2_t6_8M_UR50D", init="scratch"))
    assert by_name == by_id and none == also_none == ()
    assert by_name is not None and by_name.tokenizer == "esm" and by_name.smallest_sibling == "esm2-tiny"


def test_overrides_of_the_architecture() -> None:
    spec, findings = resolve_model(ModelSection(name="esm2-tiny", architecture_overrides={"num_hidden_layers": 2}))
    assert spec is not None and spec.architecture["num_hidden_layers"] == 2 and findings == ()
    assert load_models()["esm2-tiny"].architecture["num_hidden_layers"] == 4
    (finding,) = findings_of("esm2-tiny", architecture_overrides={"num_hidden_layer": 2})
    assert finding.code == "unknown_key" and "num_hidden_layers" in finding.message


def test_unknown_name() -> None:
    (finding,) = findings_of("esm2-8n")
    assert finding.code == "missing_model" and "Did you mean esm2-8m" in finding.message
    (finding,) = findings_of("../nothing/here")
    assert finding.severity == "error"


def test_a_hub_id_that_is_not_here_says_so_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    (finding,) = findings_of("somebody/some-model")
    assert finding.code == "missing_model" and "somebody/some-model" in finding.message
    assert [remedy.command for remedy in finding.remedies] == ["hf download somebody/some-model", None]


def test_a_hub_id_in_the_local_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2}
    snapshot = hub_model(tmp_path, monkeypatch, "me/gpt", document)
    spec, findings = resolve_model(ModelSection(name="me/gpt", init="scratch"))
    assert spec is not None and [finding.code for finding in findings] == ["tokenizer_made"]
    assert (spec.source, spec.hub_id, spec.task, spec.has_weights) == ("hub", "me/gpt", "causal-lm", False)
    # A config alone is no place to load weights from.
    assert spec.path is None
    (snapshot / "tokenizer.json").touch()
    assert resolve_model(ModelSection(name="me/gpt", init="scratch"))[1] == ()
    (snapshot / "model.safetensors").touch()
    spec, _ = resolve_model(ModelSection(name="me/gpt"))
    assert spec is not None and spec.has_weights and spec.path == snapshot


def test_pretrained_weights_that_are_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    (finding,) = findings_of("esm2-8m", init="pretrained")
    assert finding.remedies[0].command == "hf download facebook/esm2_t6_8M_UR50D"
    (finding,) = findings_of("esm2-tiny", init="pretrained")
    assert finding.remedies[0].changes == {"model.init": "scratch"}


def test_pickled_weights_count_as_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "architectures": ["BertForMaskedLM"]}')
    (tmp_path / "pytorch_model.bin").touch()
    assert resolve_model(ModelSection(name=str(tmp_path), init="pretrained"))[1] == ()


def test_code_that_comes_with_a_model_is_told(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "x", "architectures": ["XForMaskedLM"], "auto_map": {"AutoModel": "m.X"}}')
    (finding,) = findings_of(str(file))
    assert finding.code == "remote_code" and finding.severity == "warning"
    assert resolve_model(ModelSection(name=str(file), trust_remote_code=True))[1] == ()


@each(
    ("text", "words"),
    [
        ("{", "not valid JSON (line 1, column 2)"),
        ("[1]", "holds no JSON object"),
        ("{}", "names no `model_type`"),
        ('{"model_type": "vit", "architectures": ["ViTForImageClassification"]}', "ViTForImageClassification"),
        (None, "does not exist"),
    ],
)
def test_a_config_that_cannot_be_used(tmp_path: Path, text: str | None, words: str) -> None:
    file = tmp_path / "config.json"
    if text is not None:
        file.write_text(text)
    (finding,) = findings_of(str(file))
    assert finding.severity == "error" and words in finding.message


def test_what_a_run_leaves_behind_is_told_from_a_model(tmp_path: Path) -> None:
    (tmp_path / "final_model").mkdir()
    (tmp_path / "final_model" / "config.json").write_text("{}")
    _, (finding,) = resolve_model(ModelSection(name=str(tmp_path)))
    assert f"its model is {tmp_path / 'final_model'}." in finding.message
    (tmp_path / "final_model" / "config.json").rename(tmp_path / "final_model" / "adapter_config.json")
    _, (finding,) = resolve_model(ModelSection(name=str(tmp_path / "final_model")))
    assert "holds adapters" in finding.message and "peft.merge" in finding.message


def test_a_planned_run_needs_no_catalogue() -> None:
    architecture = {**load_models()["esm2-tiny"].architecture, "num_hidden_layers": 1}
    spec, findings = resolve_model(ModelSection(name="gone", architecture=architecture))
    assert spec is not None and spec.architecture == architecture and findings == ()


def test_configs_from_real_repositories_are_read_or_refused_in_one_sentence(shared_data: Path) -> None:
    files = sorted((shared_data / "wild" / "configs").glob("*.json"))
    tasks = {}
    for file in files:
        spec, findings = resolve_model(ModelSection(name=str(file)))
        assert (spec is None) == any(finding.severity == "error" for finding in findings), file.name
        tasks[file.name] = spec.task if spec else findings[0].message
    assert len(files) > 20
    assert tasks["llama-2-7b.json"] == "causal-lm" and tasks["nllb-200-distilled-600M.json"] == "seq2seq"
    assert tasks["nv_esm2_t6_8M.json"] == "masked-lm" and tasks["t5-v1_1-xxl.json"] == "seq2seq"
    assert sum(value in ("causal-lm", "seq2seq", "masked-lm") for value in tasks.values()) > 0.8 * len(files)


@each("name", TINY)
def test_special_tokens_of_the_tiny_ones_are_in_their_vocabulary(name: str) -> None:
    architecture = load_models()[name].architecture
    assert architecture["vocab_size"] == (33 if name == "esm2-tiny" else 2000)
    ids = [value for key, value in architecture.items() if key.endswith("_token_id")]
    assert ids and all(0 <= value < architecture["vocab_size"] for value in ids)
