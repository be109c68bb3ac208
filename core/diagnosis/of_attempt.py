"""The evidence of one attempt of a run, from its folder. The keeper takes it too: nothing heavy is loaded."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwiz.core.diagnosis.evidence import Evidence, Failure, KernelFacts, Settings
from trainwiz.core.diagnosis.facts import LogFacts
from trainwiz.core.diagnosis.log_file import read_log
from trainwiz.core.diagnosis.remedies import settings_from
from trainwiz.core.plan.set_words import not_said_twice, set_words
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.run.names import name_for_commands
from trainwiz.core.run.recovery import changes_now

MODES: Mapping[str, str] = {"smoke": "--smoke", "dev-run": "--dev-run"}
_NOT_SAID_AGAIN = ("output_dir", "name", "mode.", "profile")


def attempt_evidence(
    run: RunFolder,
    *,
    exit_code: int | None,
    log_offset: int = 0,
    kernel: KernelFacts | None = None,
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
        kernel=kernel or KernelFacts(),
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
    batch, changes = plan.get("batch"), changes_now(run)
    return settings_from(
        {**values, **changes}, batch if isinstance(batch, dict) else {}, _again(plan.get("profile"), choices, changes)
    )


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
