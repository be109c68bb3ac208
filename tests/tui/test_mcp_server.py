"""`trainwiz mcp` as an agent meets it: the SDK's own client over stdio once, and what its tools do in this process."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from trainwiz.tui.cli import main
from trainwiz.tui.commands import mcp_server
from trainwiz.tui.commands.mcp_server import Tools, server_of
from trainwiz.tui.headless import run as headless

from tests.core.supervise.conftest import Starter

mcp = pytest.importorskip("mcp", reason="the MCP SDK is the extra mcp")
Client = pytest.importorskip("mcp.client.client", reason="the MCP SDK is older than version 2").Client
from mcp.server.mcpserver.exceptions import ToolError  # noqa: E402

READING = ["plan", "fit", "diagnose", "runs", "monitor"]


def command_here(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        code = main(command[4:])
    return subprocess.CompletedProcess(command, code, *(one.buffer.getvalue() for one in (out, err)))  # type: ignore[attr-defined]


@pytest.fixture
def tools(here: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    quick = SimpleNamespace(run=command_here, DEVNULL=None, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(mcp_server, "subprocess", quick)
    return Tools(here)


async def test_an_agent_is_offered_what_was_allowed_and_is_answered(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    words = ["-m", "trainwiz.tui", "mcp", str(tmp_path), "--allow-start", "--allow-stop"]
    started = mcp.StdioServerParameters(command=sys.executable, args=words, cwd=str(tmp_path.parent))
    async with Client(started) as client:
        offered = (await client.list_tools()).tools
        assert [tool.name for tool in offered] == [*READING, "start", "stop"]
        assert [tool.name for tool in offered if tool.annotations.read_only_hint] == READING
        found = await client.call_tool("diagnose", {"what": "train.log"})
        assert found.structured_content["cause"] == "cuda_oom"
        refused = await client.call_tool("diagnose", {"what": "/etc/passwd"})
        assert refused.is_error and "outside the folder" in refused.content[0].text
    reading = server_of(Tools(tmp_path), allow_start=False, allow_stop=False)
    assert [tool.name for tool in await reading.list_tools()] == READING


def test_tools_give_what_the_commands_print(tools: Tools, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "out").symlink_to("/etc")
    plan = tools.plan(profile="cpu-demo", settings={"training.seed": 7})
    assert main(["plan", "--profile", "cpu-demo", "--set", "training.seed=7", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert all(plan[key] == printed[key] for key in ("batch", "choices", "model"))
    assert tools.fit(dataset="sample-chat", gpu="RTX 3060 12GB")["fits"]
    assert tools.runs() == {"runs": []}
    nested = {"data.sources": "[{name: /etc/passwd}]"}
    for call, said in (
        (lambda: tools.monitor(), "no runs in runs/"),
        (lambda: tools.plan(profile="cpu-demo", settings={"x.y": 1}), "is not a setting"),
        (lambda: tools.plan(profile="./mine.yaml"), "by name"),
        (lambda: tools.plan(profile="cpu-demo", settings=nested), "outside the folder"),
        (lambda: tools.start(model="qwen3-8b", dataset="sample-chat"), "on this machine, and the Hub"),
        (lambda: tools.diagnose(what="../x.log"), "outside the folder"),
        (lambda: tools.diagnose(what="~/x"), "outside the folder"),
        (lambda: tools.diagnose(what="out/passwd"), "outside the folder"),
        (lambda: tools.plan(dataset="/etc/passwd"), "outside the folder"),
        (lambda: tools.plan(dataset="out/passwd"), "outside the folder"),
    ):
        with pytest.raises(ToolError, match=said):
            call()
    assert [path.name for path in here.iterdir()] == ["out"]


def test_start_and_stop(tools: Tools, start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headless, "start_run", lambda *_, **__: None)
    started = tools.start(profile="cpu-demo", name="by-agent", settings={"training.max_steps": 7})
    (run,) = (event["run"] for event in started["events"] if event["event"] == "prepared")
    assert "max_steps: 7" in (Path(run) / "run.yaml").read_text() and started["events"][-1]["event"] == "note"
    one = start(start.folder("live"), SAID_STEP_S=0.1, STEPS=100_000)
    one.wait(lambda state: state.window is not None)
    assert tools.monitor()["path"] == "runs/live", "the one that trains"
    assert tools.stop(run="live")["status"] == "stopped"
    assert tools.diagnose(what="live")["cause"] == "user_stop"
