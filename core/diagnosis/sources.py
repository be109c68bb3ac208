"""What somebody named (a run, an attempt, a log, a folder) -> its evidence and diagnosis."""

from __future__ import annotations

import codecs
import errno
import io
import math
import os
import shutil
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from trainwiz.core.diagnosis.cause import (
    CAUSES,
    Cause,
    Diagnosis,
    Evidence,
    Failure,
    LogFacts,
    Proof,
    Remedy,
    Settings,
    clean,
)
from trainwiz.core.diagnosis.diagnose import diagnose, of_metrics
from trainwiz.core.diagnosis.patterns import remedies_for
from trainwiz.core.diagnosis.scan import LogScan, lines_in
from trainwiz.core.files import open_file
from trainwiz.core.language import tr
from trainwiz.core.plan.words import not_said_twice, set_words
from trainwiz.core.run.attempts import (
    ADVICE_JSONL,
    PHASE_JSON,
    AdviceFile,
    advice_of,
    changes_now,
    read_phase,
)
from trainwiz.core.run.folder import LAUNCH_SH, STATE_JSON, RunFolder, name_for_commands, read_json
from trainwiz.core.run.lost import boot_time_s
from trainwiz.core.run.state import RunState, read_fields, read_state
from trainwiz.core.text import object_in, objects_in, whole_in

# What the kernel says about memory: the counter of its control group, where it may be read.


def killed_since(before: int | None) -> int | None:
    """Processes that the kernel has killed for memory since it had counted `before`; None where it does not tell."""
    now = kernel_oom_kills()
    return None if now is None or before is None else max(0, now - before)


def kernel_oom_kills() -> int | None:
    """Processes that the kernel has killed for memory in this control group so far; None where it does not tell.

    cgroup v2: memory.events, key oom_kill (https://docs.kernel.org/admin-guide/cgroup-v2.html).
    cgroup v1: memory.oom_control, the same key.
    """
    from trainwiz.core.hardware.host import control_groups, text_of

    for _, group in control_groups("memory"):
        for line in (text_of(group / "memory.events") or text_of(group / "memory.oom_control")).splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return None


# A log on disk or from a pipe -> LogFacts: all of it is streamed, the end is read line by line.

BLOCK_BYTES = 1 << 18
END_BYTES = 1 << 21
"""Of the end, which has the last words: a failure before it was survived."""
MOST_ODD = 0.05
"""Share of control characters in the end above which a file is not text."""
_ODD = bytes(code for code in range(32) if code not in b"\t\n\r\f\b\x1b") + b"\x7f"
_BINARY = (b"PK\x03\x04", b"\x1f\x8b", b"\x7fELF", b"\x89PNG", b"%PDF", b"SQLite format 3")


class NotALogError(OSError):
    """The file is not text."""

    def __init__(self) -> None:
        super().__init__(errno.EINVAL, tr("it is not text"))


def read_log(path: Path, offset: int = 0, last_bytes: int | None = None) -> LogFacts:
    """The facts of the log from byte `offset` on, or of its last bytes, whose lines are then not counted from its
    beginning. Raises OSError with a reason, NotALogError for what is not text."""
    with open_file(path) as file:
        if last_bytes is not None:
            file.seek(max(0, os.fstat(file.fileno()).st_size - last_bytes))
        return scan_stream(file, path.name, offset)


def scan_stream(stream: BinaryIO, source: str, offset: int = 0) -> LogFacts:
    """The facts of what comes from `stream` after byte `offset`, by its last END_BYTES or so. Raises NotALogError."""
    number = 1 + sum(block.count(b"\n") for block in _blocks(stream, offset))
    kept, size = deque[bytes](), 0
    for block in _as_utf8(_blocks(stream)):
        kept.append(block)
        size += len(block)
        while size - len(kept[0]) >= END_BYTES:
            size -= len(kept[0])
            number += kept.popleft().count(b"\n")
    end = b"".join(kept)
    if len(end) - len(end.translate(None, _ODD)) > MOST_ODD * len(end):
        raise NotALogError
    scan = LogScan(source)
    for place, raw in enumerate(io.BytesIO(end)):
        for line in lines_in(number + place, _text(raw)):
            scan.feed(line)
    return scan.facts


