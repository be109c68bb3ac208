"""One question to the hub, for models and data sets alike, and what a stand-in on this machine says of models."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from trainwiz.core.catalog import hub as hub_api
from trainwiz.core.catalog.hub import ask, ask_hub, hub_token, is_hub_id
from trainwiz.core.catalog.models import resolve_model
from trainwiz.core.config.run import DataSource, ModelSection
from trainwiz.core.data.sources import hub_files
from trainwiz.core.errors import Finding, UsageError

from tests.core.data.hub_stand_in import HubStandIn, hub_server

DOCUMENT = {"gated": "auto", "siblings": [{"rfilename": "data/train.jsonl", "size": 2}, {"rfilename": "b"}]}


def test_what_is_a_hub_id() -> None:
    assert is_hub_id("agemagician/uniref50") and is_hub_id("gpt2")
    assert not any(map(is_hub_id, ("/abs/path", "a/b/c", "./data", "../x", "a/..", "a/b..c")))


def test_the_token_is_not_sent_to_where_the_hub_redirects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with hub_server(HubStandIn()) as elsewhere, hub_server(HubStandIn()) as hub:
        hub.redirect = elsewhere.endpoint
        elsewhere.answers["/api/datasets/some/gated"] = DOCUMENT
        for name, value in (("ENDPOINT", hub.endpoint), ("TOKEN", "hf_mine"), ("HUB_CACHE", str(tmp_path))):
            monkeypatch.setenv(f"HF_{name}", value)
        with pytest.raises(UsageError, match="downloaded when the run starts"):
            hub_files(DataSource(name="some/gated"), "")
        assert ask_hub("some/gated", "datasets").sizes == {"data/train.jsonl": 2, "b": 0}
        elsewhere.answers["/api/datasets/some/odd"] = {"siblings": "?"}
        assert ask_hub("some/odd", "datasets").state == "offline"
    assert set(hub.tokens) == {"Bearer hf_mine"} and set(elsewhere.tokens) == {None}


@contextmanager
def strange_server(*pieces: bytes) -> Iterator[str]:
    """Address of one that answers with these pieces, again and again the last one, a tenth of a second apart."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    for piece in (*pieces[:-1], *[pieces[-1]] * 100):
                        connection.sendall(piece)
                        time.sleep(0.1)

        threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_an_answer_that_never_ends_or_is_none_is_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_api, "LONGEST_S", 0.5)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)

    def answer(endpoint: str) -> tuple[int, object]:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        return ask("/api/odd")

    with strange_server(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n") as hub:
        began = time.monotonic()
        assert answer(hub) == (0, None)
    assert time.monotonic() - began < 8
    with strange_server(b"\0\xff nonsense\r\n\r\n") as hub:
        assert answer(hub) == (0, None)
    with strange_server(b"HTTP/1.1 200 OK\r\n\r\n<html>Please log in</html>") as hub:
        assert answer(hub)[1] is None
    for endpoint in ("nonsense", "http://a b", "http://[::", "http://x:port"):
        assert answer(endpoint) == (0, None)


WEIGHTS = {"config.json": 700, "model.safetensors": 1_246_000_000, "tokenizer.json": 17_000_000}
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubStandIn]:
    """A reachable hub, an empty cache, no account."""
    with hub_server(HubStandIn()) as stand_in:
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


def test_weights_that_the_hub_has_are_a_warning_with_their_size(hub: HubStandIn) -> None:
    hub.add_model(
        "Qwen/Qwen2.5-7B", {**WEIGHTS, "model-00001-of-00002.safetensors": 3_000_000_000, "other.safetensors": 9}
    )
    finding = one("qwen2.5-7b", init="pretrained")
    assert (finding.code, finding.severity) == ("model_to_download", "warning")
    assert "2 files (4.2 GB) will be downloaded when the run starts" in finding.message
    assert finding.remedies[0].command == "hf download Qwen/Qwen2.5-7B"
    (offline,) = resolve_model(ModelSection(name="qwen2.5-7b", init="pretrained"))[1]
    assert offline.code == "missing_model"
    assert one("qwen2.5-7b", init="pretrained") == finding
    assert hub.asked == ["GET /api/models/Qwen/Qwen2.5-7B"] and hub.tokens == [None], "one question for many plans"
    # So are pickles alone.
    hub.add_model("Helsinki-NLP/opus-mt-zh-en", {"pytorch_model.bin": 312_000_000, "source.spm": 800_000})
    finding = one("opus-mt-zh-en", init="pretrained")
    assert finding.code == "model_to_download" and "1 file (0.3 GB)" in finding.message


