"""What somebody named (a run, an attempt, a log, a folder) -> its evidence and diagnosis."""

from __future__ import annotations

import codecs
import errno
import io
import math
import os
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

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
    of_cause,
    sentence,
)
from trainwiz.core.diagnosis.diagnose import diagnose, of_metrics
from trainwiz.core.diagnosis.patterns import Place, remedies_for
from trainwiz.core.diagnosis.scan import LogScan, lines_in
from trainwiz.core.files import open_file
from trainwiz.core.language import tr
from trainwiz.core.plan.words import not_said_twice, set_words
from trainwiz.core.run.attempts import ADVICE_JSONL, PHASE_JSON, AdviceFile, cause_words, changes_now, read_phase
from trainwiz.core.run.folder import LAUNCH_SH, STATE_JSON, RunFolder, name_for_commands, read_json
from trainwiz.core.run.lost import boot_time_s
from trainwiz.core.run.state import Attempt, RunState, read_fields, read_state
from trainwiz.core.text import object_in

# A log on disk or from a pipe as facts, and what the kernel counts.


# What the kernel says about memory: the counter of its control group, where it may be read.

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


def killed_since(before: int | None) -> int | None:
    """Processes that the kernel has killed for memory since it had counted `before`; None where it does not tell."""
    now = kernel_oom_kills()
    return None if now is None or before is None else max(0, now - before)


