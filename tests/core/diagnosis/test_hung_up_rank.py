"""A rank that a hangup ended is the cause, not the connection that the others lost with it."""

from __future__ import annotations

from pathlib import Path

from trainwiz.core.telemetry.diagnosed import diagnose_log

# As torchrun and gloo wrote it when the fault campaign sent SIGHUP to rank 0.
LOG = """\
step 9/16  loss 3.0466  learning rate 0.0008  2,928 real tokens/s
Traceback (most recent call last):
  File "main.py", line 47, in main
    trainer.train()
RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:63616. This is typically caused by a remote worker crashing.
W1122 11:21:14.881000 17057 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 17133 closing signal SIGTERM
E1122 11:21:15.049000 17057 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -1) local_rank: 0 (pid: 17132) of binary: /usr/bin/python
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : -1 (pid: 17132)  (SIGHUP)
"""


def test_the_signal_is_named(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(LOG)
    found = diagnose_log(log)
    assert (found.cause, found.signal, found.rank) == ("unknown", "SIGHUP", 0)
    assert "SIGHUP" in found.message
