"""`trainwiz mcp` as an agent meets it: the SDK's own client over stdio."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from trainwiz.tui.cli import main

mcp = pytest.importorskip("mcp", reason="the MCP SDK is the extra mcp")
Client = pytest.importorskip("mcp.client.client", reason="the MCP SDK is older than version 2").Client

READING = ["plan", "fit", "diagnose", "runs", "monitor"]


def server(folder: Path, *flags: str) -> Any:
    """What starts the server, as an agent has it in its settings."""
    return mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "trainwiz.tui", "mcp", str(folder), *flags], cwd=str(folder.parent)
    )


async def said(client: Any, tool: str, **arguments: Any) -> Any:
    """What a tool gives: its document, or the text of its refusal."""
    result = await client.call_tool(tool, arguments)
    return result.content[0].text if result.is_error else result.structured_content


async def test_reading_tools_give_what_the_commands_print(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    (folder / "out").symlink_to("/etc")
    async with Client(server(folder)) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == READING
        assert all(tool.annotations.read_only_hint for tool in tools)
        plan = await said(client, "plan", profile="cpu-demo", settings={"training.seed": 7})
        assert main(["plan", "--profile", "cpu-demo", "--set", "training.seed=7", "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert [plan[key] for key in ("batch", "choices", "model")] == [
            printed[key] for key in ("batch", "choices", "model")
        ]
        assert (await said(client, "fit", dataset="sample-chat", gpu="RTX 3060 12GB"))["fits"]
        assert (await said(client, "diagnose", what="train.log"))["cause"] == "cuda_oom"
        assert await said(client, "runs") == {"runs": []}
        assert "no runs in runs/" in await said(client, "monitor")
        assert "is not a setting" in await said(client, "plan", profile="cpu-demo", settings={"x.y": 1})
        for outside in ("/etc/passwd", "../train.log", "~/x", "out/passwd"):
            assert "outside the folder" in await said(client, "plan", model="qwen3-0.6b", dataset=outside), outside
            assert "outside the folder" in await said(client, "diagnose", what=outside), outside
        nested = {"data.sources": "[{name: /etc/passwd}]"}
        assert "outside the folder" in await said(client, "plan", profile="cpu-demo", settings=nested)
        assert "by name" in await said(client, "plan", profile="./mine.yaml")


@pytest.mark.real
async def test_start_and_stop_where_they_are_allowed(tmp_path: Path) -> None:
    async with Client(server(tmp_path, "--allow-start", "--allow-stop")) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == [*READING, "start", "stop"]
        refused = await said(client, "start", model="qwen3-8b", dataset="sample-chat")
        assert "not on this machine" in refused and not list(tmp_path.iterdir())
        settings = {"training.max_steps": 5000}
        started = await said(client, "start", profile="cpu-demo", name="by-agent", settings=settings)
        run = next(event["run"] for event in started["events"] if event["event"] == "prepared")
        for _ in range(240):
            snapshot = await said(client, "monitor")
            if snapshot["step"]:
                break
            await asyncio.sleep(0.5)
        assert snapshot["path"] == run and snapshot["max_steps"] == 5000
        assert (await said(client, "stop", run="by-agent"))["status"] == "stopped"
        assert (await said(client, "diagnose", what="by-agent"))["cause"] == "user_stop"
