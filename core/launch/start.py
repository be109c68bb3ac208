"""start_run and stop_run: a run folder goes to a detached keeper, and the keeper is asked to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic
from trainwiz.core.config import RunConfig
from trainwiz.core.config.yaml_text import problems_of, read_yaml
from trainwiz.core.errors import CannotRunError, Finding, UsageError, os_reason, usage_error
from trainwiz.core.export.accelerate import launch_environment
from trainwiz.core.export.launch_script import export_files, launch_command
from trainwiz.core.files import read_small
from trainwiz.core.hardware.install import need
from trainwiz.core.language import chosen_language, tr, use_language
from trainwiz.core.run.attempts import RECOVERY_JSON, changes_now, not_usable, why_not_start
from trainwiz.core.run.checkpoints import newest_complete
from trainwiz.core.run.folder import (
    DEEPSPEED_JSON,
    LAUNCH_SH,
    RUN_MARK_VARIABLE,
    SUPERVISOR_LOG,
    RunFolder,
    name_for_commands,
    write_atomic,
)
from trainwiz.core.run.listing import record_run
from trainwiz.core.run.lost import ProcessId, machine_identity, this_process
from trainwiz.core.run.state import RunState, read_state
from trainwiz.core.supervise.attempt import not_written
from trainwiz.core.supervise.recovery import Setup, StartOrder
from trainwiz.core.text import parse_json

# start_run: hand a run folder to a detached keeper.

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
    CannotRunError when nothing can be trained in this environment, or the keeper could not start.
    """
    need()
    config = changed_config(folder)
    # The keeper asks again when it holds the lock; a run that is clearly taken needs no process to say so.
    refused = why_not_start(folder, read_state(folder), resume=resume is not None)
    if refused:
        raise usage_error("run_is_active", str(folder.path), refused)
    if resume is not None:
        refuse_differences(folder, config, resume, accept)
    if accept or folder.file(RECOVERY_JSON).exists():
        # Else a change of run.yaml that was accepted (other processes) would not reach the launcher, and a keeper that
        # was killed, or a full disk, may have left other files.
        try:
            prepare_again(folder)
        except OSError as error:
            message = not_written(os_reason(error))
            raise CannotRunError(Finding("folder_not_usable", "error", str(folder.path), message)) from None
    order = StartOrder(
        **starts_with(config),
        mark=uuid.uuid4().hex,
        system_every_s=config.logging.system_every_s,
        resume=resume,
        owner=this_process() if tied_to_caller else None,
        accept=list(accept),
        renew=[sys.executable, "-P", "-m", "trainwiz.core.launch.start", str(folder.path.resolve())],
    )
    answer = start_keeper(folder, order)
    if answer.get("ok"):
        record_run(folder)
        return
    finding = Finding(str(answer.get("error")), "error", str(folder.path), str(answer.get("message")))
    raise UsageError(finding) if finding.code in REFUSED_AS_USAGE else CannotRunError(finding)


def refuse_differences(folder: RunFolder, config: RunConfig, resume: str, accept: Sequence[str]) -> None:
    """Raises UsageError with all that is no longer as the run began and that `accept` does not allow.

    Rows and tokenizer are compared by the training itself, which also records what was accepted.
    """
    from trainwiz.core.run.identity import compare, recorded_identity, refuse, settings_now

    checkpoint = newest_complete(folder) if resume == "auto" else folder.path / resume
    recorded = recorded_identity(folder, checkpoint)
    if recorded is not None:
        refuse(folder, compare(recorded.settings, settings_now(config, folder.path)), accept)


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
        eval_micro_batch_size=batch.eval_micro_batch_size,
        workers=config.data.workers or 0,
        overfit_batches=config.mode.overfit_batches,
    )


def starts_with(config: RunConfig) -> dict[str, Any]:
    """`command`, `environment` and `setup` of a StartOrder."""
    return {
        "command": own_launcher(launch_command(config)),
        "environment": training_variables(config, os.environ),
        "setup": setup_of(config),
    }


def own_launcher(command: list[str]) -> list[str]:
    """The exported launch command (`accelerate launch ...` or `python -m ...`) with this interpreter in place of the
    one that PATH would give."""
    # Without --quiet: the launcher's last words are the only trace of a training process that was killed.
    # -P: a run folder may have been made by somebody else, and Python would import modules that lie in it.
    launches = command[:2] == ["accelerate", "launch"]
    return [sys.executable, "-P", "-m", *(["accelerate.commands.launch"] if launches else []), *command[2:]]


def read_run_config(folder: RunFolder) -> RunConfig:
    """run.yaml as RunConfig. Raises UsageError with line or key when it was broken by hand."""
    path = folder.run_yaml
    if not path.exists():
        message = tr("{path} is not a run: it has no run.yaml.", path=folder.path)
        raise usage_error("not_a_run", str(folder.path), message)
    try:
        return RunConfig.model_validate(read_yaml(path).values)
    except pydantic.ValidationError as error:
        findings = [
            Finding("broken_run_yaml", "error", one.where, tr("{path}, {problem}", path=path, problem=one.message))
            for one in problems_of(error)
        ]
        raise UsageError(findings) from None


