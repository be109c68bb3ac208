"""start_run: hand a run folder to a detached keeper."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic
import yaml
from trainwiz.core.config import RunConfig
from trainwiz.core.config.effective import with_recovery
from trainwiz.core.config.refused import problems_of
from trainwiz.core.config.yaml_text import load_yaml
from trainwiz.core.diagnosis.words import clean
from trainwiz.core.errors import CannotRunError, UsageError, os_reason, usage_error
from trainwiz.core.export.launch_script import launch_command, launch_environment
from trainwiz.core.findings import Finding
from trainwiz.core.language import tr
from trainwiz.core.run.checkpoints import newest_complete
from trainwiz.core.run.folder import RUN_MARK_VARIABLE, SUPERVISOR_LOG, RunFolder
from trainwiz.core.run.processid import this_process
from trainwiz.core.run.recovery import RECOVERY_JSON
from trainwiz.core.run.refusal import why_not_start
from trainwiz.core.run.registry import record_run
from trainwiz.core.run.state import read_state
from trainwiz.core.small_file import read_small
from trainwiz.core.supervise.order import StartOrder
from trainwiz.core.supervise.recovery import Setup
from trainwiz.core.supervise.renewing import CannotRenew, not_written, renew

REFUSED_AS_USAGE = frozenset({"run_is_active", "cannot_resume"})


def start_run(
    folder: RunFolder, *, resume: str | None = None, tied_to_caller: bool = False, accept: Sequence[str] = ()
) -> None:
    """Start the training of a prepared folder, or go on with one that has ended, in a process of its own.

    `resume`: None for a first start, "auto" for the newest complete checkpoint, else a checkpoint's
    name. `tied_to_caller` stops the run (with a checkpoint) when the calling process is gone, however
    it ended; without it the run goes on alone. Returns when the state is `starting`.

    `accept` names parts of its identity that may be others than those it began with (core.run.identity).
    Raises UsageError when the run is active, was started before, the checkpoint is not complete, or
    something of its identity has changed and is not accepted;
    CannotRunError when the keeper could not start.
    """
    config = changed_config(folder)
    # The keeper asks again when it holds the lock; a run that is clearly taken needs no process to say so.
    refused = why_not_start(folder, read_state(folder), resume=resume is not None, lock_is_mine=True)
    if refused:
        raise usage_error("run_is_active", str(folder.path), refused)
    notes = accepted_differences(folder, config, resume, accept) if resume is not None else []
    renewing = [sys.executable, "-P", "-m", "trainwiz.core.launch.again", str(folder.path.resolve())]
    if notes or folder.file(RECOVERY_JSON).exists():
        write_files_again(folder, renewing)
    order = StartOrder(
        command=own_launcher(launch_command(config)),
        mark=uuid.uuid4().hex,
        environment=training_variables(config, os.environ),
        system_every_s=config.logging.system_every_s,
        resume=resume,
        owner=this_process() if tied_to_caller else None,
        setup=setup_of(config),
        accept=list(accept),
        notes=notes,
        renew=renewing,
    )
    answer = start_keeper(folder, order)
    if answer.get("ok"):
        record_run(folder)
        return
    finding = Finding(str(answer.get("error")), "error", str(folder.path), str(answer.get("message")))
    raise UsageError(finding) if finding.code in REFUSED_AS_USAGE else CannotRunError(finding)


def write_files_again(folder: RunFolder, renewing: Sequence[str]) -> None:
    """The exported files as run.yaml and recovery.json have them.

    Else a change of run.yaml that was accepted (other processes) would not reach the launcher, and a keeper that was
    killed, or a full disk, may have left others. Raises CannotRunError.
    """
    try:
        renew(renewing, {})
    except (CannotRenew, OSError) as error:
        said = str(error) if isinstance(error, CannotRenew) else not_written(os_reason(error))
        raise CannotRunError(Finding("folder_not_usable", "error", str(folder.path), said)) from None


def accepted_differences(folder: RunFolder, config: RunConfig, resume: str, accept: Sequence[str]) -> list[str]:
    """A sentence for each difference between the run as it began and as it is now, where `accept` allows it.

    Raises UsageError with all the others. Rows and tokenizer are compared by the training itself.
    """
    from trainwiz.core.run.identity import compare, recorded_identity, refuse
    from trainwiz.core.run.identity_now import settings_now

    if read_state(folder).is_active:
        return []
    checkpoint = newest_complete(folder) if resume == "auto" else folder.path / resume
    recorded = recorded_identity(folder, checkpoint)
    if recorded is None:
        return []
    differences = compare(recorded.settings, settings_now(config, folder.path))
    return [
        tr("Accepted at a resume: {difference}.", difference=one.text) for one in refuse(folder, differences, accept)
    ]


def training_variables(config: RunConfig, callers: Mapping[str, str]) -> dict[str, str]:
    """The run's environment variables. Without a choice of GPUs in the run, the caller's CUDA_VISIBLE_DEVICES
    says which ones; a run takes as many of them as it has processes."""
    variables = launch_environment(config)
    visible = callers.get("CUDA_VISIBLE_DEVICES", "")
    if config.engine.device == "cuda" and not config.engine.gpus and visible:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(visible.split(",")[: config.engine.processes or 1])
    return variables


def setup_of(config: RunConfig) -> Setup | None:
    """What the keeper may change of a run, as plain values; None for a config that no plan has completed."""
    batch = config.batch
    if batch.micro_batch_size is None or batch.gradient_accumulation_steps is None:
        return None
    return Setup(
        on=config.recovery.on,
        max_restarts=config.recovery.max_restarts,
        micro_batch_size=batch.micro_batch_size,
        gradient_accumulation_steps=batch.gradient_accumulation_steps,
        processes=config.engine.processes or 1,
        eval_micro_batch_size=batch.eval_micro_batch_size,
        workers=config.data.workers or 0,
        overfit_batches=config.mode.overfit_batches,
    )


def own_launcher(command: list[str]) -> list[str]:
    """The exported launch command with this interpreter's accelerate in place of the one that PATH would give."""
    # Without --quiet: the launcher's last words are the only trace of a training process that was killed.
    # -P: a run folder may have been made by somebody else, and Python would import modules that lie in it.
    own = [sys.executable, "-P", "-m", "accelerate.commands.launch"]
    if command[:2] == ["accelerate", "launch"]:
        return own + command[2:]
    if own[-1] in command[2:4]:
        return own + command[command.index(own[-1]) + 1 :]
    if command[:2] == ["python", "-m"]:
        return [sys.executable, "-P", *command[1:]]
    return list(command)


