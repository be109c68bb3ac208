"""What an attempt does before the nodes meet, and what a node says of an end of which its processes said nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trainwiz.core.nodes.handshake import introduce
from trainwiz.core.nodes.node import last_words_of
from trainwiz.core.run.folder import RunFolder

from tests.each import each

KILLED = """\
trainwiz.core.training FAILED
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 0)
  exitcode  : -9 (pid: 4711)
  traceback : Signal 9 (SIGKILL) received by PID 4711
"""


@each("counted", [None, 0])
def test_a_kill_is_a_lost_node_until_the_kernel_says_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: int | None
) -> None:
    """In a container without the counter too: the run goes on by itself after a lost node, not after lack of RAM."""
    monkeypatch.setattr("trainwiz.core.nodes.node.killed_since", lambda before: counted)
    log = tmp_path / "train.log"
    write = last_words_of(RunFolder(tmp_path), introduce(1, 2, 1), log)
    log.write_text(KILLED)
    write(1)
    said = json.loads((tmp_path / "failure-rank1-node.json").read_text())
    assert [finding["code"] for finding in said["findings"]] == ["node_lost"]
    assert said["message"].startswith("On node 1 (") and "SIGKILL" in said["message"]