def changed_config(folder: RunFolder) -> RunConfig:
    """The RunConfig of the newest attempt: run.yaml with recovery.json. Raises UsageError when one of them is broken."""
    config = read_run_config(folder)
    try:
        changes = changes_now(folder)
        return config.with_values(changes, "solved", dict.fromkeys(changes, "recovery"))
    except (pydantic.ValidationError, KeyError) as error:
        path, reason = folder.file(RECOVERY_JSON), " ".join(str(error).split())
        message = tr("{path} contains changes that run.yaml does not allow: {reason}.", path=path, reason=reason)
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
        said, _ = keeper.communicate(order.to_text().encode())
        return dict(json.loads(said))
    except OSError as error:
        message = tr("The run in {path} could not be started: {reason}.", path=folder.path, reason=os_reason(error))
    except (TypeError, ValueError):
        message = tr("The supervisor of the run did not start. See {path}.", path=log_path)
    return {"error": "keeper_failed", "message": message}


# `python -m trainwiz.core.launch.start FOLDER`: the next attempt of a run that recovery has changed.
#
# Writes the exported files for the settings of recovery.json and prints one line of JSON: {"command",
# "environment"} of the new start, or {"error"}: one sentence. The keeper runs it as a child,
# because it must not load the configuration itself.

BATCH_KEYS = {
    "train_micro_batch_size_per_gpu": "micro_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}
"""Key of a DeepSpeed file -> field of `batch`."""


def prepare_again(run: RunFolder) -> RunConfig:
    """Write what the newest attempt needs; its config. Raises UsageError and OSError."""
    config = changed_config(run)
    written = config.model_copy(deep=True)
    if config.engine.deepspeed_file is not None:
        # It is named relative to the run folder.
        own = run.file(DEEPSPEED_JSON)
        written.engine.deepspeed_file = str(own.resolve())
        # A file of the user's keeps all that it says but the numbers of the batch, where it names them itself.
        document = parse_json(read_small(own).decode())
        numbers = {
            key: getattr(config.batch, field) for key, field in BATCH_KEYS.items() if isinstance(document.get(key), int)
        }
        if any(document[key] != value for key, value in numbers.items()):
            write_atomic(own, json.dumps({**document, **numbers}, indent=2) + "\n")
    for name, text in export_files(written).items():
        write_atomic(run.file(name), text)
    run.file(LAUNCH_SH).chmod(0o755)
    return config


def main() -> int:
    use_language(chosen_language(None, os.environ))
    run = RunFolder(Path(sys.argv[1]).resolve())
    answer: dict[str, Any]
    try:
        answer = starts_with(prepare_again(run))
        # The keeper knows what it changes of the setup.
        del answer["setup"]
    except UsageError as error:
        answer = {"error": " ".join(finding.message for finding in error.findings)}
    except OSError as error:
        answer = {"error": not_usable(run, error)}
    print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())


# stop_run: ask the keeper of a run to stop it.

POLL_S = 0.2
AFTER_GRACE_S = 30.0
FORCE_AFTER_S = 25.0
"""A keeper that runs kills all of a run in less."""


def stop_run(folder: RunFolder, *, now: bool = False, wait_s: float | None = None) -> RunState:
    """Stop an active run: finish the step, save, end; with `now` end at once without a checkpoint.

    Waits until it has ended, at most `wait_s` seconds (None: as long as a graceful stop may take),
    and returns the state then. A run that is not active is left as it is. Asking twice for a
    graceful stop is the same as asking once. Raises CannotRunError for a run on another machine or
    of another user.
    """
    state = read_state(folder)
    if not state.is_active or state.supervisor is None:
        return state
    if state.machine != machine_identity():
        message = tr(
            "{name} is running on {host}; stop it there: {command}",
            name=folder.path.name,
            host=state.host,
            command=f"trainwiz runs stop {name_for_commands(folder.path)}",
        )
        raise CannotRunError(Finding("run_elsewhere", "error", str(folder.path), message))
    if now:
        _send(folder, state.supervisor, signal.SIGUSR1)
    elif state.stop is None:
        _send(folder, state.supervisor, signal.SIGTERM)
    return wait_for_end(folder, wait_s, force=now)


def wait_for_end(folder: RunFolder, wait_s: float | None = None, *, force: bool = False) -> RunState:
    """The state once the run has ended, or after `wait_s` seconds; None: as long as a graceful stop may take.

    That may grow meanwhile: the keeper reckons the window of the stop again as it measures. With `force` a keeper that
    has not ended the run in FORCE_AFTER_S is killed, and its guard ends all the processes of the run.
    """
    began = time.monotonic()
    while True:
        state = read_state(folder)
        waited_s = time.monotonic() - began
        if force and waited_s >= FORCE_AFTER_S and state.is_active and state.supervisor is not None:
            _send(folder, state.supervisor, signal.SIGKILL)
            force = False
        patience_s = state.grace_s + AFTER_GRACE_S if wait_s is None else wait_s
        if not state.is_active or waited_s >= patience_s:
            return state
        time.sleep(POLL_S)


def _send(folder: RunFolder, keeper: ProcessId, number: int) -> None:
    """A signal to the keeper and to no process that has its number since."""
    try:
        if keeper.is_alive():
            os.kill(keeper.pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        message = tr("{name} belongs to another user; only that user can stop it.", name=folder.path.name)
        raise CannotRunError(Finding("not_your_run", "error", folder.path.name, message)) from None
