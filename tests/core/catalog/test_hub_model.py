"""Models that are not here: what the hub, a stand-in on this machine, says of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from trainwiz.core.catalog.hub import hub_token
from trainwiz.core.catalog.models import resolve_model
from trainwiz.core.config.sections import ModelSection
from trainwiz.core.errors import Finding

from tests.core.catalog.hub_stand_in import Hub, hub_stand_in
from tests.each import each

WEIGHTS = {"config.json": 700, "model.safetensors": 1_246_000_000, "tokenizer.json": 17_000_000}
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A reachable hub, an empty cache, no account."""
    with hub_stand_in() as stand_in:
        monkeypatch.setenv("HF_ENDPOINT", stand_in.endpoint)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        for variable in ("HF_HUB_OFFLINE", "HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
            monkeypatch.delenv(variable, raising=False)
        yield stand_in


def findings(name: str, **section: object) -> list[Finding]:
    return list(resolve_model(ModelSection.model_validate({"name": name, **section}), online=True)[1])


def one(name: str, **section: object) -> Finding:
    (finding,) = findings(name, **section)
    return finding


def test_weights_that_the_hub_has_are_a_warning_with_their_size(hub: Hub) -> None:
    hub.add("Qwen/Qwen2.5-7B", {**WEIGHTS, "model-00001-of-00002.safetensors": 3_000_000_000, "other.safetensors": 9})
    finding = one("qwen2.5-7b", init="pretrained")
    assert (finding.code, finding.severity) == ("model_to_download", "warning")
    assert "2 files with 4.2 GB are downloaded when the run starts" in finding.message
    assert finding.remedies[0].command == "hf download Qwen/Qwen2.5-7B"
    assert hub.asked == [("/api/models/Qwen/Qwen2.5-7B?blobs=true", None)]


def test_the_hub_is_asked_once_for_many_plans_and_only_online(hub: Hub) -> None:
    hub.add("Qwen/Qwen2.5-7B", WEIGHTS)
    for _ in range(3):
        assert one("qwen2.5-7b", init="pretrained").code == "model_to_download"
    assert len(hub.asked) == 1
    section = ModelSection(name="qwen2.5-7b", init="pretrained")
    assert [finding.code for finding in resolve_model(section)[1]] == ["missing_model"]
    assert len(hub.asked) == 1


def test_nothing_is_asked_for_a_model_from_scratch(hub: Hub) -> None:
    assert [finding.severity for finding in findings("gpt2-medium", init="scratch")] == ["note"]
    made = one("t5-chat-0.2b", init="scratch")
    assert (made.code, made.severity) == ("tokenizer_made", "note") and "29,298 entries" in made.message
    assert findings("esm2-650m", init="scratch") == findings("gpt2-tiny") == []
    assert hub.asked == []


def test_a_hub_that_cannot_be_reached(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    finding = one("qwen2.5-7b", init="pretrained")
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert one("qwen2.5-7b", init="pretrained") == finding and hub.asked == []
    assert (finding.code, finding.severity) == ("missing_model", "error")
    assert "train from scratch" in [remedy.text for remedy in finding.remedies]


def test_weights_that_are_pickles_alone_are_downloaded_too(hub: Hub) -> None:
    hub.add("Helsinki-NLP/opus-mt-zh-en", {"pytorch_model.bin": 312_000_000, "source.spm": 800_000})
    finding = one("opus-mt-zh-en", init="pretrained")
    assert finding.code == "model_to_download" and "1 file with 0.3 GB" in finding.message


def test_a_gated_model_needs_an_account(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("meta-llama/Llama-3.1-8B", WEIGHTS, gated="manual")
    finding = one("llama-3.1-8b", init="pretrained")
    assert finding.code == "gated_model" and "licence" in finding.message and "hf auth login" in finding.message
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert one("llama-3.1-8b", init="pretrained").code == "model_to_download"
    assert hub.asked[-1][1] == "Bearer hf_secret"
    assert "hf_secret" not in str(one("llama-3.1-8b", init="pretrained"))


def test_an_account_that_was_logged_in_before(hub: Hub, tmp_path: Path) -> None:
    assert hub_token() is None
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "token").write_text("hf_kept\n")
    assert hub_token() == "hf_kept"


def test_a_model_that_only_the_hub_has_can_be_planned(hub: Hub) -> None:
    hub.add("someone/new-model", WEIGHTS, GPT2)
    spec, found = resolve_model(ModelSection(name="someone/new-model", init="pretrained"), online=True)
    assert spec is not None and (spec.source, spec.hub_id, spec.task) == ("hub", "someone/new-model", "causal-lm")
    assert spec.architecture == GPT2 and [finding.code for finding in found] == ["model_to_download"]
    # The planned run carries the architecture, and still knows where its weights are.
    planned = ModelSection(name="someone/new-model", init="pretrained", architecture=GPT2)
    again, _ = resolve_model(planned)
    assert again is not None and again.hub_id == "someone/new-model"


@each("config", [None, "{", "[1]", "<html>"])
def test_a_config_on_the_hub_that_cannot_be_used(hub: Hub, config: object) -> None:
    hub.add("someone/odd", WEIGHTS, config)
    finding = one("someone/odd")
    assert finding.code == "missing_model" and "config.json" in finding.message


def test_a_name_that_the_hub_does_not_know(hub: Hub) -> None:
    finding = one("nobody/nothing")
    assert finding.code == "missing_model" and "no public model of that name" in finding.message
    # A word without an owner is a typing mistake more often than a model: it is not sent anywhere.
    asked = len(hub.asked)
    assert "Did you mean esm2-8m" in one("esm2-8n").message and len(hub.asked) == asked


def test_a_tokenizer_of_its_own(hub: Hub, tmp_path: Path) -> None:
    hub.add("someone/words", {"tokenizer.json": 5})
    finding = one("gpt2-tiny", tokenizer="someone/words")
    assert (finding.code, finding.severity, finding.where) == ("model_to_download", "warning", "model.tokenizer")
    assert one("gpt2-tiny", tokenizer="nobody/words").code == "missing_tokenizer"
    assert one("gpt2-tiny", tokenizer=str(tmp_path)).message.startswith(f"{tmp_path} holds no tokenizer")
    (tmp_path / "tokenizer.json").touch()
    assert findings("gpt2-tiny", tokenizer=str(tmp_path)) == []
    assert findings("gpt2-medium", tokenizer="train", init="scratch") == []


def test_weights_without_a_tokenizer(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}')
    (tmp_path / "model.safetensors").touch()
    finding = one(str(tmp_path), init="pretrained")
    assert (finding.code, finding.severity) == ("missing_tokenizer", "error")
    (tmp_path / "tokenizer.json").touch()
    assert findings(str(tmp_path), init="pretrained") == []
