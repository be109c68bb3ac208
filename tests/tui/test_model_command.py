"""`trainwiz model`: what is said, exported, described and published, and what is refused; one real process of a model."""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from trainwiz.core.model.export import modelfile
from trainwiz.core.model.found import find_model, next_commands
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.template_parts import template_parts
from trainwiz.tui.cli import main
from trainwiz.tui.commands.model import harmless
from transformers import AutoTokenizer

from tests.core.model.models import adapter_run, base_model
from tests.each import each


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model")
    adapter_run(place, base_model(place), engine__base_precision="none")
    return place


@pytest.fixture(autouse=True)
def _there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def failed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The sentence of a command that is refused."""
    assert main(["model", *words]) in (2, 3)
    return capsys.readouterr().err


def test_turns_in_a_pipe_are_answered_by_base_and_tuned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("the old fox\n\n今天天气很好。\n"))
    assert main(["model", "chat", "tuned", "--compare", "--json", "--max-tokens", "6", "--cpu"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["prompt"] == "the old fox" and first["base"]["text"] != first["tuned"]["text"]
    assert first["tuned"]["tokens"] == 6 and first["tuned"]["ended"] == "length"
    # The second turn has the first one before it.
    assert second["tuned"]["prompt_tokens"] > first["tuned"]["prompt_tokens"] + 6


def test_what_a_model_writes_is_harmless() -> None:
    assert harmless("a\x1b[31mb\nc\x07\u202ed") == "ab\ncd"


@each(
    ("words", "said"),
    [
        (("fill", "tuned"), "Use: trainwiz model chat tuned"),
        (("chat", "empty"), "contains no model"),
        (("chat", "nobody"), "There is no run"),
        (("chat", "base-32", "--bits", "4"), "is a full model"),
        (("chat", "base-32", "--compare"), "Nothing to compare with"),
        (("chat", "tuned", "--plain", "--system", "a"), "--system only works with a chat template"),
        (("chat", "tuned", "--base", "empty"), "not a folder that contains a model"),
        (("merge", "base-32", "--to", "x"), "nothing to merge"),
        (("merge", "tuned", "--to", "empty"), "empty already exists and is not overwritten"),
        (("export", "tuned"), "one of --ollama"),
        (("export", "tuned", "--gguf", "--to", "x.gguf"), "Merge it first"),
        (("push", "tuned", "name"), "OWNER/NAME"),
        (("push", "tuned", "me/tuned"), "a folder on this machine"),
        (("push", "base-32", "me/tuned"), "HF_HUB_OFFLINE"),
    ],
)
def test_what_is_refused(words: tuple[str, ...], said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "empty").mkdir(exist_ok=True)
    assert said in failed(capsys, *words)


def test_a_base_that_is_gone_is_named(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    for name, said in (
        ("/no/such/place", "/no/such/place contains no model"),
        ("owner/name", "hf download owner/name"),
    ):
        (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": name}))
        assert said in failed(capsys, "chat", str(adapter))
    (adapter / "adapter_config.json").write_text("{")
    assert "not valid JSON" in failed(capsys, "chat", str(adapter))


def test_the_modelfile_and_the_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = find_model("tuned")
    known = template_parts(AutoTokenizer.from_pretrained(model.tokenizer))
    text = modelfile(model, known, folder / "tuned-merged").text
    assert "# This is an adapter. Merge it first: trainwiz model merge" in text
    assert f'\nFROM {folder / "tuned-merged"}\nTEMPLATE """{{{{ if .System }}}}<|im_start|>system' in text
    assert '\nPARAMETER stop "</s>"\n' in text and "50 test conversations" in text
    assert main(["model", "export", "base-32", "--gguf", "--to", "base.gguf"]) == 0
    assert Path("base.gguf").read_bytes()[:4] == b"GGUF" and "</s>" in capsys.readouterr().out
    assert [command for _, command in next_commands(RunFolder(folder / "runs" / "tuned"))] == [
        "trainwiz model chat tuned",
        "trainwiz model merge tuned --to tuned-merged",
    ]


