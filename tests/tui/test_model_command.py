"""`trainwiz model`: what is said, exported, described and published, and what is refused; one real process of a model."""

from __future__ import annotations

import io
import json
import shlex
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock, create_autospec

import huggingface_hub.constants
import pytest
from huggingface_hub.errors import HfHubHTTPError
from trainwiz.core.model.export import command_for, modelfile
from trainwiz.core.model.found import find_model, next_commands
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.chats import template_parts
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
    assert harmless("a\x1b[31mb\nc\x07\u202ed") == "ab\ncd"


@each(
    ("words", "said"),
    [
        (("fill", "tuned"), "Use: trainwiz model chat tuned"),
        (("chat", "empty"), "contains no model"),
        (("chat", "nobody"), "not found"),
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
    for name, said in (("/no/such", "/no/such contains no model"), ("owner/name", "hf download owner/name")):
        (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": name}))
        assert said in failed(capsys, "chat", str(adapter))
    (adapter / "adapter_config.json").write_text("{")
    assert "not valid JSON" in failed(capsys, "chat", str(adapter))


def test_the_modelfile_and_the_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = find_model("tuned")
    known = template_parts(AutoTokenizer.from_pretrained(model.tokenizer))
    text = modelfile(model, known, folder / "tuned-merged")
    assert "# This is an adapter. Merge it first: trainwiz model merge" in text
    assert f'\nFROM {folder / "tuned-merged"}\nTEMPLATE """{{{{ if .System }}}}<|im_start|>system' in text
    assert '\nPARAMETER stop "</s>"\n' in text and "50 test conversations" in text
    # Rank 4 takes the smallest room that vLLM has, and the template is the adapter's own; adapters it cannot load are merged.
    served, own = command_for("vllm", model, None, known), model.path.resolve() / "chat_template.jinja"
    command = shlex.split(served, comments=True)
    assert command[:6] == ["vllm", "serve", str(folder / "base-32"), "--enable-lora", "--max-lora-rank", "8"]
    assert command[7].endswith(f"={own.parent}") and command[-2:] == ["--chat-template", str(own)]
    settings = model.path / "adapter_config.json"
    kept = settings.read_text()
    settings.write_text(kept.replace('"use_dora": false', '"use_dora": true'))
    dora = command_for("vllm", model, folder / "tuned-merged", known)
    settings.write_text(kept)
    assert "must be merged" in dora and "--enable-lora" not in dora
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
def hub(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hub's own client, with its signatures, which asks nobody."""
    api = create_autospec(huggingface_hub.HfApi, instance=True)
    api.whoami.return_value, api.repo_exists.return_value = {"name": "me"}, False
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda **_: api)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    return api


def test_a_push_is_one_commit_of_what_a_model_is(hub: Any, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    final = folder / "runs" / "tuned" / "final_model"
    (final / "training_args.bin").write_bytes(b"pickle")
    (final / "optimizer.pt").write_bytes(b"states")
    assert main(["model", "push", "tuned", "me/tuned", "--base", "owner/base", "--public", "--yes"]) == 0
    out = capsys.readouterr().out
    assert "training_args.bin" in out and "optimizer.pt" in out and "hf_secret" not in out
    # Made private, filled, then opened.
    changes = [call for call in hub.method_calls if call[0] not in ("whoami", "repo_exists")]
    assert [call[0] for call in changes] == ["create_repo", "create_commit", "update_repo_settings"]
    assert (changes[0].kwargs["private"], changes[2].kwargs["private"]) == (True, False)
    repo, operations = changes[1].args
    files = {one.path_in_repo: one.path_or_fileobj for one in operations}
    # Each is a path or what was written for the upload.
    contents = {name: one if isinstance(one, bytes) else Path(one).read_bytes() for name, one in files.items()}
    weights = {"adapter_config.json", "adapter_model.safetensors"}
    assert repo == "me/tuned" and {"README.md", "tokenizer.json", "chat_template.jinja", *weights} <= set(files)
    assert not {"training_args.bin", "optimizer.pt"} & set(files)
    assert json.loads(contents["adapter_config.json"])["base_model_name_or_path"] == "owner/base"
    assert all(str(folder).encode() not in content for content in contents.values())


@each(
    ("method", "status", "said"),
    [
        ("whoami", 401, "The Hub rejected your token"),
        ("create_repo", 403, "has no write access there"),
        ("create_commit", 500, "refused the request (500)"),
    ],
)
def test_a_push_that_breaks_leaves_nothing_public(
    method: str, status: int, said: str, hub: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    getattr(hub, method).side_effect = HfHubHTTPError("no", response=Mock(status_code=status, headers={}))
    assert said in failed(capsys, "push", "base-32", "me/tuned", "--public", "--yes")
    assert not hub.update_repo_settings.called
    getattr(hub, method).side_effect = None


def test_without_network_account_or_answer_nothing_is_asked(
    hub: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "add --yes" in failed(capsys, "push", "base-32", "me/tuned")
    hub.whoami.side_effect = ConnectionError("no network")
    assert "is unreachable" in failed(capsys, "push", "base-32", "me/tuned", "--yes")
    monkeypatch.delenv("HF_TOKEN")
    assert "hf auth login" in failed(capsys, "push", "base-32", "me/tuned", "--yes")
    assert not hub.create_commit.called