def test_a_hub_that_cannot_be_reached(hub: HubStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    finding = one("qwen2.5-7b", init="pretrained")
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert one("qwen2.5-7b", init="pretrained") == finding and hub.asked == []
    assert (finding.code, finding.severity) == ("missing_model", "error")
    assert "train from scratch" in [remedy.text for remedy in finding.remedies]


def test_a_gated_model_needs_an_account(hub: HubStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add_model("meta-llama/Llama-3.1-8B", WEIGHTS, gated="manual")
    finding = one("llama-3.1-8b", init="pretrained")
    assert finding.code == "gated_model" and "license" in finding.message and "hf auth login" in finding.message
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert one("llama-3.1-8b", init="pretrained").code == "model_to_download"
    assert hub.tokens[-1] == "Bearer hf_secret"
    assert "hf_secret" not in str(one("llama-3.1-8b", init="pretrained"))
    # One that was logged in before counts as well.
    monkeypatch.delenv("HF_TOKEN")
    assert hub_token() is None
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "token").write_text("hf_kept\n")
    assert hub_token() == "hf_kept"


def test_a_model_of_the_hub_can_be_planned_and_what_it_does_not_know_is_missing(hub: HubStandIn) -> None:
    hub.add_model("someone/new-model", WEIGHTS, GPT2)
    spec, found = resolve_model(ModelSection(name="someone/new-model", init="pretrained"), online=True)
    assert spec is not None and (spec.source, spec.hub_id, spec.task) == ("hub", "someone/new-model", "causal-lm")
    assert spec.architecture == GPT2 and [finding.code for finding in found] == ["model_to_download"]
    # The planned run carries the architecture, and still knows where its weights are.
    again, _ = resolve_model(ModelSection(name="someone/new-model", init="pretrained", architecture=GPT2))
    assert again is not None and again.hub_id == "someone/new-model"
    for number, config in enumerate((None, "{", "[1]", "<html>")):
        hub.add_model(f"someone/odd{number}", WEIGHTS, config)
        finding = one(f"someone/odd{number}")
        assert finding.code == "missing_model" and "config.json" in finding.message
    finding = one("nobody/nothing")
    assert finding.code == "missing_model" and "has no public model with that name" in finding.message
    # A word without an owner is a typing mistake more often than a model: it is not sent anywhere.
    asked = len(hub.asked)
    assert "Did you mean esm2-8m" in one("esm2-8n").message and len(hub.asked) == asked


def test_a_tokenizer_of_its_own(hub: HubStandIn, tmp_path: Path) -> None:
    hub.add_model("someone/words", {"tokenizer.json": 5})
    finding = one("gpt2-tiny", tokenizer="someone/words")
    assert (finding.code, finding.severity, finding.where) == ("model_to_download", "warning", "model.tokenizer")
    assert one("gpt2-tiny", tokenizer="nobody/words").code == "missing_tokenizer"
    assert one("gpt2-tiny", tokenizer=str(tmp_path)).message.startswith(f"{tmp_path} does not contain a tokenizer")
    (tmp_path / "tokenizer.json").touch()
    assert findings("gpt2-tiny", tokenizer=str(tmp_path)) == []
    assert findings("gpt2-medium", tokenizer="train", init="scratch") == []
    # Weights without one.
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}')
    (tmp_path / "model.safetensors").touch()
    finding = one(str(tmp_path), init="pretrained")
    assert (finding.code, finding.severity) == ("missing_tokenizer", "error")
    (tmp_path / "tokenizer.json").touch()
    assert findings(str(tmp_path), init="pretrained") == []
