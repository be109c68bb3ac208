"""`trainwiz mcp`: a server for agents (Model Context Protocol, over stdio). Each tool is a command with --json."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainwiz.core import product_version
from trainwiz.core.errors import EXIT_FINISHED, CannotRunError, Finding, UsageError, usage_error
from trainwiz.core.language import mark, tr
from trainwiz.core.run.state import ACTIVE
from trainwiz.core.text import plain_text
from trainwiz.tui.choices import assignments
from trainwiz.tui.output import is_terminal, say

if TYPE_CHECKING:
    from mcp.server import MCPServer

Document = dict[str, Any]
Tier = Literal["analytic", "layers", "full"]

LIMIT_S = 300.0
"""For one command; a plan is traced for two minutes at most, and a stop waits for its checkpoint."""

INSTRUCTIONS = (
    "Plans, starts and watches fine-tuning. Call `fit` or `plan` before `start`: they say whether it fits, how long "
    "it takes, and what to change (findings with remedies). `diagnose` says why a run ended. Paths are relative to the "
    "folder of this server; nothing outside it is read. Bytes are integers, seconds are floats."
)


def run_mcp(folder: str, *, allow_start: bool, allow_stop: bool) -> int:
    """Serve until the client leaves. Raises UsageError for a folder that is none, CannotRunError without the SDK."""
    try:
        from mcp.server import MCPServer  # noqa: F401
    except ImportError:
        from trainwiz.core.hardware.install import find_installer, install_line

        command = install_line(find_installer(), "[mcp]")
        message = tr("`trainwiz mcp` needs the MCP SDK, version 2. Install: {command}", command=command)
        raise CannotRunError(Finding("missing_package", "error", "mcp", message)) from None
    root = Path(folder).expanduser()
    if not root.is_dir():
        message = tr("{path} is not a folder.", path=repr(folder))
        raise usage_error("no_such_path", "FOLDER", message)
    os.chdir(root)
    if is_terminal(sys.stdin):
        say(
            tr("Waiting for an agent on stdin; Ctrl-C ends it. See docs/agents.md for how an agent starts it."),
            sys.stderr,
        )
    server_of(Tools(Path.cwd()), allow_start=allow_start, allow_stop=allow_stop).run("stdio")
    return EXIT_FINISHED


# What a tool may name: things of the catalogue, and paths inside the folder of the server.

_WORDS = re.compile(r"[^\s\"',;:=\[\]{}()]+")
OUTSIDE = mark("{text} is outside the folder of this server ({folder}). Use a path relative to that folder.")


class Tools:
    """Commands of trainwiz in one folder, which refuse values that name something outside of it.

    Each public method is a tool; its docstring and its parameters are what the agent reads.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def _check(self, value: Any) -> None:
        """Raises ToolError. A guard against mistakes: what a file inside of the folder names is not followed."""
        if isinstance(value, Mapping):
            value = [*value.keys(), *value.values()]
        if isinstance(value, list | tuple):
            for part in value:
                self._check(part)
            return
        for word in (str(value), *_WORDS.findall(str(value))):
            inside = not word.startswith("~") and "\0" not in word
            if not inside or not (self.folder / word).resolve().is_relative_to(self.folder):
                raise _refusal(tr(OUTSIDE, text=repr(plain_text(word, 60)), folder=self.folder))

    def _options(self, choices: Mapping[str, Any]) -> list[str]:
        arguments: list[str] = []
        for name, value in choices.items():
            self._check(value)
            flag = f"--{name.replace('_', '-')}"
            if isinstance(value, Mapping):
                arguments += [f"{flag}={one}" for one in assignments(value)]
            elif value is True:
                arguments.append(flag)
            elif value is not None and value is not False:
                arguments.append(f"{flag}={value}")
        return arguments

    def _said(self, *arguments: str) -> str:
        """What a command prints. Raises ToolError with what it prints where it refuses: findings, each with its remedies."""
        command = [sys.executable, "-P", "-m", "trainwiz.tui", *arguments]
        try:
            done = subprocess.run(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise _refusal(tr("It took longer than {seconds} s.", seconds=f"{LIMIT_S:g}")) from None
        text = done.stdout.decode(errors="replace")
        if done.returncode != EXIT_FINISHED:
            raise _refusal(text.strip().rpartition("\n")[2] or plain_text(done.stderr.decode(errors="replace"), 2000))
        return text

    def _json(self, *arguments: str) -> Document:
        return dict(json.loads(self._said(*arguments)))

    def plan(
        self,
        profile: str | None = None,
        model: str | None = None,
        dataset: str | None = None,
        gpu: str | None = None,
        num_gpus: int | None = None,
        settings: dict[str, Any] | None = None,
        tier: Tier = "analytic",
    ) -> Document:
        """Plan a training for this machine, or for another GPU: batch, memory, time, every choice, findings.

        Name a profile, or a model and a dataset. `settings` are keys such as {"training.epochs": 2}. `tier`
        "analytic" answers in a second; "layers" and "full" trace the step, which is more exact.
        """
        choices = {"model": model, "dataset": dataset, "gpu": gpu, "num_gpus": num_gpus, "set": settings, "tier": tier}
        return self._json("plan", "--json", *self._asked(profile, choices))

    def fit(
        self,
        dataset: str,
        gpu: str | None = None,
        num_gpus: int | None = None,
        hours: float | None = None,
        until: str | None = None,
        best: Literal["largest", "fastest", "cheapest", "uncut"] = "largest",
    ) -> Document:
        """Which models fit a GPU (this machine's, or `gpu`) with this data and in this time, best first."""
        choices = {"dataset": dataset, "gpu": gpu, "num_gpus": num_gpus, "hours": hours, "until": until, "best": best}
        return self._json("fit", "--json", *self._options(choices))

    def diagnose(self, what: str) -> Document:
        """Why a training ended: cause, evidence, remedies. `what`: a run's name or folder, a log, a Trainer's output."""
        return self._json("diagnose", "--json", "--", self._place(what))

    def runs(self, run: str | None = None) -> Document:
        """The runs of this folder, newest first; with `run` all about one: state, attempts, checkpoints, how it ended."""
        if run is None:
            return self._json("runs", "list", "--json")
        return self._json("runs", "show", "--json", "--", self._run(run))

    def monitor(self, what: str | None = None) -> Document:
        """One look at a training: step, loss, pace, GPUs, advice. `what`: a run, or the output folder of another tool;
        none: the run of this folder that trains now, else the newest.
        """
        if what is None:
            found = sorted(self.runs()["runs"], key=lambda run: run["status"] not in ACTIVE)
            if not found:
                raise _refusal(tr("There are no runs in runs/ yet."))
            what = str(found[0]["path"])
        return self._json("monitor", "--once", "--json", "--", self._place(what))

    def start(
        self,
        profile: str | None = None,
        model: str | None = None,
        dataset: str | None = None,
        settings: dict[str, Any] | None = None,
        name: str | None = None,
        smoke: bool = False,
    ) -> Document:
        """Start a training and leave it running; returns its folder. What does not fit is refused with its remedies.

        `smoke` runs the same path with a tiny model in a minute.
        """
        choices = {"model": model, "dataset": dataset, "set": settings, "name": name, "smoke": smoke}
        text = self._said("--yes", "--detach", "--json", *self._asked(profile, choices))
        events = [json.loads(line) for line in text.splitlines() if line.strip()]
        return {"events": [event for event in events if event.get("event") != "plan"]}

    def stop(self, run: str, now: bool = False) -> Document:
        """Stop a run after its step, with a checkpoint; `now` ends it without one. Returns what became of it."""
        found = self._run(run)
        self._said("runs", "stop", *(["--now"] if now else []), "--", found)
        return self.runs(found)

    def _asked(self, profile: str | None, choices: Mapping[str, Any]) -> list[str]:
        """The choices of a plan; a profile by its name alone, since a file could name anything."""
        if profile is not None and ("/" in profile or profile.endswith((".yaml", ".yml"))):
            raise _refusal(tr("Specify a profile by name, not as a file."))
        return [f"--profile={profile or 'none'}", *self._options(choices)]

    def _place(self, what: str) -> str:
        self._check(what)
        return what if what and (self.folder / what).exists() else self._run(what)

    def _run(self, name: str) -> str:
        """The folder of a run that lies inside; a name could also be that of a run elsewhere."""
        from trainwiz.core.run.listing import find_run

        try:
            path = find_run(name).path
        except UsageError as error:
            raise _refusal(str(error)) from None
        self._check(path)
        return str(path)


def _refusal(message: str) -> Exception:
    from mcp.server.mcpserver.exceptions import ToolError

    refusal: Exception = ToolError(message)
    return refusal


def server_of(tools: Tools, *, allow_start: bool, allow_stop: bool) -> MCPServer:
    from mcp.server import MCPServer
    from mcp.types import ToolAnnotations

    server = MCPServer("trainwiz", instructions=INSTRUCTIONS, version=product_version(), log_level="WARNING")
    offered: list[tuple[Any, dict[str, bool]]] = [
        (tool, {"read_only_hint": True, "open_world_hint": False})
        for tool in (tools.plan, tools.fit, tools.diagnose, tools.runs, tools.monitor)
    ]
    offered += [(tools.start, {"destructive_hint": False})] * allow_start
    offered += [(tools.stop, {"destructive_hint": True})] * allow_stop
    for tool, hints in offered:
        server.add_tool(tool, description=inspect.getdoc(tool), annotations=ToolAnnotations(**hints))
    return server