def test_the_card_names_no_folder_of_this_machine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "base-32" / "README.md").write_text("---\nlicense: mit\n---\n")
    assert main(["model", "card", "tuned"]) == 0
    card = capsys.readouterr().out
    assert str(folder) not in card and "- Base: base-32" in card and 'license: "mit"' in card
    assert "| peft.rank | 4 |" in card and "| source | sample-chat (train) |" in card


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A hub that takes a commit; `refuses`: path -> status."""
    state: dict[str, Any] = {"asked": [], "files": {}, "refuses": {}}

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0]
            state["asked"].append(f"{self.command} {path}")
            status = next((code for part, code in state["refuses"].items() if part in path), 200)
            document: dict[str, Any] = {"name": "me", "url": f"{state['endpoint']}/me/tuned", "id": "me/tuned"}
            if path.endswith("/preupload/main"):
                named = json.loads(body)["files"]
                document = {
                    "files": [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in named]
                }
            elif path.endswith("/commit/main"):
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "file" and status == 200:
                        state["files"][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                document = {
                    "success": True,
                    "commitOid": "0" * 40,
                    "commitUrl": f"{state['endpoint']}/me/tuned/commit/0",
                }
            elif path == "/api/models/me/tuned" and self.command == "GET":
                status = 404
            elif path.endswith("/settings") or path == "/api/repos/create":
                document["body"] = json.loads(body)
                state["asked"][-1] += f" private={json.loads(body).get('private', json.loads(body).get('visibility'))}"
            text = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            if status == 404:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = _answer

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    state["endpoint"] = f"http://127.0.0.1:{server.server_port}"
    import huggingface_hub.constants

    monkeypatch.setenv("HF_ENDPOINT", state["endpoint"])
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    yield state
    server.shutdown()


def test_a_push_is_one_commit_of_what_a_model_is(
    hub: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    final = folder / "runs" / "tuned" / "final_model"
    (final / "training_args.bin").write_bytes(b"pickle")
    (final / "optimizer.pt").write_bytes(b"states")
    assert main(["model", "push", "tuned", "me/tuned", "--base", "owner/base", "--public", "--yes"]) == 0
    out = capsys.readouterr().out
    assert "training_args.bin" in out and "optimizer.pt" in out and "hf_secret" not in out
    assert {
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "tokenizer.json",
        "chat_template.jinja",
    } <= set(hub["files"])
    assert not {"training_args.bin", "optimizer.pt"} & set(hub["files"])
    assert json.loads(hub["files"]["adapter_config.json"])["base_model_name_or_path"] == "owner/base"
    assert all(str(folder).encode() not in content for content in hub["files"].values())
    asked = [line for line in hub["asked"] if "commit" in line or "create" in line or "settings" in line]
    # Made private, filled, then opened.
    assert [line.split()[1].rsplit("/", 1)[-1] for line in asked] == ["create", "main", "settings"]


@each(
    ("path", "status", "said"),
    [
        ("/whoami", 401, "The Hub rejected your token"),
        ("/repos/create", 403, "has no write access there"),
        ("/commit", 500, "refused the request (500)"),
    ],
)
def test_a_push_that_breaks_leaves_nothing_public(
    path: str, status: int, said: str, hub: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    hub["refuses"] = {path: status}
    assert said in failed(capsys, "push", "base-32", "me/tuned", "--public", "--yes")
    assert hub["files"] == {} and not any("settings" in line for line in hub["asked"])


def test_without_network_account_or_answer_nothing_is_asked(
    hub: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "add --yes" in failed(capsys, "push", "base-32", "me/tuned")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "is unreachable" in failed(capsys, "push", "base-32", "me/tuned", "--yes")
    monkeypatch.delenv("HF_TOKEN")
    assert "hf auth login" in failed(capsys, "push", "base-32", "me/tuned", "--yes")
    assert hub["files"] == {}
