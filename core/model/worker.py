"""ModelWorker: a child process that holds a model, asked line by line. Never imports torch."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from trainwiz.core.errors import CannotRunError, Finding, TrainwizError
from trainwiz.core.hardware.install import need
from trainwiz.core.language import tr
from trainwiz.core.model.found import FoundModel
from trainwiz.core.text import parse_json

ENVIRONMENT = {
    # All that is loaded lies on this machine.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONWARNINGS": "ignore",
}
Json = dict[str, Any]


def order_of(model: FoundModel, bits: int | None = None, *, cpu: bool = False, **more: Any) -> Json:
    """What the child is told of a model: plain values. `bits` of the base of an adapter; as it was trained without."""
    return {
        "path": str(model.path.resolve()),
        "kind": model.kind,
        "task": model.task,
        "model_type": model.architecture.get("model_type"),
        "dtype": model.dtype,
        "base": str(model.base.resolve()) if model.base is not None else None,
        "tokenizer": str(model.tokenizer.resolve()),
        "bits": bits or model.bits,
        "config": model.config.model_dump(mode="json") if model.config is not None else None,
        "cpu": cpu,
        **more,
    }


class ModelWorker:
    """The child ends with `close`, and with this process however that ends. Not for several threads. Raises CannotRunError where no model can be loaded."""

    def __init__(self) -> None:
        need()
        command = [sys.executable, "-P", "-m", "trainwiz.core.training.speak", "--parent", str(os.getpid())]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **ENVIRONMENT},
            # ctrl-c in the terminal is for the parent, which stops an answer and not the child.
            start_new_session=True,
        )

    def ask(self, do: str, *, stoppable: bool = False, **values: Any) -> Iterator[str | Json]:
        """Pieces of text while they are written, then one document. `stoppable`: an interrupt (SIGINT) of this process
        stops the answer, which ends in its document all the same. Raises TrainwizError with what the child says."""
        self._send({"do": do, **values})
        before = signal.signal(signal.SIGINT, lambda *_: self._stop()) if stoppable else None
        try:
            while "done" not in (line := self._line()):
                yield str(line["piece"])
        finally:
            if before is not None:
                signal.signal(signal.SIGINT, before)
        yield dict(line["done"])

    def result(self, do: str, **values: Any) -> Json:
        """The document alone. Raises TrainwizError."""
        *_, document = self.ask(do, **values)
        return dict(document)  # type: ignore[arg-type]

    def _stop(self) -> None:
        """The answer that is being written ends with its next token. Past the buffer, which may be in use right now."""
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):
            os.write(self._child.stdin.fileno(), b'{"do": "stop"}\n')

    def _send(self, message: Json) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(json.dumps(message).encode() + b"\n")
            self._child.stdin.flush()

    def _line(self) -> Json:
        assert self._child.stdout is not None
        text = self._child.stdout.readline()
        while text and not text.startswith(b"{"):
            # What a library prints while it is imported, before the pipe is the answers' alone.
            text = self._child.stdout.readline()
        if not text.endswith(b"\n"):
            code = self._child.wait()
            message = tr("The process that runs the model ended without an answer (exit code {code}).", code=code)
            if code == -signal.SIGKILL:
                message = tr(
                    "The process that runs the model was killed, usually because this machine has too little "
                    "memory; the base model of an adapter needs less in 4 bits (--bits 4)."
                )
            raise CannotRunError(Finding("model_process_ended", "error", "model", message))
        line = dict(parse_json(text))
        if "failed" in line:
            raise _failure(line)
        return line

    def close(self) -> None:
        self._child.kill()
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def __enter__(self) -> ModelWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _failure(line: Json) -> TrainwizError:
    findings = [
        Finding(str(one["code"]), "error", str(one["where"]), str(one["message"])) for one in line.get("failed", ())
    ]
    return TrainwizError(findings, int(line.get("exit_code", 2)))