def read_run_config(folder: RunFolder) -> RunConfig:
    """run.yaml as RunConfig. Raises UsageError with line or key when it was broken by hand."""
    path = folder.run_yaml
    try:
        document = load_yaml(read_small(path).decode())
        return RunConfig.model_validate(document)
    except FileNotFoundError:
        message = tr("{path} is not a run: it holds no run.yaml.", path=folder.path)
        raise usage_error("not_a_run", str(folder.path), message) from None
    except OSError as error:
        message = tr("{path} cannot be read: {reason}.", path=path, reason=os_reason(error))
        raise usage_error("broken_run_yaml", str(path), message) from None
    except UnicodeDecodeError:
        raise usage_error("broken_run_yaml", str(path), tr("{path} is not UTF-8 text.", path=path)) from None
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or tr("it is not YAML")
        message = tr("{path} is broken: {reason}.", path=path, reason=reason)
        if place:
            message = tr(
                "{path} is broken at line {line}, column {column}: {reason}.",
                path=path,
                line=place.line + 1,
                column=place.column + 1,
                reason=reason,
            )
        raise usage_error("broken_run_yaml", str(path), message) from None
    except pydantic.ValidationError as error:
        findings = [
            Finding("broken_run_yaml", "error", key or str(path), tr("{path}, {problem}", path=path, problem=sentence))
            for key, sentence in problems_of(error)
        ]
        raise UsageError(findings) from None


def changed_config(folder: RunFolder) -> RunConfig:
    """The RunConfig of the newest attempt: run.yaml with recovery.json. Raises UsageError when one of them is broken."""
    config = read_run_config(folder)
    try:
        return with_recovery(config, folder)
    except (pydantic.ValidationError, KeyError) as error:
        path, reason = folder.file(RECOVERY_JSON), " ".join(str(error).split())
        message = tr("{path} holds changes that run.yaml cannot take: {reason}.", path=path, reason=reason)
        raise usage_error("broken_recovery", str(path), message) from None


def start_keeper(folder: RunFolder, order: StartOrder) -> dict[str, Any]:
    """Start `python -m trainwiz.core.supervise` in a session of its own and read its answer."""
    path = folder.path.resolve()
    log_path = folder.file(SUPERVISOR_LOG)
    environment = {**os.environ, RUN_MARK_VARIABLE: order.mark}
    try:
        with log_path.open("ab") as log:
            keeper = subprocess.Popen(
                # -P: a file of the user's in the working folder never stands in for a library.
                [sys.executable, "-P", "-m", "trainwiz.core.supervise", str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
    except OSError as error:
        return {
            "error": "keeper_failed",
            "message": tr(
                "The run in {path} could not be started: {reason}.", path=folder.path, reason=os_reason(error)
            ),
        }
    said, _ = keeper.communicate(order.to_text().encode())
    try:
        answer = json.loads(said)
        return answer if isinstance(answer, dict) else {}
    except ValueError:
        last = _last_line(log_path)
        reason = last or tr("it said nothing")
        message = tr("The keeper of the run did not start ({reason}). See {path}.", reason=reason, path=log_path)
        return {"error": "keeper_failed", "message": message}


def _last_line(path: Path) -> str:
    try:
        lines = read_small(path).decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return clean(lines[-1]) if lines else ""