def _blocks(stream: BinaryIO, most: float = math.inf) -> Iterator[bytes]:
    """The next `most` bytes."""
    while most > 0 and (block := stream.read(int(min(BLOCK_BYTES, most)))):
        most -= len(block)
        yield block


def _as_utf8(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """UTF-16 turned into UTF-8, and without NULs: a log that was cut while it was written has them."""
    first = next(blocks, b"")
    if first.startswith(_BINARY):
        raise NotALogError
    is_utf16 = first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    for block in chain([first], blocks):
        yield decoder.decode(block).encode("utf-8", "replace") if is_utf16 else block.replace(b"\0", b"")


def _text(raw: bytes) -> str:
    # Logs of Windows and of older Chinese systems; whatever it is, ASCII stays what it is.
    for encoding in ("utf-8", "gb18030"):
        with suppress(UnicodeDecodeError):
            return raw.decode(encoding)
    return raw.decode("utf-8", "replace")


# The evidence of one attempt of a run, from its folder. The keeper takes it too: nothing heavy is loaded.

MODES: Mapping[str, str] = {"smoke": "--smoke", "dev-run": "--dev-run"}
KEYS: Mapping[str, str] = {
    "micro_batch": "batch.micro_batch_size",
    "accumulation": "batch.gradient_accumulation_steps",
    "workers": "data.workers",
    "sequence_length": "batch.sequence_length",
    "learning_rate": "training.learning_rate",
    "precision": "engine.precision",
    "checkpointing": "engine.checkpointing",
}
"""Field of Settings -> key of a choice in plan.json."""


def attempt_evidence(
    run: RunFolder,
    failures: tuple[Failure, ...],
    *,
    exit_code: int | None,
    log_offset: int = 0,
    oom_kills: int | None = None,
) -> Evidence:
    """All that the folder says about the attempt whose part of train.log begins at byte `log_offset`."""
    # What cannot be read says nothing.
    log = LogFacts(source=run.train_log.name)
    disk_free_bytes: int | None = None
    with suppress(OSError):
        log = read_log(run.train_log, log_offset)
    with suppress(OSError):
        disk_free_bytes = shutil.disk_usage(run.path).free
    return Evidence(
        run=name_for_commands(run.path),
        exit_code=exit_code,
        failures=failures,
        log=log,
        oom_kills=oom_kills,
        disk_free_bytes=disk_free_bytes,
        settings=settings_of(run),
    )


def read_failures(run: RunFolder) -> tuple[Failure, ...]:
    """What the training processes wrote when they died of an exception, by rank."""
    documents = (read_json(path) for path in sorted(run.path.glob("failure-rank*.json")))
    return tuple(Failure.from_json(document) for document in documents if document is not None)


def settings_of(run: RunFolder) -> Settings:
    """What the plan says, with what recovery changed, and the arguments of `trainwiz` for the same run anew."""
    plan, changes = read_json(run.plan_json) or {}, changes_now(run)
    choices = [one for one in objects_in(plan.get("choices")) if isinstance(one.get("key"), str)]
    values = {one["key"]: one.get("value") for one in choices} | changes
    yours = {one["key"] for one in choices if one.get("origin") == "you" and one["key"] != "output_dir"} | {*changes}
    said_again = {key: value for key, value in values.items() if key in yours}
    profile, mode, again = plan.get("profile"), str(values.get("mode.kind")), list[str]()
    if isinstance(profile, str) or "model.name" in said_again:
        again += ["--profile", profile] if isinstance(profile, str) else []
        again += [MODES[mode]] if mode in MODES else []
        again += set_words(not_said_twice(said_again, {}))
    batch = object_in(plan.get("batch"))
    known = {field: values.get(key, batch.get(field)) for field, key in KEYS.items()}
    return Settings(**read_fields(Settings, {**known, "again": again}))


# Why a run is in the state that it is in.


def diagnose_run(run: RunFolder) -> tuple[str, Diagnosis]:
    """(state of the run, why it is in it). A run that goes on has no cause but where something ails it."""
    state = read_state(run)
    newest = state.newest
    code, log_offset = (newest.launcher_exit_code, newest.log_offset) if newest else (None, 0)
    evidence = attempt_evidence(run, read_failures(run), exit_code=code, log_offset=log_offset)
    if state.status == "prepared":
        text = tr("Start it with its script, from its folder: bash {script}", script=LAUNCH_SH)
        found = Diagnosis(None, "high", tr("This run was never started."), (), (Remedy(text),))
    elif state.status == "finished":
        found = _of_finished(state, evidence)
    elif state.is_active:
        found = _of_active(run, evidence)
    else:
        found = _of_ended(state, evidence)
    return state.status, found


def _of_active(run: RunFolder, evidence: Evidence) -> Diagnosis:
    log, phase, advice = evidence.log, read_phase(run), advice_of(AdviceFile.of(run).read())
    said = [Proof(None, clean(item.text), ADVICE_JSONL) for item in advice if item.level in ("error", "warning")]
    if phase is not None and phase.phase == "paused":
        proof = Proof(None, clean(phase.detail or phase.phase), PHASE_JSON)
        message = tr("The run is waiting: not enough disk space for a checkpoint.")
        return Diagnosis("disk_full", "high", message, (proof, *said), remedies_for("disk_full", evidence), phase.step)
    if (found := of_metrics(log)) is not None:
        return replace(found, evidence=(*found.evidence, *said), remedies=remedies_for("nan_loss", evidence))
    message = tr("The run is in progress.")
    if log.step is not None:
        message = tr("The run is in progress, at step {step}.", step=f"{log.step:,}")
    watch = Remedy(tr("Monitor it."), f"trainwiz monitor {evidence.run}")
    return Diagnosis(None, "high", message, tuple(said), (watch,), log.step)


def _of_finished(state: RunState, evidence: Evidence) -> Diagnosis:
    log = evidence.log
    if (found := of_metrics(log)) is not None:
        text = tr("The run finished, but its loss is NaN or infinite: its weights are useless.")
        # There is nothing to resume.
        return replace(found, message=text, remedies=remedies_for("nan_loss", replace(evidence, run=None)))
    message = clean(state.exit.message) if state.exit else tr("The training finished.")
    proofs = (log.proof(log.finished),) if log.finished else ()
    return Diagnosis(None, "high", message, proofs, step=log.step)


def _of_ended(state: RunState, evidence: Evidence) -> Diagnosis:
    """Stopped, failed or lost. The keeper saw what the machine no longer tells: what it recorded stands, with fresh proof."""
    newest, recorded, found = state.newest, state.exit, diagnose(evidence)
    message = clean(recorded.message) if recorded else found.message
    cause: Cause = "user_stop" if state.status == "stopped" else "unknown"
    if recorded and recorded.cause in CAUSES:
        cause = recorded.cause
    if state.status == "lost" and state.heartbeat_s is not None and state.heartbeat_s < boot_time_s():
        message = tr("{message} The machine was restarted after that.", message=message)
    if cause == found.cause:
        found = replace(found, message=message)
    elif cause != "unknown":
        said = recorded.evidence if recorded else ()
        proofs = tuple(Proof(None, clean(text), STATE_JSON) for text in said or (message,))
        remedies = remedies_for(cause, evidence, found.during, message)
        found = replace(found, cause=cause, confidence="high", message=message, evidence=proofs, remedies=remedies)
    elif found.cause is None or found.confidence == "low":
        remedies = remedies_for("unknown", evidence)
        found = replace(found, cause="unknown", confidence="low", message=message, remedies=remedies)
    if state.status == "stopped":
        # What the training itself said at its end; the log has only some of its steps.
        found = replace(found, step=whole_in((state.outcome or {}).get("step")) or found.step)
    if newest is not None and newest.not_retried:
        found = replace(found, evidence=(*found.evidence, Proof(None, clean(newest.not_retried), STATE_JSON)))
    return found
