"""The model catalogue, what a model name stands for, its facts, its LoRA targets and its abilities."""

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.catalog import models as model_facts
from trainwiz.core.catalog.hub import HubAnswer
from trainwiz.core.catalog.model_config import (
    NO_CHECKPOINTING,
    NO_FLASH,
    NO_SDPA,
    SMALLEST,
    has_attention,
    has_checkpointing,
    known_targets,
    unknown_targets,
)
from trainwiz.core.catalog.models import load_models, read_model_facts, resolve_model
from trainwiz.core.config.run import ModelSection
from trainwiz.core.errors import Finding
from trainwiz.core.estimate.families import read_architecture

from tests.core.estimate.test_families import built
from tests.each import each

PARAMETERS = {
    "esm2-tiny": 880_178, "esm2-8m": 7_512_474, "esm2-35m": 33_501_394, "esm2-150m": 148_140_154,
    "esm2-650m": 651_043_254, "bert-tiny": 737_360, "bert-base": 109_514_298, "modernbert-base": 149_655_232, "modernbert-large": 395_881_664, "gpt2-tiny": 293_632,
    "gpt2-medium": 354_823_168, "qwen2-tiny": 226_880, "qwen2.5-0.5b": 494_032_768, "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688, "qwen2.5-7b": 7_615_616_512, "llama-tiny": 354_624, "mistral-7b": 7_241_732_096,
    "llama-3.1-8b": 8_030_261_248, "qwen3-0.6b": 596_049_920, "qwen3-1.7b": 1_720_574_976, "qwen3-4b": 4_022_468_096,
    "qwen3-4b-instruct-2507": 4_022_468_096, "qwen3-8b": 8_190_735_360, "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264, "qwen2.5-0.5b-instruct": 494_032_768, "qwen2.5-1.5b-instruct": 1_543_714_304,
    "qwen2.5-3b-instruct": 3_085_938_688, "qwen2.5-7b-instruct": 7_615_616_512,
    "qwen2.5-14b-instruct": 14_770_033_664, "qwen2.5-32b-instruct": 32_763_876_352,
    "llama3.2-1b-instruct": 1_235_814_400, "llama3.2-3b-instruct": 3_212_749_824,
    "llama3.1-8b-instruct": 8_030_261_248, "gemma3-270m-it": 268_098_176, "gemma3-1b-it": 999_885_952,
    "gemma3-4b-it": 3_880_263_168, "gemma3-12b-it": 11_766_034_176, "gemma3-27b-it": 27_009_346_304,
    "mistral-7b-instruct": 7_248_023_552, "mistral-nemo-12b-instruct": 12_247_782_400,
    "mistral-small-24b-instruct": 23_572_403_200, "phi-4-mini": 3_836_021_760, "phi-4": 14_659_507_200,
    "smollm2-135m-instruct": 134_515_008, "smollm2-360m-instruct": 361_821_120,
    "smollm2-1.7b-instruct": 1_711_376_384, "smollm3-3b": 3_075_098_624,
    "qwen3.5-0.8b": 752_393_024, "qwen3.5-2b": 1_881_825_088, "qwen3.5-4b": 4_205_751_296,
    "qwen3.5-9b": 8_953_803_264, "qwen3.5-27b": 26_895_998_464, "gemma4-e2b-it": 4_628_569_344,
    "gemma4-e4b-it": 7_463_013_376, "gemma4-31b-it": 30_697_345_280, "gpt-oss-20b": 20_914_757_184,
    "nllb-tiny": 361_728, "nllb-600m": 615_073_792, "opus-mt-tiny": 427_008, "opus-mt-zh-en": 77_943_296,
    "t5-chat-tiny": 358_400, "t5-chat-0.2b": 187_692_288,
}  # fmt: skip
"""The full-size ones are the counts that the hub shows for the published weights, or that others read from them where
the weights hold one tensor twice or more than the text part."""
TINY = [name for name in PARAMETERS if name.endswith("-tiny")]


def findings_of(name: str, **section: object) -> tuple[Finding, ...]:
    return resolve_model(ModelSection.model_validate({"name": name, **section}))[1]


def test_architectures_have_the_published_counts_and_the_classes_of_transformers() -> None:
    """That readers count as transformers builds: tests/core/estimate/test_families.py."""
    types = {str(spec.architecture["model_type"]) for spec in load_models().values()}
    kinds = {(model_type, model.__name__) for model_type, model in _classes(types)}
    for name, spec in load_models().items():
        planned, reason = read_architecture(spec.architecture)
        assert planned is not None and planned.parameters == PARAMETERS[name], (name, reason)
        assert (spec.architecture["model_type"], spec.architecture["architectures"][0]) in kinds, name