def kernel_oom_kills() -> int | None:
    """Processes that the kernel has killed for memory in this control group so far; None where it does not tell.

    cgroup v2: memory.events, key oom_kill (https://docs.kernel.org/admin-guide/cgroup-v2.html).
    cgroup v1: memory.oom_control, the same key.
    """
    try:
        groups = OWN_CGROUP.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for group in groups:
        _, _, place = group.partition(":")
        controllers, _, path = place.partition(":")
        if not controllers:
            counted = _counted(CGROUPS / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            counted = _counted(CGROUPS / "memory" / path.lstrip("/") / "memory.oom_control")
        else:
            continue
        if counted is not None:
            return counted
    return None


def _counted(file: Path) -> int | None:
    try:
        lines = file.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    except (OSError, ValueError, IndexError, StopIteration, UnicodeDecodeError):
        return None


# A log on disk or from a pipe -> LogFacts: all of it is streamed, the end is read line by line.

BLOCK_BYTES = 1 << 18
END_BYTES = 1 << 21
"""Of the end, which has the last words: a failure before it was survived."""
SAMPLE_BYTES = 1 << 16
MOST_ODD = 0.05
"""Share of control characters in the sample above which a file is not text."""
_ODD = bytes(code for code in range(32) if code not in b"\t\n\r\f\b\x1b") + b"\x7f"


class NotALogError(OSError):
    """The file is not text."""


def read_log(path: Path, offset: int = 0, last_bytes: int | None = None) -> LogFacts:
    """The facts of the log from byte `offset` on, or of its last bytes, whose lines are then not counted from its
    beginning. Raises OSError with a reason, NotALogError for what is not text."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        first_line = 1
        if last_bytes is not None and size > last_bytes:
            offset = size - last_bytes
        elif offset > 0:
            first_line += sum(block.count(b"\n") for block in _blocks(file, min(offset, size)))
        file.seek(min(offset, size))
        return scan_stream(file, path.name, first_line=first_line)


def scan_stream(stream: BinaryIO, source: str, *, first_line: int = 1) -> LogFacts:
    """The facts of what can be read from `stream`, by its last END_BYTES or so. Raises NotALogError."""
    scan = LogScan(source)
    number, kept, size = first_line, deque[bytes](), 0
    for block in _as_utf8(stream):
        kept.append(block)
        size += len(block)
        while size - len(kept[0]) >= END_BYTES:
            size -= len(kept[0])
            number += kept.popleft().count(b"\n")
    for place, raw in enumerate(io.BytesIO(b"".join(kept))):
        for line in lines_in(_text(raw)):
            scan.feed(number + place, line)
    return scan.facts()


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        # Logs of Windows and of older Chinese systems; whatever it is, ASCII stays what it is.
        try:
            return raw.decode("gb18030")
        except UnicodeDecodeError:
            return raw.decode("utf-8", "replace")


def _blocks(stream: BinaryIO, most: float = math.inf) -> Iterator[bytes]:
    """The next `most` bytes."""
    while most > 0 and (block := stream.read(int(min(BLOCK_BYTES, most)))):
        most -= len(block)
        yield block


def _as_utf8(stream: BinaryIO) -> Iterator[bytes]:
    """Blocks of bytes without NULs, UTF-16 turned into UTF-8. Raises NotALogError."""
    sample = _read_sample(stream)
    blocks = chain([sample], _blocks(stream))
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
        yield from (decoder.decode(block).replace("\ufeff", "").encode("utf-8", "replace") for block in blocks)
        return
    _refuse_binary(sample)
    # Where a log was cut while it was written, or the machine went down, there are NULs in it.
    yield from (block.replace(b"\0", b"") for block in blocks)


def _read_sample(stream: BinaryIO) -> bytes:
    """The first bytes; a pipe may bring them in pieces, and a hole at the front of a file is passed over."""
    sample = b""
    while len(sample) < SAMPLE_BYTES:
        piece = stream.read(SAMPLE_BYTES - len(sample))
        if not piece:
            break
        sample += piece.lstrip(b"\0") if not sample else piece
    return sample


def _refuse_binary(sample: bytes) -> None:
    text = sample.replace(b"\0", b"")
    odd = len(text) - len(text.translate(None, _ODD))
    known = sample.startswith((b"PK\x03\x04", b"\x1f\x8b", b"\x7fELF", b"\x89PNG", b"%PDF", b"SQLite format 3"))
    if known or odd > MOST_ODD * max(len(text), 1) or len(text) < len(sample) / 4:
        raise NotALogError(errno.EINVAL, tr("it is not text"))


# The evidence of one attempt of a run, from its folder. The keeper takes it too: nothing heavy is loaded.

MODES: Mapping[str, str] = {"smoke": "--smoke", "dev-run": "--dev-run"}
_NOT_SAID_AGAIN = ("output_dir", "name", "mode.", "profile")


def attempt_evidence(
    run: RunFolder,
    *,
    exit_code: int | None,
    log_offset: int = 0,
    oom_kills: int | None = None,
    failures: tuple[Failure, ...] | None = None,
) -> Evidence:
    """All that the folder says about the attempt whose part of train.log begins at byte `log_offset`.

    `failures` None reads them.
    """
    return Evidence(
        run=name_for_commands(run.path),
        exit_code=exit_code,
        failures=read_failures(run) if failures is None else failures,
        log=log_of(run, log_offset),
        oom_kills=oom_kills,
        disk_free_bytes=_disk_free_bytes(run.path),
        settings=settings_of(run),
    )


def read_failures(run: RunFolder) -> tuple[Failure, ...]:
    """What the training processes wrote when they died of an exception, by rank."""
    documents = (read_json(path) for path in sorted(run.path.glob("failure-rank*.json")))
    return tuple(Failure.from_json(document) for document in documents if document is not None)


def log_of(run: RunFolder, offset: int = 0) -> LogFacts:
    """Of train.log; nothing where it cannot be read."""
    try:
        return read_log(run.train_log, offset)
    except OSError:
        return LogFacts(source=run.train_log.name)


def settings_of(run: RunFolder) -> Settings:
    """What the plan says, with what recovery changed."""
    plan = read_json(run.plan_json) or {}
    choices = [one for one in plan.get("choices") or () if isinstance(one, dict) and isinstance(one.get("key"), str)]
    values = {one["key"]: one.get("value") for one in choices}
    batch, changes = object_in(plan.get("batch")), changes_now(run)
    values |= changes
    known = {
        "micro_batch": values.get("batch.micro_batch_size", batch.get("micro_batch")),
        "accumulation": values.get("batch.gradient_accumulation_steps", batch.get("accumulation")),
        "workers": values.get("data.workers"),
        "sequence_length": values.get("batch.sequence_length", batch.get("sequence_length")),
        "learning_rate": values.get("training.learning_rate"),
        "precision": values.get("engine.precision"),
        "checkpointing": bool(values.get("engine.checkpointing")),
    }
    return Settings(**read_fields(Settings, known), again=_again(plan.get("profile"), choices, changes))


def _again(profile: Any, choices: list[dict[str, Any]], changes: Mapping[str, Any]) -> tuple[str, ...]:
    """Arguments of `trainwiz` for the same run anew: its profile, the user's own choices, what recovery changed."""
    yours = {
        one["key"]: one.get("value")
        for one in choices
        if one.get("origin") == "you" and not one["key"].startswith(_NOT_SAID_AGAIN)
    }
    yours |= changes
    words = ["--profile", profile] if isinstance(profile, str) else []
    if not words and "model.name" not in yours:
        return ()
    mode = str(next((one.get("value") for one in choices if one["key"] == "mode.kind"), ""))
    words += [MODES[mode]] if mode in MODES else []
    return (*words, *set_words(not_said_twice(yours, {})))


def _disk_free_bytes(path: Path) -> int | None:
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


def diagnose_run(run: RunFolder) -> tuple[str, Diagnosis]:
    """(state of the run, why it is in it). A run that goes on has no cause but where something ails it."""
    state = read_state(run)
    if state.status == "prepared":
        text = tr("Start it with its script, from its folder: bash {script}", script=LAUNCH_SH)
        return state.status, Diagnosis(None, "high", tr("This run was never started."), (), (Remedy(text),))
    if state.status == "stopped":
        return state.status, _of_stopped(run, state)
    if not state.is_active and state.status != "finished":
        return state.status, _of_failed(run, state)
    log = log_of(run, state.newest.log_offset if state.newest else 0)
    return state.status, (_of_active if state.is_active else _of_finished)(run, state, log)


def _of_active(run: RunFolder, state: RunState, log: LogFacts) -> Diagnosis:
    phase, place = read_phase(run), _place(run)
    said = [*_recovered(state.newest), *_advice(run)]
    if phase is not None and phase.phase == "paused":
        proof = Proof(None, clean(phase.detail or phase.phase), PHASE_JSON)
        message = sentence(tr("The run is waiting: not enough disk space for a checkpoint"))
        return Diagnosis("disk_full", "high", message, (proof, *said), remedies_for("disk_full", place), phase.step)
    if (found := of_metrics(log)) is not None:
        return replace(found, evidence=(*found.evidence, *said), remedies=remedies_for("nan_loss", place))
    words = {"starting": tr("The run is starting."), "stopping": tr("The run is stopping.")}
    message = words.get(state.status, tr("The run is in progress."))
    if state.status == "running" and log.step is not None:
        message = tr("The run is in progress, at step {step}.", step=f"{log.step:,}")
    if said:
        message = tr("{message} Its errors, warnings and restarts are listed below.", message=message)
    watch = Remedy(tr("Monitor it."), f"trainwiz monitor {place.run}")
    return Diagnosis(None, "high", message, tuple(said), (watch,), log.step)


def _recovered(newest: Attempt | None) -> Iterable[Proof]:
    if newest is not None and newest.because:
        text = tr("trainwiz started attempt {n} because {cause}", n=newest.number, cause=cause_words(newest))
        yield Proof(None, text, STATE_JSON)


def _advice(run: RunFolder) -> Iterable[Proof]:
    """What watchers say now."""
    for row in AdviceFile.of(run).read():
        text = row.get("text") or row.get("message")
        if isinstance(text, str) and row.get("severity") in ("error", "warning"):
            yield Proof(None, clean(text), ADVICE_JSONL)


def _of_finished(run: RunFolder, state: RunState, log: LogFacts) -> Diagnosis:
    message = state.exit.message if state.exit else tr("The training finished.")
    if (found := of_metrics(log)) is not None:
        text = tr("The run finished, but its loss is NaN or infinite: its weights are useless.")
        ways = remedies_for("nan_loss", _place(run))
        remedies = tuple(one for one in ways if "runs resume" not in (one.command or ""))
        return replace(found, message=text, remedies=remedies)
    proofs = (log.proof(log.finished),) if log.finished else ()
    return Diagnosis(None, "high", clean(message), proofs, (), log.step)


def _of_stopped(run: RunFolder, state: RunState) -> Diagnosis:
    message = clean(state.exit.message) if state.exit else of_cause("user_stop")
    step = (state.outcome or {}).get("step")
    remedies = remedies_for("user_stop", _place(run))
    proof = Proof(None, message, STATE_JSON)
    return Diagnosis("user_stop", "high", message, (proof,), remedies, step if isinstance(step, int) else None)


def _of_failed(run: RunFolder, state: RunState) -> Diagnosis:
    """Failed or lost. The keeper saw what the machine no longer tells: what it recorded stands, with fresh proof."""
    newest = state.newest
    code = newest.launcher_exit_code if newest else None
    evidence = attempt_evidence(run, exit_code=code, log_offset=newest.log_offset if newest else 0)
    found = diagnose(evidence)
    recorded = state.exit
    if recorded is not None and recorded.cause in CAUSES and recorded.cause != "unknown":
        found = _as_recorded(found, cast(Cause, recorded.cause), recorded.message, recorded.evidence, evidence)
    elif found.cause is None or found.cause == "unknown" or found.confidence == "low":
        found = _unknown(found, state, evidence.run or "")
    if newest is not None and newest.not_retried:
        found = replace(found, evidence=(*found.evidence, Proof(None, clean(newest.not_retried), STATE_JSON)))
    return found


def _as_recorded(found: Diagnosis, cause: Cause, message: str, said: tuple[str, ...], evidence: Evidence) -> Diagnosis:
    if found.cause == cause:
        return replace(found, message=clean(message) or found.message)
    proofs = tuple(Proof(None, clean(text), STATE_JSON) for text in (said or (message,)))
    place = Place(evidence.run, evidence.settings, found.during)
    return Diagnosis(
        cause, "high", clean(message), proofs, remedies_for(cause, place), found.step, found.rank, found.signal
    )


def _unknown(found: Diagnosis, state: RunState, run: str) -> Diagnosis:
    message = found.message
    if state.exit is not None and (found.signal is None or state.status == "lost"):
        message = clean(state.exit.message)
    if state.status == "lost" and state.heartbeat_s is not None and state.heartbeat_s < boot_time_s():
        message = tr("{message} The machine was restarted after that.", message=message)
    return replace(
        found,
        cause="unknown",
        confidence="low",
        message=message,
        remedies=remedies_for("unknown", Place(run, Settings())),
    )


def _place(run: RunFolder) -> Place:
    return Place(name_for_commands(run.path), settings_of(run))
