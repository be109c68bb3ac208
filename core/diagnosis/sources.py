"""What somebody named (a run, an attempt, a log, a folder) -> its evidence and diagnosis."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

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
from trainwiz.core.diagnosis.log_file import read_log
from trainwiz.core.diagnosis.patterns import Place, remedies_for
from trainwiz.core.language import tr
from trainwiz.core.plan.words import not_said_twice, set_words
from trainwiz.core.run.attempts import ADVICE_JSONL, PHASE_JSON, AdviceFile, cause_words, changes_now, read_phase
from trainwiz.core.run.folder import LAUNCH_SH, STATE_JSON, RunFolder, name_for_commands, read_json
from trainwiz.core.run.lost import boot_time_s
from trainwiz.core.run.state import Attempt, RunState, read_fields, read_state
from trainwiz.core.text import object_in

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