@each("name", TINY)
def test_what_peft_can_adapt_is_what_lora_may_target(name: str) -> None:
    import torch
    import transformers

    spec = load_models()[name]
    planned, _ = read_architecture(spec.architecture)
    assert planned is not None
    # transformers writes into nested values (rope_scaling).
    values = copy.deepcopy(spec.architecture)
    model = built(transformers.AutoConfig.for_model(values.pop("model_type"), **values), spec.task)
    kinds = (torch.nn.Linear, transformers.pytorch_utils.Conv1D)
    paths = [path for path, module in model.named_modules() if isinstance(module, kinds)]
    targets = known_targets(spec.architecture)
    assert targets and all(any(path.endswith(f".{target}") for path in paths) for target in targets)
    assert unknown_targets(spec.architecture, targets) == () and known_targets(planned) == targets
    paths = [path for path in paths if "contact_head" not in path]
    assert unknown_targets(spec.architecture, paths) == ()
    assert unknown_targets(spec.architecture, [path.rpartition(".")[2] for path in paths]) == ()
    # Special tokens are in the vocabulary.
    vocabulary = spec.architecture["vocab_size"]
    ids = [value for key, value in spec.architecture.items() if key.endswith("_token_id")]
    assert vocabulary == (33 if name == "esm2-tiny" else 2000) and ids and all(0 <= one < vocabulary for one in ids)


def test_every_sibling_is_of_the_same_task_and_smaller() -> None:
    models = load_models()
    assert set(models) == set(PARAMETERS)
    for name, spec in models.items():
        assert spec.description
        if name in TINY:
            assert spec.smallest_sibling is None and spec.hub_id is None
            continue
        kind = spec.architecture["model_type"]
        assert spec.smallest_sibling == SMALLEST.get(kind), name
        sibling = models[str(spec.smallest_sibling)]
        assert sibling.task == spec.task and PARAMETERS[sibling.name] < PARAMETERS[name] / 8


def test_overrides_of_the_architecture_and_one_that_a_planned_run_carries() -> None:
    spec, findings = resolve_model(ModelSection(name="esm2-tiny", architecture_overrides={"num_hidden_layers": 2}))
    assert spec is not None and spec.architecture["num_hidden_layers"] == 2 and findings == ()
    assert load_models()["esm2-tiny"].architecture["num_hidden_layers"] == 4
    (finding,) = findings_of("esm2-tiny", architecture_overrides={"num_hidden_layer": 2})
    assert finding.code == "unknown_key" and "num_hidden_layers" in finding.message
    architecture = {**load_models()["esm2-tiny"].architecture, "num_hidden_layers": 1}
    spec, findings = resolve_model(ModelSection(name="gone", architecture=architecture))
    assert spec is not None and spec.architecture == architecture and findings == ()


def test_models_and_weights_that_are_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    (finding,) = findings_of("../nothing/here")
    assert finding.severity == "error"
    (finding,) = findings_of("somebody/some-model")
    assert finding.code == "missing_model" and "somebody/some-model" in finding.message
    assert [remedy.command for remedy in finding.remedies] == ["hf download somebody/some-model", None]
    (finding,) = findings_of("esm2-tiny", init="pretrained")
    assert finding.remedies[0].changes == {"model.init": "scratch"}
    # Pickled weights count as weights.
    (tmp_path / "config.json").write_text('{"model_type": "bert", "architectures": ["BertForMaskedLM"]}')
    (tmp_path / "pytorch_model.bin").touch()
    (tmp_path / "tokenizer.json").touch()
    assert resolve_model(ModelSection(name=str(tmp_path), init="pretrained"))[1] == ()


def test_a_hub_id_in_the_local_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--me--gpt/snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2}')
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


@each(("files", "words"), [
    ({"config.json": "{"}, "not valid JSON (line 1, column 2)"),
    ({"config.json": "[1]"}, "does not contain a JSON object"),
    ({"config.json": "{}"}, "has no `model_type`"),
    ({"config.json": '{"model_type": "vit", "architectures": ["ViTForImageClassification"]}'}, "ViTForImageClassification"),
    ({}, "has no config.json"),
    ({"final_model/config.json": "{}"}, "is a run folder; its model is"),
    ({"adapter_config.json": "{}"}, "contains an adapter without its base model"),
    ({"model-q4.gguf": ""}, "is for llama.cpp (GGUF)"),
])  # fmt: skip
def test_a_folder_that_cannot_be_used(tmp_path: Path, files: dict[str, str], words: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (finding,) = findings_of(str(tmp_path))
    assert finding.severity == "error" and words in finding.message


def test_code_that_comes_with_a_model_is_told_and_a_config_alone_is_read(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    assert "does not exist" in findings_of(str(file))[0].message
    file.write_text('{"model_type": "x", "architectures": ["XForMaskedLM"], "auto_map": {"AutoModel": "m.X"}}')
    (finding,) = findings_of(str(file))
    assert finding.code == "remote_code" and finding.severity == "warning"
    assert resolve_model(ModelSection(name=str(file), trust_remote_code=True))[1] == ()
    # Without its head, and of blocks that nobody here knows: what it was made for is not known.
    for values, task in ({"model_type": "x"}, None), (load_models()["bert-tiny"].architecture, "masked-lm"):
        file.write_text(json.dumps({**values, "architectures": ["XModel"]}))
        found, _ = resolve_model(ModelSection(name=str(file)))
        assert (found and found.task) == task


def test_weights_that_cannot_be_trained_or_are_not_whole_are_told_before_a_run(tmp_path: Path) -> None:
    def said(**config: Any) -> list[str]:
        (tmp_path / "config.json").write_text(json.dumps({**load_models()["qwen2-tiny"].architecture, **config}))
        spec, findings = resolve_model(ModelSection(name=str(tmp_path), tokenizer="train"))
        return [f"{finding.code}: {finding.message}" for finding in findings] if spec else [findings[0].code]

    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "model-00001-of-00002.safetensors").touch()
    assert "model-00002-of-00002.safetensors" in said()[0]
    # An index beside whole weights is not asked by transformers.
    (tmp_path / "model.safetensors").touch()
    assert said() == []
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model-00002-of-00002.safetensors").touch()
    assert said() == []
    for method in ("gptq", "awq", "fp8", "bitsandbytes"):
        assert f"are quantized ({method})" in said(quantization_config={"quant_method": method})[0]
    assert said(quantization={"bits": 4, "group_size": 64})[0].startswith("quantized_weights")
    assert said(vision_config={"depth": 2}) == ["unsupported_model"]


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


def test_weights_are_counted_once_and_the_licence_is_that_of_the_card(tmp_path: Path) -> None:
    for name, size in (("model-00001-of-00002.safetensors", 300), ("model-00002-of-00002.safetensors", 200),
                       ("pytorch_model.bin", 5000), ("optimizer.pt", 9000)):  # fmt: skip
        (tmp_path / name).write_bytes(b"0" * size)
    spec = replace(load_models()["esm2-tiny"], source="folder", path=tmp_path)
    facts = read_model_facts(spec)
    assert (facts.weights_bytes, facts.weights_folder, facts.download_bytes) == (500, tmp_path, None)
    for path in tmp_path.glob("*.safetensors"):
        path.unlink()
    assert read_model_facts(spec).weights_bytes == 5000
    gone = read_model_facts(replace(spec, path=tmp_path / "gone"))
    assert (gone.weights_bytes, gone.weights_folder, gone.license) == (None, None, None)
    assert read_model_facts(load_models()["nllb-600m"]).license == "cc-by-nc-4.0", "the catalogue's, without a card"
    for readme, licence in (
        ("---\nlicense: apache-2.0\ntags:\n- x\n---\n# Title\n", "apache-2.0"),
        ("---\nlicense: other\nlicense_name: qwen-research\n---\n", "qwen-research"),
        ("# No block\nlicense: mit\n", None),
        ("---\nnever: closed\nlicense: mit\n", None),
        ("\x00\xff" * 70_000, None),
    ):
        (tmp_path / "README.md").write_text(readme, encoding="latin-1")
        assert read_model_facts(spec).license == licence


def test_a_model_that_only_the_hub_has(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = HubAnswer("there", {"model.safetensors": 700, "README.md": 3}, False, "mit")
    monkeypatch.setattr(model_facts, "ask_hub", {"someone/nothing-here": answer}.__getitem__)
    spec = replace(load_models()["gpt2-tiny"], source="hub", hub_id="someone/nothing-here")
    facts = read_model_facts(spec)
    assert (facts.weights_bytes, facts.download_bytes, facts.license) == (None, 700, "mit")
    read_model_facts(replace(spec, source="catalogue", hub_id="not/asked"))


def test_names_of_another_family_are_unknown() -> None:
    qwen = load_models()["qwen2.5-7b"].architecture
    assert unknown_targets(qwen, ["q_proj", "c_attn", "qproj", "lm_head"]) == ("c_attn", "qproj")
    assert unknown_targets({"model_type": "mamba"}, ["anything"]) == () == known_targets({"model_type": "mamba"})


def _classes(model_types: set[str] | None = None) -> Iterator[tuple[str, type]]:
    import transformers
    from transformers.models.auto import modeling_auto

    for task in ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SEQUENCE_CLASSIFICATION"):
        for model_type, names in getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES").items():
            if model_types is None or model_type in model_types:
                for name in (names,) if isinstance(names, str) else names:
                    yield model_type, getattr(transformers, name)


def _flash(model: type) -> bool:
    kernels = model._compatible_flash_implementations  # type: ignore[attr-defined]
    return bool(model._supports_flash_attn) and (kernels is None or "flash_attention_2" in kernels)  # type: ignore[attr-defined]


@pytest.mark.all
def test_every_type_is_as_transformers_has_it() -> None:
    seen = set()
    for model_type, model in _classes():
        seen.add(model_type)
        assert has_attention(model_type, "sdpa") == model._supports_sdpa, model  # type: ignore[attr-defined]
        assert has_attention(model_type, "flash_attention_2") == _flash(model), model
        assert has_checkpointing(model_type) == model.supports_gradient_checkpointing, model  # type: ignore[attr-defined]
    assert seen >= NO_SDPA | NO_FLASH | NO_CHECKPOINTING
